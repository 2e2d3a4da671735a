"""What changes between two tables of effects, as a list, a picture and data, and by the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnviz.api import drawing
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.effects.effect_table import Effect, Effects, effect_changes
from attnviz.render.formats import draw
from attnviz.report.heads.effects_comparison import effects_comparison_report
from attnviz.report.heads.head_effects import effects_report
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import HeadList, Heatmaps
from attnviz.text.head_name import HeadName


def table(numbers: dict[tuple[int, int], list[float]], model: str = "a model", metric: str = "loss") -> Effects:
    rows = tuple(Effect((HeadName(*head),), np.array(values)) for head, values in numbers.items())
    texts = len(rows[0].values)
    return Effects(rows=rows, metric=metric, by="zero", baseline=1.5, texts=texts, model=model, title="a text")


BEFORE = table({(0, 1): [0.5, 0.7], (1, 0): [0.0, 0.2], (1, 2): [9.0, 9.0]})
AFTER = table({(1, 0): [-0.9, -0.7], (0, 1): [0.4, 0.4], (3, 3): [1.0, 1.0]}, model="its successor")


def options(suffix: str) -> ReportOptions:
    return drawing.options_for_medium(ReportOptions(), suffix)


def test_heads_of_both_tables_come_by_how_much_their_effect_changes() -> None:
    report = effects_comparison_report(BEFORE, AFTER, options(".txt"))
    assert isinstance(report, HeadList)
    assert report.summary.rows == (
        ("1.0", "+0.1000", "-0.8000", "-0.9000", "0.2772"),
        ("0.1", "+0.6000", "+0.4000", "-0.2000", "0.1960"),
    )
    assert "the largest is that of head 1.0, from +0.1000 before to -0.8000 after" in report.caption
    said = " ".join(report.remarks)
    assert "Before: a model on 2 texts, loss 1.5000 with all heads. After: its successor" in said
    assert "2 sets of heads are in only one of the tables" in said
    assert "Ablation is an intervention" in said


def test_a_picture_has_layers_by_heads_of_after_less_before_around_zero() -> None:
    report = effects_comparison_report(BEFORE, AFTER, options(".png"))
    assert isinstance(report, Heatmaps)
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
        (first, second, "--sample", "missing"): "saved effects are compared; leave --sample out",
        (first, second, "--with", "c"): "saved effects are compared; leave --with out",
        (first, second, "--layers", "0"): "--layers does not apply to tables of effects",
    }.items():
        assert main(["compare", *arguments]) == 1
        assert said in capsys.readouterr().err.replace("\n", " ")


def test_heads_refuse_effects_of_others_and_files_that_hold_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "others.json").write_bytes(draw(effects_report(table({(7, 7): [1.0]}), options(".json")), ".json"))
    (tmp_path / "none.json").write_text("a text")
    for name, said in {
        "others.json": "has effects of 7.7, but of none of the heads shown",
        "none.json": "holds no effects of heads",
        "gone.json": "gone.json': No such file or directory",
    }.items():
        assert main(["heads", "a b a", "--model", "trained", "--effects", str(tmp_path / name)]) == 1
        assert said in " ".join(capsys.readouterr().err.split())
