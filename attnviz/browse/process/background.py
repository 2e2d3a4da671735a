"""Runs long work in threads, so that the main thread, which answers key presses, stays free."""

from collections.abc import Callable
from functools import partial
from threading import Thread

Work = Callable[[], None]


class Background:
    """Runs at most one thread for each kind of work, and reports its end or exception to the main thread."""

    def __init__(self, call: Callable[[Work], object]) -> None:
        self.call = call
        self.busy_kinds: set[str] = set()

    def start(self, kind: str, work: Work, on_done: Work) -> None:
        """Starts work in a thread; does nothing if work of this kind is running.

        An exception of the work is raised in the main thread; no work of this kind starts after it.
        """
        if kind not in self.busy_kinds:
            self.busy_kinds.add(kind)
            Thread(target=self._run, args=(kind, work, on_done), daemon=True).start()

    def _run(self, kind: str, work: Work, on_done: Work) -> None:
        """Does the work in this thread; then finishes it, or raises its exception, in the main thread."""
        try:
            work()
        except BaseException as bug:
            self.call(partial(_raise, bug))
        else:
            self.call(partial(self._finish, kind, on_done))

    def _finish(self, kind: str, on_done: Work) -> None:
        """Allows other work of this kind, and calls ``on_done``."""
        self.busy_kinds.discard(kind)
        on_done()


def _raise(bug: BaseException) -> None:
    """Raises the bug in the thread that calls this."""
    raise bug
