"""Heads combined: against cases worked by hand, and rollout against its published definition."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LayerMaps
from attnviz.metrics.combine import reduce_heads
from attnviz.text.tokens import tokenize
from tests.conftest import HEADS, KEYS, QUERIES, dense_maps
from tests.metrics.test_metrics import maps_of

COUNT = 4
Heads = list[tuple[LayerMaps, int]]


def two_layers(causal: bool = True, count: int = COUNT) -> Heads:
    """Two layers of three heads over the same tokens."""
    random = np.random.default_rng(1)
    tokens = tokenize(" ".join("abcdefgh"[:count]))
    visible = np.tri(count, dtype=bool) if causal else np.ones((count, count), dtype=bool)
    heads: Heads = []
    for layer in range(2):
        powers = np.where(visible, random.exponential(size=(HEADS, count, count)), 0)
        maps = maps_of(powers / powers.sum(axis=-1, keepdims=True), tokens, visible)
        object.__setattr__(maps, "layer", layer)
        heads.extend((maps, head) for head in maps.heads)
    return heads


def layer_mean(heads: Heads, layer: int) -> np.ndarray:
    [maps] = {id(maps): maps for maps, _ in heads if maps.layer == layer}.values()
    assert isinstance(maps, DenseMaps)
    return np.asarray(maps.weights.astype(np.float64).mean(axis=0))


def test_mean_and_maximum_are_over_heads_and_layers() -> None:
    heads: Heads = [(dense_maps(0), 0), (dense_maps(0), 2), (dense_maps(1), 1)]
    weights = np.stack([dense_maps(0).weights[0], dense_maps(0).weights[2], dense_maps(1).weights[1]])
    np.testing.assert_allclose(reduce_heads(heads, "mean").weights[0], weights.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(reduce_heads(heads, "max").weights[0], weights.max(axis=0), atol=1e-6)
    assert reduce_heads(heads, "max").weights.shape == (1, QUERIES, KEYS)


def test_mean_is_over_the_heads_that_may_look() -> None:
    full, causal = dense_maps(0), dense_maps(0, causal=True)
    reduced = reduce_heads([(full, 0), (causal, 0)], "mean")
    assert reduced.visible.all()
    assert reduced.weights[0, 0, 6] == pytest.approx(full.weights[0, 0, 6])


def test_rollout_of_two_tokens_is_the_product_worked_by_hand() -> None:
    # layers with half residual: [[1, 0], [.3, .7]] then [[1, 0], [.1, .9]]; product [[1, 0], [.1 + .9 * .3, .63]]
    tokens, visible = tokenize("a b"), np.tri(2, dtype=bool)
    first = maps_of(np.array([[[1, 0], [0.6, 0.4]]]), tokens, visible)
    second = maps_of(np.array([[[1, 0], [0.2, 0.8]]]), tokens, visible)
    object.__setattr__(second, "layer", 1)
    rolled = reduce_heads([(first, 0), (second, 0)], "rollout", 0.5).weights[0]
    np.testing.assert_allclose(rolled, np.array([[1.0, 0], [0.37, 0.63]]), atol=1e-6)


@pytest.mark.parametrize("residual", [0.0, 0.25, 0.5, 0.9])
def test_rollout_is_the_product_of_layers_with_their_residual(residual: float) -> None:
    heads = two_layers(causal=False)
    first, second = (residual * np.eye(COUNT) + (1 - residual) * layer_mean(heads, layer) for layer in range(2))
    rolled = reduce_heads(heads, "rollout", residual).weights[0]
    np.testing.assert_allclose(rolled, second @ first, atol=1e-6)
    np.testing.assert_allclose(rolled.sum(axis=-1), 1, atol=1e-6)


def test_what_is_causal_stays_causal() -> None:
    reduced = reduce_heads(two_layers(), "rollout")
    np.testing.assert_array_equal(reduced.visible, np.tri(COUNT, dtype=bool))
    assert (reduced.weights[0][~reduced.visible] == 0).all()


def test_rollout_takes_layers_in_their_order_however_they_are_given() -> None:
    heads = two_layers(causal=False)
    np.testing.assert_allclose(
        reduce_heads(heads[::-1], "rollout").weights, reduce_heads(heads, "rollout").weights, atol=1e-6
    )


def test_token_that_sees_nothing_is_made_of_itself() -> None:
    visible = np.array([[True, False], [False, False]])
    maps = maps_of(np.array([[[1.0, 0], [0, 0]]]), tokenize("a b"), visible)
    np.testing.assert_allclose(reduce_heads([(maps, 0)], "rollout").weights[0], np.eye(2))


def test_refuses_cross_attention() -> None:
    with pytest.raises(AttnvizError, match=r"self-attention .* mean or max works"):
        reduce_heads([(dense_maps(), 0)], "rollout")


def test_refuses_layers_with_a_gap() -> None:
    heads = two_layers()
    object.__setattr__(heads[-1][0], "layer", 5)
    with pytest.raises(AttnvizError, match="follow one another, not 0, 5"):
        reduce_heads(heads, "rollout")


def test_refuses_different_tokens_and_several_texts() -> None:
    with pytest.raises(AttnvizError, match="over the same tokens"):
        reduce_heads([*two_layers(), *two_layers(count=5)], "mean")
    heads = two_layers()
    object.__setattr__(heads[-1][0], "item", 1)
    with pytest.raises(AttnvizError, match="takes one text"):
        reduce_heads(heads, "mean")


@pytest.mark.parametrize("residual", [-0.1, 1.0, float("nan")])
def test_refuses_a_share_out_of_range(residual: float) -> None:
    with pytest.raises(AttnvizError, match=r"--residual .* out of range"):
        reduce_heads(two_layers(), "rollout", residual)


def test_unknown_method_lists_the_known() -> None:
    with pytest.raises(AttnvizError, match="unknown --reduce 'sum'; mean, max or rollout works"):
        reduce_heads(two_layers(), "sum")
