"""Runs long work in threads, so that the thread that answers keys stays free."""

from collections.abc import Callable
from functools import partial
from threading import Thread

Work = Callable[[], None]


class Background:
    """Runs at most one thread for each kind of work, and reports its end or its bug to the thread that answers keys.

    Args:
        call: calls a function in the thread that answers keys; may be used from any thread.
    """

    def __init__(self, call: Callable[[Work], object]) -> None:
        self.call = call
        self.busy: set[str] = set()

    def start(self, kind: str, work: Work, on_done: Work) -> None:
        """Starts work in a thread; does nothing if work of this kind is running.

        Args:
            kind: the kind of work.
            work: the work.
            on_done: called in the thread that answers keys when the work is done.
        """
        if kind not in self.busy:
            self.busy.add(kind)
            Thread(target=self._run, args=(kind, work, on_done), daemon=True).start()

    def _run(self, kind: str, work: Work, on_done: Work) -> None:
        """Does the work in the thread that calls this, then reports its end, or raises its bug, in the one for keys."""
        try:
            work()
        except BaseException as bug:
            self.call(partial(_raise, bug))
        else:
            self.call(partial(self._finish, kind, on_done))

    def _finish(self, kind: str, on_done: Work) -> None:
        """Allows other work of this kind, and calls ``on_done``."""
        self.busy.discard(kind)
        on_done()


def _raise(bug: BaseException) -> None:
    """Raises the bug in the thread that calls this."""
    raise bug
