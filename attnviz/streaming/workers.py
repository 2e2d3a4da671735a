"""Work spread over threads of torch's own number, each of which computes on one processor and flushes denormals."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from attnviz.base.progress import track

Group = TypeVar("Group")
Item = TypeVar("Item")
Found = TypeVar("Found")


def spread(work: Callable[[Group, Item], None], groups: Iterable[Group], items: Sequence[Item], what: str) -> None:
    """Does the work for each item of each group; an interrupt ends it.

    A group is made while the items of the one before are worked on, so that two are held at once.

    Args:
        work: called in one of the threads.
        groups: made one by one in the caller's thread.
        items: what there is to do for each group, the longest last.
        what: what a progress bar says.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=_prepare)
    before: list[Future[None]] = []
    try:
        for group in groups:
            begun = [pool.submit(work, group, item) for item in reversed(items)]
            _finish(before, what)
            before = begun
        _finish(before, what)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def side_by_side(work: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """What the work gives for each item, in their order: the same however many threads there are."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=_prepare) as pool:
            return list(pool.map(torch.inference_mode()(work), items))
    finally:
        torch.set_num_threads(threads)


def _prepare() -> None:
    """Lets a thread compute on one processor, and take numbers below 2**-126 as 0: it is far slower on them."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def _finish(begun: list["Future[None]"], what: str) -> None:
    for future in track(begun, what):
        future.result()
