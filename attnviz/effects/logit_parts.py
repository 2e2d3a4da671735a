"""Defines the table of what each part of a model adds to the logit of a token."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from attnviz.base.arrays import FloatArray

PartKind = Literal["head", "mlp", "embedding", "bias", "other"]


@dataclass(frozen=True, eq=False)
class LogitPart:
    """A part of a model with what it adds to the logit."""

    name: str  # ``2.8`` for a head, ``2.mlp``, ``2.bias``, or the name of another part
    kind: PartKind  # the kind of the part
    adds: float  # the number that the part adds to the logit
    layer: int | None = None  # the number of its layer; ``None`` outside of layers
    head: int | None = None  # the number of a head in its layer; ``None`` for other parts
    # ``(keys,)``, what a head adds for each key, which sums to ``adds``; ``None`` if unknown
    keys: FloatArray | None = None
    module: str = ""  # the path of a head's attention module; "" for other parts

    @property
    def is_cross(self) -> bool:
        """True for a head of cross-attention."""
        return self.name.startswith("cross ")


@dataclass(frozen=True, eq=False, kw_only=True)
class LogitParts:
    """A token's logit as a sum over the parts of a model, from the embedding to the last bias.

    Attributes:
        parts: the parts in the order of the model.
        logit: the logit that the model computed.
        difference: the absolute difference between the sum of the parts and the logit.
        token: the id of the token.
        versus: the id of the token whose logit is subtracted; ``None`` for a single logit.
        versus_label: its label.
        position: the index of the token after which it is predicted.
        frozen: the paths of modules whose factors are frozen, the norm before the unembedding first.
        capped: True if ``logit`` is the one before a soft cap.
        label: the label of the token.
        key_labels: the labels of the keys, among them the token at ``position``.
        context_labels: the labels of the keys of cross-attention, in an encoder-decoder.
        model: the name or path of the model.
        remarks: sentences about the numbers for the reader.
        silent_layers: what layers without attention compute, by number.
    """

    parts: tuple[LogitPart, ...]
    logit: float
    difference: float
    token: int
    position: int
    frozen: tuple[str, ...]
    capped: bool = False
    label: str = ""
    versus: int | None = None
    versus_label: str = ""
    key_labels: tuple[str, ...] = ()
    context_labels: tuple[str, ...] = ()
    model: str = ""
    remarks: tuple[str, ...] = ()
    silent_layers: Mapping[int, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> LogitPart:
        """Returns the part with this name, such as ``2.8`` or ``2.mlp``; it must be in the table."""
        return next(part for part in self.parts if part.name == name)

    @property
    def heads(self) -> tuple[LogitPart, ...]:
        """The parts that are heads."""
        return tuple(part for part in self.parts if part.kind == "head")

    def sorted(self) -> tuple[LogitPart, ...]:
        """Returns the parts, the largest in size first."""
        return tuple(sorted(self.parts, key=lambda part: -abs(part.adds)))

    def labels_of(self, part: LogitPart) -> tuple[str, ...]:
        """Returns the labels of a part's keys, or their indices if no labels are known; empty if it has no keys."""
        count = 0 if part.keys is None else len(part.keys)
        labels = self.context_labels if part.is_cross else self.key_labels
        return labels if len(labels) == count else tuple(map(str, range(count)))

    def as_json(self) -> dict[str, Any]:
        """Returns all fields as JSON values; the keys of a part are ``None`` if they are unknown."""
        return {
            "format": "attnviz logit",
            "version": 1,
            "model": self.model,
            "token": self.token,
            "label": self.label,
            "versus": self.versus,
            "versus_label": self.versus_label,
            "position": self.position,
            "logit": self.logit,
            "difference": self.difference,
            "frozen": list(self.frozen),
            "before_soft_cap": self.capped,
            "keys": list(self.key_labels),
            "context": list(self.context_labels),
            "remarks": list(self.remarks),
            "parts": [
                {
                    "part": part.name,
                    "kind": part.kind,
                    "module": part.module,
                    "adds": part.adds,
                    "layer": part.layer,
                    "head": part.head,
                    "keys": None if part.keys is None else [float(term) for term in np.asarray(part.keys)],
                }
                for part in self.parts
            ],
        }

    def as_rows(self) -> list[list[str]]:
        """Returns a header and a row of text per part; the last columns hold the terms of a head's keys."""
        key_count = max((len(part.keys) for part in self.heads if part.keys is not None), default=0)
        rows = [["part", "kind", "module", "adds", *(f"key {key}" for key in range(key_count))]]
        for part in self.parts:
            terms = [] if part.keys is None else [repr(float(term)) for term in part.keys]
            rows.append([part.name, part.kind, part.module, repr(part.adds), *terms, *[""] * (key_count - len(terms))])
        return rows
