import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.corpus.sums import bins


def test_every_offset_and_position_is_in_the_bin_whose_span_holds_it() -> None:
    for number, (first, last) in enumerate(bins.offset_spans()):
        assert bins.offset_bin(np.array([first, last])).tolist() == [number, number]
    for number, (first, last) in enumerate(bins.position_spans()):
        assert bins.position_bin(np.array([first, last])).tolist() == [number, number]


def test_near_offsets_have_bins_of_their_own_and_far_ones_grow() -> None:
    spans = bins.offset_spans()
    middle = len(spans) // 2
    assert [first for first, last in spans if first == last] == list(range(-16, 17))
    assert spans[middle] == (0, 0)
    assert spans[middle + 17] == (17, 24)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_a_decile_is_within_a_bin_of_that_of_all_numbers(numbers: list[float]) -> None:
    counts = np.bincount(bins.bin_of(np.array(numbers), "share"), minlength=bins.HISTOGRAM_BINS)
    widest = np.diff(bins.histogram_edges("share")).max()
    for tenth in range(11):
        exact = np.quantile(numbers, tenth / 10, method="inverted_cdf")
        later = np.quantile(numbers, tenth / 10, method="higher")
        found = bins.quantile(counts, "share", tenth / 10)
        assert min(exact, later) - widest - 1e-9 <= found <= max(exact, later) + widest + 1e-9


@pytest.mark.parametrize(("unit", "number"), [("share", 1.0), ("bits", 40.0), ("tokens", 1e9)])
def test_numbers_beyond_the_edges_count_in_the_outermost_bins(unit: str, number: float) -> None:
    assert bins.bin_of(np.array([-1.0, number]), unit).tolist() == [0, bins.HISTOGRAM_BINS - 1]


def test_quantiles_of_nothing_are_none() -> None:
    assert np.isnan(bins.quantile(np.zeros(bins.HISTOGRAM_BINS, dtype=np.int64), "bits", 0.5))


def test_a_quantile_lies_within_its_bin_by_the_share_of_its_numbers() -> None:
    counts = np.zeros(bins.HISTOGRAM_BINS, dtype=np.int64)
    counts[[2, 5]] = 4, 6
    edges = bins.histogram_edges("share")
    assert bins.quantile(counts, "share", 0.2) == pytest.approx((edges[2] + edges[3]) / 2)
    assert bins.quantile(counts, "share", 0.7) == pytest.approx((edges[5] + edges[6]) / 2)


def test_bins_are_as_many_as_their_spans() -> None:
    assert bins.offset_bins() == len(bins.offset_spans())
    assert bins.position_bins() == len(bins.position_spans())
