"""Heads combined: against cases worked by hand, and rollout against its published definition."""

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import CellMaps
from attnviz.metrics.combine import CombinedMaps, combined_name, reduce_heads
from attnviz.text.tokens import tokenize
from tests.conftest import HEADS, KEYS, QUERIES, dense_maps
from tests.maps.peak_memory import peak_memory
from tests.metrics.examples import maps_of

COUNT = 4
Heads = list[tuple[CellMaps, int]]


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


def reduced(heads: Heads, method: str, residual: float = 0.5) -> DenseMaps:
    maps = reduce_heads(heads, method, residual)
    assert isinstance(maps, DenseMaps)
    return maps


def test_mean_and_maximum_are_over_heads_and_layers() -> None:
    heads: Heads = [(dense_maps(0), 0), (dense_maps(0), 2), (dense_maps(1), 1)]
    weights = np.stack([dense_maps(0).weights[0], dense_maps(0).weights[2], dense_maps(1).weights[1]])
    np.testing.assert_allclose(reduced(heads, "mean").weights[0], weights.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(reduced(heads, "max").weights[0], weights.max(axis=0), atol=1e-6)
    assert reduced(heads, "max").weights.shape == (1, QUERIES, KEYS)


def test_mean_is_over_the_heads_that_may_look() -> None:
    full, causal = dense_maps(0), dense_maps(0, causal=True)
    combined = reduced([(full, 0), (causal, 0)], "mean")
    assert combined.visible.all()
    assert combined.weights[0, 0, 6] == pytest.approx(full.weights[0, 0, 6])


def test_rollout_of_two_tokens_is_the_product_worked_by_hand() -> None:
    # layers with half residual: [[1, 0], [.3, .7]] then [[1, 0], [.1, .9]]; product [[1, 0], [.1 + .9 * .3, .63]]
    tokens, visible = tokenize("a b"), np.tri(2, dtype=bool)
    first = maps_of(np.array([[[1, 0], [0.6, 0.4]]]), tokens, visible)
    second = maps_of(np.array([[[1, 0], [0.2, 0.8]]]), tokens, visible)
    object.__setattr__(second, "layer", 1)
    rolled = reduced([(first, 0), (second, 0)], "rollout", 0.5).weights[0]
    np.testing.assert_allclose(rolled, np.array([[1.0, 0], [0.37, 0.63]]), atol=1e-6)


@pytest.mark.parametrize("residual", [0.0, 0.25, 0.5, 0.9])
def test_rollout_is_the_product_of_layers_with_their_residual(residual: float) -> None:
    heads = two_layers(causal=False)
    first, second = (residual * np.eye(COUNT) + (1 - residual) * layer_mean(heads, layer) for layer in range(2))
    rolled = reduced(heads, "rollout", residual).weights[0]
    np.testing.assert_allclose(rolled, second @ first, atol=1e-6)
    np.testing.assert_allclose(rolled.sum(axis=-1), 1, atol=1e-6)


def test_what_is_causal_stays_causal() -> None:
    combined = reduced(two_layers(), "rollout")
    np.testing.assert_array_equal(combined.visible, np.tri(COUNT, dtype=bool))
    assert (combined.weights[0][~combined.visible] == 0).all()


def test_rollout_takes_layers_in_their_order_however_they_are_given() -> None:
    heads = two_layers(causal=False)
    np.testing.assert_allclose(reduced(heads[::-1], "rollout").weights, reduced(heads, "rollout").weights, atol=1e-6)


def test_token_that_sees_nothing_is_made_of_itself() -> None:
    visible = np.array([[True, False], [False, False]])
    maps = maps_of(np.array([[[1.0, 0], [0, 0]]]), tokenize("a b"), visible)
    np.testing.assert_allclose(reduced([(maps, 0)], "rollout").weights[0], np.eye(2))


def test_refuses_cross_attention() -> None:
    with pytest.raises(AttnvizError, match=r"self-attention .* use reduce='mean' or max here"):
        reduced([(dense_maps(), 0)], "rollout")


def test_refuses_layers_with_a_gap() -> None:
    heads = two_layers()
    object.__setattr__(heads[-1][0], "layer", 5)
    with pytest.raises(AttnvizError, match="follow one another, not 0, 5"):
        reduced(heads, "rollout")


def test_refuses_different_tokens_and_several_texts() -> None:
    with pytest.raises(AttnvizError, match="over the same tokens"):
        reduced([*two_layers(), *two_layers(count=5)], "mean")
    heads = two_layers()
    object.__setattr__(heads[-1][0], "item", 1)
    with pytest.raises(AttnvizError, match="takes one text"):
        reduced(heads, "mean")


@pytest.mark.parametrize("method", ["mean", "max"])
def test_maps_too_large_to_hold_are_combined_as_they_are_read(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: Heads = [(dense_maps(0, causal=True), 0), (dense_maps(0), 2), (dense_maps(1), 1)]
    held = reduced(heads, method)
    monkeypatch.setattr("attnviz.maps.derived.MAX_KEPT_CELLS", 1)
    monkeypatch.setattr("attnviz.maps.derived.MAX_BAND_CELLS", 8)
    read = reduce_heads(heads, method)
    assert isinstance(read, CombinedMaps)
    one, other = (maps.window((0,), slice(1, QUERIES), slice(2, KEYS)) for maps in (held, read))
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.visible, other.visible)
    assert np.isnan(other.scores).all()
    pooled, expected = (maps.overview((0,), 2, 3, slice(0, QUERIES), slice(0, KEYS)) for maps in (read, held))
    np.testing.assert_allclose(pooled.mean, expected.mean, rtol=1e-6)
    np.testing.assert_array_equal(pooled.maximum, expected.maximum)


def test_rollout_in_bands_is_that_of_whole_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reduced(two_layers(), "rollout")
    monkeypatch.setattr("attnviz.metrics.combine.MAX_BAND_CELLS", 1)
    np.testing.assert_array_equal(reduced(two_layers(), "rollout").weights, whole.weights)


def test_what_reaches_a_token_without_a_residual_is_visible_however_little_it_is() -> None:
    # token 2 sees token 0 through token 1 alone, by 1e-200 x 1e-200, which float64 cannot hold
    chain = np.array([[[1, 0, 0], [1e-200, 1, 0], [0, 1e-200, 1]]])
    tokens, visible = tokenize("a b c"), np.tri(3, dtype=bool)
    layers = [maps_of(chain, tokens, visible) for _ in range(2)]
    for number, maps in enumerate(layers):
        object.__setattr__(maps, "layer", number)
        object.__setattr__(maps, "weights", chain)
    assert reduced([(maps, 0) for maps in layers], "rollout", 0.0).visible[2, 0]


def test_rollout_refuses_more_tokens_than_matrices_of_them_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.metrics.combine.MAX_ROLLOUT_TOKENS", 3)
    monkeypatch.setattr(DenseMaps, "window", lambda *given: pytest.fail("allocated before it refused"))
    with pytest.raises(AttnvizError, match="4 tokens are too many; give at most 3, or use reduce='mean' or max"):
        reduce_heads(two_layers(), "rollout")


def test_the_mean_over_8_000_tokens_takes_less_memory_than_one_whole_map() -> None:
    assert peak_memory("mean") < 200  # one array of a head's weights has 244 MB


def test_combination_is_named_by_its_heads_until_they_are_many() -> None:
    assert combined_name("mean", ["0.2", "1.8"]) == "mean of heads 0.2, 1.8"
    assert combined_name("max", ["0.2"]) == "maximum of head 0.2"
    assert combined_name("rollout", [f"0.{head}" for head in range(72)]) == "rollout of 72 heads"
