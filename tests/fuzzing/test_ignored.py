"""A share of all pairs of options: none is a traceback."""

import pytest

from fuzzing.ignored import pairs, troubles, workplace

SECONDS = 45

pytestmark = pytest.mark.slow


def test_no_two_options_are_a_traceback() -> None:
    with workplace() as folder:
        tried, found = troubles(SECONDS, seed=0, folder=folder)
    assert [said for said in found if not said.endswith(" is lost")] == []  # some answers are alike by their numbers
    assert tried > 0
    assert len(pairs(0)) > 5000
