"""Calls known by their factors or their softmax: what a mask hides, adds and leaves, each by its definition."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz.capture.calls.attention_call import DenseCall, FactoredCall

HEADS, QUERIES, KEYS = 3, 5, 7
AWAY = torch.arange(QUERIES)[:, None] - torch.arange(KEYS)


def factored(**options: object) -> FactoredCall:
    torch.manual_seed(0)
    queries, keys = torch.randn(2, HEADS, QUERIES, 4), torch.randn(2, HEADS, KEYS, 4)
    return FactoredCall(queries=queries, keys=keys, scale=0.5, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_hides_keys_as_many_tokens_away_to_either_side(causal: bool) -> None:
    call = factored(window=2, causal=causal)
    seen = (AWAY.abs() < 2) & ((AWAY >= 0) | (not causal))
    maps = call.maps(range(HEADS))
    assert torch.equal(maps.visible, seen.expand(2, 1, QUERIES, KEYS))
    assert not maps.weights[..., ~seen].any()
    torch.testing.assert_close(maps.weights.sum(-1), torch.ones(2, HEADS, QUERIES))


def test_numbers_of_a_mask_are_added_where_they_hide_nothing_and_hidden_scores_stay_known() -> None:
    hidden = torch.rand(2, HEADS, QUERIES, KEYS) < 0.3
    bias = torch.randn(hidden.shape)
    call = factored(mask=bias.masked_fill(hidden, float("-inf")))
    products = call.queries @ call.keys.mT * 0.5
    torch.testing.assert_close(call.maps(range(HEADS)).scores, products + bias.masked_fill(hidden, 0))
    assert torch.equal(call.maps(range(HEADS)).visible, ~hidden)


def test_a_query_that_sees_nothing_by_a_finite_mask_has_no_weight() -> None:
    before = torch.randn(1, HEADS, QUERIES, KEYS)
    before[:, 1, 2] = -1e9
    maps = DenseCall(logits=before, probabilities=before.softmax(-1)).maps([0, 1])
    assert not maps.weights[0, 1, 2].any()
    assert maps.scores[0, 1, 2].isnan().all()
    assert torch.equal(maps.visible, before[:, :2] > -1e9)


@pytest.mark.parametrize("number", [-1e4, -1e9, torch.finfo(torch.float32).min, -torch.inf])
@pytest.mark.parametrize("keys", [slice(None), slice(1, None)], ids=["all keys", "all but one"])
@pytest.mark.parametrize("causal", [True, False])
def test_values_of_hidden_keys_are_averaged_where_finite_numbers_hide_all(
    number: float, keys: slice, causal: bool
) -> None:
    mask = torch.zeros(1, 1, QUERIES, KEYS)
    mask[..., 2, keys] = number
    is_averaged = number > -torch.inf and keys == slice(None)
    call = factored(mask=mask, causal=causal)
    logits = call.masked_scores(range(HEADS), slice(None)).masked_fill(mask != 0, number)
    probabilities = logits.softmax(-1).nan_to_num()
    assert call.averages_hidden_keys() == is_averaged
    assert DenseCall(logits=logits, probabilities=probabilities).averages_hidden_keys() == is_averaged
    assert not replace(call, sinks=torch.zeros(HEADS)).averages_hidden_keys()  # the sink takes the whole row


@pytest.mark.parametrize("with_numbers", [True, False])
def test_the_whole_mask_holds_what_positions_and_the_mask_hide(with_numbers: bool) -> None:
    shown = torch.rand(2, 1, 1, KEYS) < 0.7
    mask = torch.zeros(shown.shape).masked_fill(~shown, float("-inf")) if with_numbers else shown
    found = factored(mask=mask, causal=True, window=3).whole_mask()
    seen = found == 0 if with_numbers else found
    assert torch.equal(seen, shown & (AWAY >= 0) & (AWAY < 3))
    nothing_given = factored(causal=True).whole_mask()
    assert np.array_equal(nothing_given[0, 0], AWAY >= 0)
