"""Work in threads, beside the thread of the keys."""

from collections.abc import Callable
from functools import partial
from threading import Thread

Work = Callable[[], None]


class Background:
    """At most one thread for each kind of work; what it finds, and its bugs, go to the thread of the keys."""

    def __init__(self, tell: Callable[[Work], object]) -> None:
        """``tell`` has a function called in the thread of the keys, from any other."""
        self.tell = tell
        self.busy: set[str] = set()

    def start(self, kind: str, work: Work, then: Work) -> None:
        """Does the work unless some of its kind is being done, and calls ``then`` in the thread of the keys."""
        if kind not in self.busy:
            self.busy.add(kind)
            Thread(target=self._do, args=(kind, work, then), daemon=True).start()

    def _do(self, kind: str, work: Work, then: Work) -> None:
        try:
            work()
        except BaseException as bug:
            self.tell(partial(_raise, bug))
        else:
            self.tell(partial(self._end, kind, then))

    def _end(self, kind: str, then: Work) -> None:
        self.busy.discard(kind)
        then()


def _raise(bug: BaseException) -> None:
    raise bug
