"""Work on what strangers wrote ends: with what it returns, or with a line."""

import pytest

from attnviz.base import bounded as module
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError


def test_what_the_work_returns_comes_back() -> None:
    assert run_bounded(lambda: "é\n\ud800", "it") == "é\n\ud800"
    assert run_bounded(lambda: "x" * 3_000_000, "it") == "x" * 3_000_000


def test_work_that_fails_says_why() -> None:
    def fail() -> str:
        raise KeyError("no é")

    with pytest.raises(AttnvizError, match="it fails: 'no é'"):
        run_bounded(fail, "it")


def test_work_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SECONDS", 0.3)

    def spin() -> str:
        while True:
            pass

    with pytest.raises(AttnvizError, match=r"it does not end in 0\.3 seconds"):
        run_bounded(spin, "it")


def test_work_takes_no_more_memory_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MEMORY", 2**28)
    monkeypatch.setattr(module, "MAX_RESULT_BYTES", 2**20)
    for size in (2**30, 2**22):
        with pytest.raises(AttnvizError, match="it takes more memory"):
            run_bounded(lambda size=size: "x" * size, "it")  # type: ignore[misc]
