"""What the maps of one attention call are computed from: queries, keys, and the rules that turn them into weights."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError


class FactorArray(Protocol):
    """An array that is cut before it is read: one in memory, or a part of a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""

    def __getitem__(self, index: Any) -> Any:
        """The part of it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Factors:
    """Queries, keys and the rules of one attention call.

    A score is ``q·k · scale``, then ``softcap · tanh(score / softcap)``, then the bias added. A weight is
    ``exp(score − logsumexp)`` where the mask shows the cell.

    Attributes:
        queries: ``(heads, queries, features)``.
        keys: ``(key heads, keys, features)``; grouped queries share one and are never expanded.
        key_heads: ``(heads,)``, which of the key heads each head reads.
        scale: what q·k is multiplied by.
        logsumexp: ``(heads, queries)``, natural logarithm of the softmax's denominator, the sink included;
            −inf where a query sees nothing.
        mask: which cells are visible.
        bias: what is added to the scores.
        softcap: the soft limit of the scores; ``None`` for none.
        sink: ``(heads,)``, a score beside every row that takes weight and is no key; ``None`` for none.
        device: the torch device that computes overviews and metrics, which is where the model was; ``None`` for numpy,
            as of maps that come from a file.
    """

    queries: FactorArray
    keys: FactorArray
    key_heads: tuple[int, ...]
    scale: float
    logsumexp: FactorArray
    mask: Mask = field(default_factory=Mask)
    bias: Bias = field(default_factory=Bias)
    softcap: float | None = None
    sink: FloatArray | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        for array in (self.queries, self.keys, self.logsumexp, self.sink):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def refuse_unlike(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError where a part is not of the maps' shape."""
        features = self.queries.shape[-1]
        key_heads = 1 + max(self.key_heads, default=-1)
        for name, expected in (
            ("queries", (heads, queries, features)),
            ("keys", (max(key_heads, self.keys.shape[0]), keys, features)),
            ("logsumexp", (heads, queries)),
        ):
            shape = tuple(getattr(self, name).shape)
            if shape != expected:
                raise AttnvizError(f"{name} of shape {shape}, expected {expected}")
        if len(self.key_heads) != heads:
            raise AttnvizError(f"{heads} heads need as many key heads")
        self.bias.refuse_unlike(heads, queries, keys)

    def reference(self, place: int, queries: slice) -> FloatArray:
        """The log-sum-exp of each query, ``(queries, 1)``; +inf where it sees nothing, so that its weights are 0."""
        held = np.asarray(self.logsumexp[place, queries], dtype=np.float32)
        return np.where(np.isneginf(held), np.float32(np.inf), held).astype(np.float32)[:, None]
