"""Pools weights to the pixels of an overview, each of which stands for a block of cells."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, FloatArray, IntArray

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
