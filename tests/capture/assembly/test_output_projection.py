"""Contributions against plain tensors, over the ways in which models write values and their output projection."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

import attnviz
from attnviz.attention.modules import SeparateHeads
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_projection import norms_after, rows_of
from attnviz.capture.assembly.windows import Windows
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.maps.layer_maps import cell_maps
from tests.small_models import GROUPED, SMALL

TEXTS, TOKENS, WIDTH, HEADS = 2, 9, 24, 4
GPT2 = {"vocab_size": 50, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": 40}
MODELS = {"GPT2": GPT2, "Bert": SMALL, "Llama": GROUPED}
IDS = torch.arange(TEXTS * TOKENS).reshape(TEXTS, TOKENS) * 7 % 50


def model_of(name: str, kernel: str) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**MODELS[name], attn_implementation=kernel)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 1
    model: nn.Module = getattr(transformers, f"{name}Model")(config)
    return model.eval()


def value_and_output(name: str, model: nn.Module, layer: int) -> tuple[str, Tensor]:
    """The module whose result ends in the values, and the output projection ``(heads * features, features)``."""
    if name == "GPT2":
        return f"h.{layer}.attn.c_attn", model.get_parameter(f"h.{layer}.attn.c_proj.weight")
    if name == "Bert":
        path = f"encoder.layer.{layer}.attention"
        return f"{path}.self.value", model.get_parameter(f"{path}.output.dense.weight").T
    path = f"layers.{layer}.self_attn"
    return f"{path}.v_proj", model.get_parameter(f"{path}.o_proj.weight").T


def plain_contributions(name: str, model: nn.Module, layer: int) -> FloatArray:
    """‖α f(x)‖ in plain tensors, ``(texts, heads, queries, keys)``, from the model's own weights and a hook."""
    path, output = value_and_output(name, model, layer)
    caught: list[Tensor] = []
    handle = model.get_submodule(path).register_forward_hook(lambda module, given, result: caught.append(result))
    with torch.no_grad():
        weights = model(IDS, output_attentions=True).attentions[layer]
    handle.remove()
    key_heads = MODELS[name].get("num_key_value_heads", HEADS)
    size = WIDTH // HEADS
    values = caught[0][..., -key_heads * size :].view(TEXTS, TOKENS, key_heads, size)
    values = values.repeat_interleave(HEADS // key_heads, dim=2)
    moved = torch.einsum("bkhf,hfd->bhkd", values, output.reshape(HEADS, size, WIDTH))
    found: FloatArray = (weights[..., None] * moved[:, :, None]).norm(dim=-1).detach().numpy()
    return found


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_contributions_equal_those_of_plain_tensors(name: str, kernel: str) -> None:
    recording = attnviz.contributions(model_of(name, kernel), IDS)
    reference = model_of(name, "eager")
    for maps in recording.maps:
        expected = plain_contributions(name, reference, maps.layer)[maps.item]
        everything = slice(0, TOKENS)
        found = cell_maps(maps).window(maps.heads, everything, everything).weights
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert maps.value_norms_fidelity is not None
        assert maps.value_norms_fidelity < 1e-5


class ByHand(nn.Module):
    """Attention by einsum, whose heads and features stay apart up to the output projection."""

    def __init__(self, interleaved: bool = False, factor: float = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.projections = nn.ParameterList(torch.randn(3, WIDTH, HEADS, 6).div(WIDTH**0.5).unbind())
        self.output = nn.Parameter(torch.randn(HEADS, 6, WIDTH) / WIDTH**0.5)
        self.interleaved, self.factor = interleaved, factor

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = (torch.einsum("btd,dhf->bthf", tokens, each) for each in self.projections)
        weights = torch.einsum("bqhf,bkhf->bhqk", queries, keys).softmax(-1)
        mixed = torch.einsum("bhqk,bkhf->bqhf", weights, values)
        if self.interleaved:
            return mixed.transpose(2, 3).flatten(2) @ self.output.transpose(0, 1).flatten(0, 1)
        if self.factor != 1:
            zeros, output = torch.zeros(WIDTH), self.output.flatten(0, 1)
            return torch.addmm(zeros, mixed.flatten(2).flatten(0, 1), output, alpha=self.factor).view_as(tokens)
        return torch.einsum("bqhf,hfd->bqd", mixed, self.output)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), 3),
        (nn.MultiheadAttention(WIDTH, HEADS), 3),
        (nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True), 1),
        (SeparateHeads(WIDTH, HEADS), 1),
        (ByHand(), 1),
        (ByHand(interleaved=True), 1),
    ],
    ids=["texts first", "tokens first", "fused layer", "separate heads", "einsum", "interleaved"],
)
def test_the_sum_of_contributions_is_what_the_projection_gave(model: nn.Module, inputs: int) -> None:
    tokens = torch.randn(TEXTS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    recording = attnviz.contributions(model.eval(), (tokens,) * inputs)
    assert all(maps.value_norms_fidelity is not None and maps.value_norms_fidelity < 1e-5 for maps in recording.maps)
    assert sum(len(maps.heads) for maps in recording.maps if maps.item == 0) == HEADS


@pytest.mark.parametrize("size", [16, 12])
def test_contributions_of_windows_stand_at_the_places_of_their_keys(size: int) -> None:
    torch.manual_seed(2)
    sizes: dict[str, Any] = {"image_size": size, "patch_size": 2, "embed_dim": 12, "depths": [2], "num_heads": [3]}
    model = transformers.SwinModel(transformers.SwinConfig(**sizes, window_size=4)).eval()  # type: ignore[no-untyped-call]
    pixels, given = torch.randn(2, 3, size, size), list[Tensor]()
    block = model.get_submodule("encoder.layers.0.blocks.1")  # whose windows are shifted
    block.get_submodule("layernorm_before").register_forward_hook(lambda module, args, result: given.append(result))
    recording = attnviz.contributions(model, pixels, layers=[1])
    with torch.no_grad():
        values = block.get_submodule("attention.v_proj")(given[0]).view(2, -1, 3, 4)
        output = block.get_parameter("attention.o_proj.weight").T.reshape(3, 4, 12)
        expected = torch.einsum("bkhf,hfd->bhkd", values, output).norm(dim=-1).numpy()
    for maps, norms in zip(recording.maps, expected, strict=True):
        assert maps.value_norms is not None
        assert maps.value_norms_fidelity is not None
        np.testing.assert_allclose(maps.value_norms, norms, rtol=1e-4)
        assert maps.value_norms_fidelity < 1e-6


def test_windows_that_share_keys_are_seen() -> None:
    places = np.array([[0, 1, -1], [2, 3, -1]])
    assert not Windows(np.array([0, 0]), places, places).overlap
    assert Windows(np.array([0, 0]), places, np.array([[0, 1, 2], [2, 3, -1]])).overlap
    assert not Windows(np.array([0, 1]), places, np.array([[0, 1, 2], [2, 1, 0]])).overlap


def test_the_order_of_heads_in_the_projection_is_found() -> None:
    tokens = torch.randn(1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    plain, interleaved = (attnviz.contributions(ByHand(interleaved=order), tokens).maps[0] for order in (False, True))
    assert plain.value_norms is not None
    assert interleaved.value_norms is not None
    np.testing.assert_allclose(plain.value_norms, interleaved.value_norms, rtol=1e-5)
    assert np.ptp(plain.value_norms, axis=0).min() > 0.01


def test_factor_of_the_projection_is_part_of_contributions() -> None:
    tokens = torch.randn(1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    plain, half = (attnviz.contributions(ByHand(factor=factor), tokens).maps[0] for factor in (1, 0.5))
    assert half.value_norms is not None
    assert half.value_norms_fidelity is not None
    assert plain.value_norms is not None
    np.testing.assert_allclose(half.value_norms, plain.value_norms / 2, rtol=1e-5)
    assert half.value_norms_fidelity < 1e-5


def test_one_layer_ends_the_pass_after_its_projection() -> None:
    model, ran = model_of("GPT2", "sdpa"), []
    for layer in range(2):
        for part in ("attn.c_proj", "mlp"):
            name = f"h.{layer}.{part}"
            model.get_submodule(name).register_forward_hook(lambda *_, name=name: ran.append(name))
    with attnviz.record(model, layers=[0], stop=True, values=True) as recording, torch.no_grad():
        model(IDS)
    assert recording.maps[0].value_norms is not None
    assert ran in ([], ["h.0.attn.c_proj"])


@pytest.mark.parametrize("keys", [2, 40])
def test_norms_of_few_and_of_many_keys_are_those_of_the_mapped_values(keys: int) -> None:
    values, weights = torch.randn(2, 3, keys, 6), torch.randn(3, 6, WIDTH)
    np.testing.assert_allclose(norms_after(values, weights), (values @ weights).norm(dim=-1), rtol=1e-5)


def test_norms_of_values_that_a_head_lets_vanish_are_exact() -> None:
    values, weights = torch.randn(1, 3, 40, 6), torch.randn(3, 6, WIDTH)
    weights[1, 0] *= 1e-5
    values[0, 1, 7] = torch.eye(6)[0]
    expected = (values.double() @ weights.double()).norm(dim=-1)
    assert expected[0, 1, 7] < 1e-4
    np.testing.assert_allclose(norms_after(values, weights), expected, rtol=1e-5)


def test_columns_that_are_not_in_order_are_taken_one_by_one() -> None:
    weight = torch.randn(7, WIDTH)
    for columns in ([[2, 3, 4], [5, 6, 0]], [[1, 2, 3], [4, 5, 6]], [[4, 3, 2]], [[0, 1, 5]]):
        assert torch.equal(rows_of(weight, torch.tensor(columns)), weight[torch.tensor(columns)])


def test_recording_without_values_keeps_none_and_the_output_stays_the_same_to_the_bit() -> None:
    model = model_of("Llama", "sdpa")
    with torch.no_grad():
        plain = model(IDS).last_hidden_state
        with attnviz.record(model) as without:
            model(IDS)
        with attnviz.record(model, values=True, dense=False) as kept:
            observed = model(IDS).last_hidden_state
    assert torch.equal(plain, observed)
    assert all(maps.value_norms is None for maps in without.maps)
    assert all(isinstance(maps, FactoredMaps) and maps.value_norms is not None for maps in kept.maps)
    with pytest.raises(AttnvizError, match="was recorded without the norms of its values"):
        attnviz.contributions(without)
