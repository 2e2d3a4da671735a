"""Overviews of factors by the engine that these name: numpy, torch on the processor, or torch on an accelerator."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.machine import device_with_room
from attnviz.streaming import numpy_pass
from attnviz.streaming.factors import Factors
from attnviz.streaming.overview import Overview
from attnviz.streaming.plan import TILE, TilePlan


def overview_of(
    factors: Factors, places: Sequence[int], size: tuple[int, int], queries: slice, keys: slice, maximum: bool
) -> Overview:
    """The weights of a block pooled to pixels; memory does not grow with the tokens it covers.

    Args:
        factors: what the weights are computed from.
        places: where the heads are held.
        size: pixels down and across.
        queries: those of the block, with both ends.
        keys: likewise.
        maximum: whether the largest weight of each pixel is wanted; else it is all 0.
    """
    device = None if factors.device is None else device_with_room(factors.device)
    if device not in (None, "cpu") and not maximum and _is_whole(factors, queries, keys):
        from attnviz.streaming.device_factors import DeviceFactors
        from attnviz.streaming.fused_pass import overview_by_indicators, suits

        held = DeviceFactors.on(str(device), factors, places)
        if suits(held):
            return overview_by_indicators(held, *size)[0]
    plan = TilePlan(factors, queries, keys, size, maximum, TILE["cpu" if device in (None, "cpu") else "cuda"])
    totals, peaks = np.zeros((len(places), *plan.shape)), np.zeros((len(places), *plan.shape), dtype=np.float32)
    if device is None:
        numpy_pass.pool(plan, places, totals, peaks)
    else:
        from attnviz.streaming import torch_pass

        torch_pass.pool(plan, places, device, totals, peaks)
    rows, columns = (axis.edges[:: axis.parts] for axis in (plan.row_axis, plan.column_axis))
    counts = factors.mask.counts(rows, columns)
    mean = (plan.joined(np.add, totals) / np.maximum(counts, 1)).astype(np.float32)
    return Overview(mean=mean, maximum=np.minimum(plan.joined(np.maximum, peaks), 1), visible=counts > 0)


def _is_whole(factors: Factors, queries: slice, keys: slice) -> bool:
    """Whether a block is all of the maps."""
    shape = factors.queries.shape[1], factors.keys.shape[1]
    return (queries, keys) == (slice(0, shape[0]), slice(0, shape[1]))


def product(device: str | None, queries: NDArray[Any], keys: NDArray[Any], out: NDArray[Any]) -> None:
    """Writes ``queries @ keysᵀ``, ``(queries, keys)``, by torch where the factors name a device, else by numpy."""
    if device is None:
        np.matmul(queries, keys.T, out=out)
        return
    import torch

    from attnviz.streaming.torch_pass import tensor_of

    torch.mm(tensor_of(queries), tensor_of(keys).T, out=tensor_of(out))
