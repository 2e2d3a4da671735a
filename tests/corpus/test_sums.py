from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.corpus import sums
from attnviz.corpus.sums import ExactSums

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


def test_every_offset_and_position_is_in_the_bin_whose_span_holds_it() -> None:
    for number, (first, last) in enumerate(sums.offset_spans()):
        assert sums.offset_bin(np.array([first, last])).tolist() == [number, number]
    for number, (first, last) in enumerate(sums.position_spans()):
        assert sums.position_bin(np.array([first, last])).tolist() == [number, number]


def test_near_offsets_have_bins_of_their_own_and_far_ones_grow() -> None:
    spans = sums.offset_spans()
    middle = len(spans) // 2
    assert [first for first, last in spans if first == last] == list(range(-16, 17))
    assert spans[middle] == (0, 0)
    assert spans[middle + 17] == (17, 24)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_a_decile_is_within_a_bin_of_that_of_all_numbers(numbers: list[float]) -> None:
    counts = np.bincount(sums.bin_of(np.array(numbers), "share"), minlength=sums.HISTOGRAM_BINS)
    widest = np.diff(sums.histogram_edges("share")).max()
    deciles = sums.quantiles(np.stack([counts[::-1], counts]), "share", [tenth / 10 for tenth in range(11)])[1]
    for tenth, found in enumerate(deciles.tolist()):
        exact = np.quantile(numbers, tenth / 10, method="inverted_cdf")
        later = np.quantile(numbers, tenth / 10, method="higher")
        assert min(exact, later) - widest - 1e-9 <= found <= max(exact, later) + widest + 1e-9


@pytest.mark.parametrize(("unit", "number"), [("share", 1.0), ("bits", 40.0), ("tokens", 1e9)])
def test_numbers_beyond_the_edges_count_in_the_outermost_bins(unit: str, number: float) -> None:
    assert sums.bin_of(np.array([-1.0, number]), unit).tolist() == [0, sums.HISTOGRAM_BINS - 1]


def test_quantiles_of_nothing_are_none() -> None:
    assert np.isnan(sums.quantiles(np.zeros(sums.HISTOGRAM_BINS, dtype=np.int64), "bits", [0.5])).all()


def test_a_quantile_lies_within_its_bin_by_the_share_of_its_numbers() -> None:
    counts = np.zeros(sums.HISTOGRAM_BINS, dtype=np.int64)
    counts[[2, 5]] = 4, 6
    edges = sums.histogram_edges("share")
    middles = (edges[2] + edges[3]) / 2, (edges[5] + edges[6]) / 2
    assert sums.quantiles(counts, "share", [0.2, 0.7]) == pytest.approx(middles)


def test_bins_are_as_many_as_their_spans() -> None:
    assert sums.offset_bins() == len(sums.offset_spans())
    assert sums.position_bins() == len(sums.position_spans())
