"""What happens between a softmax and the values: dropout is allowed for, and anything else is said."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.capture.calls.after_softmax import dropout_factor
from tests.conftest import cells

HEADS, TOKENS, WIDTH = 3, 5, 12
VISIBLE = torch.ones(TOKENS, TOKENS).tril()


class Attention(nn.Module):
    """Attention by hand with something between the softmax and the values, which an einsum or a product sums."""

    num_heads = HEADS

    def __init__(self, between: Callable[[Tensor], Tensor], equation: str | None = None) -> None:
        super().__init__()
        self.project, self.between, self.equation = nn.Linear(WIDTH, 3 * WIDTH), between, equation

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-1, -2)
        self.scores = scores
        weights = self.between(scores.softmax(-1))
        mixed: Tensor = weights @ values if self.equation is None else torch.einsum(self.equation, weights, values)
        return mixed


def record(between: Callable[[Tensor], Tensor], equation: str | None = None) -> attnviz.Recording:
    torch.manual_seed(0)
    attention = Attention(between, equation)
    with torch.no_grad(), attnviz.record(nn.Sequential(attention)) as recording:
        attention(torch.randn(1, TOKENS, WIDTH))
    expected = attention.scores.softmax(-1)
    window = cells(recording).window((0, 1, 2), slice(0, TOKENS), slice(0, TOKENS))
    np.testing.assert_array_equal(window.weights, expected[0])
    return recording


@pytest.mark.parametrize("equation", [None, "bhqk,bhkf->bhqf", "b h q k, b h k f -> b q h f", "...ij,...jd->...id"])
def test_fidelity_of_every_product_is_known(equation: str | None) -> None:
    recording = record(lambda weights: weights, equation)
    assert recording.maps[0].fidelity is not None
    assert recording.maps[0].fidelity < 1e-6
    assert recording.remarks == ()


@pytest.mark.parametrize("inplace", [True, False])
def test_dropout_is_allowed_for_in_the_fidelity(inplace: bool) -> None:
    recording = record(lambda weights: functional.dropout(weights, 0.4, True, inplace))
    assert recording.maps[0].fidelity is not None
    assert recording.maps[0].fidelity < 1e-6
    assert recording.remarks == ()


def renormalised(weights: Tensor) -> Tensor:
    masked = weights * VISIBLE
    return masked / masked.sum(-1, keepdim=True)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "masked": lambda weights: weights * VISIBLE,
    "renormalised": renormalised,
    "mixed heads": lambda weights: torch.einsum("hg,bhij->bgij", torch.ones(HEADS, HEADS), weights),
    "mixed by a convolution": lambda weights: functional.conv2d(weights, torch.ones(HEADS, HEADS, 1, 1)),
    "mixed by a layer": lambda weights: (weights.permute(0, 2, 3, 1) @ torch.ones(HEADS, HEADS)).permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_the_weights_after_the_softmax_is_said(name: str) -> None:
    recording = record(CHANGES[name])
    assert recording.remarks[0] == (
        "In layer 0 the weights are changed between the softmax and the values; the maps show the softmax."
    )
    fidelity = recording.maps[0].fidelity
    assert fidelity is None or fidelity > 1e-3


class OneHead(nn.Module):
    """Attention of one head, whose weights a parameter mixes over heads."""

    def __init__(self, mixed: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.mixed, self.mix = nn.Linear(WIDTH, 3 * WIDTH), mixed, nn.Parameter(torch.full((1, 1), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).unflatten(-1, (3, 1, -1)).permute(2, 0, 3, 1, 4)
        self.weights = (queries @ keys.transpose(-1, -2)).softmax(-1)
        mixed: Tensor = self.mixed(self.weights, self.mix) @ values
        return mixed


ONE_HEAD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "einsum": lambda weights, mix: torch.einsum("bhij,hg->bgij", weights, mix),
    "layer": lambda weights, mix: functional.linear(weights.permute(0, 2, 3, 1), mix).permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("tokens", [TOKENS, 1])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("way", ONE_HEAD)
def test_mixing_the_weights_of_a_single_head_is_no_sum_over_its_keys(way: str, batch: int, tokens: int) -> None:
    model = OneHead(ONE_HEAD[way])
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(batch, tokens, WIDTH))
    assert [maps.item for maps in recording.maps] == list(range(batch))
    window = cells(recording).window((0,), slice(0, tokens), slice(0, tokens))
    np.testing.assert_array_equal(window.weights, model.weights[0])
    assert tokens == 1 or "the weights are changed between the softmax and the values" in recording.remarks[0]


GATE, BIAS = 0.25, torch.randn(HEADS, TOKENS, TOKENS)
MIXTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "after": lambda weights: (1 - GATE) * weights + GATE * BIAS.softmax(-1),
    "before": lambda weights: GATE * BIAS.softmax(-1) + (1 - GATE) * weights,
    "interpolated": lambda weights: torch.lerp(weights, BIAS.softmax(-1)[None], GATE),
    "renormalised": lambda weights: renormalised(weights - GATE * BIAS.softmax(-1)),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_softmax_that_another_is_added_to_is_recorded_and_said(name: str) -> None:
    recording = record(MIXTURES[name])
    assert recording.remarks == (
        "In layer 0 softmaxes are added up before they multiply the values; the maps show one of them.",
    )
    assert recording.maps[0].fidelity is not None
    assert recording.maps[0].fidelity > 1e-3


class Unread(nn.Module):
    """A softmax of scores that multiplies nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys = self.project(x).chunk(2, dim=-1)
        (queries @ keys.transpose(-1, -2)).softmax(-1)
        return x


def test_softmaxes_that_multiply_nothing_are_left_out_however_many_there_are() -> None:
    model = nn.Sequential(Attention(lambda weights: weights), *(Unread() for _ in range(12)))
    model[0].register_forward_hook(lambda module, args, output: output.transpose(1, 2).flatten(-2))
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert [maps.layer for maps in recording.maps] == [0]
    assert recording.remarks[0].startswith("Left out: 12 modules compute no softmax over queries x keys, such as 1 ")


class Compared(Unread):
    """Attention, and a softmax of the model itself that multiplies nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(lambda weights: weights)

    def forward(self, x: Tensor) -> Tensor:
        self.attention(x)
        return super().forward(x)


def test_softmax_of_the_model_itself_is_named_so() -> None:
    model = Compared()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert "the model itself computes no softmax over queries x keys" in recording.remarks[0]


def test_dropout_is_told_from_masks_and_scales() -> None:
    weights = torch.randn(1, HEADS, TOKENS, 7).softmax(-1)
    dropped = functional.dropout(weights, 0.25, True)
    assert dropout_factor(weights, dropped) == pytest.approx(4 / 3)
    assert dropout_factor(weights, weights * (dropped > 0)) is None
    assert dropout_factor(weights, weights**2) is None
    assert dropout_factor(weights, torch.zeros_like(weights)) is None
