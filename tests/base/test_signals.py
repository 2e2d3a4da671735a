"""What a signal would leave behind is undone, and the signal then does what it did before."""

import os
import signal
from threading import Thread

import pytest

from attnviz.base.signals import cleanup_on_signals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")


def test_interrupt_is_raised_after_what_it_would_leave_is_undone_from_the_inside_out() -> None:
    undone: list[str] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            cleanup_on_signals(lambda: undone.append("outer")),
            cleanup_on_signals(lambda: undone.append("inner")),
        ):
            signal.raise_signal(signal.SIGINT)
        assert undone == ["inner", "outer"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_first_signal_that_is_held_ends_nothing_and_a_second_does() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    reached: list[str] = []
    try:
        with cleanup_on_signals(lambda: True), cleanup_on_signals(lambda: reached.append("bar")):
            signal.raise_signal(signal.SIGINT)
            reached.append("on")
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert reached == ["bar", "on"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_signal_that_the_program_ignores_or_has_a_use_for_stays_its_own() -> None:
    taken: list[int] = []

    def take(number: int, frame: object) -> None:
        taken.append(number)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGUSR1, take)
    try:
        with cleanup_on_signals(lambda: pytest.fail("undone")):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGUSR1)
        assert taken == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGUSR1, before[1])


def test_thread_without_signals_goes_on() -> None:
    reached: list[bool] = []

    def work() -> None:
        with cleanup_on_signals(lambda: None):
            reached.append(True)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [True]
