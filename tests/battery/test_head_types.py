"""The battery on the trained model, whose heads are known, and on models that can do less."""

import json

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.battery.head_types import TYPES, HeadType, HeadTypes, TypeScores, head_types
from attnviz.battery.probed_model import open_probed
from attnviz.models.settings import ModelSettings
from attnviz.render.formats import draw, format_of
from attnviz.report.battery_report import battery_report
from attnviz.report.look import Look
from attnviz.report.options import ReportOptions
from attnviz.report.report import Heatmaps, ResultList
from tools.detect_head import random_gpt2


@pytest.fixture(scope="module")
def trained() -> HeadTypes:
    return head_types(open_probed(ModelSettings(model="trained")))


def of_type(types: HeadTypes, name: str) -> TypeScores:
    return next(each for each in types.found if each.type.name == name)


def test_heads_of_the_trained_model_are_found_beyond_their_controls(trained: HeadTypes) -> None:
    previous, induction, retrieval = (of_type(trained, name) for name in ("previous", "induction", "retrieval"))
    assert previous.ranked[0] == (0, 0)
    assert previous.mean((0, 0)) >= 0.97
    assert induction.ranked[0] == (1, 1)
    assert induction.mean((1, 1)) >= 0.97
    assert induction.control((1, 1)) < 0.05
    assert induction.is_clear((1, 1))
    assert not of_type(trained, "duplicate").is_clear((0, 0))
    assert retrieval.mean((1, 1)) > 0.85  # it copies what it has seen
    assert retrieval.mean((0, 0)) == 0
    assert set(trained.left) == {"successor", "delimiter", "first token", "name mover", "S-inhibition"}


def test_a_random_model_has_no_head_of_a_type_beyond_chance() -> None:
    types = head_types(random_gpt2())
    assert all(of_type(types, "induction").mean(head) < 0.3 for head in of_type(types, "induction").scores)
    assert {each.type.name for each in types.found} == {"previous", "duplicate", "induction"}
    assert types.left["retrieval"] == "no haystack fits it"


def test_intervals_are_those_of_the_differences_text_by_text() -> None:
    scores, controls = np.array([0.9, 0.7, 0.8]), np.array([0.5, 0.3, 0.1])
    found = TypeScores(TYPES["previous"], {(0, 0): scores}, {(0, 0): controls})
    assert found.mean((0, 0)) == pytest.approx(0.8)
    assert found.margin((0, 0)) == pytest.approx(1.96 * 0.1 / np.sqrt(3), abs=1e-4)
    mean, margin = found.beyond((0, 0))
    assert (mean, margin) == pytest.approx((0.5, 1.96 * np.std([0.4, 0.4, 0.7], ddof=1) / np.sqrt(3)), abs=1e-4)
    assert found.is_clear((0, 0))


def test_every_type_names_its_source_and_its_control() -> None:
    for each in TYPES.values():
        assert isinstance(each, HeadType)
        assert each.source[-4:].isdigit()
        assert each.control


def test_the_list_the_atlas_and_the_numbers_say_the_same(trained: HeadTypes) -> None:
    listed = battery_report(trained, ReportOptions(medium=format_of(".json").medium(Look())))
    assert isinstance(listed, ResultList)
    content = json.loads(draw(listed, ".json"))
    row = next(row for row in content["heads"] if (row["type"], row["layer"], row["head"]) == ("induction", 1, 1))
    assert row["score"] == of_type(trained, "induction").mean((1, 1))
    assert len(content["detect_head"]["scores"]["previous"]["0.0"]) == len(content["detect_head"]["texts"]) == 4
    table = draw(listed, ".csv").decode().splitlines()
    assert table[0].split(",")[:5] == ["type", "layer", "head", "score", "margin"]
    assert len(table) == 1 + 4 * len(trained.found)
    atlas = battery_report(trained, ReportOptions(medium=format_of(".png").medium(Look())))
    assert isinstance(atlas, Heatmaps)
    panel = next(panel for panel in atlas.panels if panel.title == "induction")
    assert panel.values[1, 1] == np.float32(row["score"])
    with pytest.raises(AttnvizError, match=r"-o atlas\.png"):
        battery_report(trained, ReportOptions(medium=format_of(".html").medium(Look())))
    with pytest.raises(AttnvizError, match=r"model=.* or trained works"):
        open_probed(ModelSettings())
