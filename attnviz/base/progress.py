"""Progress bars on stderr for slow loops."""

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

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


class Reached(NamedTuple):
    """How far work on texts is: ``share`` is from 0 to 1 where all that there is to do is known."""

    texts: int
    tokens: int
    share: float | None


@contextmanager
def track_open_end(what: str, shown: bool = True) -> Iterator[Callable[[Reached], None]]:
    """Gives what says in a bar on stderr how far work on texts is, tokens a second, and the time that is left.

    Args:
        what: what the bar says it is doing.
        shown: whether there is a bar at all.
    """
    start, held = time.monotonic(), list[Any]()

    def say(reached: Reached) -> None:
        seconds = time.monotonic() - start
        if not held and seconds > SECONDS_BEFORE_BAR:
            held.append(_bar_of_texts(what))
            held[0].start()
        if held:
            done = "" if not reached.share else f", {seconds / min(reached.share, 1) - seconds:.0f} s left"
            said = f"{reached.texts} texts, {reached.tokens / seconds:.0f} tokens/s{done}"
            held[0].update(held[0].task_ids[0], completed=reached.share or 0, said=said)

    if not shown or running or not sys.stderr.isatty():
        yield lambda _: None
        return
    running.append(what)
    try:
        with undone_by_signals(lambda: _show_cursor() if held else None):
            yield say
    finally:
        running.clear()
        if held:
            held[0].stop()


def _bar_of_texts(what: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=1, said="")
    return bar


def _show_cursor() -> None:
    """Shows the cursor that a bar hides; not through the stream, which may be at work."""
    with suppress(OSError):
        os.write(2, SHOW_CURSOR)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
