"""What each part of a model adds to the logit of a token, as a table of numbers."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from attnviz.base.arrays import FloatArray

PartKind = Literal["head", "mlp", "embedding", "bias", "other"]


@dataclass(frozen=True, eq=False)
class LogitPart:
    """What one part of a model adds.

    Attributes:
        name: ``2.8`` of a head, ``2.mlp``, ``2.bias``, or that of an embedding.
        kind: what it is.
        adds: to the logit.
        layer: the number of its block, ``None`` outside of them.
        head: of a head, its number in the layer.
        keys: of a head, what it adds of each key, ``(keys,)``, which sum to ``adds``; ``None`` where not known.
    """

    name: str
    kind: PartKind
    adds: float
    layer: int | None = None
    head: int | None = None
    keys: FloatArray | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class LogitParts:
    """What the parts of a model add to the logit of a token, from the embedding to the last bias.

    Attributes:
        parts: in the order of the model.
        logit: what they sum to, as the model gave it.
        difference: how far their sum is from that.
        token: the number of the token.
        position: the token whose next one is predicted.
        frozen: the modules whose factors are held, the norm before the unembedding first.
        capped: whether the logit is that before a soft cap.
        label: how the token is written.
        key_labels: how the keys are written, and the token at the position among them.
        context_labels: how the keys of another text are, of an encoder-decoder.
        model: a name or a path.
        title: of the text.
        remarks: what a reader must know.
    """

    parts: tuple[LogitPart, ...]
    logit: float
    difference: float
    token: int
    position: int
    frozen: tuple[str, ...]
    capped: bool = False
    label: str = ""
    key_labels: tuple[str, ...] = ()
    context_labels: tuple[str, ...] = ()
    model: str = ""
    title: str = ""
    remarks: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> LogitPart:
        """The part of this name, as ``2.8`` or ``2.mlp``."""
        return next(part for part in self.parts if part.name == name)

    @property
    def heads(self) -> tuple[LogitPart, ...]:
        """The heads alone."""
        return tuple(part for part in self.parts if part.kind == "head")

    def sorted(self) -> tuple[LogitPart, ...]:
        """The parts, what adds or takes most first."""
        return tuple(sorted(self.parts, key=lambda part: -abs(part.adds)))

    def labels_of(self, part: LogitPart) -> tuple[str, ...]:
        """How the keys of a head are written."""
        count = 0 if part.keys is None else len(part.keys)
        labels = self.context_labels if part.name.startswith("cross ") else self.key_labels
        return labels if len(labels) == count else tuple(map(str, range(count)))

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "format": "attnviz logit",
            "version": 1,
            "model": self.model,
            "token": self.token,
            "label": self.label,
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
                    "adds": part.adds,
                    "layer": part.layer,
                    "head": part.head,
                    "keys": None if part.keys is None else [float(each) for each in np.asarray(part.keys)],
                }
                for part in self.parts
            ],
        }

    def as_rows(self) -> list[list[str]]:
        """The parts as rows of text behind a header; of heads what each key adds stands in further columns."""
        wide = max((len(part.keys) for part in self.heads if part.keys is not None), default=0)
        return [
            ["part", "kind", "adds", *(f"key {key}" for key in range(wide))],
            *(_row(each, wide) for each in self.parts),
        ]


def _row(part: LogitPart, wide: int) -> list[str]:
    keys = [] if part.keys is None else [repr(float(each)) for each in part.keys]
    return [part.name, part.kind, repr(part.adds), *keys, *[""] * (wide - len(keys))]
