"""Pools weights to the pixels of an overview, each of which stands for a block of cells."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, FloatArray, IntArray


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
    visible_weights = np.where(visible, weights, np.float32(0))
    visible_counts = reduce_blocks(np.add, visible.astype(np.int32), height, width)
    return Overview(
        mean=(reduce_blocks(np.add, visible_weights, height, width) / np.maximum(visible_counts, 1)).astype(np.float32),
        maximum=reduce_blocks(np.maximum, visible_weights, height, width),
        visible=visible_counts > 0,
    )


def reduce_blocks(ufunc: np.ufunc, cells: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Returns cells, ``(..., rows, columns)``, reduced over blocks to ``(..., height, width)``."""
    row_count, column_count = cells.shape[-2:]
    column_starts = block_edges(column_count, width)[:-1]
    if row_count == height:
        return ufunc.reduceat(cells, column_starts, axis=-1)
    row_spans = pairwise(block_edges(row_count, height).tolist())
    row_blocks = [cells[..., start : max(stop, start + 1), :] for start, stop in row_spans]  # at least one row each
    # On the axis of the rows this is faster than reduceat.
    reduced_rows = np.stack([ufunc.reduce(block, axis=-2) for block in row_blocks], axis=-2)
    return ufunc.reduceat(reduced_rows, column_starts, axis=-1)
