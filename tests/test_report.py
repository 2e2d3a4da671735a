from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnviz.errors import AttnvizError
from attnviz.maps import Recording
from attnviz.panels import CHANGE, PERCENT, SCORE
from attnviz.report import Report, build_report
from attnviz.report_options import ReportOptions
from attnviz.scales import shared_scale
from attnviz.selection import Selection
from tests.conftest import HEADS, KEYS, QUERIES, dense


def report_of(recording: Recording, **options: Any) -> Report:
    return build_report(recording, ReportOptions(**options))


def test_every_head_gets_a_panel_in_layer_order(recording: Recording) -> None:
    titles = [panel.title for panel in report_of(recording).panels]
    assert titles == [f"head {layer}.{head} cross" for layer in (0, 1) for head in range(HEADS)]


def test_rows_are_queries_and_columns_are_keys(recording: Recording) -> None:
    panel = report_of(recording).panels[0]
    assert panel.values.shape == (QUERIES, KEYS)
    assert panel.rows.labels == ("q0", "q1", "q2", "q3", "q4")
    assert panel.columns.labels[-1] == "k6"
    assert (panel.rows.name, panel.columns.name) == ("queries", "keys")


def test_values_are_the_weights_of_that_head(recording: Recording) -> None:
    panels = report_of(recording, selection=Selection.parse(heads="1.2,0.1")).panels
    assert np.array_equal(panels[0].values, dense(recording, 1).weights[2])
    assert np.array_equal(panels[1].values, dense(recording).weights[1])


def test_all_panels_share_one_scale_from_zero_to_the_largest_weight(recording: Recording) -> None:
    scales = {panel.scale for panel in report_of(recording).panels}
    largest = max(float(dense(recording, layer).weights.max()) for layer in (0, 1))
    assert [(scale.low, scale.high) for scale in scales] == [(0.0, largest)]


def test_masked_cells_never_set_the_scale(causal_recording: Recording) -> None:
    maps = dense(causal_recording)
    scores = np.where(maps.visible, maps.scores, -1e9).astype(np.float32)
    masked = replace(causal_recording, maps=(replace(maps, scores=scores),))
    assert report_of(masked, table="scores").panels[0].scale.low > -10


def test_table_of_both_gives_scores_and_weights_their_own_scales(recording: Recording) -> None:
    report = report_of(recording, table="both", selection=Selection.parse(heads="0.1"))
    assert [panel.title for panel in report.panels] == ["head 0.1 cross scores", "head 0.1 cross weights"]
    assert np.array_equal(report.panels[0].values, dense(recording).scores[1])
    assert report.panels[0].scale != report.panels[1].scale
    assert report.style == "table"


def test_spans_cut_queries_and_keys_apart(recording: Recording) -> None:
    panel = report_of(recording, selection=Selection.parse(queries="1:3", keys="4:")).panels[0]
    assert panel.rows.labels == ("q1", "q2")
    assert panel.columns.labels == ("k4", "k5", "k6")
    assert np.array_equal(panel.values, dense(recording).weights[0, 1:3, 4:])


def test_more_tokens_than_cells_are_pooled_to_their_means_and_said(recording: Recording) -> None:
    report = report_of(recording, max_cells=3)
    panel = report.panels[0]
    assert panel.values.shape == (3, 3)
    assert panel.values[0, 0] == pytest.approx(dense(recording).weights[0, :1, :2].mean())
    assert panel.columns.labels == ("0", "2", "4")
    assert "Pooled: 5 x 7 tokens in 3 x 3 cells" in " ".join(report.remarks)


def test_one_long_axis_is_pooled_alone(recording: Recording) -> None:
    panel = report_of(recording, max_cells=5).panels[0]
    assert (panel.rows.pooled, panel.columns.pooled) == (False, True)
    assert panel.rows.labels[0] == "q0"


def test_masked_cells_are_said_where_there_are_any(recording: Recording, causal_recording: Recording) -> None:
    assert not report_of(recording).remarks
    assert "Absent cells are masked" in report_of(causal_recording).remarks[0]


def test_untrained_weights_are_called_so_in_remark_and_caption(recording: Recording) -> None:
    report = report_of(replace(recording, untrained=True, seed=7, model="seeded model"))
    assert "Untrained: random weights from seed 7" in report.remarks[0]
    assert "an untrained seeded model" in report.caption


def test_caption_names_the_largest_weight_and_its_ends(recording: Recording) -> None:
    weights = np.zeros((1, QUERIES, KEYS), dtype=np.float32)
    weights[0, 3, 5] = 0.75
    maps = replace(dense(recording), heads=(2,), weights=weights, scores=weights, layer=4)
    caption = report_of(Recording(maps=(maps,), model="a model")).caption
    assert caption == (
        "Attention of head 4.2 in a model, 5 queries (rows) over 7 keys (columns); "
        "the largest weight is 75%, head 4.2 cross, from “q3” to “k5”."
    )


def test_refuses_unknown_head_and_lists_known(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="no head in layer 1: 3; there are 0-2"):
        report_of(recording, selection=Selection.parse(layers="1", heads="3"))


def test_refuses_unknown_layer_and_lists_known(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="no layer 2; there are 0-1"):
        report_of(recording, selection=Selection.parse(heads="2.0"))


def test_refuses_an_unknown_table() -> None:
    with pytest.raises(AttnvizError, match="unknown table 'probabilities'; scores, weights, both work"):
        ReportOptions(table="probabilities")


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


def test_cells_leave_the_unit_to_the_legend() -> None:
    assert (PERCENT.cell(0.374), PERCENT.text(0.374)) == ("37", "37%")
    assert CHANGE.cell(-0.12) == "-12"
    assert SCORE.cell(1.23456) == "1.2346"
    assert PERCENT.cell(float("nan")) == "NaN"


def test_title_is_the_text_made_visible_and_short(recording: Recording) -> None:
    from attnviz.captions import text_title
    from attnviz.tokens import tokenize

    def titled(text: str) -> str:
        tokens = tokenize(text, "char")
        count = len(tokens)
        maps = replace(
            dense(recording),
            query_tokens=tokens,
            key_tokens=tokens,
            heads=(0,),
            scores=np.zeros((1, count, count), dtype=np.float32),
            weights=np.zeros((1, count, count), dtype=np.float32),
            visible=np.ones((count, count), dtype=bool),
        )
        return text_title(Recording(maps=(maps,), model="a model"))

    assert titled("two\nlines\x1b[31m") == "two lines\\x1b[31m"
    assert titled("word " * 30).endswith("word word…")
    assert len(titled("word " * 30)) <= 60


def test_a_table_is_cut_never_pooled_and_says_where_the_rest_is(recording: Recording) -> None:
    report = report_of(recording, table="both", max_cells=5)
    assert np.array_equal(report.panels[0].values, dense(recording).scores[0, :5, :5])
    assert report.remarks[0].startswith("Cut: keys 0:5 of 0:7; --queries and --keys show others")
