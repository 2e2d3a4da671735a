"""Runs long work in threads, beside the thread that answers keys."""

from collections.abc import Callable
from functools import partial
from threading import Thread

Work = Callable[[], None]


class Background:
    """At most one thread per kind of work; results and bugs go to the thread that answers keys.

    Args:
        call: calls a function in the thread that answers keys, from any thread.
    """

    def __init__(self, call: Callable[[Work], object]) -> None:
        self.call = call
        self.busy: set[str] = set()

    def start(self, kind: str, work: Work, then: Work) -> None:
        """Starts work in a thread, unless work of its kind is running.

        Args:
            kind: the kind of work.
            work: the work.
            then: called in the thread that answers keys when the work is done.
        """
        if kind not in self.busy:
            self.busy.add(kind)
            Thread(target=self._do, args=(kind, work, then), daemon=True).start()

    def _do(self, kind: str, work: Work, then: Work) -> None:
        try:
            work()
        except BaseException as bug:
            self.call(partial(_raise, bug))
        else:
            self.call(partial(self._end, kind, then))

    def _end(self, kind: str, then: Work) -> None:
        self.busy.discard(kind)
        then()


def _raise(bug: BaseException) -> None:
    raise bug
