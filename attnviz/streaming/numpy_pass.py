"""Computes overviews by numpy alone, one tile of weights at a time."""

from collections.abc import Sequence

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.base.progress import track
from attnviz.streaming.plan import BITS, LoadedHead, TilePlan
from attnviz.streaming.tiles import Tile


def pool(plan: TilePlan, head_indices: Sequence[int], totals: Float64Array, peaks: FloatArray) -> None:
    """Writes the sum and, if the plan asks for it, the maximum of the weights in each part of a pixel.

    Args:
        totals: ``(heads, *plan.shape)``, zeros, in float64; receives the sums.
        peaks: ``(heads, *plan.shape)``, zeros; receives the maxima, or stays 0.
    """
    buffer = np.empty(plan.largest_tile, dtype=np.float32)
    for output_index, head_index in enumerate(head_indices):
        head = plan.load(head_index)
        for band in track(plan.bands, "pooling"):
            for column, is_cut in zip(band.columns, band.is_cut, strict=True):
                weights = _tile_weights(plan, head, band.row, column, is_cut, buffer)
                pixels = output_index, column.blocks, band.row.blocks
                totals[pixels] = _reduced_to_blocks(np.add, weights, band.row, column)
                if plan.maximum:
                    peaks[pixels] = _reduced_to_blocks(np.maximum, weights, band.row, column)


def _tile_weights(
    plan: TilePlan, head: LoadedHead, row: Tile, column: Tile, is_cut: bool, buffer: FloatArray
) -> FloatArray:
    """Returns the weights of a tile, ``(keys, queries)`` in the order of the tile; 0 for hidden cells."""
    keys, queries = head.keys[column.place], head.queries[row.place]
    softcap = plan.factors.softcap
    exponents = buffer[: len(keys) * len(queries)].reshape(len(keys), len(queries))
    if softcap is None:
        np.matmul(keys, queries.T, out=exponents)
    else:
        # The cap applies to the scaled product alone, so the last two features are added after it.
        np.matmul(keys[:, :-2], queries[:, :-2].T, out=exponents)
        exponents /= softcap * BITS
        np.tanh(exponents, out=exponents)
        exponents *= softcap * BITS
        exponents += keys[:, -2:] @ queries[:, -2:].T
    if plan.bias:
        exponents += plan.bias_of(head.head_index, row, column)
    if is_cut:
        exponents += plan.hidden(row, column)
    return np.exp2(exponents, out=exponents)


def _reduced_to_blocks(ufunc: np.ufunc, weights: FloatArray, row: Tile, column: Tile) -> FloatArray:
    """Reduces a tile's weights to its blocks, ``(blocks of keys, blocks of queries)``."""
    blocks = weights.reshape(column.count, column.block_length, -1)
    if column.repeats is not None:
        blocks[column.repeats, -1] = 0
    runs = ufunc.reduce(blocks, axis=1).reshape(column.count, row.block_length, row.count)
    if row.repeats is not None:
        runs[:, -1, row.repeats] = 0
    return np.asarray(ufunc.reduce(runs, axis=1))
