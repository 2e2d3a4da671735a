"""Overviews: weights pooled to pixels, and the blocks of cells that each pixel stands for."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Overview:
    """Weights pooled to pixels, each over the visible cells of its block.

    Attributes:
        mean: ``(heads, height, width)``.
        maximum: ``(heads, height, width)``.
        visible: ``(height, width)``, whether any cell of the block is visible; ``(heads, height, width)`` of several
            heads that see different cells.
    """

    mean: FloatArray
    maximum: FloatArray
    visible: BoolArray


def block_edges(count: int, blocks: int) -> IntArray:
    """Where each of ``blocks`` nearly equal blocks of ``count`` cells begins, and the end: ``(blocks + 1,)``."""
    return np.arange(blocks + 1, dtype=np.int64) * count // blocks


def bands(queries: slice, keys: int, cells: int) -> Iterator[slice]:
    """The queries in runs that have at most ``cells`` cells with so many keys, or are of one query."""
    step = max(1, cells // keys)
    return (slice(start, min(start + step, queries.stop)) for start in range(queries.start, queries.stop, step))


def pool_weights(weights: FloatArray, visible: BoolArray, height: int, width: int) -> Overview:
    """The weights, ``(heads, queries, keys)``, pooled to ``height`` x ``width`` pixels.

    Args:
        weights: of the heads.
        visible: ``(queries, keys)``, or the same for each head.
        height: of the overview.
        width: of the overview.
    """
    shown = np.where(visible, weights, np.float32(0))
    count = reduce_blocks(np.add, visible.astype(np.int32), height, width)
    return Overview(
        mean=(reduce_blocks(np.add, shown, height, width) / np.maximum(count, 1)).astype(np.float32),
        maximum=reduce_blocks(np.maximum, shown, height, width),
        visible=count > 0,
    )


def reduce_blocks(reduce: np.ufunc, cells: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """The cells of the last two axes reduced over blocks, ``(..., height, width)``."""
    edges = pairwise(block_edges(cells.shape[-2], height).tolist())
    rows = [cells[..., start : max(stop, start + 1), :] for start, stop in edges]
    columns = block_edges(cells.shape[-1], width)[:-1]
    reduced = np.stack([reduce.reduce(block, axis=-2) for block in rows], axis=-2)  # faster than reduceat on this axis
    return reduce.reduceat(reduced, columns, axis=-1)
