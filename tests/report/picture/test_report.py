import re
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.render.formats import draw
from attnviz.report.build import build_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Grouping, Selection
from tests.conftest import HEADS, KEYS, QUERIES, dense
from tests.report.examples import report_of


def test_every_head_gets_a_panel_in_layer_order(recording: Recording) -> None:
    titles = [panel.title for panel in report_of(recording).panels]
    assert titles == [f"head {layer}.{head}" for layer in (0, 1) for head in range(HEADS)]


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


def test_table_of_both_gives_scores_and_weights_their_own_scales(recording: Recording) -> None:
    report = report_of(recording, table="both", selection=Selection.parse(heads="0.1"))
    assert [panel.title for panel in report.panels] == ["head 0.1 scores", "head 0.1 weights"]
    assert np.array_equal(report.panels[0].values, dense(recording).scores[1])
    assert report.panels[0].scale != report.panels[1].scale
    assert isinstance(report, DrawnReport)
    assert report.kind == "tables"


def test_spans_cut_queries_and_keys_apart(recording: Recording) -> None:
    panel = report_of(recording, selection=Selection.parse(queries="1:3", keys="4:")).panels[0]
    assert panel.rows.labels == ("q1", "q2")
    assert panel.columns.labels == ("k4", "k5", "k6")
    assert np.array_equal(panel.values, dense(recording).weights[0, 1:3, 4:])


def test_one_long_axis_is_pooled_alone(recording: Recording) -> None:
    panel = report_of(recording, medium=Medium(max_cells=5)).panels[0]
    assert (panel.rows.pooled, panel.columns.pooled) == (False, True)
    assert panel.rows.labels[0] == "q0"


def test_refuses_unknown_head_and_lists_known(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="no head in layer 1: 3; there are 0-2"):
        report_of(recording, selection=Selection.parse(layers="1", heads="3"))


def test_refuses_unknown_layer_and_lists_known(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="no layer 2; there are 0-1"):
        report_of(recording, selection=Selection.parse(heads="2.0"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "probabilities"}, "unknown table 'probabilities'; choose scores, weights, both, pairs or steps"),
        ({"of": "scores"}, "unknown of 'scores'; choose weights or contributions"),
        ({"reduce": "sum"}, "unknown reduce 'sum'; choose mean, max or rollout"),
        ({"reduce": "rollout", "residual": -0.1}, "residual -0.1 is out of range"),
        ({"reduce": "rollout", "residual": 1.0}, "residual 1 is out of range"),
        ({"reduce": "rollout", "residual": float("nan")}, "residual nan is out of range"),
        ({"reduce": "mean", "table": "both"}, "reduce combines weights, and table='both' asks for scores"),
        ({"sort": "sink", "top": 0}, "top=0 leaves no head; give 1 or more"),
        ({"filter": " "}, "filter is empty"),
        ({"table": "weights", "look": Look(query="a")}, "style='text' draws no numbers"),
        ({"table": "scores", "grouping": Grouping(words=True)}, "by='words' joins tokens, and only tokens have scores"),
        ({"of": "contributions", "look": Look(color_scale="lift")}, "color_scale='lift' needs weights"),
    ],
)
def test_refuses_options_that_fit_no_recording(options: dict[str, Any], said: str) -> None:
    with pytest.raises(AttnvizError, match=re.escape(said)):
        ReportOptions(**options)


def test_a_table_is_cut_never_pooled_and_says_where_the_rest_is(recording: Recording) -> None:
    report = report_of(recording, table="both", medium=Medium(max_cells=5))
    assert np.array_equal(report.panels[0].values, dense(recording).scores[0, :5, :5])
    assert report.remarks[0].startswith("Cut: keys 0:5 of 0:7; queries and keys select others")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (ReportOptions(), "maps"),
        (ReportOptions(table="weights"), "tables"),
        (ReportOptions(look=Look(style="arcs")), "arcs"),
        (ReportOptions(look=Look(style="text")), "text"),
        (ReportOptions(medium=Medium(draws_maps=False)), "numbers"),
        (ReportOptions(table="scores", medium=Medium(draws_maps=False)), "numbers"),
        (ReportOptions(look=Look(style="text"), medium=Medium(draws_maps=False)), "numbers"),
    ],
)
def test_options_and_medium_decide_on_the_kind_of_report(
    recording: Recording, options: ReportOptions, kind: str
) -> None:
    report = build_report(recording, options)
    assert (report.kind if isinstance(report, DrawnReport) else "numbers") == kind


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".pptx"])
def test_a_picture_of_a_report_without_maps_is_refused(recording: Recording, suffix: str) -> None:
    numbers = build_report(recording, ReportOptions(medium=Medium(draws_maps=False)))
    listed = heads_report((recording,), ReportOptions(medium=Medium(lists_heads=True)))
    for report in (numbers, listed):
        with pytest.raises(AttnvizError, match="attnviz show"):
            draw(report, suffix)
