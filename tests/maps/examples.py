"""Maps to test with: factored ones, the dense computation in float64 that they must agree with, and long ones."""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import CellMaps, MapTensors, Window
from attnviz.maps.recording import Recording
from attnviz.maps.recurrent import Recurrence, RecurrentMaps
from attnviz.streaming.overview import Factors, Overview
from attnviz.text.tokens import Tokens
from tests import room
from tests.attention.biases import alibi_bias, bucket_bias

HEADS, KEY_HEADS, QUERIES, KEYS, FEATURES = 4, 2, 70, 90, 6
ALL = slice(0, None)


def dense_of(maps: FactoredMaps) -> DenseMaps:
    """The same maps computed whole in float64, cell by cell from the formula."""
    factors = maps.factors
    queries, keys = (np.asarray(array[:], dtype=np.float64) for array in (factors.queries, factors.keys))
    scores = np.einsum("hqf,hkf->hqk", queries, keys[list(factors.key_heads)]) * factors.scale
    if factors.softcap is not None:
        scores = factors.softcap * np.tanh(scores / factors.softcap)
    whole = (slice(0, queries.shape[1]), slice(0, keys.shape[1]))
    scores = scores + factors.bias.block(list(range(len(maps.heads))), *whole)
    visible = factors.mask.visible(*whole)
    return DenseMaps(
        layer=maps.layer, module=maps.module, heads=maps.heads, kind=maps.kind,
        query_tokens=maps.query_tokens, key_tokens=maps.key_tokens,
        scores=scores.astype(np.float32), weights=softmax(scores, visible, factors.sink)[0], visible=visible,
    )  # fmt: skip


def softmax(scores: Any, visible: Any, sink: Any) -> tuple[FloatArray, FloatArray]:
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
    sink: FloatArray | None = None,
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
        layer=3, module="layers.3", heads=(2, 5, 6, 9), kind="cross",
        query_tokens=Tokens.numbered(QUERIES, "q"), key_tokens=Tokens.numbered(KEYS, "k"),
        factors=Factors(
            queries=queries, keys=keys, key_heads=(0, 0, 1, 1), scale=0.4, mask=mask, bias=bias, softcap=softcap,
            sink=sink, logsumexp=softmax(scores, mask.visible(*whole), sink)[1],
        ),
    )  # fmt: skip


def with_factors(maps: FactoredMaps, **changes: Any) -> FactoredMaps:
    """The maps with other factors."""
    return replace(maps, factors=replace(maps.factors, **changes))


def floats(*numbers: float) -> FloatArray:
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
    "alibi": {"bias": alibi_bias(floats(1, 0.5, 0.25, 0.1), QUERIES, KEYS), "mask": Mask(causal=True)},
    "buckets": {
        "bias": bucket_bias(
            floats(*range(16 * HEADS)).reshape(16, HEADS) % 3, QUERIES, KEYS, both_sides=True, farthest=40
        )
    },
    "bias by key": {"bias": Bias(by_key=RANDOM.normal(size=(HEADS, KEYS)).astype(np.float32))},
    "explicit bias": {"bias": Bias(explicit=RANDOM.normal(size=(HEADS, QUERIES, KEYS)).astype(np.float32))},
    "soft cap": {"softcap": 2.0, "size": 4.0},
    "sink": {"sink": floats(0, 3, 30, -8)},
    "large scores": {"size": 40.0},
}


def tolerance(maps: FactoredMaps) -> float:
    """1e-5, or what four roundings of the largest log-sum-exp lose where float32 cannot hold it to that."""
    references = maps.factors.logsumexp[:]
    largest = np.abs(references[np.isfinite(references)]).max()
    return max(1e-5, room.of_sums(float(largest)))


def same_overview(overview: Overview, expected: Overview, atol: float) -> None:
    np.testing.assert_allclose(overview.mean, expected.mean, atol=atol)
    np.testing.assert_allclose(overview.maximum, expected.maximum, atol=atol)
    np.testing.assert_array_equal(overview.visible, expected.visible)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ComputedMaps(CellMaps):
    """Maps of any length that hold nothing: every weight is 0.25, every pixel 0.5; no window of millions is made."""

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        scores = self.scores_of(heads, queries, keys)
        return Window(scores, scores, self.visibility(heads[0], queries, keys))

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        shape = (queries.stop - queries.start, keys.stop - keys.start)
        assert shape[0] * shape[1] < 5_000_000
        return np.full((len(heads), *shape), 0.25, dtype=np.float32)

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        return np.ones((queries.stop - queries.start, keys.stop - keys.start), dtype=bool)

    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        return np.full(queries.stop - queries.start, float(len(self.key_tokens)))

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [heads]

    def to_tensors(self) -> MapTensors:
        raise AssertionError("these maps are not written")

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        values = np.full((len(heads), height, width), 0.5, dtype=np.float32)
        return Overview(values, values, np.ones((height, width), dtype=bool))


def implicit_recording(tokens: int = 7, heads: int = 3, features: int = 5) -> Recording:
    """A recording of implicit attention: a decaying recurrence with numbers of either sign."""
    random = np.random.default_rng(2)
    queries, keys = random.normal(size=(2, heads, tokens, features)).astype(np.float32)
    decay = -0.2 * random.random((heads, tokens, 1), dtype=np.float32)
    axis = Tokens.numbered(tokens)
    maps = RecurrentMaps(
        layer=0,
        module="layers.0.mixer",
        heads=tuple(range(heads)),
        query_tokens=axis,
        key_tokens=axis,
        recurrence=Recurrence(queries, keys, tuple(range(heads)), decay=decay),
    )
    return Recording(maps=(maps,), model="linear")
