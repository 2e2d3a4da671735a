"""Holds the factors of one attention call: queries, keys, and the rules that turn them into weights."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError


class FactorArray(Protocol):
    """An array in memory or in a file; indexing reads only the indexed part."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""

    def __getitem__(self, index: Any) -> Any:
        """Reads the indexed part."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreFactors:
    """Queries and keys of one attention call, whose scaled products are the scores before a soft cap and a bias."""

    queries: FactorArray  # ``(heads, queries, features)``
    keys: FactorArray  # ``(key heads, keys, features)``; heads of grouped-query attention share a key head, stored once
    key_heads: tuple[int, ...]  # ``(heads,)``, index of the key head that each head reads
    scale: float  # factor of q·k

    def refuse_mismatch(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError if the shape of an array or the length of ``key_heads`` does not fit the maps."""
        features = self.queries.shape[-1]
        # There may be more key heads than the heads read, but not fewer.
        key_heads = max(1 + max(self.key_heads, default=-1), self.keys.shape[0])
        expected_shapes = {"queries": (heads, queries, features), "keys": (key_heads, keys, features)}
        for name, expected_shape in expected_shapes.items():
            shape = tuple(getattr(self, name).shape)
            if shape != expected_shape:
                raise AttnvizError(f"{name} has shape {shape}, not {expected_shape}")
        if len(self.key_heads) != heads:
            raise AttnvizError(f"{heads} heads, but key_heads has {len(self.key_heads)} entries; give one per head")


@dataclass(frozen=True, eq=False, kw_only=True)
class Factors(ScoreFactors):
    """Queries, keys and the rules of one attention call, from which any part of its maps can be computed.

    A score is ``q·k · scale``, then ``softcap · tanh(score / softcap)`` if there is a soft cap, plus the bias.
    A weight is ``exp(score − logsumexp)`` if the mask shows the cell, else 0.
    """

    # ``(heads, queries)``, natural logarithm of the softmax's denominator, including the sink; −inf if a query sees no
    # key
    logsumexp: FactorArray
    mask: Mask = field(default_factory=Mask)  # rules that decide which cells are visible
    bias: Bias = field(default_factory=Bias)  # term that is added to the scores
    softcap: float | None = None  # soft limit of the scores; ``None`` for none
    # ``(heads,)``, an extra score in every row's softmax that takes weight but is no key; ``None`` for none
    sink: FloatArray | None = None
    # the torch device of the model, which also computes overviews and metrics; ``None`` for numpy, as for maps from a
    # file
    device: str | None = None

    def __post_init__(self) -> None:
        for array in (self.queries, self.keys, self.logsumexp, self.sink):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def refuse_mismatch(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError if the shape of an array or of the bias, or the length of ``key_heads``, does not fit."""
        super().refuse_mismatch(heads, queries, keys)
        if tuple(self.logsumexp.shape) != (heads, queries):
            raise AttnvizError(f"logsumexp has shape {tuple(self.logsumexp.shape)}, not {(heads, queries)}")
        self.bias.refuse_mismatch(heads, queries, keys)

    def logsumexp_or_inf(self, head_index: int, queries: slice) -> FloatArray:
        """Returns one head's log-sum-exp, ``(queries, 1)``; +inf if a query sees no key, so its weights are 0."""
        logsumexp = np.asarray(self.logsumexp[head_index, queries], dtype=np.float32)
        return np.where(np.isneginf(logsumexp), np.float32(np.inf), logsumexp).astype(np.float32)[:, None]
