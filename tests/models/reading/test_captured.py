"""The numbers of a head of a model under the capture: each follows from those before, and they are the model's own."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from attnviz.api.record import record
from attnviz.base.errors import AttnvizError
from attnviz.explain.explain import explain
from attnviz.maps.layer_maps import cell_maps
from attnviz.models.reading.captured import LayerCalls, computation_of
from attnviz.models.reading.computation import Computation
from attnviz.models.reading.example import Prepared
from attnviz.text.tokens import Tokens
from tests.small_models import GROUPED, SMALL

WIDTH, HEADS, TOKENS, LAYER = 24, 4, 7, 1
GPT2 = {"vocab_size": 50, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "Bert": (SMALL, "encoder.layer.1.attention.output.dense"),
    "GPT2": (GPT2, "h.1.attn.c_proj"),
    "Llama": (GROUPED, "layers.1.self_attn.o_proj"),
    "Gemma2": (GROUPED | {"attn_logit_softcapping": 2.0}, "layers.1.self_attn.o_proj"),
    "Bloom": (GPT2 | {"hidden_size": WIDTH}, "h.1.self_attention.dense"),
    "Qwen3Next": (GROUPED | {"layer_types": ["full_attention"] * 2, "num_experts": 0}, "layers.1.self_attn.o_proj"),
}
IDS = torch.arange(TOKENS)[None] * 7 % 47 + 3
READ = replace(Tokens.numbered(TOKENS), ids=IDS[0].numpy())


def model_of(name: str, kernel: str = "sdpa") -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**MODELS[name][0], attn_implementation=kernel)
    return getattr(transformers, f"{name}Model")(config).eval()


def computed(model: Any, layer: int = LAYER) -> Computation:
    return computation_of(model, Prepared({"input_ids": IDS}, READ), layer, "tiny")


CASES = [
    ("Bert", "sdpa"),
    ("Bert", "eager"),
    ("GPT2", "sdpa"),
    ("Llama", "sdpa"),
    ("Gemma2", "eager"),
    ("Bloom", "eager"),
]


@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_every_number_follows_from_those_before_and_is_the_models_own(name: str, kernel: str) -> None:
    model = model_of(name, kernel)
    given: list[Tensor] = []
    gave: list[Tensor] = []

    def keep(_: Any, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        given.append(inputs[0])
        gave.append(result)

    handle = model.get_submodule(MODELS[name][1]).register_forward_hook(keep)
    found = computed(model)
    with torch.no_grad(), record(model, layers=[LAYER], values=True) as recording:
        model(input_ids=IDS)
    handle.remove()
    products = found.queries @ found.keys.transpose(0, 2, 1) * found.scale
    cap = MODELS[name][0].get("attn_logit_softcapping")
    if cap is not None:
        products = cap * np.tanh(products / cap)
    if name != "Bloom":
        np.testing.assert_allclose(found.scores, products, atol=1e-5)
    powers = np.exp(found.scores.astype(np.float64)) * found.visible
    np.testing.assert_allclose(found.weights, powers / powers.sum(-1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(found.mixed_values, found.weights @ found.values, atol=1e-6)
    joined = found.mixed_values.transpose(1, 0, 2).reshape(TOKENS, WIDTH)
    np.testing.assert_allclose(joined, given[-1].detach()[0].reshape(TOKENS, WIDTH), atol=1e-5)
    np.testing.assert_allclose(found.output, gave[-1].detach().reshape(TOKENS, -1), atol=1e-6)
    projection = found.projections["O"]
    bias = 0 if projection.bias is None else projection.bias
    np.testing.assert_allclose(found.output, joined @ projection.weight + bias, atol=1e-5)
    whole = cell_maps(recording.maps[0]).window(tuple(range(HEADS)), slice(None), slice(None))
    np.testing.assert_allclose(found.weights, whole.weights, atol=1e-6)
    np.testing.assert_array_equal(found.visible, whole.visible)
    assert recording.maps[0].value_norms is not None
    np.testing.assert_allclose(found.value_norms, recording.maps[0].value_norms, rtol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "said"),
    [("Gemma2", "soft cap, 2"), ("Bloom", "position bias"), ("Llama", "4 query heads share 2 key/value heads")],
)
def test_what_a_model_does_besides_is_said(name: str, said: str) -> None:
    steps = explain(computed(model_of(name, "eager")), 1).steps
    assert any(said in step.sentence for step in steps)
    assert not any(word in step.sentence for step in steps for word in ("--causal", "--dropout"))


def test_steps_are_those_that_were_observed_and_others_are_refused() -> None:
    found = computed(model_of("GPT2"))
    told = explain(found, 3)
    names = "tokens heads scores scaling mask softmax sum join output contributions"
    assert [step.name for step in told.steps] == names.split()
    assert "the forward pass of tiny" in told.remarks[0]
    for step in ("embedding", "projections", "dropout", "ablation"):
        with pytest.raises(AttnvizError, match=f"step='{step}' needs numbers that were not captured from the model"):
            explain(found, 3, step)
    unprojected = replace(found, output=found.output[:, :0], value_norms=None)
    for step in ("output", "contributions"):
        with pytest.raises(AttnvizError, match=f"step='{step}' needs numbers that were not captured from the model"):
            explain(unprojected, 3, step)


def test_scores_of_a_pair_are_summed_with_what_the_model_adds() -> None:
    [step] = explain(computed(model_of("Bloom", "eager")), 1, pair=("5", "2")).steps
    assert "The model adds a position bias to the scores. That makes the score of this pair" in step.examples[0]


def test_no_matrix_is_shown_that_a_gate_stands_before() -> None:
    [step] = explain(computed(model_of("Qwen3Next")), 1, "output").steps
    assert [table.title for table in step.tables] == ["Y"]
    assert (step.formula, "W_O is not shown" in step.examples[0]) == ("Y = f(C) W_O", True)


class SummedMaps(nn.Module):
    """Several linear maps of one input, as with adapters; returns the sum of their results."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([linear(features) for linear in self.maps]).sum(0)


@pytest.mark.parametrize(("count", "width"), [(1, WIDTH), (2, 0), (3, 0)])
def test_no_output_is_kept_if_several_linear_maps_read_that_of_attention(count: int, width: int) -> None:
    model = model_of("Llama")
    model.layers[LAYER].self_attn.o_proj = SummedMaps(count).eval()
    found = computed(model)
    assert found.output.shape == (TOKENS, width)
    assert ("O" in found.projections) == (width > 0)
    assert (found.value_norms is None) == (width == 0)


def test_layers_that_are_not_there_are_refused_and_known_ones_listed() -> None:
    with pytest.raises(AttnvizError, match=r"no layer 5; there are 0-1"):
        computed(model_of("Llama"), 5)


def test_attention_without_products_of_queries_and_keys_is_refused_in_one_line() -> None:
    config = transformers.FNetConfig(**{name: SMALL[name] for name in SMALL if name != "num_attention_heads"})
    with pytest.raises(AttnvizError, match="no attention call in the forward pass of FNetModel"):
        computed(cast("Any", transformers.FNetModel)(config).eval())


def test_a_model_is_the_same_after_it_was_explained() -> None:
    model = model_of("Bert").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    computed(model.eval())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_keys_of_decoder_attention_are_the_tokens_and_not_the_context() -> None:
    config = transformers.BartConfig(
        vocab_size=50, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=40,
    )  # fmt: skip
    inputs = {"input_ids": IDS[:, :3], "decoder_input_ids": IDS}
    prepared = Prepared(inputs, READ, Tokens.numbered(3), "decoder")
    model = cast("Any", transformers.BartModel)(config).eval()
    assert computation_of(model, prepared, LAYER, "tiny").key_tokens == READ


@pytest.mark.parametrize(
    ("fields", "is_searched"),
    [({}, True), ({"output": None}, False), ({"values": None}, False), ({"postprocess": "projected"}, False)],
)
def test_the_projection_is_searched_if_output_and_values_are_known_and_the_kernel_did_not_apply_it(
    fields: dict[str, Any], is_searched: bool
) -> None:
    searched_outputs: list[Any] = []
    search = SimpleNamespace(expect=lambda output, receive: searched_outputs.append(output))
    layer_calls: Any = LayerCalls(model_of("GPT2"), LAYER, None)
    layer_calls.block = SimpleNamespace(capture=SimpleNamespace(observer=SimpleNamespace(search=search)))
    call = SimpleNamespace(**{"output": "output", "values": "values", "postprocess": None} | fields)
    layer_calls._receive_call(None, (), call, 0)
    assert searched_outputs == ["output"] * is_searched
