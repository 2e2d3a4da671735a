"""Overviews and numbers of maps of any length in one pass over tiles, in memory that does not grow with their area."""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event

import numpy as np
import torch
from torch import Tensor

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, known_names
from attnviz.base.subnormal import taken_as_zero
from attnviz.streaming.device_factors import DeviceFactors
from attnviz.streaming.fused_pass import overview_by_indicators, suits
from attnviz.streaming.head_pass import NEIGHBOURS, Found, Head
from attnviz.streaming.overview import Overview
from attnviz.streaming.plan import Plan
from attnviz.streaming.workspace import Workspace

__all__ = ["NUMBERS", "DeviceFactors", "Progress", "Streamed", "stream"]

Progress = Callable[[int, int], None]

NUMBERS = ("entropy", "peak", "distance", "first", *NEIGHBOURS)


@dataclass(frozen=True, eq=False)
class Streamed:
    """What one pass found.

    Attributes:
        overview: mean and maximum of each pixel's block.
        logsumexp: ``(heads, queries)``, natural; −inf where a query sees nothing.
        numbers: by name, ``(heads, queries)``: ``entropy`` (bits), ``peak`` (the largest weight), ``distance`` (mean,
            in tokens), and the weight on the ``first`` key, the query's own (``self``), the ``previous`` and ``next``.
    """

    overview: Overview
    logsumexp: FloatArray
    numbers: dict[str, FloatArray]


def stream(
    factors: DeviceFactors,
    height: int,
    width: int,
    *,
    maximum: bool = True,
    numbers: Collection[str] = (),
    progress: Progress | None = None,
) -> Streamed:
    """The overview, the log-sum-exp and the chosen numbers of every head.

    On the CPU the heads are spread over as many workers as torch has threads, each computing on one. On CUDA the
    overview alone is left to attention's own kernel where that follows the rules.

    Args:
        factors: what the maps are computed from.
        height: pixels along the queries; more than there are queries gives one a query.
        width: pixels along the keys.
        maximum: whether the overview's maximum is wanted; else it is all zero.
        numbers: names of numbers, of ``NUMBERS``.
        progress: called in the caller's thread with the bands of rows done and all there are.

    Raises:
        AttnvizError: for a name that is not of ``NUMBERS``.
    """
    unknown = sorted(set(numbers) - set(NUMBERS))
    if unknown:
        raise AttnvizError(f"unknown number {unknown[0]!r}; {known_names(NUMBERS)} works")
    report = progress or _silent
    if suits(factors, maximum, numbers):
        return Streamed(*overview_by_indicators(factors, height, width, report), numbers={})
    plan = Plan(factors, height, width, maximum, frozenset(numbers))
    heads = factors.queries.shape[0]
    threads = torch.get_num_threads()
    if plan.device.type != "cpu" or min(threads, heads) < 2:
        return _join(plan, _one_by_one(plan, range(heads), report))
    try:
        return _join(plan, _side_by_side(plan, heads, min(threads, heads), report))
    finally:
        torch.set_num_threads(threads)


def _silent(done: int, count: int) -> None:
    """Progress that nobody follows."""


@torch.no_grad()
def _one_by_one(plan: Plan, heads: range, progress: Progress) -> list[Found]:
    """The findings of the heads, computed one after another."""
    space, found = Workspace(plan), []
    with taken_as_zero():
        for head in heads:
            one = Head(plan, head, space)
            for done, row in enumerate(plan.rows, start=head * len(plan.rows) + 1):
                one.add(row)
                progress(done, len(heads) * len(plan.rows))
            found.append(one.finished())
    return found


class _Stopped(Exception):
    """Ends a worker whose findings nobody waits for."""


def _side_by_side(plan: Plan, heads: int, workers: int, progress: Progress) -> list[Found]:
    """The findings of the heads, each worker computing a run of them on one thread; an interrupt ends all."""
    finished: SimpleQueue[bool] = SimpleQueue()
    stopped = Event()

    def tick(done: int, count: int) -> None:
        finished.put(True)
        if stopped.is_set():
            raise _Stopped

    def work(run: range) -> list[Found]:
        torch.set_num_threads(1)
        try:
            return _one_by_one(plan, run, tick)
        finally:
            finished.put(False)

    edges = [worker * heads // workers for worker in range(workers + 1)]
    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(work, range(*edges[worker : worker + 2])) for worker in range(workers)]
            for done in _counted(finished, workers):
                progress(done, heads * len(plan.rows))
            return [found for future in futures for found in future.result()]
        finally:
            stopped.set()


def _counted(finished: "SimpleQueue[bool]", workers: int) -> Iterator[int]:
    """How many bands are done, whenever one more is, until every worker has ended."""
    done = 0
    while workers:
        if finished.get():
            done += 1
            yield done
        else:
            workers -= 1


def _join(plan: Plan, found: list[Found]) -> Streamed:
    """The heads' findings as numpy arrays."""
    rows, columns = (axis.edges[:: axis.parts] for axis in (plan.row_axis, plan.column_axis))
    counts = plan.factors.mask.counts(rows, columns)
    mean = np.stack([_numpy(one.total) for one in found])
    mean /= np.maximum(counts, 1).astype(np.float32)
    tops = [_numpy(one.highest) for one in found if one.highest is not None]
    maximum = np.stack(tops) if tops else np.zeros(mean.shape, dtype=np.float32)
    return Streamed(
        overview=Overview(mean=mean, maximum=maximum, visible=counts > 0),
        logsumexp=np.stack([_numpy(one.logsumexp) for one in found]),
        numbers={name: np.stack([_numpy(one.numbers[name]) for one in found]) for name in sorted(plan.numbers)},
    )


def _numpy(values: Tensor) -> FloatArray:
    return np.asarray(values.float().cpu().numpy())
