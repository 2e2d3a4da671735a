"""Defines what is streamed: queries, keys and rules go in, and an overview comes out, whose pixels stand for blocks."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import BoolArray, FloatArray, IntArray
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


MAX_BAND_CELLS = 2**22  # cells that are pooled at once


@dataclass(frozen=True, eq=False)
class Overview:
    """Weights pooled to pixels, each over the visible cells of its block."""

    mean: FloatArray  # ``(heads, height, width)``
    maximum: FloatArray  # ``(heads, height, width)``; all 0 if it was not computed
    # ``(height, width)``, true if any cell of the block is visible; ``(heads, height, width)`` if heads see different
    # cells
    visible: BoolArray


def block_edges(count: int, blocks: int) -> IntArray:
    """Returns the starts of ``blocks`` nearly equal blocks of ``count`` cells, and the last end: ``(blocks + 1,)``."""
    return np.arange(blocks + 1, dtype=np.int64) * count // blocks


def bands_of_queries(queries: slice, keys: int, cells: int) -> Iterator[slice]:
    """Yields the queries in runs of at most ``cells`` cells, or of one query if it has more cells."""
    step = max(1, cells // keys)
    return (slice(start, min(start + step, queries.stop)) for start in range(queries.start, queries.stop, step))


def pool_weights(weights: FloatArray, visible: BoolArray, height: int, width: int) -> Overview:
    """Returns the mean and the maximum of the visible weights in each of ``height`` x ``width`` pixels.

    Args:
        weights: ``(heads, queries, keys)``.
        visible: bool, ``(queries, keys)``, or ``(heads, queries, keys)`` if heads see different cells.
    """
    row_edges = block_edges(weights.shape[-2], height)
    rows_at_once = max(1, MAX_BAND_CELLS * height // max(weights.size, 1))
    bands = []
    for first in range(0, height, rows_at_once):
        edges = row_edges[first : first + rows_at_once + 1]
        rows = slice(edges[0], max(edges[-1], edges[-2] + 1))
        visible_weights = np.where(visible[..., rows, :], weights[..., rows, :], np.float32(0))
        counted = visible[..., rows, :].astype(np.int32)
        sources = ((np.add, visible_weights), (np.maximum, visible_weights), (np.add, counted))
        bands.append([reduce_blocks(ufunc, cells, edges - edges[0], width) for ufunc, cells in sources])
    sums, maxima, counts = (np.concatenate(parts, axis=-2) for parts in zip(*bands, strict=True))
    return Overview(
        mean=(sums / np.maximum(counts, 1)).astype(np.float32),
        maximum=maxima,
        visible=counts > 0,
    )


def reduce_blocks(ufunc: np.ufunc, cells: NDArray[Any], row_edges: IntArray, width: int) -> NDArray[Any]:
    """Returns cells, ``(..., rows, columns)``, reduced over blocks to ``(..., height, width)``.

    Args:
        row_edges: the starts of the blocks of rows, and the last end; see `block_edges`.
    """
    row_count, column_count = cells.shape[-2:]
    column_starts = block_edges(column_count, width)[:-1]
    if row_count == len(row_edges) - 1:
        return ufunc.reduceat(cells, column_starts, axis=-1)
    # at least one row each
    row_blocks = [cells[..., start : max(stop, start + 1), :] for start, stop in pairwise(row_edges.tolist())]
    # On the axis of the rows this is faster than reduceat.
    reduced_rows = np.stack([ufunc.reduce(block, axis=-2) for block in row_blocks], axis=-2)
    return ufunc.reduceat(reduced_rows, column_starts, axis=-1)
