"""Implicit attention of linear layers: it gives each layer's output from its values, or is refused."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.maps.recurrent import RecurrentMaps
from tests.capture import linear_layers
from tests.capture.linear_layers import linear_model
from tests.capture.small_architectures import build

DELTA, KIMI = "torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention"
MAMBA, MAMBA2 = "mamba_selective_scan", "mamba2_chunk_scan"
FUNCTIONS = {  # the function that computes the recurrence, and the place of the values among its arguments
    "qwen3_next": (DELTA, 2),
    "qwen3_5_text": (DELTA, 2),
    "olmo_hybrid": (DELTA, 2),
    "kimi_linear": (KIMI, 2),
    "mamba": (MAMBA, 0),
    "falcon_mamba": (MAMBA, 0),
    "jamba": (MAMBA, 0),
    "zamba": (MAMBA, 0),
    "mamba2": (MAMBA2, 0),
    "bamba": (MAMBA2, 0),
    "granitemoehybrid": (MAMBA2, 0),
    "zamba2": (MAMBA2, 0),
    "nemotron_h": (MAMBA2, 0),
    "falcon_h1": (MAMBA2, 0),
}
TOKENS, PADDED = 9, 3  # tokens of each of two texts, and those at the start of the second that are padding


def recurrent_maps(recording: Recording) -> list[RecurrentMaps]:
    """Returns the maps of a recording, all of which are of recurrences."""
    return [maps for maps in recording.maps if isinstance(maps, RecurrentMaps)]


def small_model(kind: str) -> nn.Module:
    """Returns a small model whose weights are large enough that every token changes every later one."""
    torch.manual_seed(0)
    errors = []
    for style in ("narrow", "with heads as wide as they are", "with few layers"):
        try:
            model: nn.Module = build(kind, style).eval()
            break
        except Exception as error:
            errors.append(error)
    else:
        raise errors[0]
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "A_log" not in name:
            weight.data = 0.3 * torch.randn_like(weight)
        elif "A_log" in name:
            weight.data = torch.randn_like(weight) - 1
    return model


def inputs() -> dict[str, Any]:
    """Returns two texts, the second with padding at its start, which every later token could see."""
    mask = torch.ones(2, TOKENS, dtype=torch.long)
    mask[1, :PADDED] = 0
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 90, (2, TOKENS), generator=generator)
    return {"input_ids": ids, "attention_mask": mask, "use_cache": False}


@contextmanager
def seen_calls(model: nn.Module, function: str, place: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Yields the values and outputs, ``(texts, heads, tokens, features)``, of each call of a function of the model."""
    calls = []
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    owners = [file for file in files if hasattr(file, function)]
    original = getattr(owners[0], function)

    @wraps(original)
    def call(*args: Any, **keywords: Any) -> Any:
        result = original(*args, **keywords)
        values, output = args[place], result[0] if isinstance(result, tuple) else result
        if function == MAMBA:
            output = output / nn.functional.silu(keywords["z"])
            values, output = values[..., None], output[..., None]
        else:
            values, output = values.transpose(1, 2), output.transpose(1, 2)
        calls.append((values, output))
        return result

    for owner in owners:
        setattr(owner, function, call)
    try:
        yield calls
    finally:
        for owner in owners:
            setattr(owner, function, original)


def assert_gives_outputs(maps: list[Any], calls: list[tuple[Tensor, Tensor]]) -> None:
    """Asserts that implicit attention @ values is the output of each call for each text, without padding."""
    assert len(maps) == 2 * len(calls)
    numbered: dict[int, list[Any]] = {}
    for one in maps:
        numbered.setdefault(one.item, []).append(one)
    for item, of_text in numbered.items():
        for one, (values, output) in zip(of_text, calls, strict=True):
            assert isinstance(one, RecurrentMaps)
            assert one.quantity == "implicit"
            real = slice(PADDED if item else 0, TOKENS)
            expected = output[item, :, real].double().numpy()
            mixed = one.weights[:, real].astype(np.float64) @ values[item].double().numpy()
            np.testing.assert_allclose(mixed, expected, atol=1e-5 * max(1, np.abs(expected).max()))
            assert one.visible_key_counts(one.heads[0], real).tolist() == list(range(1, TOKENS - real.start + 1))


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_implicit_attention_gives_the_output_of_models_of_transformers(kind: str) -> None:
    model = small_model(kind)
    with (
        torch.no_grad(),
        seen_calls(model, *FUNCTIONS[kind]) as calls,
        attnviz.record(model, attention="implicit") as recording,
    ):
        model(**inputs())
    assert_gives_outputs(list(recording.maps), calls)
    assert not any("Left out" in remark for remark in recording.remarks)


@pytest.mark.filterwarnings("ignore")
def test_implicit_attention_gives_the_output_of_lightning_attention_in_blocks() -> None:
    model = small_model("minimax")
    layers: list[Any] = [module for module in model.modules() if type(module).__name__ == "MiniMaxLightningAttention"]
    [layer] = layers
    # Three blocks of tokens
    layer.block_size = 4
    for name, buffer in zip(
        ("query_decay", "key_decay", "diagonal_decay"), layer.decay_factors(layer.slope_rate), strict=True
    ):
        setattr(layer, name, nn.Buffer(buffer))
    seen: dict[str, Tensor] = {}
    layer.act_fn.register_forward_hook(lambda _, given, output: seen.update(features=output))
    layer.norm.register_forward_pre_hook(lambda _, given: seen.update(output=given[0]))
    given = inputs()
    with torch.no_grad(), attnviz.record(model, attention="implicit") as recording:
        model(**given)
    by_head = (2, TOKENS, layer.num_attention_heads, -1)
    features = (seen["features"] * given["attention_mask"][..., None]).reshape(by_head)
    output = seen["output"].reshape(by_head)
    values = features[..., 2 * layer.head_dim :]
    assert_gives_outputs(list(recording.maps), [(values.transpose(1, 2), output.transpose(1, 2))])
    assert {maps.layer for maps in recording.maps} == {layer.layer_idx}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["qwen3_next", "kimi_linear", "mamba", "mamba2"])
def test_layers_in_bfloat16_are_read_within_their_rounding(kind: str) -> None:
    model = small_model(kind).to(torch.bfloat16)
    with torch.no_grad(), attnviz.record(model, attention="implicit") as recording:
        model(**inputs())
    assert not any("Left out" in remark for remark in recording.remarks)
    assert max(maps.fidelity or 0 for maps in recording.maps) < 2**-7


WRITTEN = ["chunk_linear_attn", "chunk_retention", "chunk_gla", "chunk_delta_rule", "chunk_rwkv7"]


def test_implicit_attention_gives_the_output_of_layers_written_as_loops() -> None:
    model = linear_model(*WRITTEN)
    with torch.no_grad(), attnviz.record(model, attention="implicit", tokens=list("abcde")) as recording:
        model(torch.randn(1, 5, 8))
    assert [maps.layer for maps in recording.maps] == list(range(len(WRITTEN)))
    blocks: list[Any] = list(model)
    for maps, block in zip(recurrent_maps(recording), blocks, strict=True):
        values, output = (tensor[0].transpose(0, 1).numpy() for tensor in block.mixer.seen)
        np.testing.assert_allclose(maps.weights @ values, output, atol=1e-5)
        assert maps.fidelity is not None
        assert maps.fidelity < 1e-5
        assert maps.query_tokens.labels == tuple("abcde")


def test_layer_that_computes_something_else_is_left_out_with_the_difference() -> None:
    model = linear_model("chunk_retention", "chunk_simple_gla")
    with torch.no_grad(), attnviz.record(model, attention="implicit") as recording:
        model(torch.randn(1, 5, 8))
    assert [maps.layer for maps in recording.maps] == [0]
    assert any(
        remark.startswith("Left out: 1.mixer: its recurrence, as attnviz reads it, differs by")
        for remark in recording.remarks
    )


def test_chosen_layer_that_computes_something_else_is_refused_with_the_difference() -> None:
    model = linear_model("chunk_retention", "chunk_simple_gla")
    with (
        pytest.raises(AttnvizError, match=r"layer 1 \(1.mixer\) has no implicit attention: its recurrence, as attnviz"),
        torch.no_grad(),
        attnviz.record(model, attention="implicit", layers=[1]),
    ):
        model(torch.randn(1, 5, 8))


def test_function_of_another_kind_with_the_name_of_a_recurrence_is_left_out() -> None:
    model = linear_model("chunk_gla", "retention")
    with torch.no_grad(), attnviz.record(model, attention="implicit") as recording:
        model(torch.randn(1, 5, 8))
    assert "Left out: 1.mixer: retention does not take q k v as its arguments." in recording.remarks


def test_model_computes_the_same_bits_and_its_functions_are_put_back() -> None:
    model, text = linear_model(*WRITTEN), torch.randn(1, 5, 8)
    functions = {name: getattr(linear_layers, name) for name in WRITTEN}
    with torch.no_grad():
        expected = model(text)
        with attnviz.record(model, attention="implicit"):
            assert torch.equal(model(text), expected)
            assert linear_layers.chunk_gla is not functions["chunk_gla"]
    assert functions == {name: getattr(linear_layers, name) for name in WRITTEN}


def test_each_pass_is_a_text_of_its_own() -> None:
    model = linear_model("chunk_gla")
    with torch.no_grad(), attnviz.record(model, attention="implicit") as recording:
        for tokens in (3, 5):
            model(torch.randn(1, tokens, 8))
    assert [(maps.item, maps.weights.shape) for maps in recurrent_maps(recording)] == [(0, (2, 3, 3)), (1, (2, 5, 5))]


def test_a_layer_that_the_backward_repeats_is_read_once() -> None:
    model, text = linear_model("chunk_gla"), torch.randn(1, 5, 8, requires_grad=True)
    with attnviz.record(model, attention="implicit") as recording:
        checkpoint(model[0], text, use_reentrant=False).sum().backward()
    assert len(recording.maps) == 1


def test_only_chosen_layers_and_heads_are_kept() -> None:
    model = linear_model(*WRITTEN)
    with torch.no_grad(), attnviz.record(model, attention="implicit", layers=[1, 3], heads=[1]) as recording:
        model(torch.randn(1, 5, 8))
    assert [(maps.layer, maps.heads, maps.weights.shape[0]) for maps in recurrent_maps(recording)] == [
        (1, (1,), 1),
        (3, (1,), 1),
    ]


@pytest.mark.filterwarnings("ignore")
def test_hybrid_names_the_layers_that_attend_and_refuses_them() -> None:
    model, given = small_model("qwen3_next"), inputs()
    with torch.no_grad(), attnviz.record(model, attention="implicit") as recording:
        model(**given)
    assert recording.silent_layers == {1: "full attention"}
    assert recording.remarks[:2] == (
        "1 of 2 layers mixes tokens by a recurrence.",
        "Layer 1: full attention, not drawn here.",
    )
    with (
        pytest.raises(AttnvizError, match="layer 1: full attention, nothing to draw; there is only 0"),
        torch.no_grad(),
        attnviz.record(model, attention="implicit", layers=[1]),
    ):
        model(**given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["qwen3_next", "mamba", "mamba2"])
def test_step_of_a_cache_is_refused(kind: str) -> None:
    model = small_model(kind)
    ids = inputs()["input_ids"]
    with torch.no_grad():
        first = model(input_ids=ids, use_cache=True)
    cache = {name: first[name] for name in ("past_key_values", "cache_params") if name in first}
    with (
        pytest.raises(AttnvizError, match="has no implicit attention: it continues the state of a cache; run one"),
        torch.no_grad(),
        attnviz.record(model, attention="implicit"),
    ):
        model(input_ids=ids[:, :1], use_cache=True, **cache)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "silent"), [("jamba", "attention"), ("bamba", "attention"), ("kimi_linear", "full attention")]
)
def test_layers_with_a_softmax_are_called_attention(kind: str, silent: str) -> None:
    model = small_model(kind)
    with torch.no_grad(), attnviz.record(model, attention="implicit") as recording:
        model(**inputs())
    assert recording.silent_layers == {1: silent}


@pytest.mark.filterwarnings("ignore")
def test_model_of_linear_layers_alone_is_refused_with_the_option_that_reads_them() -> None:
    model = small_model("mamba")
    message = (
        "no attention with a softmax in the forward pass of MambaModel; attention='implicit' gives what its linear"
    )
    with pytest.raises(AttnvizError, match=message), torch.no_grad(), attnviz.record(model):
        model(**inputs())


def test_model_without_linear_layers_is_refused() -> None:
    module = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with (
        pytest.raises(AttnvizError, match="no linear layer of TransformerEncoderLayer computes a recurrence"),
        attnviz.record(module, attention="implicit"),
    ):
        module(torch.randn(1, 3, 8))


def test_contributions_of_implicit_attention_are_refused() -> None:
    with pytest.raises(AttnvizError, match="implicit attention is no weight, so it has no contributions"):
        attnviz.record(linear_model("chunk_gla"), attention="implicit", values=True)
