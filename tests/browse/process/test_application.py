from collections.abc import Callable
from queue import Queue
from threading import Event

import pytest

from attnviz.browse.process.application import Background
from tests.patience import PATIENCE


def test_work_of_one_kind_is_done_once_at_a_time() -> None:
    told: Queue[Callable[[], None]] = Queue()
    aside, go = Background(told.put), Event()
    done: list[str] = []

    def first() -> None:
        go.wait(PATIENCE)
        done.append("first")

    aside.start("measure", first, lambda: done.append("then"))
    aside.start("measure", lambda: done.append("second"), lambda: None)
    go.set()
    told.get(timeout=PATIENCE)()
    assert done == ["first", "then"]
    assert not aside.busy_kinds


def test_bug_in_a_thread_is_raised_where_keys_are_answered() -> None:
    told: Queue[Callable[[], None]] = Queue()
    nothing: dict[str, None] = {}
    Background(told.put).start("measure", lambda: nothing["key"], lambda: None)
    with pytest.raises(KeyError, match="key"):
        told.get(timeout=PATIENCE)()
