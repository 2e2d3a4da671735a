"""A share of the fuzzing, from the same seeds in every run."""

from pathlib import Path

import pytest

from fuzzing.sweep import cases, try_case
from fuzzing.target import fuzz
from fuzzing.targets import TARGETS

SECONDS = 60  # of all targets together
EVERY = 199  # of the settings of a folder, one case in so many

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_taken_or_refused_in_one_line(name: str) -> None:
    tried, _, failure = fuzz(TARGETS[name], SECONDS / len(TARGETS))
    if failure is not None:
        raise failure
    assert tried > 0


def test_any_value_of_a_folders_setting_is_drawn_or_refused_in_one_line(in_folder: Path) -> None:
    assert {try_case(*case) for case in cases(every=EVERY)} == {0, 1}
