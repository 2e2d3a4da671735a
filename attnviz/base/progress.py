"""How far long work is, as a bar on standard error where that is a terminal."""

import sys
import time
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")

PATIENCE = 1.0  # seconds of work that no bar is shown for
shown: list[str] = []  # what the bar on the screen counts; at most one


def track(items: Sequence[Item], what: str) -> Generator[Item]:
    """The items one by one; a bar counts them once they have taken a second, and is gone after the last.

    Work within work that has a bar has none of its own.
    """
    if len(items) < 2 or shown or not sys.stderr.isatty():
        yield from items
        return
    start, bar, task = time.monotonic(), None, None
    shown.append(what)
    try:
        for done, item in enumerate(items):
            if bar is None and time.monotonic() - start > PATIENCE:
                bar = _bar()
                bar.start()
                task = bar.add_task(what, total=len(items))
            if bar is not None:
                bar.update(task, completed=done)
            yield item
    finally:
        shown.clear()
        if bar is not None:
            bar.stop()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
