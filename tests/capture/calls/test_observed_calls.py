"""Attention written in ways that few write it in, and what happens to its weights before they multiply the values."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.observed_calls import dropout_factor, restored_softmax
from attnviz.maps.layer_maps import cell_maps
from tests.conftest import cells

HEADS, KEY_HEADS, FEATURES, TOKENS, WIDTH = 4, 2, 4, 6, 16
GROUP = HEADS // KEY_HEADS


class Attention(nn.Module):
    """Attention whose function gives its weights ``(batch, heads, queries, keys)``, and the result of the values."""

    def __init__(self, attend: Callable[..., tuple[Tensor, Tensor]], counted: str = "num_heads") -> None:
        super().__init__()
        setattr(self, counted, HEADS)
        self.queries, self.pair = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * KEY_HEADS * FEATURES)
        self.attend, self.sink = attend, nn.Parameter(torch.randn(HEADS))

    def forward(self, x: Tensor) -> Tensor:
        parts = (self.queries(x), *self.pair(x).chunk(2, -1))
        queries, keys, values = (part.unflatten(-1, (-1, FEATURES)).transpose(1, 2) for part in parts)
        self.weights, mixed = self.attend(queries, keys, values, self.sink)
        return mixed.transpose(1, 2).flatten(2)


def scores_of(queries: Tensor, keys: Tensor) -> Tensor:
    scores: Tensor = queries @ keys.repeat_interleave(GROUP, 1).mT * FEATURES**-0.5
    return scores


def mixed(weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return weights, weights @ values.repeat_interleave(GROUP, 1)


def one_more(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    powers = scores_of(queries, keys).exp()
    return mixed(powers / (1 + powers.sum(-1, keepdim=True)), values)


def one_more_shifted(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    scores = scores_of(queries, keys)
    most = scores.amax(-1, keepdim=True)
    powers = (scores - most).exp()
    return mixed(powers / ((-most).exp() + powers.sum(-1, keepdim=True)), values)


def by_distance(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    keys = keys.repeat_interleave(GROUP, 1)
    return mixed((-(torch.cdist(queries.contiguous(), keys.contiguous()) ** 2)).softmax(-1), values)


def grouped_sinks(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    grouped = queries.view(len(queries), KEY_HEADS, GROUP, TOKENS, FEATURES)
    scores = grouped @ keys[:, :, None].mT * FEATURES**-0.5
    sinks = sink.view(1, KEY_HEADS, GROUP, 1, 1).expand(len(queries), -1, -1, TOKENS, 1)
    weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
    return weights.flatten(1, 2), (weights @ values[:, :, None]).flatten(1, 2)


def in_half_precision(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    keys, values = (part.repeat_interleave(GROUP, 1).flatten(0, 1) for part in (keys, values))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = torch.bmm(8 * queries.flatten(0, 1), keys.mT)
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        result = torch.bmm(weights, values).float()
    return weights.float().view(-1, HEADS, TOKENS, TOKENS), result.view(-1, HEADS, TOKENS, FEATURES)


SINK = "In layer 0 the key “sink” has no token: a score in the softmax takes a share of each row, {:.0%} of all weight"
WAYS = {
    "one more": (one_more, True),
    "one more, shifted": (one_more_shifted, True),
    "by distance": (by_distance, False),
    "grouped sinks": (grouped_sinks, True),
    "half precision": (in_half_precision, False),
}


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", WAYS)
def test_weights_are_those_that_multiply_the_values(name: str, batch: int) -> None:
    torch.manual_seed(0)
    attend, has_sink = WAYS[name]
    model = Attention(attend)
    with attnviz.record(model) as recording:
        model(torch.randn(batch, TOKENS, WIDTH))
    check(recording, model.weights)
    if not has_sink:
        assert recording.remarks == ()
        return
    [remark] = recording.remarks
    assert remark.startswith(SINK.format(1 - float(model.weights.sum(-1).mean())))
    for maps, weights in zip(recording.maps, model.weights.double(), strict=True):
        window = cell_maps(maps).window(maps.heads, slice(0, TOKENS), slice(0, TOKENS + 1))
        np.testing.assert_allclose(window.weights[..., -1], 1 - weights.sum(-1), atol=1e-6)
        powers = np.exp(window.scores)  # the softmax over all keys and the sink
        np.testing.assert_allclose(window.weights, powers / powers.sum(-1, keepdims=True), atol=1e-6)
        assert maps.key_tokens.labels[-1] == "sink"
        assert maps.key_tokens.special[-1]


def check(recording: attnviz.Recording, weights: Tensor) -> None:
    assert [(maps.item, maps.heads) for maps in recording.maps] == [
        (item, tuple(range(weights.shape[1]))) for item in range(len(weights))
    ]
    for item, expected in enumerate(weights):
        window = cells(recording, item).window(tuple(range(len(expected))), slice(0, TOKENS), slice(0, TOKENS))
        np.testing.assert_allclose(window.weights, expected, atol=1e-6)


class Stacked(nn.Module):
    """Heads of a layer each, put together in an axis that is folded with that of the texts."""

    def __init__(self, joined: Callable[[list[Tensor]], Tensor]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, FEATURES) for _ in range(9))
        self.joined = joined

    def forward(self, x: Tensor) -> Tensor:
        made = [part(x) for part in self.parts]
        queries, keys, values = (self.joined(made[start::3]).flatten(0, 1) for start in range(3))
        weights = torch.bmm(queries, keys.mT).softmax(-1)
        self.weights = weights.view(len(x), 3, TOKENS, TOKENS)
        return torch.bmm(weights, values).view(len(x), 3, TOKENS, FEATURES).transpose(1, 2).flatten(2)


@torch.no_grad()
@pytest.mark.parametrize(
    "joined", [lambda parts: torch.stack(parts, 1), lambda parts: torch.cat([part[:, None] for part in parts], 1)]
)
def test_projections_of_the_same_tokens_that_are_stacked_are_heads(joined: Callable[[list[Tensor]], Tensor]) -> None:
    model = Stacked(joined)
    with attnviz.record(model) as recording:
        model(torch.randn(2, TOKENS, WIDTH))
    check(recording, model.weights)
    assert recording.remarks == ()


class FewFeatures(nn.Module):
    """Attention by hand with heads of few features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.num_heads, self.features = HEADS, features
        self.project = nn.Linear(WIDTH, HEADS * features)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(x).unflatten(-1, (HEADS, self.features)).transpose(1, 2)
        mixed: Tensor = (heads @ heads.mT).softmax(-1) @ heads
        return mixed


@torch.no_grad()
@pytest.mark.parametrize("features", [2, 3])
def test_output_of_few_features_is_compared_with_the_weights(features: int) -> None:
    model = FewFeatures(features)
    with attnviz.record(model) as recording:
        model(torch.randn(2, TOKENS, WIDTH))
    assert [maps.fidelity is not None and maps.fidelity < 1e-5 for maps in recording.maps] == [True, True]


@torch.no_grad()
def test_rows_that_sum_to_more_than_one_are_no_softmax() -> None:
    def doubled(queries: Tensor, keys: Tensor, values: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
        powers = scores_of(queries, keys).exp()
        return mixed(powers / (powers.sum(-1, keepdim=True) / 2), values)

    model = Attention(doubled)
    with pytest.raises(AttnvizError, match="numbers that are not a softmax of scores"), attnviz.record(model):
        model(torch.randn(1, TOKENS, WIDTH))


class Latent(nn.Module):
    """Absorbed latent attention, ``(batch, queries, heads, keys)``: all heads mix the same latent vectors."""

    def __init__(self, has_rotary_part: bool) -> None:
        super().__init__()
        self.n_heads, self.has_rotary_part = HEADS, has_rotary_part
        self.queries, self.latents = nn.Linear(WIDTH, HEADS * 10), nn.Linear(WIDTH, 12 + 4)
        self.up = nn.Parameter(torch.randn(HEADS, 6, 12))

    def forward(self, x: Tensor) -> Tensor:
        plain, rotary = self.queries(x).unflatten(-1, (HEADS, 10)).split((6, 4), -1)
        latents, key_rotary = self.latents(x).split((12, 4), -1)
        scores = torch.einsum("bshc,btc->bsht", torch.einsum("bshd,hdc->bshc", plain, self.up), latents)
        if self.has_rotary_part:
            scores = scores + torch.einsum("bshr,btr->bsht", rotary, key_rotary)
        self.weights = scores.softmax(-1)
        return torch.einsum("bsht,btc->bshc", self.weights, latents).flatten(2)


@pytest.mark.parametrize("has_rotary_part", [True, False])
def test_heads_that_share_all_values_are_heads_wherever_their_axis_stands(has_rotary_part: bool) -> None:
    torch.manual_seed(0)
    model = Latent(has_rotary_part).eval()
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    [maps] = recording.maps
    whole = slice(0, TOKENS), slice(0, TOKENS)
    np.testing.assert_allclose(
        cells(recording).window(maps.heads, *whole).weights, model.weights[0].transpose(0, 1), atol=1e-6
    )


VISIBLE = torch.ones(TOKENS, TOKENS).tril()


class Changing(nn.Module):
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


def record_change(between: Callable[[Tensor], Tensor], equation: str | None = None) -> attnviz.Recording:
    torch.manual_seed(0)
    attention = Changing(between, equation)
    with torch.no_grad(), attnviz.record(nn.Sequential(attention)) as recording:
        attention(torch.randn(1, TOKENS, WIDTH))
    expected = attention.scores.softmax(-1)
    window = cells(recording).window(tuple(range(HEADS)), slice(0, TOKENS), slice(0, TOKENS))
    np.testing.assert_array_equal(window.weights, expected[0])
    return recording


@pytest.mark.parametrize("equation", [None, "bhqk,bhkf->bhqf", "b h q k, b h k f -> b q h f", "...ij,...jd->...id"])
def test_fidelity_of_every_product_is_known(equation: str | None) -> None:
    recording = record_change(lambda weights: weights, equation)
    assert recording.maps[0].fidelity is not None
    assert recording.maps[0].fidelity < 1e-6
    assert recording.remarks == ()


@pytest.mark.parametrize("inplace", [True, False])
def test_dropout_is_allowed_for_in_the_fidelity(inplace: bool) -> None:
    recording = record_change(lambda weights: functional.dropout(weights, 0.4, True, inplace))
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
    recording = record_change(CHANGES[name])
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
    recording = record_change(MIXTURES[name])
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
    model = nn.Sequential(Changing(lambda weights: weights), *(Unread() for _ in range(12)))
    model[0].register_forward_hook(lambda module, args, output: output.transpose(1, 2).flatten(-2))
    with torch.no_grad(), attnviz.record(model) as recording:
        model(torch.randn(1, TOKENS, WIDTH))
    assert [maps.layer for maps in recording.maps] == [0]
    assert recording.remarks[0].startswith("Left out: 12 modules compute no softmax over queries x keys, such as 1 ")


class Compared(Unread):
    """Attention, and a softmax of the model itself that multiplies nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Changing(lambda weights: weights)

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


def test_rows_that_see_nothing_are_no_sign_of_overwriting() -> None:
    scores = torch.randn(2, 3, 5, 7)
    scores[..., 1, :] = float("-inf")
    weights = scores.softmax(-1)
    assert restored_softmax(scores, weights) == (scores, weights, "")
    half = scores.bfloat16()
    assert restored_softmax(half, half.softmax(-1))[2] == ""
