"""FactoredMaps give what a dense computation in float64 gives, for every rule that a score may follow."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.errors import AttnvizError
from attnviz.maps.dense import DenseMaps
from attnviz.maps.factored import FactoredMaps
from attnviz.streaming.overview import Overview
from attnviz.text.tokens import Tokens

HEADS, KEY_HEADS, QUERIES, KEYS, FEATURES = 4, 2, 70, 90, 6
ALL = slice(0, None)


def dense_of(maps: FactoredMaps) -> DenseMaps:
    """The same maps computed whole in float64, cell by cell from the formula."""
    queries, keys = (np.asarray(array[:], dtype=np.float64) for array in (maps.queries, maps.keys))
    scores = np.einsum("hqf,hkf->hqk", queries, keys[list(maps.key_heads)]) * maps.scale
    if maps.softcap is not None:
        scores = maps.softcap * np.tanh(scores / maps.softcap)
    whole = (slice(0, queries.shape[1]), slice(0, keys.shape[1]))
    scores = scores + maps.bias.block(list(range(len(maps.heads))), *whole)
    visible = maps.mask.visible(*whole)
    return DenseMaps(
        layer=maps.layer, module=maps.module, heads=maps.heads, kind=maps.kind,
        query_tokens=maps.query_tokens, key_tokens=maps.key_tokens,
        scores=scores.astype(np.float32), weights=softmax(scores, visible, maps.sink)[0], visible=visible,
    )  # fmt: skip


def softmax(scores: Any, visible: Any, sink: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights over visible keys and the log-sum-exp of each row, a sink beside them."""
    shown = np.where(visible, scores, -np.inf)
    if sink is not None:
        shown = np.concatenate([shown, np.broadcast_to(sink[:, None, None], (*shown.shape[:2], 1))], axis=-1)
    top = np.maximum(shown.max(axis=-1, keepdims=True), -1e30)
    powers = np.exp(shown - top)
    total = powers.sum(axis=-1, keepdims=True)
    weights = np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)
    with np.errstate(divide="ignore"):
        logsumexp = np.log(total) + top
    return weights[..., : scores.shape[-1]].astype(np.float32), logsumexp[..., 0].astype(np.float32)


def factored(
    mask: Mask | None = None,
    bias: Bias | None = None,
    softcap: float | None = None,
    sink: NDArray[np.float32] | None = None,
    size: float = 1.0,
) -> FactoredMaps:
    """Random factors, 4 heads on 2 key heads x 70 queries x 90 keys x 6 features, their log-sum-exp in float64."""
    random = np.random.default_rng(7)
    mask, bias = mask or Mask(), bias or Bias()
    queries = (random.normal(size=(HEADS, QUERIES, FEATURES)) * size).astype(np.float32)
    keys = random.normal(size=(KEY_HEADS, KEYS, FEATURES)).astype(np.float32)
    scores = np.einsum("hqf,hkf->hqk", queries.astype(np.float64), keys[[0, 0, 1, 1]].astype(np.float64)) * 0.4
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    whole = (slice(0, QUERIES), slice(0, KEYS))
    scores = scores + bias.block([0, 1, 2, 3], *whole)
    return FactoredMaps(
        layer=3, module="layers.3", heads=(2, 5, 6, 9), key_heads=(0, 0, 1, 1), kind="cross",
        query_tokens=Tokens.numbered(QUERIES, "q"), key_tokens=Tokens.numbered(KEYS, "k"), scale=0.4,
        queries=queries, keys=keys, mask=mask, bias=bias, softcap=softcap, sink=sink,
        logsumexp=softmax(scores, mask.visible(*whole), sink)[1],
    )  # fmt: skip


def floats(*numbers: float) -> NDArray[np.float32]:
    return np.array(numbers, dtype=np.float32)


RANDOM = np.random.default_rng(3)
CASES: dict[str, dict[str, Any]] = {
    "everything visible": {},
    "causal": {"mask": Mask(causal=True, offset=KEYS - QUERIES)},
    "window": {"mask": Mask(causal=True, window=9)},
    "window both ways": {"mask": Mask(window=11, offset=4)},
    "chunk": {"mask": Mask(causal=True, chunk=16)},
    "prefix": {"mask": Mask(causal=True, window=5, prefix=3)},
    "padding": {"mask": Mask(padding=np.arange(KEYS) % 5 != 2)},
    "rows that see nothing": {"mask": Mask(causal=True, padding=np.arange(KEYS) > 20)},
    "explicit": {"mask": Mask(explicit=RANDOM.random((QUERIES, KEYS)) > 0.4)},
    "alibi": {"bias": Bias.alibi(floats(1, 0.5, 0.25, 0.1), QUERIES, KEYS), "mask": Mask(causal=True)},
    "buckets": {
        "bias": Bias.buckets(
            floats(*range(16 * HEADS)).reshape(16, HEADS) % 3, QUERIES, KEYS, both_sides=True, farthest=40
        )
    },
    "bias by key": {"bias": Bias(by_key=RANDOM.normal(size=(HEADS, KEYS)).astype(np.float32))},
    "explicit bias": {"bias": Bias(explicit=RANDOM.normal(size=(HEADS, QUERIES, KEYS)).astype(np.float32))},
    "soft cap": {"softcap": 2.0, "size": 4.0},
    "sink": {"sink": floats(0, 3, 30, -8)},
    "large scores": {"size": 40.0},
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cases
def test_any_window_is_what_the_dense_computation_gives(case: dict[str, Any]) -> None:
    maps = factored(**case)
    for queries, keys in ((ALL, ALL), (slice(31, 53), slice(2, 60)), (slice(69, 70), slice(89, 90))):
        window, expected = (each.window((9, 2), queries, keys) for each in (maps, dense_of(maps)))
        np.testing.assert_allclose(window.scores, expected.scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(window.weights, expected.weights, atol=tolerance(maps))
        np.testing.assert_array_equal(window.visible, expected.visible)
    assert not maps.window((2,), ALL, ALL).weights[0][~expected_visible(maps)].any()


def expected_visible(maps: FactoredMaps) -> NDArray[np.bool_]:
    return maps.mask.visible(slice(0, QUERIES), slice(0, KEYS))


@cases
@pytest.mark.parametrize("block", [(7, 9, ALL, ALL), (5, 11, slice(3, 70), slice(10, 77)), (70, 4, ALL, ALL)])
def test_overview_is_the_dense_one_pixel_by_pixel(
    case: dict[str, Any], block: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, tokens in (("ROWS", 16), ("COLUMNS", 24), ("LONGEST", 5)):
        monkeypatch.setattr(f"attnviz.streaming.numpy_pass.{name}", tokens)
    maps = factored(**case)
    same_overview(maps.overview((5, 9), *block), dense_of(maps).overview((5, 9), *block), tolerance(maps))


def tolerance(maps: FactoredMaps) -> float:
    """1e-5, or the rounding of the largest log-sum-exp where float32 cannot hold it to that."""
    largest = np.abs(maps.logsumexp[:][np.isfinite(maps.logsumexp[:])]).max()
    return max(1e-5, float(largest) * 2**-23)


def same_overview(overview: Overview, expected: Overview, atol: float) -> None:
    np.testing.assert_allclose(overview.mean, expected.mean, atol=atol)
    np.testing.assert_allclose(overview.maximum, expected.maximum, atol=atol)
    np.testing.assert_array_equal(overview.visible, expected.visible)


def test_refuses_factors_whose_shapes_disagree() -> None:
    maps = factored()
    with pytest.raises(AttnvizError, match=r"layer 3: keys of shape \(1, 90, 6\), expected \(2, 90, 6\)"):
        FactoredMaps(**{**vars(maps), "keys": maps.keys[:1]})
    with pytest.raises(AttnvizError, match="4 heads need as many key heads and a scale"):
        FactoredMaps(**{**vars(maps), "scale": None})
    with pytest.raises(AttnvizError, match="bias by_key does not fit 4 heads, 70 queries, 90 keys"):
        FactoredMaps(**{**vars(maps), "bias": Bias(by_key=np.zeros((4, 9), dtype=np.float32))})
    with pytest.raises(AttnvizError, match="bias relative does not fit"):
        FactoredMaps(**{**vars(maps), "bias": Bias.alibi(np.ones(4, dtype=np.float32), 8, KEYS)})


@cases
def test_scores_alone_are_those_of_the_window(case: dict[str, Any]) -> None:
    maps = factored(**case)
    block = ((9, 2), slice(3, 40), slice(11, 90))
    np.testing.assert_array_equal(maps.scores_of(*block), maps.window(*block).scores)
    dense = dense_of(maps)
    np.testing.assert_array_equal(dense.scores_of(*block), dense.window(*block).scores)
