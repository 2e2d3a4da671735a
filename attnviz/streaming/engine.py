"""Computes overviews of factors by numpy, or by torch on the device that the factors name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.machine import pooling_device
from attnviz.streaming import numpy_pass
from attnviz.streaming.factors import Factors
from attnviz.streaming.overview import Overview
from attnviz.streaming.plan import TILE, TilePlan


def overview_of(
    factors: Factors, head_indices: Sequence[int], size: tuple[int, int], queries: slice, keys: slice, maximum: bool
) -> Overview:
    """Returns the weights of a block of cells, pooled to pixels; memory does not grow with the number of tokens.

    On a GPU the mean over all tokens may come from a fused kernel; anything else is computed tile by tile.
    """
    device = None if factors.device is None else pooling_device(factors.device)
    if device not in (None, "cpu") and not maximum and _covers_all_tokens(factors, queries, keys):
        from attnviz.streaming.device_factors import DeviceFactors
        from attnviz.streaming.fused_pass import overview_by_indicators, prefers_kernel

        device_factors = DeviceFactors.on_device(str(device), factors, head_indices)
        if prefers_kernel(device_factors):
            return overview_by_indicators(device_factors, *size)[0]
    plan = TilePlan(factors, queries, keys, size, maximum, TILE["cpu" if device in (None, "cpu") else "cuda"])
    totals = np.zeros((len(head_indices), *plan.shape))
    peaks = np.zeros((len(head_indices), *plan.shape), dtype=np.float32)
    if device is None:
        numpy_pass.pool(plan, head_indices, totals, peaks)
    else:
        from attnviz.streaming import torch_pass

        torch_pass.pool(plan, head_indices, device, totals, peaks)
    pixel_edges = (axis.edges[:: axis.parts] for axis in (plan.row_axis, plan.column_axis))
    counts = factors.mask.counts(*pixel_edges)
    mean = (plan.joined_parts(np.add, totals) / np.maximum(counts, 1)).astype(np.float32)
    return Overview(mean=mean, maximum=np.minimum(plan.joined_parts(np.maximum, peaks), 1), visible=counts > 0)


def _covers_all_tokens(factors: Factors, queries: slice, keys: slice) -> bool:
    """True if the block is all queries and all keys of the factors."""
    return queries == slice(0, factors.queries.shape[1]) and keys == slice(0, factors.keys.shape[1])


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
