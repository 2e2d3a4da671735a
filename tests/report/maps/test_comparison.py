from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import Window
from attnviz.maps.recording import Recording
from attnviz.metrics.change import compare, jensen_shannon, total_variation
from attnviz.render.formats import medium_of
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import ExactNumbers
from attnviz.text.selection import Selection
from tests.conftest import KEYS, LAYERS, dense, dense_maps
from tests.report.examples import drawn


@pytest.fixture
def other() -> Recording:
    return Recording(maps=tuple(dense_maps(layer, causal=True, seed=9) for layer in range(LAYERS)), model="a test")


def test_total_variation_of_disjoint_rows_is_one_and_of_equal_rows_zero() -> None:
    a, b = np.array([[1.0, 0, 0], [0.2, 0.3, 0.5]]), np.array([[0, 0.5, 0.5], [0.2, 0.3, 0.5]])
    assert total_variation(a, b).tolist() == [1.0, 0.0]


def test_jensen_shannon_by_hand() -> None:
    a, b = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    # second row: middle (.75, .25); (1 * log2(1/.75) + .5 * log2(.5/.75) + .5 * log2(.5/.25)) / 2
    expected = (np.log2(4 / 3) + 0.5 * np.log2(2 / 3) + 0.5 * np.log2(2)) / 2
    assert jensen_shannon(a, b) == pytest.approx([1.0, expected])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=9))
def test_both_measures_are_symmetric_and_within_their_bounds(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.array([pair[side] + 1e-3 for pair in pairs]) for side in (0, 1))
    a, b = a / a.sum(), b / b.sum()
    for measure in (total_variation, jensen_shannon):
        assert 0 <= measure(a, b) <= 1
        assert measure(a, b) == pytest.approx(measure(b, a))
        assert measure(a, a) == pytest.approx(0, abs=1e-12)


def test_change_of_a_head_is_over_its_own_queries(recording: Recording, other: Recording) -> None:
    changes = compare(recording, other)
    rows = total_variation(dense(recording, 1).weights[1], dense(other, 1).weights[1])
    assert changes.value("1.1", "variation_mean") == pytest.approx(rows.mean())
    assert changes.value("1.1", "variation_max") == pytest.approx(rows.max())


def test_long_maps_are_compared_in_bands_to_the_same_numbers(
    recording: Recording, other: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compare(recording, other)
    monkeypatch.setattr("attnviz.metrics.change.BAND_CELLS", 2 * KEYS)
    taken: list[int] = []
    window = DenseMaps.window

    def watched(maps: DenseMaps, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        taken.append(queries.stop - queries.start)
        return window(maps, heads, queries, keys)

    monkeypatch.setattr(DenseMaps, "window", watched)
    monkeypatch.setattr("attnviz.metrics.change._entropies", lambda heads: np.zeros(len(heads)))
    banded = compare(recording, other)
    assert set(taken) == {2, 1}
    assert banded.rows == whole.rows
    for name in ("variation_max", "divergence_max"):
        np.testing.assert_array_equal(banded.column(name), whole.column(name))
    np.testing.assert_allclose(banded.column("variation_mean"), whole.column("variation_mean"), rtol=0, atol=1e-12)


def test_only_chosen_heads_are_compared(recording: Recording, other: Recording) -> None:
    chosen = compare(recording, other, Selection(pairs=((1, 2), (0, 0))))
    every = compare(recording, other)
    assert [row.name for row in chosen.rows] == ["1.2", "0.0"]
    np.testing.assert_array_equal(chosen.values, every.values[[every.row_index("1.2"), every.row_index("0.0")]])


@pytest.mark.parametrize("sort", [None, "change"])
def test_a_page_gets_the_change_of_each_head_in_the_order_recorded(
    recording: Recording, other: Recording, sort: str | None
) -> None:
    report = comparison_report(
        recording, other, "--causal", ReportOptions(sort=sort, medium=medium_of(".html", Look()))
    )
    assert isinstance(report, ExactNumbers)
    assert report.frame is not None
    changes = compare(recording, other)
    assert report.frame.rows == changes.rows
    assert report.frame.names == ("change", "divergence")
    np.testing.assert_array_equal(report.frame.column("change"), changes.column("variation_mean"))
    assert [head.change for head in report.heads] == [changes.numbers_of(place) for place in range(6)]


def test_rows_that_see_nothing_in_both_do_not_count(recording: Recording) -> None:
    maps = dense(recording)
    visible = maps.visible.copy()
    visible[4] = False
    weights = np.where(visible, maps.weights, 0)
    padded = Recording(maps=(replace(maps, visible=visible, weights=weights),), model="a test")
    turned = replace(dense(padded), weights=weights[:, ::-1].copy())
    changes = compare(padded, Recording(maps=(turned,), model="a test"))
    assert changes.column("variation_mean")[0] == pytest.approx(
        total_variation(weights[0], weights[0, ::-1])[:4].mean()
    )


def test_panels_are_a_and_b_and_their_difference(recording: Recording, other: Recording) -> None:
    options = ReportOptions(selection=Selection.parse(heads="1.2"))
    report = drawn(comparison_report(recording, other, "--causal", options))
    a, b, difference = report.panels
    assert [panel.title for panel in report.panels] == [
        "1.2 without --causal",
        "1.2 with --causal",
        "1.2 with − without",
    ]
    assert np.array_equal(a.values, dense(recording, 1).weights[2])
    assert np.array_equal(b.values, dense(other, 1).weights[2])
    assert np.array_equal(difference.values, b.values - a.values)
    assert a.scale == b.scale != difference.scale
    assert difference.visible.all()
    assert report.across == 3


def test_caption_names_the_change_and_the_head_that_changes_most(recording: Recording, other: Recording) -> None:
    changes = compare(recording, other)
    most = changes.rows[changes.ranked_rows("variation_mean")[0]]
    caption = comparison_report(recording, other, "--causal", ReportOptions()).caption
    assert f"after (B) --causal in a test: head {most.name} changes most" in caption


def test_a_page_says_first_which_heads_change_most_and_leads_to_them(recording: Recording, other: Recording) -> None:
    options = ReportOptions(medium=medium_of(".html", Look()))
    changes = compare(recording, other)
    most = changes.ranked_rows("variation_mean")[:3]
    links = [f"{changes.rows[row].name} ({changes.column('variation_mean')[row]:.2f})" for row in most]
    report, same = (comparison_report(recording, b, "--causal", options) for b in (other, recording))
    assert isinstance(report, ExactNumbers)
    assert isinstance(same, ExactNumbers)
    assert "".join(phrase.text for phrase in report.first_sentence) == f"Heads that change most: {', '.join(links)}."
    addresses = [phrase.address for phrase in report.first_sentence if phrase.address]
    assert addresses == [f"head={changes.rows[row].name}" for row in most]
    assert same.first_sentence == ()


def test_no_change_is_said(recording: Recording) -> None:
    assert comparison_report(recording, recording, "--set seed=0", ReportOptions()).caption.endswith(
        "no weight changes."
    )


def test_weights_that_are_not_numbers_are_said_instead_of_no_change(recording: Recording) -> None:
    weights = dense(recording).weights.copy()
    weights[1, 2, 3] = np.nan
    broken = replace(recording, maps=(replace(dense(recording), weights=weights), *recording.maps[1:]))
    caption = comparison_report(recording, broken, "--set seed=0", ReportOptions()).caption
    assert caption.endswith("the change of 1 head is unknown, since weights are not numbers.")


def test_entropy_of_both_sides_is_in_bits_over_queries_with_a_choice() -> None:
    maps = dense_maps()
    even = np.full_like(maps.weights, 1 / 7)
    sharp = np.zeros_like(maps.weights)
    sharp[:, :, :2] = 0.5
    before, after = (Recording(maps=(replace(maps, weights=each),), model="a test") for each in (even, sharp))
    change = compare(before, after).numbers_of(0)
    assert change["entropy_a"] == pytest.approx(np.log2(7), abs=1e-6)
    assert change["entropy_b"] == pytest.approx(1, abs=1e-6)


def test_summary_has_a_row_for_each_chosen_head(recording: Recording, other: Recording) -> None:
    options = ReportOptions(selection=Selection.parse(layers="1"))
    summary = comparison_report(recording, other, "--causal", options).summary
    assert summary is not None
    assert [row[0] for row in summary.rows] == ["1.0", "1.1", "1.2"]


def test_refuses_recordings_with_other_heads(recording: Recording) -> None:
    maps = dense(recording)
    fewer = replace(maps, heads=(0, 1), scores=maps.scores[:2], weights=maps.weights[:2])
    with pytest.raises(AttnvizError, match="A and B have different heads in layer 0, 0-2 and 0-1; compare"):
        compare(Recording(maps=(maps,), model="a"), Recording(maps=(fewer,), model="b"))


def test_refuses_recordings_with_other_layers(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="different attention calls, 2 in layers 0-1 and 1 in layers 0; compare"):
        compare(recording, replace(recording, maps=recording.maps[:1]))


def test_a_picture_says_what_its_a_and_b_are(recording: Recording) -> None:
    long = "--with-model another-model"
    picture, other = (
        drawn(comparison_report(recording, recording, change, ReportOptions(medium=Medium(one_page=True))))
        for change in ("--causal", long)
    )
    assert picture.panels[0].title.endswith("without --causal")
    assert other.panels[0].title.endswith("before")
    assert other.remarks[0] == f"A is before, B is after {long}."


def test_a_report_of_other_layers_is_refused(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="different attention calls, 2 in layers 0-1 and 1 in layers 0; compare"):
        comparison_report(recording, replace(recording, maps=recording.maps[:1]), "another model", ReportOptions())
