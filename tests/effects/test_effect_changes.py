"""Changes between two tables of effects."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.effects.effect_changes import effect_changes
from attnviz.effects.effect_table import Effects
from tests.effects.examples import EFFECTS


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
    with pytest.raises(AttnvizError, match="have no head or set of heads in common"):
        effect_changes(before, table(tmp_path, {"0.1": 1.0}))
