"""Tests the names of the layers of hybrid models in which nothing attends."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import attnviz
from attnviz.base.errors import AttnvizError

WIDTH = 8


class GatedMixer(nn.Module):
    """Mixes tokens by a running mean, without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the gated mean of the tokens so far."""
        return torch.sigmoid(self.gate(inputs)) * inputs.cumsum(1)


class Block(nn.Module):
    """A layer of attention or of a mixer."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Linear(WIDTH, WIDTH)
        if attends:
            self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        else:
            self.mixer = GatedMixer()

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the inputs with what the layer adds."""
        normed = self.norm(inputs)
        mixed = self.attention(normed, normed, normed)[0] if hasattr(self, "attention") else self.mixer(normed)
        added: Tensor = self.mlp(mixed)
        return inputs + added


class Hybrid(nn.Module):
    """A stack in which some layers attend."""

    def __init__(self, attends: list[bool], words: list[str] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Block, attends))
        if words is not None:
            self.config = SimpleNamespace(layer_types=words, stages=["a"] * len(words))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the inputs after all layers."""
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


MIXED = [False, True, False, False, True]
LINEAR, FULL = "linear_attention", "full_attention"
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
