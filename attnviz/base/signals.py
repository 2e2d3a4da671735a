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


class _CleanupHandler:
    """A signal handler that cleans up and then passes the signal to the handler that it replaced.

    Attributes:
        previous: the replaced handlers, by the number of their signal.
    """

    def __init__(self, undo: Callable[[], object]) -> None:
        self.undo = undo
        self.previous: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Cleans up, restores the handler that this one replaced, and passes the signal to it unless it is held."""
        is_held = self.undo() is True
        previous_handler = self.previous.pop(number)
        signal.signal(number, previous_handler)
        if is_held:
            return
        if callable(previous_handler):
            previous_handler(number, frame)
        else:  # the system's handler, which Python cannot call
            signal.raise_signal(number)

    def install(self) -> None:
        """Becomes the handler of each of `ENDING_SIGNALS` that has the default handler or another `_CleanupHandler`."""
        for number in ENDING_SIGNALS:
            current = signal.getsignal(number)
            if current in (signal.SIG_DFL, signal.default_int_handler) or isinstance(current, _CleanupHandler):
                self.previous[number] = current
                signal.signal(number, self)

    def remove(self) -> None:
        """Restores the replaced handler of each signal that this one still handles."""
        for number, previous in self.previous.items():
            if signal.getsignal(number) is self:
                signal.signal(number, previous)


@contextmanager
def cleanup_on_signals(undo: Callable[[], object]) -> Iterator[None]:
    """Calls ``undo`` before a signal ends the process within the ``with`` block.

    If ``undo`` returns True the process goes on, and only a second signal ends it.

    Does nothing outside the main thread, where Python handles no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _CleanupHandler(undo)
    try:
        handler.install()
        yield
    finally:
        handler.remove()
