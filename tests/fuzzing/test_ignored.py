"""A share of all pairs of options: none is a traceback."""

import pytest

from fuzzing.ignored import Answers, pairs, trouble, troubles, workplace

SECONDS = 45

pytestmark = pytest.mark.slow


def test_no_two_options_are_a_traceback() -> None:
    with workplace() as folder:
        tried, found = troubles(SECONDS, seed=0, folder=folder)
    assert [said for said in found if not said.endswith(" is lost")] == []  # some answers are alike by their numbers
    assert tried > 0
    assert len(pairs(0)) > 5000


@pytest.mark.parametrize(
    ("line", "first", "second"),
    [
        ("heads 'a b a b'", "--dropout 0.3", "--of contributions"),
        ("explain 'a b a b'", "--dropout 0.3", "--step softmax"),
        ("show 'a b a b' -o - --format html", "--style text", "--table scores"),
    ],
)
def test_an_option_that_another_leaves_without_effect_is_refused_or_said(line: str, first: str, second: str) -> None:
    with workplace() as folder:
        assert trouble(line, first, second, folder, Answers()) is None
