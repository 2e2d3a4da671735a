"""A share of the fuzzing: a round of each target, by the seed of the day."""

from pathlib import Path

import pytest

from fuzzing.sweep import cases, try_case
from fuzzing.target import attempt_one, round_of
from fuzzing.targets import TARGETS
from tests.today import SEED

EVERY = 499  # of the settings of a folder, one case in so many

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_taken_or_refused_in_one_line(name: str) -> None:
    tried = []

    def attempt(case: object) -> None:
        tried.append(case)
        attempt_one(TARGETS[name], case)

    round_of(TARGETS[name], attempt, SEED)
    assert tried


def test_any_value_of_a_folders_setting_is_drawn_or_refused_in_one_line(in_folder: Path) -> None:
    assert {try_case(*case) for case in cases(every=EVERY)} == {0, 1}
