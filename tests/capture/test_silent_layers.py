"""Tests the names of the layers of hybrid models in which nothing attends."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import attnviz
from attnviz.base.errors import AttnvizError
from tests.capture.hybrids import FULL, LINEAR, MIXED, WIDTH, Block, Hybrid
from tests.capture.small_architectures import MODELS, build

CASES = {
    "by its configuration": (
        Hybrid(MIXED, [LINEAR, FULL, LINEAR, "conv", FULL]),
        (
            "2 of 5 layers attend.",
            "Layers 0, 2: linear attention, nothing to draw.",
            "Layer 3: convolution, nothing to draw.",
        ),
    ),
    "by its classes": (Hybrid(MIXED), ("2 of 5 layers attend.", "Layers 0, 2-3: GatedMixer, nothing to draw.")),
    "by its classes, beside words that do not tell layers apart": (
        Hybrid(MIXED, [FULL] * 5),
        ("2 of 5 layers attend.", "Layers 0, 2-3: GatedMixer, nothing to draw."),
    ),
    "all layers attend": (Hybrid([True, True], [LINEAR, FULL]), ()),
    "no layers beside the only one": (nn.Sequential(nn.Linear(WIDTH, WIDTH), Block(attends=True), nn.ReLU()), ()),
}
# What the layers without attention of an architecture compute, by number
KINDS = {
    "qwen3_next": {0: "gated delta net"},
    "qwen3_5_text": {0: "gated delta net"},
    "olmo_hybrid": {0: "gated delta net"},
    "kimi_linear": {0: "Kimi delta attention"},
    "bailing_hybrid": {0: "Kimi delta attention"},
    "jamba": {0: "Mamba"},
    "zamba": {0: "Mamba", 2: "Mamba"},
    "zamba2": {0: "Mamba 2"},
    "bamba": {0: "Mamba 2"},
    "granitemoehybrid": {0: "Mamba 2"},
    "nemotron_h": {0: "Mamba 2", 1: "mixture of experts", 3: "feed-forward network"},
    "recurrent_gemma": {0: "gated linear recurrence"},
    "glm5_next_text": {0: "Kimi delta attention"},
    "minimax": {1: "lightning attention"},
    "lfm2_moe": {0: "convolution"},
}


@pytest.mark.parametrize("case", CASES)
def test_layers_without_attention_are_named_with_the_numbers_that_the_model_gives_them(case: str) -> None:
    model, remarks = CASES[case]
    with attnviz.record(model.eval()) as recording:
        model(torch.rand(1, 6, WIDTH))
    assert recording.remarks == remarks


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_hybrid_architectures_are_named_in_the_terms_of_the_field(kind: str) -> None:
    model = build(kind, "narrow", MODELS)
    with torch.no_grad(), attnviz.record(model) as recording:
        model(input_ids=torch.tensor([[7, 21, 35, 8, 21, 60, 11]]))
    assert recording.silent_layers == KINDS[kind]
    attending = [layer for layer in range(model.config.num_hidden_layers) if layer not in KINDS[kind]]
    assert recording.layers == tuple(attending)
    verb = "attends" if len(attending) == 1 else "attend"
    assert recording.remarks[0] == f"{len(attending)} of {model.config.num_hidden_layers} layers {verb}."


def test_a_choice_of_maps_keeps_the_count_of_all_layers_and_layers_that_are_not_all_known_are_not_counted() -> None:
    model, (count, *others) = CASES["by its configuration"]
    with attnviz.record(model) as recording:
        model(torch.rand(1, 6, WIDTH))
    first = replace(recording, maps=recording.maps[:1])
    assert first.remarks == recording.remarks == (count, *others)
    assert replace(recording, maps=recording.maps[1:], remarks=(), tells_silence=False).remarks == tuple(others)


def test_a_router_of_experts_does_not_hide_what_a_chosen_layer_computes() -> None:
    layers: dict[str, Any] = {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"], "num_local_experts": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "mamba_n_heads": 4, "mamba_d_head": 16}
    sizes: dict[str, Any] = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_experts_per_tok": 1}
    config = transformers.GraniteMoeHybridConfig(shared_intermediate_size=16, **layers, **heads, **sizes)
    model: nn.Module = transformers.GraniteMoeHybridModel(config)
    model.eval()
    message = r"^layer 0: Mamba 2, nothing to draw; there is only 1$"
    with pytest.raises(AttnvizError, match=message), torch.no_grad(), attnviz.record(model, layers=[0]):
        model(input_ids=torch.tensor([[7, 21, 35, 8, 21, 60, 11]]))


def test_a_chosen_layer_without_attention_is_refused_by_what_it_computes_live_and_saved_and_others_are_not_mentioned(
    tmp_path: Path,
) -> None:
    model, _ = CASES["by its configuration"]
    message = r"^layers 0, 2: linear attention, nothing to draw; there are 1, 4$"
    with pytest.raises(AttnvizError, match=message), attnviz.record(model, layers=[0, 2]):
        model(torch.rand(1, 6, WIDTH))
    with attnviz.record(model) as recording:
        model(torch.rand(1, 6, WIDTH))
    recording.save(tmp_path / "run.safetensors")
    saved = attnviz.load(tmp_path / "run.safetensors")
    assert saved.remarks == recording.remarks
    assert replace(saved, maps=saved.maps[:1]).remarks == recording.remarks
    with pytest.raises(AttnvizError, match=message):
        attnviz.draw(saved, ".svg", layers="0,2")
    with attnviz.record(model, layers=[4]) as recording:
        model(torch.rand(1, 6, WIDTH))
    assert recording.layers == (4,)
    assert not any("nothing to draw" in remark for remark in recording.remarks)
