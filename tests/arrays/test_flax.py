"""Attention that flax computes on JAX comes back without a change; skipped where JAX is not installed."""

from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.arrays.build import from_arrays
from attnviz.maps.layer_maps import cell_maps

jax: Any = pytest.importorskip("jax", reason="pip install 'attnviz[test-jax]'")
linen: Any = pytest.importorskip("flax.linen", reason="pip install 'attnviz[test-jax]'")
pytestmark = pytest.mark.slow

TEXTS, TOKENS, FEATURES, HEADS = 2, 7, 32, 4


class Layer(linen.Module):  # type: ignore[misc]
    """One causal self-attention, which keeps its weights."""

    @linen.compact  # type: ignore[untyped-decorator]
    def __call__(self, inputs: Any) -> Any:
        """Returns the output of the attention."""
        mask = linen.make_causal_mask(jax.numpy.ones(inputs.shape[:2]))
        attention = linen.MultiHeadDotProductAttention(num_heads=HEADS, qkv_features=FEATURES)
        return attention(inputs, mask=mask, sow_weights=True)


@pytest.fixture(scope="module")
def run() -> tuple[Any, Any, Any]:
    """The weights of a layer, ``(texts, heads, tokens, tokens)``, and its queries and keys."""
    layer, inputs = Layer(), jax.random.normal(jax.random.PRNGKey(0), (TEXTS, TOKENS, FEATURES))
    parameters = layer.init(jax.random.PRNGKey(1), inputs)
    _, state = layer.apply(parameters, inputs, mutable=["intermediates"])
    [weights] = jax.tree_util.tree_leaves(state["intermediates"])
    projections = parameters["params"]["MultiHeadDotProductAttention_0"]
    queries, keys = (
        jax.numpy.einsum("btd,dhf->bhtf", inputs, projections[name]["kernel"])
        + projections[name]["bias"][None, :, None]
        for name in ("query", "key")
    )
    return weights, queries, keys


def weights_of(maps: Any) -> Any:
    window = cell_maps(maps).window(maps.heads, slice(0, TOKENS), slice(0, TOKENS))
    return window.weights, window.visible


def test_weights_come_back_to_the_bit(run: Any) -> None:
    weights, _, _ = run
    recording = from_arrays(weights=[weights])
    assert [maps.item for maps in recording.maps] == [0, 1]
    for maps, expected in zip(recording.maps, np.asarray(weights), strict=True):
        found, visible = weights_of(maps)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(visible, np.tri(TOKENS, dtype=bool))


def test_bfloat16_comes_back_to_the_bit(run: Any) -> None:
    weights = run[0][0].astype(jax.numpy.bfloat16)
    found, _ = weights_of(from_arrays(weights=weights).maps[0])
    np.testing.assert_array_equal(found, np.asarray(weights.astype(jax.numpy.float32)))


def test_queries_and_keys_give_the_weights(run: Any) -> None:
    weights, queries, keys = run
    recording = from_arrays(queries=[queries], keys=[keys], mask="causal")
    for maps, expected in zip(recording.maps, np.asarray(weights), strict=True):
        np.testing.assert_allclose(weights_of(maps)[0], expected, atol=1e-6)


def test_a_file_gives_back_what_flax_computed(run: Any, tmp_path: Any) -> None:
    attnviz.from_arrays(weights=run[0][1], tokens=list("abcdefg")).save(tmp_path / "run.safetensors")
    found, _ = weights_of(attnviz.load(tmp_path / "run.safetensors").maps[0])
    np.testing.assert_array_equal(found, np.asarray(run[0][1]))
