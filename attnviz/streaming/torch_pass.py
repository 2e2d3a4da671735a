"""Computes overviews by torch, on CPU threads or on an accelerator, one tile of weights at a time."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.base.progress import track
from attnviz.streaming.overview import BITS, Band, Tile, TilePlan

Group = TypeVar("Group")
Item = TypeVar("Item")
Result = TypeVar("Result")


def run_parallel(
    work: Callable[[Group, Item], None], groups: Iterable[Group], items: Sequence[Item], label: str
) -> None:
    """Calls ``work`` for each item of each group, in threads; an interrupt cancels the work that has not started.

    The next group is created while the items of the previous one run, so two groups are in memory at once. Raises the
    error of ``work`` if it fails.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=_prepare_thread)
    previous_futures: list[Future[None]] = []
    try:
        for group in groups:
            futures = [pool.submit(work, group, item) for item in reversed(items)]
            _wait_for(previous_futures, label)
            previous_futures = futures
        _wait_for(previous_futures, label)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def map_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Returns the result of ``work`` for each item, in their order; results do not depend on the number of threads."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=_prepare_thread) as pool:
            return list(pool.map(torch.inference_mode()(work), items))
    finally:
        torch.set_num_threads(threads)


def _prepare_thread() -> None:
    """Limits a thread to one core, and makes it treat denormals (below 2**-126) as 0: on them it is far slower."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def _wait_for(futures: list["Future[None]"], label: str) -> None:
    """Waits for the futures in order, with a progress bar; raises the error of the first in order that failed."""
    for future in track(futures, label):
        future.result()


class _DeviceHead(NamedTuple):
    """A head loaded on the device."""

    output_index: int
    head_index: int
    queries: Tensor  # ``(features + 2, rows)``
    keys: Tensor


def pool(plan: TilePlan, head_indices: Sequence[int], device: str, totals: Float64Array, peaks: FloatArray) -> None:
    """Writes the sum and, if the plan asks for it, the maximum of the weights in each part of a pixel.

    Args:
        totals: ``(heads, *plan.shape)``, zeros, in float64; receives the sums.
        peaks: ``(heads, *plan.shape)``, zeros; receives the maxima, or stays 0.
    """

    def load_head(output_index: int) -> _DeviceHead:
        head = plan.load(head_indices[output_index])
        queries, keys = (torch.from_numpy(array).to(device) for array in (head.queries, head.keys))
        return _DeviceHead(output_index, head.head_index, queries.T, keys)

    def pool_band(head: _DeviceHead, band: Band) -> None:
        row, buffer = band.row, torch.empty(plan.largest_tile, device=device)
        for column, is_cut in zip(band.columns, band.is_cut, strict=True):
            weights = _tile_weights(plan, head, row, column, is_cut, buffer)
            pixels = head.output_index, column.blocks, row.blocks
            if column.repeats is not None:  # the last key of a short block is a copy, and must not count
                weights.view(column.count, column.block_length, -1)[:, -1][torch.from_numpy(column.repeats)] = 0
            totals[pixels] = _reduced_to_blocks(torch.sum, weights, row, column)
            if plan.maximum:
                peaks[pixels] = _reduced_to_blocks(torch.amax, weights, row, column)

    heads = map(load_head, range(len(head_indices)))
    if device == "cpu":
        run_parallel(pool_band, heads, plan.bands, "pooling")
        return
    for head in heads:
        for band in plan.bands:
            pool_band(head, band)


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Returns a tensor that shares the array's memory; a caller must not write to it if the array is read-only."""
    _accept_read_only_arrays()
    return torch.from_numpy(array)


@cache
def _accept_read_only_arrays() -> None:
    """Triggers and ignores the warning that torch gives once per process for a read-only array."""
    array = np.zeros(1, dtype=np.float32)
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


def _tile_weights(plan: TilePlan, head: _DeviceHead, row: Tile, column: Tile, is_cut: bool, buffer: Tensor) -> Tensor:
    """Returns the weights of a tile, ``(keys, queries)`` in the order of the tile; 0 for hidden cells."""
    keys, queries = head.keys[column.place], head.queries[:, row.place]
    softcap = plan.factors.softcap
    exponents = buffer[: keys.shape[0] * queries.shape[1]].view(keys.shape[0], queries.shape[1])
    if softcap is None:
        torch.mm(keys, queries, out=exponents)
    else:
        cap = softcap * float(BITS)  # applies to the scaled product alone: the last two features are added after it
        torch.mm(keys[:, :-2], queries[:-2], out=exponents).div_(cap).tanh_().mul_(cap)
        exponents.addmm_(keys[:, -2:], queries[-2:])
    if plan.bias:
        exponents += torch.from_numpy(plan.tile_bias(head.head_index, row, column)).to(exponents.device)
    if is_cut:
        exponents += torch.from_numpy(plan.hidden(row, column)).to(exponents.device)
    return exponents.exp2_()


def _reduced_to_blocks(reduce: Callable[..., Tensor], weights: Tensor, row: Tile, column: Tile) -> FloatArray:
    runs = reduce(weights.view(column.count, column.block_length, -1), 1)
    runs = runs.view(column.count, row.block_length, row.count)
    if row.repeats is not None:
        runs[:, -1, torch.from_numpy(row.repeats)] = 0
    return np.asarray(reduce(runs, 1).cpu().numpy())
