"""The attention modules against torch's own, forward and backward, and what they refuse."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import attnviz
from attnviz.attention.modules import (
    MultiHeadAttention,
    SelfAttention,
    SeparateHeads,
    draw_linear,
    masked_softmax,
)
from attnviz.base.errors import AttnvizError
from tests.docs.printed_numbers import renormalized_softmax

BATCH, HEADS, QUERIES, KEYS, EMBED = 2, 3, 5, 7, 12
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_unknown_option_is_refused_by_the_name_of_the_module() -> None:
    with pytest.raises(TypeError, match=r"SelfAttention\(\) got an unexpected keyword argument 'causl'"):
        SelfAttention(EMBED, causl=True)  # type: ignore[call-arg]


def randn(*shape: int, device: str = "cpu") -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, device=device, requires_grad=True)


def copy_into(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())


def gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    weighting = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
    return torch.autograd.grad((output * weighting).sum(), inputs, retain_graph=True)


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("masked", [False, True])
def test_equals_torch_multihead_attention_forward_and_backward(masked: bool, device: str) -> None:
    ours = MultiHeadAttention(EMBED, HEADS).to(device, torch.float64)
    theirs = nn.MultiheadAttention(EMBED, HEADS, batch_first=True).to(device, torch.float64)
    copy_into(theirs, ours)
    tokens, context = randn(BATCH, QUERIES, EMBED, device=device), randn(BATCH, KEYS, EMBED, device=device)
    visible = torch.rand(QUERIES, KEYS, device=device) > 0.4 if masked else None
    padding = torch.tensor([[True] * KEYS, [True] * 4 + [False] * 3], device=device) if masked else None
    if visible is not None:
        visible[:, 0] = True
    call = ours(tokens, visible, context=context, padding=padding)
    output, weights = theirs(
        tokens,
        context,
        context,
        attn_mask=None if visible is None else ~visible,
        key_padding_mask=None if padding is None else ~padding,
        average_attn_weights=False,
    )
    assert_same(call.output, output)
    assert_same(call.weights, weights)
    for mine, yours in zip(gradients(call.output, tokens, context), gradients(output, tokens, context), strict=True):
        assert_same(mine, yours)
    mine, yours = gradients(call.output, ours.key.weight)[0], gradients(output, theirs.in_proj_weight)[0]
    assert_same(mine, yours[EMBED : 2 * EMBED])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_context_equals_scaled_dot_product_attention_forward_and_backward(scale: float | None, device: str) -> None:
    ours = MultiHeadAttention(EMBED, HEADS, qk_dim=2, value_dim=5, causal=True, scale=scale).to(device, torch.float64)
    tokens, context = randn(BATCH, QUERIES, EMBED, device=device), randn(BATCH, KEYS, EMBED, device=device)
    call = ours(tokens, context=context)
    theirs = scaled_dot_product_attention(call.queries, call.keys, call.values, is_causal=True, scale=scale)
    assert_same(call.context, theirs)
    inputs = (tokens, context, ours.query.weight, ours.value.weight)
    theirs_output = ours.output(ours.join_heads(theirs))
    for mine, yours in zip(gradients(call.output, *inputs), gradients(theirs_output, *inputs), strict=True):
        assert_same(mine, yours)


def test_separate_heads_equal_weight_splits_with_copied_weights() -> None:
    split = MultiHeadAttention(EMBED, HEADS, qk_dim=2, value_dim=5).double()
    apart = SeparateHeads(EMBED, HEADS, qk_dim=2, value_dim=5).double()
    with torch.no_grad():
        for number, head in enumerate(apart.heads):
            for name, width in (("query", 2), ("key", 2), ("value", 5)):
                ours, whole = getattr(head, name), getattr(split, name)
                ours.weight.copy_(whole.weight[number * width : (number + 1) * width])
                ours.bias.copy_(whole.bias[number * width : (number + 1) * width])
    apart.output.load_state_dict(split.output.state_dict())
    tokens = randn(BATCH, QUERIES, EMBED)
    for ours, theirs in zip(apart(tokens), split(tokens), strict=True):
        assert_same(ours, theirs)


def test_sequence_first_masks_separate_heads_the_same() -> None:
    mask = torch.ones(QUERIES, QUERIES, BATCH)
    mask[1, 2, 1] = 0
    weights = SeparateHeads(EMBED, HEADS, batch_first=False)(torch.randn(QUERIES, BATCH, EMBED), mask).weights
    assert (weights == 0).nonzero().tolist() == [[1, head, 1, 2] for head in range(HEADS)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 1))
def test_rows_sum_to_one_over_visible_keys_and_both_maskings_agree(seed: int, share: float) -> None:
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(HEADS, QUERIES, KEYS, generator=random, dtype=torch.float64)
    visible = torch.rand(QUERIES, KEYS, generator=random) < share
    before, after = masked_softmax(scores, visible), renormalized_softmax(scores, visible)
    assert torch.allclose(before, after, atol=1e-12)
    assert torch.allclose(before.sum(dim=-1), visible.any(dim=-1).double().expand(HEADS, QUERIES))
    assert not before[:, ~visible].any()


def test_a_row_that_sees_nothing_is_zero_and_has_finite_gradients() -> None:
    visible = torch.ones(QUERIES, QUERIES, dtype=torch.bool)
    visible[2] = False
    for normalize in (masked_softmax, renormalized_softmax):
        attention = MultiHeadAttention(EMBED, HEADS, bias=False, normalize=normalize).double()
        tokens = randn(BATCH, QUERIES, EMBED)
        call = attention(tokens, visible)
        assert not call.weights[:, :, 2].any()
        assert not call.output[:, 2].any()
        assert all(each.isfinite().all() for each in gradients(call.output, tokens, attention.key.weight))


def test_padding_hides_keys_of_its_own_text_only() -> None:
    padding = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    weights = MultiHeadAttention(EMBED, HEADS)(torch.randn(2, 5, EMBED), padding=padding).weights
    assert not weights[0, :, :, 3:].any()
    assert weights[1].all()


def test_padded_batch_gives_each_text_what_it_gets_alone() -> None:
    attention = MultiHeadAttention(EMBED, HEADS, causal=True).double()
    lengths, tokens = (3, 4, 7), randn(3, 7, EMBED)
    padding = torch.arange(7) < torch.tensor(lengths)[:, None]
    output = attention(tokens, padding=padding).output
    for item, length in enumerate(lengths):
        assert_same(output[item, :length], attention(tokens[item : item + 1, :length]).output[0])


def test_temperature_divides_the_scores() -> None:
    attention = MultiHeadAttention(EMBED, HEADS)
    sharp = MultiHeadAttention(EMBED, HEADS, temperature=0.25)
    sharp.load_state_dict(attention.state_dict())
    tokens = torch.randn(BATCH, QUERIES, EMBED)
    assert torch.allclose(sharp(tokens).scores, attention(tokens).scores * 4)


def test_dropout_keeps_weights_divided_by_the_share_kept_and_rests_in_eval() -> None:
    attention = MultiHeadAttention(EMBED, HEADS, dropout=0.2)
    tokens = torch.randn(BATCH, QUERIES, EMBED)
    call = attention(tokens)
    kept = call.dropped > 0
    assert torch.allclose(call.dropped[kept], call.weights[kept] / 0.8)
    assert 0.05 < 1 - kept.float().mean().item() < 0.4
    assert torch.equal(attention.eval()(tokens).dropped, attention(tokens).weights)


def test_uniform_weights_are_drawn_as_features_by_width() -> None:
    linear = draw_linear(3, 2, True, "uniform")
    torch.manual_seed(0)
    assert torch.equal(linear.weight, torch.rand(3, 2).T)
    assert not linear.bias.any()


def test_bias_is_given_to_the_named_projections() -> None:
    attention = MultiHeadAttention(EMBED, HEADS, bias=("value", "output"))
    assert [name for name, _ in attention.named_parameters() if name.endswith("bias")] == ["value.bias", "output.bias"]


def test_modules_are_public() -> None:
    assert attnviz.MultiHeadAttention is MultiHeadAttention
    assert attnviz.SelfAttention is SelfAttention
    assert attnviz.SeparateHeads is SeparateHeads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_dim": 10, "num_heads": 3}, "embed_dim 10 is not divisible by num_heads 3; use embed_dim 9"),
        ({"embed_dim": 8, "num_heads": 0}, "num_heads 0 is out of range; give 1 or more"),
        ({"num_heads": 0, "qk_dim": 1, "value_dim": 1}, "num_heads 0 is out of range; give 1 or more"),
        ({"qk_dim": -1}, "qk_dim -1 is out of range; give 1 or more"),
        ({"value_dim": 0}, "value_dim 0 is out of range; give 1 or more"),
        ({"dropout": 1.0}, "dropout 1.0 is out of range; give a number from 0 to below 1"),
        ({"dropout": -0.1}, "dropout -0.1 is out of range"),
        ({"dropout": float("nan")}, "dropout nan is out of range"),
        ({"temperature": 0.0}, "temperature 0.0 is out of range; give a number above 0"),
        ({"temperature": -1.0}, "temperature -1.0 is out of range"),
        ({"temperature": float("inf")}, "temperature inf is out of range"),
        ({"scale": float("nan")}, "scale nan is not finite; give a number"),
        ({"output_dim": 0}, "output_dim 0 is out of range; give 1 or more"),
        ({"init": "normal"}, "unknown init 'normal'; choose linear or uniform"),
        ({"bias": ("values",)}, "bias for unknown projection 'values'; choose query, key, value or output"),
    ],
)
@pytest.mark.parametrize("module", [MultiHeadAttention, SeparateHeads])
def test_refuses_settings_out_of_range(module: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=f"^{re.escape(message)}"):
        module(**({"embed_dim": 8, "num_heads": 2} | options))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"tokens": (5, 12)}, "tokens has shape (5, 12); give (batch, tokens, 12)"),
        ({"tokens": (2, 5, 11)}, "tokens has shape (2, 5, 11); give (batch, tokens, 12)"),
        ({"context": (2, 7, 11)}, "context has shape (2, 7, 11); give (batch, tokens, 12)"),
        ({"context": (2, 0, 12)}, "context of shape (2, 0, 12) has no tokens; give at least one"),
        ({"context": (3, 7, 12)}, "context has batch size 3, but tokens has 2; give equal sizes"),
        ({"value_tokens": (2, 6, 12)}, "5 keys, but 6 values; give as many values as keys"),
        (
            {"visible": (5, 4)},
            "a mask of shape (5, 4) does not fit scores of shape (2, 3, 5, 5); give (queries, keys), here (5, 5), or",
        ),
        ({"visible": (2, 5, 5)}, "a mask of shape (2, 5, 5) does not fit scores of shape (2, 3, 5, 5)"),
        ({"padding": (5, 2)}, "padding has shape (5, 2); give (batch, keys), here (2, 5)"),
    ],
)
def test_refuses_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    given = {name: torch.ones(shape) for name, shape in ({"tokens": (2, 5, 12)} | shapes).items()}
    with pytest.raises(AttnvizError, match=f"^{re.escape(message)}"):
        MultiHeadAttention(EMBED, HEADS)(**given)


@pytest.mark.parametrize("shape", [(12,), (5, 2, 11)])
def test_refuses_sequence_first_tokens_of_another_shape(shape: tuple[int, ...]) -> None:
    message = f"^{re.escape(f'tokens has shape {shape}; give (tokens, batch, 12)')}"
    with pytest.raises(AttnvizError, match=message):
        MultiHeadAttention(EMBED, HEADS, batch_first=False)(torch.ones(shape))


def test_refuses_half_precision_that_overflows() -> None:
    attention = MultiHeadAttention(EMBED, HEADS, scale=1.0).half()
    with pytest.raises(AttnvizError, match=r"^scores overflow in float16; use dtype='float32'$"):
        attention(torch.full((1, 2, EMBED), 5000.0, dtype=torch.float16))
