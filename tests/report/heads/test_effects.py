"""Effects of heads as a list and a map, and two tables of them compared."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.effects.effect_table import Effect, Effects, effect_changes
from attnviz.render.formats import draw, options_for_medium
from attnviz.report.heads.results import effects_comparison_report, effects_report
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList
from attnviz.report.words.captions import source_line
from attnviz.text.head_name import HeadName
from tests.streams import Streams

FIRST, SECOND = HeadName(0, 1), HeadName(1, 0)
ROWS = tuple(
    Effect(heads, np.array(values))
    for heads, values in [((FIRST,), [0.5, 0.7]), ((SECOND,), [-0.1, 0.1]), ((FIRST, SECOND), [2.0, 2.2])]
)
EFFECTS = Effects(rows=ROWS, metric="loss", by="zero", baseline=1.5, texts=2, model="a model", title="a text")


def options(suffix: str) -> ReportOptions:
    return options_for_medium(ReportOptions(), suffix)


def test_sets_come_by_what_they_change_with_their_interval_and_what_is_beyond_each_alone() -> None:
    report = effects_report(EFFECTS, options(".txt"))
    assert isinstance(report, HeadList)
    assert report.summary.rows[0] == ("0.1+1.0", "3.6000", "+2.1000", "1.2706", "+1.5000")
    assert [row[0] for row in report.summary.rows] == ["0.1+1.0", "0.1", "1.0"]
    assert "without heads 0.1+1.0 it rises to 3.6000 (worse), the largest change" in report.caption
    assert any("Ablation is an intervention" in remark for remark in report.remarks)


def test_an_effect_of_zero_is_not_called_the_largest_change() -> None:
    effects = replace(EFFECTS, rows=(Effect((FIRST,), np.zeros(2)),))
    caption = effects_report(effects, options(".txt")).caption
    assert caption.endswith("loss is 1.5000 with all heads, the mean over 2 texts; without head 0.1 it stays 1.5000.")


def test_the_least_p_is_marked_in_the_list_and_several_are_corrected() -> None:
    controls = tuple(Effect((HeadName(2, head),), np.zeros(2)) for head in range(20))
    compared = replace(EFFECTS, rows=tuple(replace(row, controls=controls) for row in ROWS), controls=20)
    report = effects_report(compared, options(".txt"))
    assert isinstance(report, HeadList)
    assert {row[-1] for row in report.summary.rows} == {"0.048 (least)", "1"}
    takes = f"which takes {20 * len(ROWS) - 1} sets for each test."
    assert any(f"{len(ROWS)} tests: corrected" in remark and remark.endswith(takes) for remark in report.remarks)


def test_a_picture_has_layers_by_heads_with_colours_around_zero() -> None:
    report = effects_report(EFFECTS, options(".png"))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    panel, pairs = report.panels
    np.testing.assert_allclose(panel.values, [[np.nan, 0.6], [0.0, np.nan]], atol=1e-6)
    assert (pairs.rows.labels, pairs.columns.labels) == (("0.1", "1.0"),) * 2
    np.testing.assert_allclose(pairs.values, [[np.nan, 2.1], [2.1, np.nan]], atol=1e-6)
    assert panel.scale.low == -panel.scale.high
    assert panel.scale == pairs.scale
    assert panel.quantity.name == "change of loss in nats without a head"


def test_a_picture_names_its_model() -> None:
    report = effects_report(EFFECTS, options(".svg"))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
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
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert report.look.annotate
    assert re.search(r">\+0\.60+<", draw(report, ".svg").decode())


def table(numbers: dict[tuple[int, int], list[float]], model: str = "a model", metric: str = "loss") -> Effects:
    rows = tuple(Effect((HeadName(*head),), np.array(values)) for head, values in numbers.items())
    texts = len(rows[0].values)
    return Effects(rows=rows, metric=metric, by="zero", baseline=1.5, texts=texts, model=model, title="a text")


BEFORE = table({(0, 1): [0.5, 0.7], (1, 0): [0.0, 0.2], (1, 2): [9.0, 9.0]})


AFTER = table({(1, 0): [-0.9, -0.7], (0, 1): [0.4, 0.4], (3, 3): [1.0, 1.0]}, model="its successor")


def test_heads_of_both_tables_come_by_how_much_their_effect_changes() -> None:
    report = effects_comparison_report(BEFORE, AFTER, options(".txt"))
    assert isinstance(report, HeadList)
    assert report.summary.rows == (
        ("1.0", "+0.1000", "-0.8000", "-0.9000", "1.7969"),
        ("0.1", "+0.6000", "+0.4000", "-0.2000", "1.2706"),
    )
    assert "the largest is that of head 1.0, from +0.1000 before to -0.8000 after" in report.caption
    said = " ".join(report.remarks)
    assert "Before: a model on 2 texts, loss 1.5000 with all heads. After: its successor" in said
    assert "2 sets of heads are in only one of the tables" in said
    assert "Ablation is an intervention" in said


def test_a_picture_has_layers_by_heads_of_after_less_before_around_zero() -> None:
    report = effects_comparison_report(BEFORE, AFTER, options(".png"))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    [panel] = report.panels
    np.testing.assert_allclose(panel.values, [[np.nan, -0.2], [-0.9, np.nan]], atol=1e-6)
    assert panel.scale.low == -panel.scale.high
    assert panel.quantity.name == "change of the effect on loss in nats"


def test_numbers_are_exact() -> None:
    rows = draw(effects_comparison_report(BEFORE, AFTER, options(".csv")), ".csv").decode().splitlines()
    assert rows[0] == "heads,before,after,difference,margin"
    assert [float(cell) for cell in rows[1].split(",")[1:4]] == pytest.approx([0.1, -0.8, -0.9])
    found = json.loads(draw(effects_comparison_report(BEFORE, AFTER, options(".json")), ".json"))
    assert (found["format"], found["metric"], found["before"]["model"]) == ("attnviz effect changes", "loss", "a model")
    assert found["changes"][0]["difference"] == pytest.approx(-0.9)


def test_what_does_not_compare_is_refused() -> None:
    with pytest.raises(AttnvizError, match="of loss and of kl, which cannot be compared"):
        effect_changes(BEFORE, replace(AFTER, metric="kl"))
    with pytest.raises(AttnvizError, match=r"begin with 0\.1 and 3\.3, have no head or set of heads in"):
        effect_changes(BEFORE, replace(AFTER, rows=AFTER.rows[2:]))
    with pytest.raises(AttnvizError, match="a page cannot show changes of effects"):
        effects_comparison_report(BEFORE, AFTER, options(".html"))
    with pytest.raises(AttnvizError, match="does not apply to tables of effects"):
        effects_comparison_report(BEFORE, AFTER, replace(options(".txt"), all=True))


def test_the_command_compares_two_files_and_refuses_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = []
    for name, effects in (("before", BEFORE), ("after", AFTER)):
        names.append(tmp_path / f"{name}.json")
        names[-1].write_bytes(draw(effects_report(effects, options(".json")), ".json"))
    first, second = map(str, names)
    assert main(["compare", first, second, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"][0]["heads"] == ["1.0"]
    for arguments, said in {
        (first,): "holds effects of heads; attnviz compare takes two such files",
        (first, "--with", "a text"): "holds effects of heads; attnviz compare takes two such files",
        (first, second, "--model", "trained"): "without a model; leave the options of the model out",
        (first, second, "--passages", "missing.txt"): "saved effects are compared; leave --passages out",
        (first, second, "sample:missing"): "saved effects are compared; leave the sample out",
        (first, second, "--with", "c"): "saved effects are compared; leave --with out",
        (first, second, "--layers", "0"): "--layers does not apply to tables of effects",
    }.items():
        assert main(["compare", *arguments]) == 1
        assert said in capsys.readouterr().err.replace("\n", " ")


def test_heads_refuse_effects_of_others_and_files_that_hold_none(tmp_path: Path, shell: Streams) -> None:
    (tmp_path / "others.json").write_bytes(draw(effects_report(table({(7, 7): [1.0]}), options(".json")), ".json"))
    (tmp_path / "none.json").write_text("a text")
    for name, said in {
        "others.json": "has effects of 7.7, but of none of the heads shown",
        "none.json": "holds no effects of heads",
        "gone.json": "there is no file",
    }.items():
        assert said in shell.refused("heads", "a b a", "--model", "trained", "--effects", str(tmp_path / name))
