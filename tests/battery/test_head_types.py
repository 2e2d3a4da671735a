"""The battery on the trained model, whose heads are known, and on models that can do less."""

import json
from contextlib import nullcontext

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.progress import TextProgress
from attnviz.battery.head_types import TYPES, HeadType, HeadTypes, head_types
from attnviz.battery.probed_model import open_probed
from attnviz.metrics.measure import students_t
from attnviz.models.reading.settings import ModelSettings
from attnviz.render.formats import draw, format_of
from attnviz.report.heads.results import battery_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList
from attnviz.text.head_name import HeadName
from tests.battery.examples import random_model
from tools.detect_head import random_gpt2


@pytest.fixture(scope="module")
def trained() -> HeadTypes:
    return head_types(open_probed(ModelSettings(model="trained")))


def test_heads_of_the_trained_model_are_found_beyond_their_controls(trained: HeadTypes) -> None:
    scores = trained.scores
    for name, head in {"previous": "0.0", "induction": "1.1"}.items():
        assert scores.rows[scores.ranked_rows(name)[0]].name == head
        assert scores.value(head, name) >= 0.97
    assert trained.controls.value("1.1", "induction") < 0.05
    assert trained.is_clear("induction")[scores.row_index("1.1")]
    assert not trained.is_clear("duplicate")[scores.row_index("0.0")]
    assert scores.value("1.1", "retrieval") > 0.85  # it copies what it has seen
    assert scores.value("0.0", "retrieval") == 0
    assert set(trained.skipped) == {"successor", "delimiter", "first token", "name mover", "S-inhibition"}


def test_a_random_model_has_no_head_of_a_type_and_the_bar_moves_by_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[TextProgress]()
    monkeypatch.setattr("attnviz.battery.head_types.track_texts", lambda what: nullcontext(shown.append))
    types = head_types(random_gpt2())
    assert [progress.texts for progress in shown] == [16, 32, 48, 64]  # 32 texts repeat, 32 are their controls
    assert [progress.share for progress in shown] == [0.25, 0.5, 0.75, 1.0]
    assert types.scores.column("induction").max() < 0.3
    assert types.scores.names == ("previous", "duplicate", "induction")
    assert types.skipped["retrieval"] == "no text with a needle suits the model"


def test_random_models_have_no_head_above_its_controls() -> None:
    for seed, architecture in enumerate(("Llama", "GPT-2", "BERT")):
        types = head_types(random_model(architecture, seed))
        tested = {name: int(types.is_clear(name).sum()) for name in types.scores.names}
        assert not any(tested.values()), f"{architecture}: {tested}"
        assert len(tested) >= 7  # the encoder has no stories


def test_a_score_is_compared_with_the_interval_of_one_more_control_for_all_heads_together() -> None:
    scores, controls = np.array([0.9, 0.7, 0.8]), np.array([0.5, 0.3, 0.1, 0.3])
    heads = [HeadName(0, head) for head in range(4)]
    tested = {"previous": (dict.fromkeys(heads, scores), dict.fromkeys(heads, controls))}
    found = HeadTypes(model="a model", tested=tested, skipped={}, detected={}, texts=())
    assert found.scores.values == pytest.approx(0.8)
    assert found.scores.margins == pytest.approx(4.3027 * 0.1 / np.sqrt(3), abs=1e-4)
    assert found.excess.values == pytest.approx(0.5)
    # Tables: Student's t of three degrees of freedom exceeds 12.9240 in 0.05 %, and 7.4533 in 0.25 % of all cases.
    assert students_t(3, 1 - 2 * 0.0005) == pytest.approx(12.9240, abs=1e-3)
    margin = students_t(3, 1 - 2 * 0.01 / 4) * np.std(controls, ddof=1) * np.sqrt(1 + 1 / 4)
    assert found.excess.margins == pytest.approx(margin)
    assert margin == pytest.approx(7.4533 * 0.16330 * 1.11803, abs=1e-3)
    assert not found.is_clear("previous").any()
    near_controls = dict.fromkeys(heads, np.array([0.28, 0.3, 0.32, 0.3]))
    found = HeadTypes(
        model="a model", tested={"previous": (tested["previous"][0], near_controls)}, skipped={}, detected={}, texts=()
    )
    assert found.is_clear("previous").all()


def test_of_one_text_no_head_is_surely_above_its_control() -> None:
    tested = {"delimiter": ({HeadName(0, 0): np.array([0.9])}, {HeadName(0, 0): np.array([0.1])})}
    found = HeadTypes(model="a model", tested=tested, skipped={}, detected={}, texts=())
    assert np.isnan(found.excess.column("delimiter", "margins")).all()
    assert not found.is_clear("delimiter").any()
    [row] = found.as_json()["heads"]
    assert (row["margin"], row["texts"]) == (None, 1)


def test_every_type_names_its_source_and_its_control() -> None:
    for each in TYPES.values():
        assert isinstance(each, HeadType)
        assert each.source[-4:].isdigit()
        assert each.control


def test_the_list_the_atlas_and_the_numbers_say_the_same(trained: HeadTypes) -> None:
    listed = battery_report(trained, ReportOptions(medium=format_of(".json").medium(Look())))
    assert isinstance(listed, HeadList)
    content = json.loads(draw(listed, ".json"))
    row = next(row for row in content["heads"] if (row["type"], row["layer"], row["head"]) == ("induction", 1, 1))
    assert row["score"] == trained.scores.value("1.1", "induction")
    assert len(content["detect_head"]["scores"]["previous"]["0.0"]) == len(content["detect_head"]["texts"]) == 4
    table = draw(listed, ".csv").decode().splitlines()
    assert table[0].split(",")[:5] == ["type", "layer", "head", "score", "margin"]
    assert len(table) == 1 + 4 * len(trained.types)
    atlas = battery_report(trained, ReportOptions(medium=format_of(".png").medium(Look())))
    assert isinstance(atlas, DrawnReport)
    assert atlas.kind == "maps"
    panel = next(panel for panel in atlas.panels if panel.title == "induction")
    assert panel.values[1, 1] == np.float32(row["score"])
    with pytest.raises(AttnvizError, match=r"-o atlas\.png"):
        battery_report(trained, ReportOptions(medium=format_of(".html").medium(Look())))
    with pytest.raises(AttnvizError, match=r"use model='trained' or a"):
        open_probed(ModelSettings())
