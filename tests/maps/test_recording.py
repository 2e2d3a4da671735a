"""A file's weights are checked by a few rows: their range, and their sums within the precision of their numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording, weight_warnings
from attnviz.streaming.overview import bands_of_queries, block_edges
from tests.conftest import KEYS, QUERIES, dense_maps
from tests.maps.examples import factored

ALL = (slice(0, QUERIES), slice(0, KEYS))


def test_window_gives_the_block_of_the_heads_asked_for() -> None:
    maps = dense_maps()
    window = maps.window((2, 0), slice(1, 4), slice(2, 7))
    assert np.array_equal(window.scores, maps.scores[[2, 0], 1:4, 2:7])
    assert np.array_equal(window.weights, maps.weights[[2, 0], 1:4, 2:7])
    assert window.visible.shape == (3, 5)


def test_heads_are_found_by_their_own_numbers() -> None:
    maps = replace(dense_maps(), heads=(4, 9, 11))
    assert np.array_equal(maps.window((11,), *ALL).weights[0], maps.weights[2])


def test_overview_is_mean_and_maximum_of_each_block_by_hand() -> None:
    maps = dense_maps()
    overview = maps.overview((1,), 2, 3, *ALL)
    block = maps.weights[1, 2:5, 4:7]  # edges of 5 in 2 are 0 2 5, of 7 in 3 are 0 2 4 7
    assert overview.mean[0, 1, 2] == pytest.approx(block.mean())
    assert overview.maximum[0, 1, 2] == block.max()
    assert overview.mean.shape == (1, 2, 3)


def test_overview_of_one_pixel_a_cell_is_the_weights() -> None:
    maps = dense_maps(causal=True)
    overview = maps.overview((0,), QUERIES, KEYS, *ALL)
    assert np.array_equal(overview.mean, maps.weights[:1])
    assert np.array_equal(overview.visible, maps.visible)


def test_overview_averages_over_visible_cells_alone() -> None:
    maps = dense_maps(causal=True)
    overview = maps.overview((0,), 1, 1, *ALL)
    assert overview.mean[0, 0, 0] == pytest.approx(QUERIES / maps.visible.sum())  # rows sum to one


def test_overview_of_hidden_cells_is_not_visible() -> None:
    overview = dense_maps(causal=True).overview((0,), QUERIES, KEYS, slice(0, 2), slice(2, KEYS))
    assert not overview.visible.any()
    assert not overview.mean.any()


@given(st.integers(1, 50), st.data())
def test_blocks_cover_every_cell_once_and_differ_by_at_most_one(count: int, data: st.DataObject) -> None:
    edges = block_edges(count, data.draw(st.integers(1, count)))
    assert edges[0] == 0
    assert edges[-1] == count
    assert np.ptp(np.diff(edges)) <= 1


def test_bands_cover_all_queries_once_and_have_at_most_so_many_cells() -> None:
    assert list(bands_of_queries(slice(3, 12), 5, 19)) == [slice(3, 6), slice(6, 9), slice(9, 12)]
    assert list(bands_of_queries(slice(3, 8), 5, 19)) == [slice(3, 6), slice(6, 8)]


def test_a_band_has_one_query_where_its_keys_alone_are_more_cells() -> None:
    assert list(bands_of_queries(slice(3, 5), 20, 19)) == [slice(3, 4), slice(4, 5)]


def test_maps_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        dense_maps().weights[0, 0, 0] = 1


@pytest.mark.parametrize("name", ["scores", "weights", "visible"])
def test_refuses_arrays_that_are_turned(name: str) -> None:
    maps = dense_maps()
    with pytest.raises(AttnvizError, match=f"{name} has shape"):
        replace(maps, **{name: np.swapaxes(getattr(maps, name), -1, -2)})


def test_refuses_a_recording_of_nothing() -> None:
    with pytest.raises(AttnvizError, match="nothing was recorded"):
        Recording(maps=(), model="none")


def test_a_recording_says_what_it_holds_without_its_numbers() -> None:
    maps, remark = tuple(dense_maps(layer) for layer in range(20)), "Not used: the labels in tokens."
    first, second, *_, last, said = repr(Recording(maps=maps, model="tiny", remarks=(remark,))).splitlines()
    assert said == remark
    assert first == "Recording of tiny, in order of its layers:"
    assert second == "  DenseMaps(layer 0 in 'layers.0', cross-attention, text 0, heads 0-2, 5 queries x 7 keys)"
    assert last == "  … and 8 more"


def test_layers_without_attention_are_counted_once_and_in_the_whole_run() -> None:
    silent_layers = {0: "a recurrence"}
    whole = Recording(maps=(dense_maps(1), dense_maps(2)), model="tiny", silent_layers=silent_layers, remarks=("A.",))
    expected = ("2 of 3 layers attend.", "Layer 0: a recurrence, nothing to draw.", "A.")
    assert whole.remarks == expected
    assert replace(whole, maps=whole.maps[:1]).remarks == expected
    reworded = replace(whole, maps=whole.maps[:1], remarks=tuple(map(str.upper, expected)))
    assert reworded.remarks == tuple(map(str.upper, expected))


def maps_with_factor(factor: float) -> DenseMaps:
    """Maps whose weights are those of a softmax times a factor."""
    maps = dense_maps(causal=False)
    return replace(maps, weights=(maps.weights * factor).astype(np.float32))


@pytest.mark.parametrize("factor", [1.0, 0.985, 1.015])
def test_sums_within_the_precision_of_half_are_no_reason_to_warn(factor: float) -> None:
    assert weight_warnings([maps_with_factor(factor)]) == ()


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_rows_that_do_not_sum_to_one_are_said_with_their_sums(factor: float) -> None:
    (warning,) = weight_warnings([maps_with_factor(factor)])
    assert f"{factor:.3g}" in warning


@pytest.mark.parametrize(("cell", "warned"), [(1.0009, False), (1.01, True), (-0.0009, False), (-0.01, True)])
def test_weights_outside_of_0_to_1_are_said(cell: float, warned: bool) -> None:
    maps = dense_maps(causal=False)
    weights = np.zeros_like(maps.weights)
    weights[..., 0], weights[..., 1] = cell, 1 - cell
    warnings = weight_warnings([replace(maps, weights=weights)])
    assert any("from 0 to 1" in warning for warning in warnings) == warned


def test_rows_of_factors_rounded_to_bfloat16_may_differ_more() -> None:
    maps = factored()
    logsumexp = np.asarray(maps.factors.logsumexp) + np.float32(np.log(1.1))  # every row sums to 1 / 1.1
    shifted = replace(maps, factors=replace(maps.factors, logsumexp=logsumexp))
    assert len(weight_warnings([shifted])) == 1
    assert weight_warnings([replace(shifted, rounding=2.0**-8)]) == ()
