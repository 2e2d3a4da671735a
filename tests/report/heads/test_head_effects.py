"""Effects of heads as a list and as a picture."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnviz.api import drawing
from attnviz.base.errors import AttnvizError
from attnviz.effects.effect_table import Effect, Effects
from attnviz.render.formats import draw
from attnviz.report.heads.head_effects import effects_report
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import HeadList, Heatmaps
from attnviz.report.words.captions import source_line
from attnviz.text.head_name import HeadName

FIRST, SECOND = HeadName(0, 1), HeadName(1, 0)
ROWS = tuple(
    Effect(heads, np.array(values))
    for heads, values in [((FIRST,), [0.5, 0.7]), ((SECOND,), [-0.1, 0.1]), ((FIRST, SECOND), [2.0, 2.2])]
)
EFFECTS = Effects(rows=ROWS, metric="loss", by="zero", baseline=1.5, texts=2, model="a model", title="a text")


def options(suffix: str) -> ReportOptions:
    return drawing.options_for_medium(ReportOptions(), suffix)


def test_sets_come_by_what_they_change_with_their_interval_and_what_is_beyond_each_alone() -> None:
    report = effects_report(EFFECTS, options(".txt"))
    assert isinstance(report, HeadList)
    assert report.summary.rows[0] == ("0.1+1.0", "3.6000", "+2.1000", "0.1960", "+1.5000")
    assert [row[0] for row in report.summary.rows] == ["0.1+1.0", "0.1", "1.0"]
    assert "without heads 0.1+1.0 it rises to 3.6000 (worse), the largest change" in report.caption
    assert any("Ablation is an intervention" in remark for remark in report.remarks)


def test_an_effect_of_zero_is_not_called_the_largest_change() -> None:
    effects = replace(EFFECTS, rows=(Effect((FIRST,), np.zeros(2)),))
    caption = effects_report(effects, options(".txt")).caption
    assert caption.endswith("loss is 1.5000 with all heads, the mean over 2 texts; without head 0.1 it stays 1.5000.")


def test_a_picture_has_layers_by_heads_with_colours_around_zero() -> None:
    report = effects_report(EFFECTS, options(".png"))
    assert isinstance(report, Heatmaps)
    panel, pairs = report.panels
    np.testing.assert_allclose(panel.values, [[np.nan, 0.6], [0.0, np.nan]], atol=1e-6)
    assert (pairs.rows.labels, pairs.columns.labels) == (("0.1", "1.0"),) * 2
    np.testing.assert_allclose(pairs.values, [[np.nan, 2.1], [2.1, np.nan]], atol=1e-6)
    assert panel.scale.low == -panel.scale.high
    assert panel.scale == pairs.scale
    assert panel.quantity.name == "change of loss in nats without a head"


def test_a_picture_names_its_model() -> None:
    report = effects_report(EFFECTS, options(".svg"))
    assert isinstance(report, Heatmaps)
    assert source_line(report) == f"Model: {EFFECTS.model}."


def test_effects_that_were_written_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "effects.json").write_bytes(draw(effects_report(EFFECTS, options(".json")), ".json"))
    found = Effects.load(tmp_path / "effects.json")
    assert {row.name: row.mean for row in found.rows} == {row.name: row.mean for row in EFFECTS.rows}
    assert (found.metric, found.baseline, found.texts, found.model) == ("loss", 1.5, 2, "a model")
    (tmp_path / "other.json").write_text('{"format": "attnviz numbers"}')
    with pytest.raises(AttnvizError, match="holds no effects of heads"):
        Effects.load(tmp_path / "other.json")


def test_numbers_are_exact_and_a_page_is_refused() -> None:
    text = draw(effects_report(EFFECTS, options(".csv")), ".csv").decode()
    assert text.splitlines()[:2] == ["heads,loss,effect,margin,beyond", text.splitlines()[1]]
    assert '"beyond": 1.5' in draw(effects_report(EFFECTS, options(".json")), ".json").decode()
    with pytest.raises(AttnvizError, match="a page cannot show effects of heads"):
        effects_report(EFFECTS, options(".html"))
    with pytest.raises(AttnvizError, match="shows effects of single heads"):
        effects_report(replace(EFFECTS, rows=ROWS[2:]), options(".svg"))


def test_a_small_picture_shows_its_numbers() -> None:
    report = effects_report(EFFECTS, options(".svg"))
    assert isinstance(report, Heatmaps)
    assert report.look.annotate
    assert re.search(r">\+0\.60+<", draw(report, ".svg").decode())
