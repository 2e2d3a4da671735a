"""No option is ignored in silence, alone; and of two options together, none is a traceback."""

from itertools import islice

import pytest

from fuzzing.ignored import Answers, dropped, pairs, singles, trouble, troubles, workplace
from tests.today import SEED, WHOLE

COUNT = 2_000 if WHOLE else 60  # of all pairs
OPTIONS = 900 if WHOLE else 8  # of all options of all lines

pytestmark = pytest.mark.slow


def test_no_two_options_are_a_traceback() -> None:
    with workplace() as folder:
        found = list(troubles(islice(pairs(SEED), COUNT), folder))
    assert [said for said in found if not said.endswith(" is lost")] == []  # some answers are alike by their numbers
    assert len(pairs(0)) > 5000


def test_no_option_is_ignored_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled(), workplace() as folder:  # an answer goes to the descriptors, which pytest would replace
        found = dropped(islice(singles(SEED), OPTIONS), folder)
    assert found == []
    assert len(singles(0)) > 900


@pytest.mark.parametrize(
    ("line", "first", "second"),
    [
        ("heads 'a b a b'", "--set dropout=0.3", "--of contributions"),
        ("explain 'a b a b'", "--set dropout=0.3", "--step softmax"),
        ("show 'a b a b' -o -.html", "--style text", "--style scores"),
    ],
)
def test_an_option_that_another_leaves_without_effect_is_refused_or_said(line: str, first: str, second: str) -> None:
    with workplace() as folder:
        assert trouble(line, first, second, folder, Answers()) is None
