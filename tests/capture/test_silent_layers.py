"""Tests the names of the layers of hybrid models in which nothing attends."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import attnviz
from attnviz.base.errors import AttnvizError
from tests.capture.hybrids import FULL, LINEAR, MIXED, WIDTH, Block, Hybrid

CASES = {
    "by its configuration": (
        Hybrid(MIXED, [LINEAR, FULL, LINEAR, "conv", FULL]),
        ("Layers 0, 2: linear attention, nothing to draw.", "Layer 3: conv, nothing to draw."),
    ),
    "by its classes": (Hybrid(MIXED), ("Layers 0, 2-3: GatedMixer, nothing to draw.",)),
    "by its classes, beside words that do not tell layers apart": (
        Hybrid(MIXED, [FULL] * 5),
        ("Layers 0, 2-3: GatedMixer, nothing to draw.",),
    ),
    "all layers attend": (Hybrid([True, True], [LINEAR, FULL]), ()),
    "no layers beside the only one": (nn.Sequential(nn.Linear(WIDTH, WIDTH), Block(attends=True), nn.ReLU()), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_without_attention_are_named_with_the_numbers_that_the_model_gives_them(case: str) -> None:
    model, remarks = CASES[case]
    with attnviz.record(model.eval()) as recording:
        model(torch.rand(1, 6, WIDTH))
    assert tuple(remark for remark in recording.remarks if "nothing to draw" in remark) == remarks


def test_a_chosen_layer_without_attention_is_refused_by_what_it_computes_live_and_saved_and_others_are_not_mentioned(
    tmp_path: Path,
) -> None:
    model, _ = CASES["by its configuration"]
    message = r"^layers 0, 2: linear attention, nothing to draw; there are 1, 4 \(counted from 0\)$"
    with pytest.raises(AttnvizError, match=message), attnviz.record(model, layers=[0, 2]):
        model(torch.rand(1, 6, WIDTH))
    with attnviz.record(model) as recording:
        model(torch.rand(1, 6, WIDTH))
    recording.save(tmp_path / "run.safetensors")
    saved = attnviz.load(tmp_path / "run.safetensors")
    assert saved.remarks == recording.remarks
    assert "3: conv, nothing to draw." in replace(saved, remarks=()).remarks[1]
    with pytest.raises(AttnvizError, match=message):
        attnviz.draw(saved, ".svg", layers="0,2")
    with attnviz.record(model, layers=[4]) as recording:
        model(torch.rand(1, 6, WIDTH))
    assert recording.layers == (4,)
    assert not any("nothing to draw" in remark for remark in recording.remarks)
