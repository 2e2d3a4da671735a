"""Pictures of implicit attention: named as such, around the paper, and without what needs a softmax."""

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.recurrent import RecurrentMaps
from attnviz.metrics.call_metrics import normalized_rows
from attnviz.report.build import build_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.text.selection import Selection
from tests.maps.examples import implicit_recording

HEAD = Selection(heads=(1,))


def test_picture_is_named_and_diverges_around_the_paper() -> None:
    report = build_report(implicit_recording(), ReportOptions(selection=HEAD))
    assert isinstance(report, DrawnReport)
    [panel] = report.panels
    assert report.caption.startswith("Implicit attention of head 0.1 in linear,")
    assert "weight" not in report.caption
    assert panel.quantity.name == "implicit attention"
    assert panel.scale.signed
    assert panel.scale.low == -panel.scale.high
    assert (panel.values < 0).any()
    assert not panel.lift


def test_mean_of_heads_is_of_implicit_attention() -> None:
    recording = implicit_recording()
    report = build_report(recording, ReportOptions(reduce="mean"))
    assert isinstance(report, DrawnReport)
    assert report.panels[0].quantity.name == "mean implicit attention"
    [maps] = recording.maps
    assert isinstance(maps, RecurrentMaps)
    assert report.panels[0].values == pytest.approx(maps.weights.mean(0))


def test_comparison_names_the_change_of_implicit_attention() -> None:
    recording = implicit_recording()
    report = comparison_report(recording, recording, "nothing", ReportOptions(selection=HEAD))
    assert isinstance(report, DrawnReport)
    assert report.panels[-1].quantity.name == "change of implicit attention"
    assert not report.panels[-1].values.any()


def test_metrics_are_of_shares_that_sum_to_one() -> None:
    maps = normalized_rows(implicit_recording().maps[0])  # type: ignore[arg-type]
    window = maps.window((0, 1, 2), slice(0, 7), slice(0, 7))
    assert window.weights.min() == 0
    assert window.weights.sum(-1) == pytest.approx(1)


REFUSED = {
    "table='scores' needs the scores of a softmax": ReportOptions(table="scores"),
    "table='both' needs the scores of a softmax": ReportOptions(table="both"),
    "reduce='max' needs numbers of one sign": ReportOptions(reduce="max"),
    "reduce='rollout' needs numbers of one sign": ReportOptions(reduce="rollout"),
    "color_scale='lift' needs rows that sum to 1": ReportOptions(look=Look(color_scale="lift")),
    "so it has no contributions": ReportOptions(of="contributions"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refuses_what_needs_a_softmax(message: str) -> None:
    with pytest.raises(AttnvizError, match=f"implicit attention .*{message}"):
        build_report(implicit_recording(), REFUSED[message])
