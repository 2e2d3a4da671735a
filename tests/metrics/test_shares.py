"""Shares of a row are parts of one: drawn masks, windows, paddings and kinds, in the engines of numpy and of torch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.attention.mask import Mask
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.metrics import call_metrics, patterns
from attnviz.metrics.call_metrics import HeadNumbers, measure, measure_queries
from attnviz.text.tokens import Tokens, tokenize
from tests import room
from tests.maps.examples import KEYS, QUERIES, dense_of, factored, with_factors
from tests.metrics.examples import maps_of, refuse_impossible_shares

NOT_BESIDE_SINK = {"first": 0.0, "sink": 0.0, "peak": 1.0, "special": 0.0, "stripe": 0.0}
SMALL_ROOM = 1e-4  # numbers of float32, divided by what a sink leaves of a row


@st.composite
def drawn_maps(draw: st.DrawFn) -> FactoredMaps:
    """Factored maps of 70 queries and 90 keys, with a drawn mask, kind, and special and repeated tokens."""
    padding = st.integers(0, 2**16).map(lambda seed: np.random.default_rng(seed).random(KEYS) > 0.3)
    mask = Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(2, 40)),
        offset=draw(st.sampled_from([0, KEYS - QUERIES])),
        padding=draw(st.none() | padding),
    )
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    ids, special = random.integers(0, 9, KEYS), random.random(KEYS) < 0.1
    keys, queries = (
        replace(Tokens.numbered(count), ids=ids[-count:].copy(), special=special[-count:].copy())
        for count in (KEYS, QUERIES)
    )
    maps = factored(mask, size=draw(st.sampled_from([1.0, 6.0])))
    return replace(maps, kind=draw(st.sampled_from(["self", "cross"])), query_tokens=queries, key_tokens=keys)


def numbers_of(maps: FactoredMaps | DenseMaps, is_long: bool) -> list[HeadNumbers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_metrics, "is_long", lambda queries, keys: is_long)
        patch.setattr(patterns, "MIN_SINK_SHARE", 0)  # so that each head has a sink
        return measure(maps)


@settings(max_examples=20)
@given(maps=drawn_maps())
def test_no_share_is_more_than_the_whole_and_both_engines_agree(maps: FactoredMaps) -> None:
    for found, expected in zip(
        numbers_of(with_factors(maps, device="cpu"), True), numbers_of(dense_of(maps), False), strict=True
    ):
        for numbers in (found, expected):
            refuse_impossible_shares(numbers.values)
            refuse_impossible_shares(NOT_BESIDE_SINK | numbers.beside_sink)
        assert (found.counts, found.sink) == (expected.counts, expected.sink)
        assert found.beside_sink == pytest.approx(expected.beside_sink, abs=SMALL_ROOM, nan_ok=True)


@settings(max_examples=20)
@given(maps=drawn_maps())
def test_disjoint_parts_of_a_row_are_at_most_the_whole(maps: FactoredMaps) -> None:
    parts = np.nan_to_num(measure_queries(dense_of(maps), ("self", "previous", "next"), maps.heads).numbers)
    assert parts.sum(axis=0).max() <= 1 + 1e-5


@given(data=st.data(), count=st.integers(4, 12), causal=st.booleans(), left=st.booleans(), padding=st.integers(1, 9))
def test_numbers_of_a_text_are_the_same_however_far_it_is_padded(
    data: st.DataObject, count: int, causal: bool, left: bool, padding: int
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    visible = np.tri(count, dtype=bool) if causal else np.ones((count, count), dtype=bool)
    weights = random.dirichlet(np.ones(count) / 4, (2, count)) * visible + 1e-9 * visible
    weights /= weights.sum(axis=-1, keepdims=True)
    tokens = tokenize(" ".join(random.choice(list("abcd"), count)))
    alone = measure(maps_of(weights, tokens, visible))
    widths = [(padding, 0) if left else (0, padding)] * 2
    seen = np.pad(visible, widths)
    if not causal:  # padding looks at the text, and nothing looks at padding
        seen[:, padding:] |= left
        seen[:, :count] |= not left
    padded_weights = np.pad(weights, [(0, 0), *widths])
    rows_of_padding = seen & ~np.pad(np.ones_like(visible), widths)
    padded_weights = padded_weights + rows_of_padding / np.maximum(rows_of_padding.sum(axis=-1, keepdims=True), 1)
    pads = tokens.padded(count + padding)
    padded_tokens = pads if not left else pads.take(np.array([*range(count, count + padding), *range(count)]))
    maps = maps_of(padded_weights, padded_tokens, seen)
    for found, expected in zip(measure(maps), alone, strict=True):
        assert found.patterns == expected.patterns
        assert found.values == pytest.approx(expected.values, abs=room.of_sums(20), nan_ok=True)


def rest_by_hand(weights: np.ndarray, visible: np.ndarray, sink: int) -> dict[str, Any]:
    """The numbers of one causal head of distinct tokens without a key, row by row."""
    rows = []
    for query, row in enumerate(weights):
        others = [key for key in np.flatnonzero(visible[query]).tolist() if key != sink]
        rest = row[others].sum()
        if visible[query].sum() < 3 or rest < 0.01:
            continue
        shares: dict[int, float] = dict(zip(others, (row[others] / rest).tolist(), strict=True))
        entropy = -sum(share * np.log2(share) for share in shares.values() if share)
        rows.append((shares.get(query, 0), shares.get(query - 1, 0), entropy / np.log2(len(others))))
    return dict(zip(("self", "previous", "relative-entropy"), np.mean(rows, axis=0).tolist(), strict=True))


@pytest.mark.parametrize("sink", [0, 3])
@pytest.mark.parametrize("window", [4, 30])
def test_numbers_beside_the_sink_are_those_of_rows_without_it(sink: int, window: int) -> None:
    count, random = 12, np.random.default_rng(5)
    distance = np.arange(count)[:, None] - np.arange(count)
    visible = (distance >= 0) & (distance < window)
    visible[:, sink] = distance[:, sink] >= 0
    weights = random.dirichlet(np.ones(count), count) * visible
    weights[:, sink] += 2 * visible[:, sink]
    weights /= weights.sum(axis=-1, keepdims=True)
    [numbers] = measure(maps_of(weights[None], tokenize(" ".join("abcdefghijkl")), visible))
    expected = rest_by_hand(weights, visible, sink)
    assert numbers.sink == sink
    assert {name: numbers.beside_sink[name] for name in expected} == pytest.approx(expected, abs=1e-5)


def test_a_first_token_that_a_window_has_left_counts_with_nothing() -> None:
    count, width = 30, 4
    distance = np.arange(count)[:, None] - np.arange(count)
    visible = (distance >= 0) & (distance < width)
    weights = visible / visible.sum(axis=-1, keepdims=True)
    [numbers] = measure(maps_of(weights[None], Tokens.numbered(count), visible))
    assert numbers.values["first"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / (count - 1))
    assert numbers.counts["first"] == count - 1
