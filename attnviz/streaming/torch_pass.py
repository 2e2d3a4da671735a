"""Overviews by torch, on threads or an accelerator: tiles of weights become pixels and are forgotten."""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.streaming.plan import BITS, Band, TilePlan
from attnviz.streaming.tiles import Tile
from attnviz.streaming.workers import spread


class _Head(NamedTuple):
    """A loaded head on its device, and where its pixels are written."""

    number: int
    place: int
    queries: Tensor  # (features + 2, rows)
    keys: Tensor  # (columns, features + 2)


def pool(plan: TilePlan, places: Sequence[int], device: str, totals: Float64Array, peaks: FloatArray) -> None:
    """Writes the sum and the maximum of the weights in each part of a pixel, ``(heads, *plan.shape)``.

    Args:
        plan: how the maps are cut.
        places: where the heads are held.
        device: what computes.
        totals: zeros, in float64.
        peaks: zeros; they stay so where the maximum is not wanted.
    """

    def loaded(number: int) -> _Head:
        head = plan.load(places[number])
        queries, keys = (torch.from_numpy(each).to(device) for each in (head.queries, head.keys))
        return _Head(number, head.place, queries.T, keys)

    def pool_band(head: _Head, band: Band) -> None:
        row, memory = band.row, torch.empty(plan.largest_tile, device=device)
        for column, cut in zip(band.columns, band.cut, strict=True):
            weights, pixels = _weights(plan, head, row, column, cut, memory), (head.number, column.blocks, row.blocks)
            if column.repeats is not None:
                weights.view(column.count, column.longest, -1)[:, -1][torch.from_numpy(column.repeats)] = 0
            totals[pixels] = _reduced(torch.sum, weights, row, column)
            if plan.maximum:
                peaks[pixels] = _reduced(torch.amax, weights, row, column)

    heads = map(loaded, range(len(places)))
    if device == "cpu":
        spread(pool_band, heads, plan.bands, "pooling")
        return
    for head in heads:
        for band in plan.bands:
            pool_band(head, band)


def tensor_of(array: NDArray[Any]) -> Tensor:
    """The array's own memory as a tensor, which nobody writes into where the array is read-only."""
    _accept_read_only_arrays()
    return torch.from_numpy(array)


@cache
def _accept_read_only_arrays() -> None:
    """Lets torch say unheard what it says once of read-only arrays."""
    array = np.zeros(1, dtype=np.float32)
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


def _weights(plan: TilePlan, head: _Head, row: Tile, column: Tile, cut: bool, memory: Tensor) -> Tensor:
    """The weights of a tile, ``(keys, queries)`` in order; hidden ones 0."""
    keys, queries, softcap = head.keys[column.place], head.queries[:, row.place], plan.factors.softcap
    exponents = memory[: keys.shape[0] * queries.shape[1]].view(keys.shape[0], queries.shape[1])
    if softcap is None:
        torch.mm(keys, queries, out=exponents)
    else:
        cap = softcap * float(BITS)
        torch.mm(keys[:, :-2], queries[:-2], out=exponents).div_(cap).tanh_().mul_(cap)
        exponents.addmm_(keys[:, -2:], queries[-2:])
    if plan.bias:
        exponents += torch.from_numpy(plan.bias_of(head.place, row, column)).to(exponents.device)
    if cut:
        exponents += torch.from_numpy(plan.hidden(row, column)).to(exponents.device)
    return exponents.exp2_()


def _reduced(reduce: Callable[..., Tensor], weights: Tensor, row: Tile, column: Tile) -> FloatArray:
    """A tile's weights reduced to its blocks, ``(blocks of keys, blocks of queries)``; repeated tokens count as 0."""
    runs = reduce(weights.view(column.count, column.longest, -1), 1).view(column.count, row.longest, row.count)
    if row.repeats is not None:
        runs[:, -1, torch.from_numpy(row.repeats)] = 0
    return np.asarray(reduce(runs, 1).cpu().numpy())
