"""Attention written by hand kept as the factors that its scores came of, where they give every one of them."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnviz.api.record import record
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from tests import room

BATCH, HEADS, QUERIES, KEYS, FEATURES = 2, 3, 90, 70, 8
FAR = -1e9
Change = Callable[[Tensor], Tensor]


class ByHand(nn.Module):
    """Attention whose scores are changed by a function before the softmax."""

    num_heads = HEADS

    def __init__(self, multiply: Callable[[Tensor, Tensor], Tensor], change: Change) -> None:
        super().__init__()
        self.multiply, self.change = multiply, change

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        weights = self.change(self.multiply(queries, keys)).softmax(-1)
        return weights @ torch.ones(*weights.shape[:-2], weights.shape[-1], 4, dtype=weights.dtype)


def plain(queries: Tensor, keys: Tensor) -> Tensor:
    return queries @ keys.transpose(-1, -2)


def by_einsum(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.einsum("b k h d, b q h d -> b h q k", keys.transpose(1, 2), queries.transpose(1, 2))


def of_one_key_head(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.einsum("bhqd,bkd->bhqk", queries, keys[:, 0])


def of_one_text(queries: Tensor, keys: Tensor) -> Tensor:
    """Keys that all texts share."""
    return queries @ keys[:1].mT


def added_to(queries: Tensor, keys: Tensor) -> Tensor:
    """As a product that is added to: positions first, as BLOOM does."""
    positions = torch.arange(KEYS, dtype=queries.dtype).expand(BATCH * HEADS, 1, KEYS)
    flat = queries.flatten(0, 1), keys.flatten(0, 1).transpose(-1, -2)
    return torch.baddbmm(positions, *flat, beta=0.25, alpha=0.5).view(BATCH, HEADS, QUERIES, KEYS)


def quarter(scores: Tensor) -> Tensor:
    return scores / 4


def causal(scores: Tensor) -> Tensor:
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores / math.sqrt(FEATURES)).masked_fill(hidden, FAR)


def padded_slopes(scores: Tensor) -> Tensor:
    """A bias that grows along the keys, another in each text and head; the second text is shorter."""
    slopes = torch.tensor([[0.5], [0.1], [0.02]]) * torch.tensor([1.0, 3.0])[:, None, None]
    real = torch.arange(KEYS) < torch.tensor([KEYS, KEYS - 9])[:, None, None, None]
    return (scores + (slopes * torch.arange(KEYS))[:, :, None]).masked_fill(~real, float("-inf"))


def learned_distances(scores: Tensor) -> Tensor:
    table = torch.randn(HEADS, QUERIES + KEYS - 1, generator=torch.Generator().manual_seed(5))
    return scores + table[:, torch.arange(KEYS) - torch.arange(QUERIES)[:, None] + QUERIES - 1]


def a_scale_a_head(scores: Tensor) -> Tensor:
    """As cosine attention with a learned temperature."""
    return causal(scores * torch.tensor([0.5, 3.0, 11.0])[:, None, None])


def keys_and_distances(scores: Tensor) -> Tensor:
    """A slope along the keys and a number for each distance; the first tokens see few others."""
    return causal(learned_distances(padded_slopes(scores)))


def factors(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    queries = torch.randn(BATCH, HEADS, QUERIES, FEATURES, generator=random)
    return queries.to(dtype), torch.randn(BATCH, HEADS, KEYS, FEATURES, generator=random).to(dtype)


def recorded(module: nn.Module, dtype: torch.dtype = torch.float32, **options: object) -> list[LayerMaps]:
    with torch.no_grad(), record(module, dense=False, **options) as recording:  # type: ignore[arg-type]
        module(*factors(dtype))
    return list(recording.maps)


PRODUCTS, CHANGES = (plain, by_einsum, of_one_key_head, added_to), (quarter, causal, padded_slopes, learned_distances)
MORE = [(plain, a_scale_a_head), (by_einsum, a_scale_a_head), (plain, keys_and_distances), (of_one_text, quarter)]


@pytest.mark.parametrize(("multiply", "change"), [*product(PRODUCTS, CHANGES), *MORE])
def test_scores_that_a_product_made_are_kept_as_its_factors(
    multiply: Callable[[Tensor, Tensor], Tensor], change: Change
) -> None:
    module = ByHand(multiply, change)
    exact = change(multiply(*(each.double() for each in factors())))
    hidden = exact <= FAR
    weights = exact.softmax(-1).masked_fill(hidden, 0)
    atol = max(1e-5, room.of_sums(float(exact[~hidden].abs().max())))
    for maps in recorded(module):
        assert isinstance(maps, FactoredMaps)
        window = maps.window(maps.heads, slice(0, QUERIES), slice(0, KEYS))
        np.testing.assert_allclose(window.weights, weights[maps.item], atol=atol)
        np.testing.assert_array_equal(window.visible, ~hidden[maps.item, 0])
        np.testing.assert_allclose(
            window.scores[:, window.visible], exact[maps.item][:, torch.from_numpy(window.visible)], atol=2e-5
        )


def test_chosen_heads_alone_are_worked_out() -> None:
    (whole, _), (one, _) = (recorded(ByHand(plain, padded_slopes), heads=heads) for heads in (None, [2]))
    assert isinstance(one, FactoredMaps)
    assert one.heads == (2,)
    block = slice(3, 9), slice(0, 50)
    np.testing.assert_allclose(one.window((2,), *block).scores, cell_maps(whole).window((2,), *block).scores, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "scale"), [(quarter, 0.25), (causal, FEATURES**-0.5), (lambda scores: 3 * scores, 3)]
)
def test_the_scale_is_what_the_product_was_multiplied_by(change: Change, scale: float) -> None:
    (maps, _) = recorded(ByHand(plain, change))
    assert maps.scale == scale


def test_scales_of_heads_are_held_by_their_queries_and_said() -> None:
    module = ByHand(plain, a_scale_a_head)
    with torch.no_grad(), record(module, dense=False) as recording:
        module(*factors())
    assert recording.maps[0].scale == 1
    assert any("each head multiplies q·k by a scale of its own" in remark for remark in recording.remarks)


def capped(scores: Tensor) -> Tensor:
    return 3 * torch.tanh(scores / 3)


def one_cell_more(scores: Tensor) -> Tensor:
    scores = quarter(scores)
    scores[1, 2, 34, 17] += 0.1  # no query of those that are sampled
    return scores


def one_head_hidden(scores: Tensor) -> Tensor:
    scores = quarter(scores)
    scores[:, 0, 40, 30] = float("-inf")
    return scores


def with_a_second_product(scores: Tensor) -> Tensor:
    queries, keys = factors()
    return scores + (queries.flip(2) @ keys.transpose(-1, -2))


@pytest.mark.parametrize("change", [capped, one_cell_more, one_head_hidden, with_a_second_product])
def test_scores_that_the_product_does_not_explain_are_kept_whole(change: Change) -> None:
    assert {type(maps) for maps in recorded(ByHand(plain, change))} == {DenseMaps}


def joined_sink(scores: Tensor) -> Tensor:
    return torch.cat([scores, torch.ones(*scores.shape[:-1], 1)], dim=-1).softmax(-1)[..., :-1]


def e_more(scores: Tensor) -> Tensor:
    return scores.exp() / (math.e + scores.exp().sum(-1, keepdim=True))


def sink_of_each_row(scores: Tensor) -> Tensor:
    return torch.cat([scores, scores[..., :1]], dim=-1).softmax(-1)[..., :-1]


@pytest.mark.parametrize(
    ("normalised", "kind"), [(joined_sink, FactoredMaps), (e_more, FactoredMaps), (sink_of_each_row, DenseMaps)]
)
def test_a_softmax_with_a_sink_is_kept_as_factors_if_its_score_is_the_same_in_all_rows(
    normalised: Change, kind: type[CellMaps]
) -> None:
    class Sunk(ByHand):
        def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
            scores = quarter(plain(queries, keys))
            self.weights = normalised(scores)
            return self.weights @ keys

    model = Sunk(plain, quarter)
    recording = recorded(model)
    for maps, expected in zip(map(cell_maps, recording), model.weights.double().numpy(), strict=True):
        assert isinstance(maps, kind)
        window = maps.window(maps.heads, slice(0, QUERIES), slice(0, KEYS + 1))
        np.testing.assert_allclose(window.weights[..., :-1], expected, atol=1e-6)
        np.testing.assert_allclose(window.weights[..., -1], 1 - expected.sum(-1), atol=1e-6)
        assert window.visible[..., -1].all()


def test_scores_in_the_thousands_are_factors_to_the_rounding_of_float32() -> None:
    def steep(scores: Tensor) -> Tensor:
        return scores + 5000 + torch.arange(KEYS) / 9

    exact = steep(plain(*(each.double() for each in factors()))).softmax(-1)
    for maps in recorded(ByHand(plain, steep)):
        assert isinstance(maps, FactoredMaps)
        window = maps.window(maps.heads, slice(0, QUERIES), slice(0, KEYS))
        np.testing.assert_allclose(window.weights, exact[maps.item], atol=5000 * 1e-6)


@pytest.mark.parametrize("automatic", [True, False])
def test_rounding_of_bfloat16_is_no_difference(automatic: bool) -> None:
    given = torch.float32 if automatic else torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=automatic):
        recording = recorded(ByHand(plain, quarter), given)
    exact = (plain(*(each.double() for each in factors(torch.bfloat16))) / 4).softmax(-1)
    for maps in recording:
        assert isinstance(maps, FactoredMaps)
        window = maps.window(maps.heads, slice(0, QUERIES), slice(0, KEYS))
        np.testing.assert_allclose(window.weights, exact[maps.item], atol=1e-5)
