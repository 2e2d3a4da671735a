"""A share of all pairs of options: none is a traceback, and none is lost beside another without a word."""

import pytest

from fuzzing.ignored import pairs, troubles, workplace

SECONDS = 45

pytestmark = pytest.mark.slow


def test_no_two_options_are_a_traceback_or_lose_one_another() -> None:
    with workplace() as folder:
        tried, found = troubles(SECONDS, seed=0, folder=folder)
    assert found == []
    assert tried > 0
    assert len(pairs(0)) > 5000
