"""A share of the fuzzing, from the same seeds in every run."""

import pytest

from tests.fuzz.target import fuzz
from tests.fuzz.targets import TARGETS

SECONDS = 60  # of all targets together

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_taken_or_refused_in_one_line(name: str) -> None:
    tried, _, failure = fuzz(TARGETS[name], SECONDS / len(TARGETS))
    if failure is not None:
        raise failure
    assert tried > 0
