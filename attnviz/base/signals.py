"""Calls a clean-up function before a signal ends the process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
    if hasattr(signal, name)  # Windows lacks most of them
)
SIGNAL_EXIT_BASE = 128  # plus the signal's number: the exit code that shells report for a process that a signal ended


class CleanupHandler:
    """A signal handler that cleans up and then passes the signal to the handler before it.

    Args:
        undo: the clean-up function; called at most once for each signal, between any two steps of the program.
    """

    def __init__(self, undo: Callable[[], object]) -> None:
        self.undo = undo
        self.before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Cleans up, restores the handler before this one, and passes the signal to it."""
        self.undo()
        before = self.before.pop(number)
        signal.signal(number, before)
        if callable(before):
            before(number, frame)
        else:
            signal.raise_signal(number)

    def install(self) -> None:
        """Handles the signals that would end the process, but none that the program handles itself."""
        for number in ENDING_SIGNALS:
            before = signal.getsignal(number)
            if before in (signal.SIG_DFL, signal.default_int_handler) or isinstance(before, CleanupHandler):
                self.before[number] = before
                signal.signal(number, self)

    def remove(self) -> None:
        """Restores the handlers of the signals that it still handles."""
        for number, before in self.before.items():
            if signal.getsignal(number) is self:
                signal.signal(number, before)


@contextmanager
def cleanup_on_signals(undo: Callable[[], object]) -> Iterator[None]:
    """Calls ``undo`` first if a signal would end the process within the ``with`` block.

    It does nothing outside the main thread, where Python handles no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = CleanupHandler(undo)
    try:
        handler.install()
        yield
    finally:
        handler.remove()
