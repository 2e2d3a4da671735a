"""The bar is on standard error, of a terminal alone, and only of work that takes a while."""

import os
import signal
import sys
import threading
import time
from contextlib import ExitStack

import pytest
from rich.progress import Progress

from attnviz.base import progress
from attnviz.base.printable import discard_output
from attnviz.base.progress import track, working
from tests.patience import PATIENCE


class AtOnce(threading.Timer):
    """A timer that runs its function when it is started."""

    def start(self) -> None:
        self.function()

    def join(self, timeout: float | None = None) -> None:
        pass


def be_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a terminal, on which a bar appears at once."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(threading, "Timer", AtOnce)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_no_bar_where_standard_error_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track([3, 1, 2], "counting")) == [3, 1, 2]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (24, "attnviz: counting: 1 of 5 done in 24 s, about 96 s left\n"),  # once, and the loop within has none
        (3, "attnviz: counting: 4 of 5 done in 12 s, about 3 s left\n"),
        (2, ""),
    ],
)
def test_a_log_has_one_line_of_work_that_takes_long(
    seconds: float, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock(monkeypatch)
    for _ in track(range(5), "counting"):
        for _ in track("ab", "within"):
            now[0] += seconds / 2
    assert capfd.readouterr() == ("", said)
    assert not progress.active_bars


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the seconds that the clock shows, which the test may set, and has lines in a log after ten of them."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "SECONDS_BEFORE_LOG", 10.0)
    monkeypatch.setattr(progress, "silent_since", [])
    return now


def test_a_log_of_a_command_is_not_silent_for_longer_than_ten_seconds_whatever_its_loops_take(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock(monkeypatch)
    progress.begin()
    for what in ("first", "second", "third"):
        for _ in track(range(4), what):
            now[0] += 2
    with progress.track_texts("reading") as show:
        now[0] += 8
        show(progress.TextProgress(texts=4, tokens=80, share=0.5))
        show(progress.TextProgress(texts=5, tokens=90, share=0.6))
    assert capfd.readouterr() == (
        "",
        "attnviz: second: 1 of 4 done in 2 s, about 6 s left\nattnviz: third: 2 of 4 done in 4 s, about 4 s left\n"
        "attnviz: reading: 4 texts, 10 tokens/s, 8 s left\n",
    )


def test_a_log_says_what_a_long_step_does(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = line_at_once(monkeypatch)
    monkeypatch.setattr(progress, "SECONDS_BEFORE_LOG", 0.0)
    with working("reading \x1b[31m"), working("saving"), discard_output():
        assert told.wait(PATIENCE)
    assert capfd.readouterr() == ("", "attnviz: reading \\x1b[31m …\n")


def test_bar_counts_on_standard_error_and_work_within_has_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_terminal(monkeypatch)
    assert [item for item in track("abc", "outer") for _ in track("xy", "inner")] == list("aabbcc")
    output, error = capsys.readouterr()
    assert output == ""
    assert "outer" in error
    assert "inner" not in error


def line_at_once(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Has steps say at once what they do; returns an event that is set when one has."""
    told = threading.Event()
    write = os.write

    def noted_write(descriptor: int, content: bytes) -> int:
        length = write(descriptor, content)
        told.set()
        return length

    monkeypatch.setattr(progress, "SECONDS_BEFORE_LINE", 0.0)
    monkeypatch.setattr(os, "write", noted_write)
    return told


def test_a_long_step_says_what_it_does_even_if_the_output_is_discarded(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_terminal(monkeypatch)
    told = line_at_once(monkeypatch)
    with working("reading \x1b[31m"), discard_output():
        assert told.wait(PATIENCE)
    line = "attnviz: reading \\x1b[31m …"
    assert capfd.readouterr() == ("", f"\r{line}\r{' ' * len(line)}\r")
    monkeypatch.setattr(sys.stderr, "fileno", lambda: -1)
    told.clear()
    with working("what a full-screen program draws over"):
        assert [thread.name for thread in threading.enumerate() if "tell" in thread.name] == []
    assert not told.is_set()
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2)
    monkeypatch.setattr(progress, "SECONDS_BEFORE_LINE", PATIENCE)
    with working("nothing"):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_line_stands_for_the_steps_inside_it_and_gives_its_place_to_a_bar(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_terminal(monkeypatch)
    told = line_at_once(monkeypatch)
    with working("writing a.png"), working("saving"):
        assert told.wait(PATIENCE)
        assert len(list(track("ab", "drawing"))) == 2
    line = "attnviz: writing a.png …"
    error = capfd.readouterr().err
    assert error.startswith(f"\r{line}\r{' ' * len(line)}\r")
    assert "drawing" in error
    assert "saving" not in error


def test_a_line_that_is_due_while_a_bar_stands_follows_the_bar(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_terminal(monkeypatch)
    told, copy_of = line_at_once(monkeypatch), os.dup

    def copy_beside_bar(descriptor: int) -> int:
        progress.active_bars.append("dequantizing")
        return copy_of(descriptor)

    with ExitStack() as work:
        with monkeypatch.context() as beginning:  # pytest copies descriptors, too
            beginning.setattr(os, "dup", copy_beside_bar)
            work.enter_context(working("loading"))
        assert not told.wait(0.01)
        progress.active_bars.clear()
        assert told.wait(PATIENCE)
    assert "loading" in capfd.readouterr().err


def test_bar_ends_with_work_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    be_terminal(monkeypatch)
    counted = track([1, 2, 3], "counting")
    assert next(counted) == 1
    with pytest.raises(KeyboardInterrupt):
        counted.throw(KeyboardInterrupt)
    assert not progress.active_bars


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_cursor_is_shown_again_where_a_signal_ends_the_work(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_terminal(monkeypatch)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    counted = track([1, 2, 3], "counting")
    try:
        assert next(counted) == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "\x1b[?25h\n" in capfd.readouterr().err


def test_quick_work_shows_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(track(range(5), "counting")) == list(range(5))
    assert capsys.readouterr() == ("", "")


def test_bar_of_texts_says_counts_speed_and_time_and_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_terminal(monkeypatch)
    assert progress._text_bar("reading").live.transient
    with progress.track_texts("reading") as update:
        update(progress.TextProgress(texts=7, tokens=90, share=0.5))
    error = capsys.readouterr().err
    assert "reading" in error
    assert "7 texts" in error
    assert "s left" in error


def test_a_bar_appears_while_the_first_text_is_not_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", 0.01)
    begun = threading.Event()

    def start(bar: Progress) -> None:
        bar.start()
        begun.set()

    monkeypatch.setattr(progress, "_start", start)
    with progress.track_texts("reading"):
        assert begun.wait(PATIENCE)
    assert "reading" in capsys.readouterr().err
