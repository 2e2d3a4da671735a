"""Attention written in ways that few write it in: the maps are those that multiplied the values."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz
from attnviz.base.errors import AttnvizError
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


WAYS = {
    "one more": (one_more, True),
    "one more, shifted": (one_more_shifted, True),
    "by distance": (by_distance, False),
    "grouped sinks": (grouped_sinks, False),
    "half precision": (in_half_precision, False),
}


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", WAYS)
def test_weights_are_those_that_multiply_the_values(name: str, batch: int) -> None:
    torch.manual_seed(0)
    attend, is_partial = WAYS[name]
    model = Attention(attend)
    with attnviz.record(model) as recording:
        model(torch.randn(batch, TOKENS, WIDTH))
    check(recording, model.weights)
    assert recording.remarks == (
        ("In layer 0 a share of some rows goes to no key, so their weights sum to less than 1.",) if is_partial else ()
    )


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
