"""Has what a signal would leave behind undone before the signal ends the process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
    if hasattr(signal, name)  # Windows has two of them
)
SIGNALLED = 128  # with the signal's number added, what shells call the exit code of a process that it ended


class Undoing:
    """A handler of signals that has something undone, and then lets the signal do what it did before.

    Args:
        undo: what it has done; called at most once a signal, between any two steps of the program.
    """

    def __init__(self, undo: Callable[[], object]) -> None:
        self.undo = undo
        self.before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Has it undone, and the signal do what it did before."""
        self.undo()
        before = self.before.pop(number)
        signal.signal(number, before)
        if callable(before):
            before(number, frame)
        else:
            signal.raise_signal(number)

    def install(self) -> None:
        """Takes the signals that would end the process; those that a program has a use for stay its own."""
        for number in ENDING:
            before = signal.getsignal(number)
            if before in (signal.SIG_DFL, signal.default_int_handler) or isinstance(before, Undoing):
                self.before[number] = before
                signal.signal(number, self)

    def remove(self) -> None:
        """Gives back the signals that are still its own."""
        for number, before in self.before.items():
            if signal.getsignal(number) is self:
                signal.signal(number, before)


@contextmanager
def undone_by_signals(undo: Callable[[], object]) -> Iterator[None]:
    """Within, a signal that would end the process has ``undo`` called first.

    Python hands signals to its main thread alone: in any other this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = Undoing(undo)
    try:
        handler.install()
        yield
    finally:
        handler.remove()
