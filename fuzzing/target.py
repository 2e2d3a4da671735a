"""Fuzzes a target: draws random cases for a time, tries each, and reduces failures to their simplest case."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

CASES_A_ROUND = 10  # drawn from one seed
MOST_SECONDS = 30.0  # of the processor, for any one case


@dataclass(frozen=True)
class Target:
    """An entry point of the program that must accept or refuse any input.

    Attributes:
        name: its name for ``python -m fuzzing``.
        cases: the strategy that draws its inputs.
        attempt: raises if a case is neither accepted nor refused in one line; it runs in an empty folder of its own.
    """

    name: str
    cases: SearchStrategy[Any]
    attempt: Callable[[Any], None]


def fuzz(target: Target, seconds: float, seed: int = 0) -> tuple[int, int, Exception | None]:
    """Tries cases for a number of seconds or until one fails.

    Returns:
        How many were tried, the seed after the last one used (they count up, so that a run can be repeated), and the
        failure of the simplest case that was found, which is in its notes.
    """
    end, tried = time.monotonic() + seconds, 0

    def attempt(case: Any) -> None:
        nonlocal tried
        tried += 1
        attempt_one(target, case)

    while time.monotonic() < end:
        try:
            round_of(target, attempt, seed)
        except Exception as failure:
            return tried, seed + 1, failure
        seed += 1
    return tried, seed, None


def round_of(target: Target, attempt: Callable[[Any], None], number: int) -> None:
    """Tries the cases of one seed."""
    chosen = settings(
        max_examples=CASES_A_ROUND,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
    )
    seeded(number)(chosen(given(target.cases)(attempt)))()


def attempt_one(target: Target, case: Any) -> None:
    """Tries one case in an empty folder, and raises if a half-written file stays."""
    before, start = Path.cwd(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            target.attempt(case)
        finally:
            os.chdir(before)
        leftovers = [path.name for path in Path(folder).rglob(".attnviz-*")]
        assert leftovers == [], f"left behind: {leftovers}"
    took = time.process_time() - start
    assert took < MOST_SECONDS, f"took {took:.0f} s"
