"""Progress bars on stderr for slow loops."""

import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from attnviz.base.signals import undone_by_signals

Item = TypeVar("Item")

SECONDS_BEFORE_BAR = 1.0
SHOW_CURSOR = b"\x1b[?25h\n"
running: list[str] = []  # what the bar on the screen counts: one at most, since bars are not nested


def track(items: Sequence[Item], what: str) -> Generator[Item]:
    """Yields the items, and counts them in a bar on stderr if that is a terminal and they take longer than a second.

    The bar disappears after the last item. A loop within a loop that has a bar gets none.

    Args:
        items: what the loop works on.
        what: what the bar says it is doing.
    """
    if len(items) < 2 or running or not sys.stderr.isatty():
        yield from items
        return
    start, bar, task = time.monotonic(), None, None
    running.append(what)
    try:
        with undone_by_signals(lambda: bar and _show_cursor()):
            for done, item in enumerate(items):
                if bar is None and time.monotonic() - start > SECONDS_BEFORE_BAR:
                    bar = _bar()
                    bar.start()
                    task = bar.add_task(what, total=len(items))
                if bar is not None:
                    bar.update(task, completed=done)
                yield item
    finally:
        running.clear()
        if bar is not None:
            bar.stop()


def _show_cursor() -> None:
    """Shows the cursor that a bar hides; not through the stream, which may be at work."""
    with suppress(OSError):
        os.write(2, SHOW_CURSOR)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
