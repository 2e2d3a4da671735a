"""The colour scale that panels share."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import (
    CHANGE,
    CONTRIBUTION,
    LIFT,
    PERCENT,
    SCORE,
    WEIGHT,
    Axis,
    Heading,
    Panel,
    Quantity,
)
from attnviz.report.picture.scales import EVEN_REACH, MAX_THUMBNAIL_RATIO, scale_remarks, share_scales, shared_scale
from attnviz.text.selection import Selection
from tests.conftest import KEYS, QUERIES, dense
from tests.report.examples import report_of


def test_all_panels_share_one_scale_from_zero_to_the_largest_weight(recording: Recording) -> None:
    scales = {panel.scale for panel in report_of(recording).panels}
    largest = max(float(dense(recording, layer).weights.max()) for layer in (0, 1))
    assert [(scale.low, scale.high) for scale in scales] == [(0.0, max(largest, min(1.0, EVEN_REACH / 7)))]


def test_masked_cells_never_set_the_scale(causal_recording: Recording) -> None:
    maps = dense(causal_recording)
    scores = np.where(maps.visible, maps.scores, -1e9).astype(np.float32)
    masked = replace(causal_recording, maps=(replace(maps, scores=scores),))
    assert report_of(masked, table="scores").panels[0].scale.low > -10


def test_scale_of_changes_is_centred_on_zero(recording: Recording) -> None:
    [panel] = report_of(recording, selection=Selection.parse(heads="0.0")).panels
    values = np.array([[-0.5, 0.2]], dtype=np.float32)
    change = replace(panel, values=values, visible=np.ones((1, 2), dtype=bool), quantity=CHANGE)
    scale = shared_scale(CHANGE, [change])
    assert (scale.low, scale.high) == (-0.5, 0.5)


def test_scale_holds_where_nothing_differs(recording: Recording) -> None:
    [panel] = report_of(recording, selection=Selection.parse(heads="0.0")).panels
    flat = replace(panel, values=np.zeros((QUERIES, KEYS), dtype=np.float32))
    hidden = replace(panel, visible=np.zeros((QUERIES, KEYS), dtype=bool))
    for quantity in (PERCENT, SCORE, CHANGE):
        for one in (flat, hidden):
            scale = shared_scale(quantity, [one])
            assert scale.low < scale.high


def panel_of(weights: FloatArray, seen: list[float] | None = None, cells: int | None = None) -> Panel:
    """A panel of these weights, of which those that are not zero are visible; each cell so many tokens."""
    rows, columns = (
        Axis(
            name,
            tuple(map(str, range(count))),
            tuple(range(0, count * (cells or 1) + 1, cells or 1)),
            across=name == "keys",
        )
        for name, count in zip(("queries", "keys"), weights.shape, strict=True)
    )
    visible = weights > 0
    counts = visible.sum(axis=1) if seen is None else np.array(seen)
    return Panel(
        Heading(),
        weights,
        visible,
        rows,
        columns,
        PERCENT,
        ColorScale(0, 1),
        visible_key_counts=counts.astype(np.float32),
    )


def uniform(tokens: int) -> FloatArray:
    """Causal attention without a preference."""
    return np.tril(np.ones((tokens, tokens), dtype=np.float32)) / np.arange(1, tokens + 1, dtype=np.float32)[:, None]


@pytest.mark.parametrize("limits", ["shared", "head"])
@pytest.mark.parametrize(
    ("keys", "largest", "high"),
    [
        (3, 1 / 3, 1.0),  # even: of few keys the scale goes to 100 %
        (10, 0.1, EVEN_REACH / 10),  # even: so the colours are pale
        (100, 0.01, EVEN_REACH / 100),
        (10, 0.9, 0.9),  # a head that looks at a key sets the scale as ever
        (100, 0.5, 0.5),
    ],
)
def test_even_weights_do_not_stretch_the_colours(keys: int, largest: float, high: float, limits: str) -> None:
    weights = np.full((2, keys), (1 - largest) / (keys - 1), dtype=np.float32)
    weights[0, 1] = largest
    [panel] = share_scales([panel_of(weights)], Look(limits=limits))
    assert panel.scale.high == pytest.approx(largest if limits == "head" else high)  # who asks for his own gets it
    [contribution] = share_scales([replace(panel_of(weights), quantity=CHANGE)])
    assert contribution.scale.high == pytest.approx(largest)


def test_query_that_sees_one_key_does_not_set_the_colours() -> None:
    weights = np.array([[1, 0, 0], [0.4, 0.6, 0], [0.2, 0.3, 0.5]], dtype=np.float32)
    [panel] = share_scales([panel_of(weights, [1, 2, 30])])
    assert panel.scale.high == pytest.approx(0.6)
    assert panel.scale.clipped
    assert panel.quantity.ticks(panel.scale)[-1][1] == "≥60%"
    assert "Rows with one visible key" in " ".join(scale_remarks(Look(), [panel]))


def test_where_every_query_sees_one_key_that_sets_the_colours() -> None:
    [panel] = share_scales([panel_of(np.eye(3, dtype=np.float32))])
    assert (panel.scale.high, panel.scale.clipped) == (1.0, False)


def test_lift_of_uniform_attention_is_one_in_every_row() -> None:
    [panel] = share_scales([panel_of(uniform(20))], Look(color_scale="lift"))
    assert panel.levels[panel.visible] == pytest.approx(1)
    assert panel.scale.fraction(1.0) == pytest.approx(0.5)
    assert "no preference" in scale_remarks(Look(), [panel])[0]


@pytest.mark.parametrize(("tokens", "lift"), [(8, False), (64, False), (65, True), (100, True)])
def test_rows_that_no_scale_of_weights_could_show_together_are_drawn_as_lift(tokens: int, lift: bool) -> None:
    [panel] = share_scales([panel_of(uniform(tokens))])
    [thumbnail] = share_scales([panel_of(uniform(17))], max_ratio=MAX_THUMBNAIL_RATIO)
    assert thumbnail.lift
    assert (panel.lift, panel.color_quantity is LIFT) == (lift, lift)
    assert panel.cell(0.25) == "25"


def test_pooled_weights_are_drawn_as_lift_and_chosen_limits_are_those_of_weights() -> None:
    weights = np.full((3, 4), 0.01, dtype=np.float32)
    pooled = panel_of(weights, seen=[100] * 3, cells=25)
    [by_itself], [limited] = share_scales([pooled]), share_scales([pooled], Look(limits="0:0.02"))
    assert (by_itself.lift, limited.lift) == (True, False)
    assert by_itself.levels == pytest.approx(1)
    assert limited.scale.high == 0.02


def test_cells_have_two_digits_of_the_largest_number() -> None:
    small = np.array([[0.0019, 0.0008], [0.0004, 0.00001]], dtype=np.float32)
    large = np.array([[0.63, 0.37], [0.5, 0.5]], dtype=np.float32)
    written = [[share_scales([panel_of(each)])[0].cell(value) for value in each[0]] for each in (small, large)]
    assert written == [[".19", ".08"], ["63", "37"]]


def test_it_is_said_where_most_cells_are_hardly_seen() -> None:
    weights = np.full((40, 40), 1e-4, dtype=np.float32)
    weights[0, 0] = 1.0
    [panel] = share_scales([panel_of(weights)], Look(color_scale="sqrt"))
    assert "99 % of cells are below 1%" in " ".join(scale_remarks(Look(color_scale="sqrt"), [panel]))
    assert not scale_remarks(Look(), share_scales([panel_of(np.full((40, 40), 0.025, dtype=np.float32))]))


@pytest.mark.parametrize(
    ("quantity", "steps", "of_lift"),
    [
        (PERCENT, "sqrt", "log"),
        (WEIGHT, "sqrt", "log"),
        (CONTRIBUTION, "sqrt", None),
        (CHANGE, "sqrt", "sqrt"),
        (SCORE, "linear", None),
        (Quantity("bits", ".2f"), "linear", None),
    ],
    ids=lambda value: value.name if isinstance(value, Quantity) else value,
)
def test_a_quantity_under_another_name_keeps_its_scale(quantity: Quantity, steps: str, of_lift: str | None) -> None:
    renamed = quantity.with_name("mean of it")
    [panel] = share_scales([replace(panel_of(uniform(5)), quantity=renamed)])
    assert panel.scale.steps == steps
    lift = replace(panel_of(uniform(5)), quantity=renamed)
    if of_lift is None:
        with pytest.raises(AttnvizError, match=r"color_scale=.lift."):
            share_scales([lift], Look(color_scale="lift"))
    else:
        assert share_scales([lift], Look(color_scale="lift"))[0].scale.steps == of_lift


def test_limits_of_weights_around_zero_are_no_scale_of_changes() -> None:
    with pytest.raises(AttnvizError, match="not a logarithmic scale"):
        share_scales([panel_of(uniform(5))], Look(limits="-1:1", color_scale="log"))
    [panel] = share_scales([panel_of(uniform(5))], Look(limits="-1:1", color_scale="linear"))
    assert not panel.scale.signed


def test_pooled_means_of_heads_show_lift_as_single_heads_do() -> None:
    pooled = panel_of(uniform(5), cells=4)
    renamed = replace(pooled, quantity=PERCENT.with_name("mean weight"))
    assert [panel.lift for panel in share_scales([pooled]) + share_scales([renamed])] == [True, True]
