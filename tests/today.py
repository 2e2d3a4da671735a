"""The suite tries a share of many cases, another one each day.

``TESTS_SEED=739583 pytest`` repeats a day, and ``TESTS_WHOLE=1 pytest`` tries all cases.
"""

import os
from collections.abc import Iterable
from datetime import date
from typing import TypeVar

Case = TypeVar("Case")

SEED = int(os.environ.setdefault("TESTS_SEED", str(date.today().toordinal())))  # the same in each process of a run
WHOLE = bool(os.environ.get("TESTS_WHOLE"))


def todays(cases: Iterable[Case], one_in: int) -> list[Case]:
    """Returns every so many-th of the cases, so that as many days try all."""
    return [case for number, case in enumerate(cases) if WHOLE or (number + SEED) % one_in == 0]
