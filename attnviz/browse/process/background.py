"""Runs long work in threads, so that the thread that answers keys stays free."""

from collections.abc import Callable
from functools import partial
from threading import Thread

Work = Callable[[], None]


class Background:
    """Runs one thread at a time for each kind of work; the thread that answers keys learns its end or its exception.

    Args:
        call: calls a function in the thread that answers keys; may be used from any thread.
    """

    def __init__(self, call: Callable[[Work], object]) -> None:
        self.call = call
        self.busy: set[str] = set()

    def start(self, kind: str, work: Work, on_done: Work) -> None:
        """Starts work in a thread; does nothing if work of this kind is running.

        An exception of the work is raised in the thread that answers keys; no work of this kind starts after it.

        Args:
            kind: the kind of work.
            work: the work.
            on_done: called when the work is done, in the thread that answers keys; not called after an exception.
        """
        if kind not in self.busy:
            self.busy.add(kind)
            Thread(target=self._run, args=(kind, work, on_done), daemon=True).start()

    def _run(self, kind: str, work: Work, on_done: Work) -> None:
        """Does the work in this thread; then finishes it, or raises its exception, in the thread that answers keys."""
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
