"""What heads move, and what is lost without them, as columns of the table of heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import attnviz
from attnviz.api.derived import contributions
from attnviz.base.errors import AttnvizError
from attnviz.effects.effect_table import Effect, Effects
from attnviz.maps.recording import Recording
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.metrics import METRICS
from attnviz.metrics.patterns import Pattern
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.render.formats import options_for_medium
from attnviz.report.heads.head_atlas import frame_report, heads_report
from attnviz.report.heads.lists import HeadsReport
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList
from attnviz.text.head_name import HeadName
from attnviz.text.selection import Selection

EFFECTS = Effects(
    rows=tuple(Effect((HeadName(layer, 0),), np.array([lost])) for layer, lost in ((0, 1.5), (1, -0.25))),
    metric="loss",
    by="zero",
    baseline=2.0,
    texts=1,
    model="the trained model",
    title="a text",
)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return open_reader(ModelSettings(model="trained")).record(Example("one two one two"), Selection(), values=True)


def report(recording: Recording, suffix: str = ".csv", **given: str) -> HeadsReport:
    options = ReportOptions(of="contributions", **given)  # type: ignore[arg-type]
    return heads_report((recording,), options_for_medium(options, suffix), EFFECTS)


def table(recording: Recording, **given: str) -> HeadFrame:
    results = report(recording, ".csv", **given).results
    assert isinstance(results, HeadFrame)
    return results


def test_what_a_head_moves_is_the_sum_of_its_contributions_over_a_query(recording: Recording) -> None:
    maps = contributions(recording).maps[1]
    weights = maps.window((1,), slice(0, 5), slice(0, 5)).weights[0]  # type: ignore[attr-defined]
    assert table(recording).value("1.1", "moved") == pytest.approx(float(weights.sum(-1).mean()), rel=1e-5)


def test_heads_are_ordered_and_filtered_by_effects_and_by_what_they_move(recording: Recording) -> None:
    effects = table(recording, sort="effect")
    assert [row.name for row in effects.rows][:2] == ["0.0", "1.0"]
    np.testing.assert_array_equal(effects.column("effect"), [1.5, -0.25, np.nan, np.nan])
    assert [row.name for row in table(recording, filter="effect>0.1").rows] == ["0.0"]
    moved = table(recording, sort="-moved").column("moved").tolist()
    assert moved == sorted(moved)
    with pytest.raises(AttnvizError, match=r"unknown metric 'effects'; did you mean effect"):
        report(recording, sort="effects")


def test_the_list_and_the_atlas_say_where_these_numbers_come_from(recording: Recording) -> None:
    listed, atlas = report(recording, ".txt"), report(recording, ".png")
    assert isinstance(listed, HeadList)
    assert listed.summary.header[2:4] == ("effect", "moved")
    shares = "Metrics are measured on contributions divided by the sum of their row; “moved” is the mean of these sums."
    for each in (listed, atlas):
        assert shares in each.remarks
        assert any(line.endswith("with heads replaced by zero: an intervention.") for line in each.remarks)
    assert isinstance(atlas, DrawnReport)
    assert atlas.kind == "atlas"
    assert {"effect", "moved"} <= {panel.title for panel in atlas.panels}


def test_heads_without_numbers_are_listed_as_far_as_they_fit_with_the_remarks_of_their_recording() -> None:
    module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
    with attnviz.record(module) as one_token:
        module(torch.rand(1, 1, 8))
    options = options_for_medium(ReportOptions(look=Look(height=10)), ".txt")
    one_row = replace(options.medium, fits=lambda report: isinstance(report, HeadList) and len(report.summary.rows) < 2)
    hybrid = replace(one_token, remarks=("Layer 1: linear attention, nothing to draw.",))
    report = heads_report((hybrid,), replace(options, medium=one_row))
    assert isinstance(report, HeadList)
    assert len(report.summary.rows) == 1
    assert report.remarks == ("all=True lists every head.", "Layer 1: linear attention, nothing to draw.")


@pytest.mark.parametrize(
    ("width", "metrics", "expected"),
    [
        (80, ("sink",), ["duplicate token 0.50", "duplicate token 0.50, previous token 0.50", "sink: <s> 0.91"]),
        (
            80,
            ("previous",),
            ["duplicate token 0.50, sink 0.56", "duplicate token 0.50, previous token 0.50", "sink: <s> 0.91"],
        ),
    ],
)
def test_a_list_cuts_no_pattern_and_leaves_the_share_of_a_sink_to_its_column(
    width: int, metrics: tuple[str, ...], expected: list[str]
) -> None:
    duplicate = Pattern("duplicate token", 0.5)
    patterns = (
        (duplicate, Pattern("sink", 0.56, is_beside=True)),
        (duplicate, Pattern("previous token", 0.5)),
        (Pattern("sink", 0.91, "<s>"),),
    )
    rows = tuple(HeadRow((HeadName(0, head),), patterns=found) for head, found in enumerate(patterns))
    frame = HeadFrame(rows=rows, measures=tuple(METRICS[name] for name in metrics), values=np.full((3, 1), 0.5))
    options = options_for_medium(ReportOptions(look=Look(width=width)), ".txt")
    report = frame_report(frame, options, "a text", "a model")
    assert isinstance(report, HeadList)
    assert [row[1] for row in report.summary.rows] == expected
    assert all(len("0.0  ") + len(text) + len("  0.50 ████") <= width for text in expected)
