"""Runs work in as many threads as torch uses; each thread computes on one core and flushes denormals to 0."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from attnviz.base.progress import track

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
