"""Shows progress bars on stderr for slow loops, or where that is a log one line."""

import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from attnviz.base.printable import printable_line, remark
from attnviz.base.signals import cleanup_on_signals

Item = TypeVar("Item")

SECONDS_BEFORE_BAR = 1.0
SECONDS_BEFORE_LINE = 2.0
SECONDS_BEFORE_LOG = 10.0  # of silence, since the command began or said its last line
LEAST_LEFT = 1.0  # seconds that must be left for a line in a log
SHOW_CURSOR = b"\x1b[?25h\n"
active_bars: list[str] = []  # the label of the bar on the screen; at most one, since bars are not nested
active_lines: list[str] = []  # the line of the outermost `working`, on the screen after two seconds
silent_since: list[float] = []  # when the command began, or said its last line in a log; empty outside of a command


def begin() -> None:
    """Notes that a command begins, so that a log has a line once it has been silent for `SECONDS_BEFORE_LOG`."""
    silent_since[:] = [time.monotonic()]


def _silence(start: float) -> float:
    """Returns for how many seconds a log has had no line, outside of a command since ``start``."""
    return time.monotonic() - (silent_since[0] if silent_since else start)


def _end_silence() -> None:
    if silent_since:
        begin()


def track(items: Sequence[Item], what: str) -> Generator[Item]:
    """Yields the items; shows a progress bar on stderr if that is a terminal and the loop takes longer than a second.

    The bar disappears after the last item. A loop over fewer than two items, or inside a loop that has a bar, shows no
    bar. Where stderr is a file or a pipe, a loop says once how long it will take, if nothing was said for long.
    """
    if len(items) < 2 or active_bars:
        yield from items
        return
    if not sys.stderr.isatty():
        yield from _logged(items, what) if _stderr_descriptor() >= 0 else items
        return
    with _bar(what, lambda: _item_bar(what, len(items))) as update:
        for count, item in enumerate(items):
            update(completed=count)
            yield item


def _logged(items: Sequence[Item], what: str) -> Generator[Item]:
    """Yields the items; says once on stderr how many there are and how long the rest will take, if that is long."""
    active_bars.append(what)
    start, is_said = time.monotonic(), False
    try:
        for done, item in enumerate(items):
            seconds = time.monotonic() - start
            left = seconds / done * (len(items) - done) if done else 0.0
            if not is_said and left >= LEAST_LEFT and _silence(start) >= SECONDS_BEFORE_LOG:
                remark(f"{what}: {done} of {len(items)} done in {seconds:.0f} s, about {left:.0f} s left")
                _end_silence()
                is_said = True
            yield item
    finally:
        active_bars.clear()


def _stderr_descriptor() -> int:
    """Returns the descriptor of stderr; -1 if it was replaced by a stream without one, as full-screen programs do."""
    with suppress(OSError):
        return sys.stderr.fileno()
    return -1


@contextmanager
def _bar(what: str, make: Callable[[], Any]) -> Iterator[Callable[..., None]]:
    """Yields a function that updates a bar of one task, which appears after a second, even if no work is done yet."""
    lock = threading.Lock()
    bars, values = list[Any](), dict[str, Any]()  # the first list holds one bar, or none before the bar starts

    def begin() -> None:
        with lock:
            bar = make()
            _start(bar)
            bar.update(bar.task_ids[0], **values)
            bars.append(bar)

    def update(**new_values: Any) -> None:
        with lock:
            values.update(new_values)
            for bar in bars:
                bar.update(bar.task_ids[0], **new_values)

    timer = threading.Timer(SECONDS_BEFORE_BAR, begin)
    timer.daemon = True
    active_bars.append(what)
    timer.start()
    try:
        with cleanup_on_signals(lambda: _show_cursor() if bars else None):
            yield update
    finally:
        timer.cancel()
        timer.join()
        active_bars.clear()
        if bars:
            bars[0].stop()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows ``what`` on stderr while the block runs: on a terminal after two seconds, in a log once it was silent long.

    Shows nothing inside another such block, or beside a bar.
    """
    if active_bars or active_lines or _stderr_descriptor() < 0:
        yield
        return
    has_ended, is_log, start = threading.Event(), not sys.stderr.isatty(), time.monotonic()
    line = f"attnviz: {printable_line(what)} …"
    active_lines.append(line)
    terminal = os.dup(2)  # the block may discard what is written to stderr

    def log() -> None:
        while not has_ended.wait(max(SECONDS_BEFORE_LOG - _silence(start), LEAST_LEFT / 10)):
            if not active_bars and _silence(start) >= SECONDS_BEFORE_LOG:  # a loop inside tells more
                _end_silence()
                with suppress(OSError):
                    os.write(terminal, f"{line}\n".encode())
                return

    def tell() -> None:
        while not has_ended.wait(SECONDS_BEFORE_LINE):
            if active_bars:  # the line follows the bar
                continue
            with suppress(OSError):
                os.write(terminal, f"\r{line}".encode())
                has_ended.wait()
                os.write(terminal, f"\r{' ' * len(line)}\r".encode())

    thread = threading.Thread(target=log if is_log else tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        active_lines.clear()
        has_ended.set()
        thread.join()
        os.close(terminal)


def _start(bar: Any) -> None:
    """Starts a bar, in the place of the line that is there."""
    for line in active_lines:
        print(f"\r{' ' * len(line)}\r", end="", file=sys.stderr, flush=True)
    bar.start()


class TextProgress(NamedTuple):
    """The progress of work on texts."""

    texts: int  # the number of texts that are done
    tokens: int  # the number of their tokens
    share: float | None  # the share of all work that is done, 0 to 1; ``None`` if the amount of work is unknown


@contextmanager
def track_texts(what: str, show_bar: bool = True) -> Iterator[Callable[[TextProgress], None]]:
    """Yields a function that updates a bar on stderr: texts, tokens a second, and the remaining time.

    The bar appears after a second, even if no text is done yet. Where stderr is a file or a pipe, the function says
    once how long the rest will take. It does nothing if there is another bar, or if ``show_bar`` is False.
    """
    start = time.monotonic()
    if not show_bar or active_bars:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        said: list[str] = []

        def log(progress: TextProgress) -> None:
            is_due = not said and progress.texts and _silence(start) >= SECONDS_BEFORE_LOG
            if is_due and _stderr_descriptor() >= 0:
                said.append(_status(progress, time.monotonic() - start))
                remark(f"{what}: {said[0]}")
                _end_silence()

        active_bars.append(what)  # so that loops within say nothing
        try:
            yield log
        finally:
            active_bars.clear()
        return
    with _bar(what, lambda: _text_bar(what)) as update:

        def show(progress: TextProgress) -> None:
            update(completed=progress.share or 0, status=_status(progress, time.monotonic() - start))

        yield show


def _status(progress: TextProgress, seconds: float) -> str:
    """Returns the texts so far, their tokens a second, and the remaining time if it is known."""
    remaining_time = "" if not progress.share else f", {seconds / min(progress.share, 1) - seconds:.0f} s left"
    return f"{progress.texts} texts, {progress.tokens / max(seconds, 1e-9):.0f} tokens/s{remaining_time}"


def _text_bar(what: str) -> Any:
    """Returns a bar, not yet started, with a task labelled ``what``; the task's ``status`` is shown after the bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=1, status="")
    return bar


def _show_cursor() -> None:
    """Shows the cursor that a bar hides; bypasses ``sys.stderr``, since a signal may interrupt its writing."""
    with suppress(OSError):
        os.write(2, SHOW_CURSOR)


def _item_bar(what: str, total: int) -> Any:
    """Returns a bar, not yet started, that counts items and shows the remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=total)
    return bar
