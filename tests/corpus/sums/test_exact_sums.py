from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.corpus.sums.exact_sums import ExactSums

NUMBERS = st.lists(st.floats(-1000, 1000, allow_nan=False, width=32), min_size=1, max_size=30)


@given(NUMBERS, st.randoms())
def test_sums_of_any_parts_in_any_order_are_the_same_to_the_bit(numbers: list[float], random: Random) -> None:
    whole = ExactSums.of(np.array(numbers)[:, None], 40)
    shuffled, cut = random.sample(numbers, len(numbers)), random.randrange(len(numbers))
    parts = [ExactSums.of(np.array(part).reshape(-1, 1), 40) for part in (shuffled[cut:], shuffled[:cut])]
    added = parts[0] + parts[1]
    assert (added.high.tolist(), added.low.tolist()) == (whole.high.tolist(), whole.low.tolist())


@given(NUMBERS)
def test_a_sum_is_that_of_the_rounded_numbers(numbers: list[float]) -> None:
    rounded = sum(Fraction(round(Fraction(number) * 2**40), 2**40) for number in numbers)
    assert ExactSums.of(np.array(numbers)[:, None], 40).total[0] == pytest.approx(float(rounded), abs=1e-11)


def test_a_number_that_is_none_counts_nothing_and_one_too_large_is_refused() -> None:
    assert ExactSums.of(np.array([[np.nan], [2.5]]), 40).total.tolist() == [2.5]
    with pytest.raises(AttnvizError, match="too large to sum up"):
        ExactSums.of(np.array([[1e9]]), 40)
    with pytest.raises(AttnvizError, match="too large"):
        ExactSums.of(np.array([[np.inf]]), 40)


def test_each_metric_has_bits_of_its_own() -> None:
    sums = ExactSums.of(np.array([[0.3, 0.3], [0.3, 0.3]]), np.array([1, 40]))
    assert sums.total[0] == 1.0
    assert sums.total[1] == pytest.approx(0.6, abs=1e-11)
