"""Computes overviews of factors by numpy, or by torch on the device that the factors name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import FloatArray
from attnviz.base.machine import pooling_device
from attnviz.base.progress import track
from attnviz.streaming.overview import BITS, TILE, Factors, LoadedHead, Overview, Tile, TilePlan


def overview_of(
    factors: Factors, head_indices: Sequence[int], size: tuple[int, int], queries: slice, keys: slice, maximum: bool
) -> Overview:
    """Returns the weights of a block of cells, pooled to pixels; memory does not grow with the number of tokens.

    On a GPU the mean over all tokens may come from a fused kernel; anything else is computed tile by tile.
    """
    device = None if factors.device is None else pooling_device(factors.device)
    covers_all_tokens = (queries, keys) == (slice(0, factors.queries.shape[1]), slice(0, factors.keys.shape[1]))
    if device not in (None, "cpu") and not maximum and covers_all_tokens:
        from attnviz.streaming.fused_pass import DeviceFactors, overview_by_indicators, prefers_kernel

        device_factors = DeviceFactors.on_device(str(device), factors, head_indices)
        if prefers_kernel(device_factors):
            return overview_by_indicators(device_factors, *size)[0]
    plan = TilePlan(factors, queries, keys, size, maximum, TILE["cpu" if device in (None, "cpu") else "cuda"])
    totals = np.zeros((len(head_indices), *plan.shape))
    peaks = np.zeros((len(head_indices), *plan.shape), dtype=np.float32)
    if device is None:
        buffer = np.empty(plan.largest_tile, dtype=np.float32)
        for output_index, head_index in enumerate(head_indices):
            head = plan.load(head_index)
            for band in track(plan.bands, "pooling"):
                for column, is_cut in zip(band.columns, band.is_cut, strict=True):
                    weights = _tile_weights(plan, head, band.row, column, is_cut, buffer)
                    pixels = output_index, column.blocks, band.row.blocks
                    totals[pixels] = _reduced_to_blocks(np.add, weights, band.row, column)
                    if maximum:
                        peaks[pixels] = _reduced_to_blocks(np.maximum, weights, band.row, column)
    else:
        from attnviz.streaming import torch_pass

        torch_pass.pool(plan, head_indices, device, totals, peaks)
    pixel_edges = (axis.edges[:: axis.parts] for axis in (plan.row_axis, plan.column_axis))
    counts = factors.mask.counts(*pixel_edges)
    mean = (plan.joined_parts(np.add, totals) / np.maximum(counts, 1)).astype(np.float32)
    return Overview(mean=mean, maximum=np.minimum(plan.joined_parts(np.maximum, peaks), 1), visible=counts > 0)


def write_product(device: str | None, queries: NDArray[Any], keys: NDArray[Any], out: NDArray[Any]) -> None:
    """Writes ``queries @ keysᵀ`` into ``out``, by torch if there is a device, else by numpy.

    Args:
        queries: ``(queries, features)``.
        keys: ``(keys, features)``.
        out: ``(queries, keys)``, of the same dtype.
    """
    if device is None:
        np.matmul(queries, keys.T, out=out)
        return
    import torch

    from attnviz.streaming.torch_pass import tensor_of

    torch.mm(tensor_of(queries), tensor_of(keys).T, out=tensor_of(out))


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
        exponents += plan.tile_bias(head.head_index, row, column)
    if is_cut:
        exponents += plan.hidden(row, column)
    return np.exp2(exponents, out=exponents)


def _reduced_to_blocks(ufunc: np.ufunc, weights: FloatArray, row: Tile, column: Tile) -> FloatArray:
    blocks = weights.reshape(column.count, column.block_length, -1)
    if column.repeats is not None:
        blocks[column.repeats, -1] = 0
    runs = ufunc.reduce(blocks, axis=1).reshape(column.count, row.block_length, row.count)
    if row.repeats is not None:
        runs[:, -1, row.repeats] = 0
    return np.asarray(ufunc.reduce(runs, axis=1))
