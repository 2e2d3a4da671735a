"""A file of effects is read whole or refused in a line, whatever stands in it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnviz.base import reading
from attnviz.base.errors import AttnvizError
from attnviz.effects import effect_table
from attnviz.effects.effect_table import Effects, effect_changes
from tests.effects.examples import EFFECTS


def written(folder: Path, **values: Any) -> Path:
    (folder / "effects.json").write_text(json.dumps(EFFECTS | values))
    return folder / "effects.json"


def row(**values: Any) -> list[dict[str, Any]]:
    return [EFFECTS["effects"][0] | values]


def test_effects_are_read_and_their_words_are_printable(tmp_path: Path) -> None:
    found = Effects.load(written(tmp_path, title="a\x1b[31m", remarks=["\u202e"], model="\x07"))
    assert {each.name: each.values.tolist() for each in found.rows} == {"0.1": [1, 2.5], "0.1+1.0": [0, -0.001]}
    assert (found.title, found.remarks, found.model) == ("a\\x1b[31m", ("\\u202e",), "\\x07")
    header, first, _ = found.as_rows()
    assert dict(zip(header, first, strict=True)) | {"margin": 0, "beyond": 0} == {
        "heads": "0.1",
        "loss": 1.5 + 1.75,  # with all heads, and the mean change
        "effect": 1.75,
        "margin": 0,
        "beyond": 0,
    }


@pytest.mark.parametrize(
    "values",
    [
        {"effects": []},
        {"effects": row(texts=5)},
        {"effects": row(texts=[])},
        {"effects": row(texts=[float("nan"), 1])},
        {"effects": row(texts=[float("inf"), 1])},
        {"effects": row(texts=[10**400, 1])},
        {"effects": row(texts=[[1, 2], [3, 4]])},
        {"effects": row(texts=[1, True])},
        {"effects": row(heads=["1" * 5000 + ".0"])},
        {"effects": row(heads=["-1.0"])},
        {"effects": row(heads=[])},
        {"effects": row(heads="0.1")},
        {"effects": row() * 2},
        {"effects": {"a": 1}},
        {"effects": [5]},
        {"texts": "two"},
        {"texts": 0},
        {"title": 5},
        {"remarks": 5},
        {"remarks": [5]},
        {"baseline": 10**400},
        {"baseline": float("nan")},
        {"version": 2},
    ],
    ids=str,
)
def test_what_holds_no_effects_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(AttnvizError, match="holds no effects of heads"):
        Effects.load(written(tmp_path, **values))


def test_files_that_are_deep_long_or_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    os.mkfifo(tmp_path / "pipe.json")
    monkeypatch.setattr(effect_table, "MAX_BYTES", 300)
    messages = {"deep.json": "longer than", "pipe.json": "is a pipe or a device", "gone.json": "there is no file"}
    for name, message in messages.items():
        with pytest.raises(AttnvizError, match=message):
            Effects.load(tmp_path / name)
    with pytest.raises(AttnvizError, match="is a pipe or a device; give a JSON file"):
        Effects.load(Path("/dev/zero"))
    monkeypatch.setattr(effect_table, "MAX_BYTES", reading.MAX_JSON_BYTES)
    with pytest.raises(AttnvizError, match="holds no effects of heads"):
        Effects.load(tmp_path / "deep.json")


def test_effects_are_read_without_torch() -> None:
    code = "import sys, attnviz.effects.effect_table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def table(folder: Path, heads: dict[str, float], texts: int = 2, **values: Any) -> Effects:
    rows = [{"heads": [name], "texts": [effect] * texts} for name, effect in heads.items()]
    (folder / "effects.json").write_text(json.dumps(EFFECTS | {"effects": rows, "texts": texts} | values))
    return Effects.load(folder / "effects.json")


def test_the_largest_change_is_first_and_sets_of_one_table_alone_are_counted(tmp_path: Path) -> None:
    before = table(tmp_path, {"0.0": 1.0, "0.1": 2.0, "1.0": 5.0})
    changes = effect_changes(before, table(tmp_path, {"0.0": 1.5, "0.1": 0.0}))
    assert [change.difference for change in changes.changes] == [-2.0, 0.5]
    assert "1 set of heads is in only one of the tables and is left out." in changes.remarks
    same = effect_changes(before, before)
    assert not any("left out" in remark for remark in same.remarks)


def test_other_baselines_models_and_texts_are_said_together(tmp_path: Path) -> None:
    before, after = table(tmp_path, {"0.0": 1.0}), table(tmp_path, {"0.0": 1.0}, texts=3, by="mean", model="b")
    said = " ".join(effect_changes(before, after).remarks)
    assert "replaced by zero before and by mean after" in said
    assert "Both the models and the texts differ" in said


def test_tables_of_other_metrics_or_heads_are_refused(tmp_path: Path) -> None:
    before = table(tmp_path, {"0.0": 1.0})
    with pytest.raises(AttnvizError, match="are of loss and of kl, which cannot be compared"):
        effect_changes(before, table(tmp_path, {"0.0": 1.0}, metric="kl"))
    with pytest.raises(AttnvizError, match=r"are of loss and of loss \(.*'it'\), which cannot be compared"):
        effect_changes(before, table(tmp_path, {"0.0": 1.0}, token="it"))
    with pytest.raises(AttnvizError, match="have no head or set of heads in common"):
        effect_changes(before, table(tmp_path, {"0.1": 1.0}))
