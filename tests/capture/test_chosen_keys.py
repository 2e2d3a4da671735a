"""Keys that a top-k chooses, of another layer, or that a module adds are found and said, in any model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.saved import load, save
from attnviz.metrics.call_metrics import measure
from tests.small_models import GROUPED, SMALL
from tests.streams import Streams

TOKENS, WIDTH, HEADS, CHOSEN = 8, 12, 3, 2
CAUSAL = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def by_hand(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return (queries @ keys.mT + torch.where(mask, 0.0, -1e9)).softmax(-1) @ values


def filled(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return (queries @ keys.mT).masked_fill(~mask, float("-inf")).softmax(-1) @ values


class Layer(nn.Module):
    """Attention over keys that an index of its own chooses, beside experts that a top-k chooses, too."""

    def __init__(self, attend: Attend, chooses: bool) -> None:
        super().__init__()
        self.num_heads, self.attend, self.chooses = HEADS, attend, chooses
        self.project, self.index = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.experts = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, keys: Tensor | None = None) -> tuple[Tensor, Tensor]:
        queries, own_keys, values = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        keys = own_keys if keys is None else keys
        mask = CAUSAL
        if self.chooses:
            left, right = self.index(x).chunk(2, -1)
            best = (left @ right.mT).masked_fill(~CAUSAL, float("-inf")).topk(CHOSEN, -1).indices
            mask = torch.zeros(len(x), TOKENS, TOKENS, dtype=torch.bool).scatter(-1, best, True) & CAUSAL
            mask = mask[:, None]
        self.mask = mask
        x = x + self.attend(queries, keys, values, mask).transpose(1, 2).flatten(2)
        share, expert = self.experts(x).softmax(-1).topk(1)
        return x + share * expert, keys


class Layers(nn.Module):
    def __init__(self, attend: Attend, chooses: bool = True, shares: bool = False) -> None:
        super().__init__()
        self.layers, self.shares = nn.ModuleList(Layer(attend, chooses) for _ in range(3)), shares

    def forward(self, x: Tensor) -> Tensor:
        keys = None
        for layer in self.layers:
            x, keys = layer(x, keys if self.shares else None)
        return x


@torch.no_grad()
@pytest.mark.parametrize("attend", [by_hand, filled, functional.scaled_dot_product_attention])
def test_a_top_k_over_keys_is_said_and_one_over_experts_is_not(attend: Attend) -> None:
    torch.manual_seed(0)
    recordings = {}
    for chooses in (True, False):
        model: Any = Layers(attend, chooses)
        with attnviz.record(model) as recordings[chooses]:
            model(torch.randn(1, TOKENS, WIDTH))
        for maps, layer in zip(recordings[chooses].maps, model.layers, strict=True):
            assert isinstance(maps, DenseMaps)
            np.testing.assert_array_equal(maps.visible, layer.mask.reshape(TOKENS, TOKENS))
    seen = np.mean([min(CHOSEN, query + 1) for query in range(TOKENS)])
    assert recordings[True].remarks == (
        f"In layers 0-2 a top-k chooses the keys: a query sees {seen:.3g} of the 4.5 keys up to it, on average; "
        "those that it does not choose are drawn as masked.",
    )
    assert recordings[False].remarks == ()


@torch.no_grad()
def test_keys_of_another_layer_are_said_and_written(tmp_path: Path, shell: Streams) -> None:
    torch.manual_seed(0)
    model = Layers(by_hand, chooses=False, shares=True)
    with attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert [maps.key_layer for maps in recording.maps] == [None, 0, 0]
    assert recording.remarks == ("Layers 1-2 read the keys of layer 0.",)
    save(recording, tmp_path / "a.safetensors")
    assert [maps.key_layer for maps in load(tmp_path / "a.safetensors").maps] == [None, 0, 0]
    found = shell.json("show", str(tmp_path / "a.safetensors"), "--json")
    assert [head["keys"].get("layer") for head in found["heads"][::HEADS]] == [None, 0, 0]


KINDS = ("sliding_attention", "full_attention")
SHARED = {"num_hidden_layers": 4, "layer_types": [*KINDS, *KINDS], "num_kv_shared_layers": 2, "sliding_window": 3}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 6}


@torch.no_grad()
def test_shared_keys_of_a_model_are_those_of_the_last_layer_of_their_kind() -> None:
    torch.manual_seed(0)
    config = transformers.Gemma4TextConfig(
        **GROUPED | SHARED | {"hidden_size_per_layer_input": 0, "global_head_dim": 6}
    )
    model: Any = transformers.Gemma4TextModel(config)
    model.eval()
    with attnviz.record(model) as recording:
        model(input_ids=torch.arange(3, 3 + TOKENS)[None], output_hidden_states=True)  # else the last row alone
    assert [maps.key_layer for maps in recording.maps] == [None, None, 0, 1]
    assert recording.remarks == ("Layer 2 reads the keys of layer 0.", "Layer 3 reads the keys of layer 1.")


def model_with_indexer(implementation: str) -> Any:
    torch.manual_seed(0)
    settings = {"index_topk": CHOSEN, "index_n_heads": 2, "index_head_dim": 8, "first_k_dense_replace": 2}
    config = transformers.DeepseekV32Config(**SMALL | LATENT | settings | {"num_key_value_heads": 4})
    config._attn_implementation = implementation
    model: Any = transformers.DeepseekV32Model(config)
    return model.eval()


@torch.no_grad()
def test_steps_whose_own_key_is_not_chosen_are_joined_to_one_text() -> None:
    model, ids = model_with_indexer("eager"), torch.arange(3, 3 + TOKENS)[None]
    rows: list[Any] = []
    with attnviz.record(model) as recording:
        cache = None
        for token in range(TOKENS):
            output = model(input_ids=ids[:, token : token + 1], past_key_values=cache, output_attentions=True)
            cache = output.past_key_values
            rows.append([functional.pad(weights[0], (0, TOKENS - token - 1)) for weights in output.attentions])
    assert len(recording.maps) == 2
    for maps, expected in zip(recording.maps, zip(*rows, strict=True), strict=True):
        assert isinstance(maps, DenseMaps)
        assert not maps.visible.diagonal(axis1=-2, axis2=-1).all()
        np.testing.assert_allclose(np.nan_to_num(maps.weights), torch.cat(expected, dim=1), atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_keys_that_an_indexer_of_a_model_chooses_are_those_seen(implementation: str) -> None:
    model = model_with_indexer(implementation)
    chosen: list[Tensor] = []
    for layer in model.layers:
        layer.self_attn.indexer.register_forward_hook(lambda _module, _inputs, output: chosen.append(output))
    with attnviz.record(model, values=True) as recording:
        model(input_ids=torch.arange(3, 3 + TOKENS)[None])
    assert len(recording.maps) == 2
    for maps, indices in zip(recording.maps, chosen, strict=True):
        assert isinstance(maps, DenseMaps)
        expected = torch.zeros(TOKENS, TOKENS, dtype=torch.bool).scatter(-1, indices[0].long(), True) & CAUSAL
        np.testing.assert_array_equal(maps.visible, expected)
        assert maps.value_norms_fidelity is not None
        assert maps.value_norms_fidelity < 1e-5
    assert recording.remarks[0].startswith("In layers 0-1 a top-k chooses the keys: a query sees 1.88 of the 4.5 keys")


class Added(nn.Module):
    def __init__(self, needs_weights: bool, **added: bool) -> None:
        super().__init__()
        self.attention, self.needs_weights = (
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **added),
            needs_weights,
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output, _ = self.attention(x, x, x, need_weights=self.needs_weights, average_attn_weights=False)
        _, weights = self.attention(x, x, x, average_attn_weights=False)
        return output, weights


@torch.no_grad()
@pytest.mark.parametrize("needs_weights", [True, False])
@pytest.mark.parametrize(
    ("added", "labels"),
    [
        ({"add_bias_kv": True}, ("bias",)),
        ({"add_zero_attn": True}, ("zero",)),
        ({"add_bias_kv": True, "add_zero_attn": True}, ("bias", "zero")),
    ],
)
def test_keys_that_a_module_adds_come_after_the_tokens(
    added: dict[str, bool], labels: tuple[str, ...], needs_weights: bool
) -> None:
    torch.manual_seed(0)
    model, words = Added(needs_weights, **added), list("abcdefgh")
    with attnviz.record(model, tokens=words) as recording:
        _, weights = model(torch.randn(1, TOKENS, WIDTH))
    maps = recording.maps[0]
    assert isinstance(maps, DenseMaps)
    assert maps.key_tokens.labels == (*words, *labels)
    assert maps.key_tokens.special.tolist() == [False] * TOKENS + [True] * len(labels)
    np.testing.assert_allclose(maps.weights, weights[0], atol=1e-6)
    assert [remark for remark in recording.remarks if "no token: the module adds" in remark]
    assert not [remark for remark in recording.remarks if "top-k" in remark]
    own = weights[0].diagonal(dim1=1, dim2=2).mean(-1)
    assert [numbers.values["self"] for numbers in measure(maps)] == pytest.approx(own.tolist(), abs=1e-6)
