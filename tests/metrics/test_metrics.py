"""Each metric against rows worked by hand, in float64, with as many masks, kinds and tokens as have a meaning."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnviz.api.recording import drawable
from attnviz.attention.mask import Bias, Mask
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import CellMaps, Window, cell_maps
from attnviz.maps.saved import load
from attnviz.metrics import row_blocks as rows
from attnviz.metrics import torch_rows
from attnviz.metrics.call_metrics import measure, measure_heads, measure_queries
from attnviz.metrics.grid import Cells, Grid
from attnviz.metrics.measure import named_measure
from attnviz.metrics.metrics import METRICS, Metric
from attnviz.metrics.query_grid import BLOCK_KEYS, sentences_of
from attnviz.metrics.row_blocks import blocks_of_rows, entropy_bits
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.streaming.overview import Factors
from attnviz.text.groups import Groups
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokenize
from tests import room
from tests.conftest import HEADS, KEYS, QUERIES, dense_maps, random_maps
from tests.maps.examples import CASES, dense_of, factored, with_factors
from tests.metrics.examples import maps_of
from tests.today import todays

NAN = np.nan
WORDS = "a b a c a"
WEIGHTS = np.array(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.25, 0.75, 0.0, 0.0, 0.0],
        [0.5, 0.25, 0.25, 0.0, 0.0],
        [0.25, 0.25, 0.25, 0.25, 0.0],
        [0.125, 0.5, 0.125, 0.125, 0.125],
    ]
)


def causal_maps(weights: np.ndarray = WEIGHTS, text: str = WORDS) -> DenseMaps:
    """One causal head of five words, the third and fifth copies of the first."""
    return maps_of(weights[None], tokenize(text), np.tri(len(weights), dtype=bool))


def of_queries(maps: DenseMaps, name: str) -> np.ndarray:
    """A metric of rows for each query of the first head."""
    return np.asarray(measure_queries(maps, (name,), maps.heads)[0][0, 0])


def of_head(maps: DenseMaps, name: str) -> float:
    """A metric of the first head."""
    return measure(maps)[0].values[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("entropy", [0, 0.811278, 1.5, 2, 2]),
        ("relative-entropy", [NAN, 0.811278, 0.946395, 1, 0.861353]),
        ("peak", [1, 0.75, 0.5, 0.25, 0.5]),
        ("first", [1, 0.25, 0.5, 0.25, 0.125]),
        ("special", [NAN] * 5),
        ("self", [1, 0.75, 0.25, 0.25, 0.125]),
        ("previous", [NAN, 0.25, 0.25, 0.25, 0.125]),
        ("next", [NAN] * 5),
        ("duplicate", [NAN, NAN, 0.5, NAN, 0.25]),
        ("induction", [NAN, NAN, 0.25, NAN, 0.625]),
        ("distance", [0, 0.25, 1.25, 1.5, 2.375]),
        ("spread", [0, 0.433013, 0.829156, 1.118034, 1.218349]),
        ("locality", [1, 1, 1, 1, 0.875]),
        ("block", [NAN] * 5),
        ("pair", [NAN] * 5),
    ],
)
def test_metric_of_causal_rows_is_the_one_worked_by_hand(name: str, expected: list[float]) -> None:
    np.testing.assert_allclose(of_queries(causal_maps(), name), expected, atol=1e-6)


def test_head_is_the_mean_over_queries_that_have_a_choice() -> None:
    assert of_head(causal_maps(), "entropy") == pytest.approx((0.811278 + 1.5 + 2 + 2) / 4, abs=1e-6)
    assert of_head(causal_maps(), "first") == pytest.approx((0.25 + 0.5 + 0.25 + 0.125) / 4)
    assert measure(causal_maps())[0].counts["duplicate"] == 2


def test_sink_is_the_key_that_receives_most_and_stripe_the_three() -> None:
    # received by the five keys, over the four queries with a choice: 1.125, 1.75, 0.625, 0.375, 0.125
    numbers = measure(causal_maps())[0]
    assert (numbers.sink, numbers.sink_label) == (1, "b")
    assert numbers.values["sink"] == pytest.approx(1.75 / 4)
    assert numbers.values["stripe"] == pytest.approx(3.5 / 4)


def test_hidden_is_the_share_of_the_softmax_over_later_keys() -> None:
    scores = np.log(np.array([[1, 3], [2, 2]], dtype=np.float32))[None]
    maps = replace(causal_maps(np.array([[1.0, 0], [0.5, 0.5]]), "a b"), scores=scores)
    np.testing.assert_allclose(of_queries(maps, "hidden"), [0.75, NAN], atol=1e-6)


def test_hidden_does_not_count_padding_and_is_absent_without_scores() -> None:
    weights = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]])
    visible = np.array([[True, False, False], [True, True, False], [True, True, False]])
    scores = np.zeros((1, 3, 3), dtype=np.float32)
    maps = replace(maps_of(weights[None], tokenize("a b c"), visible), scores=scores)
    np.testing.assert_allclose(of_queries(maps, "hidden"), [0.5, NAN, NAN])
    lost = np.where(visible, scores, -np.inf).astype(np.float32)
    assert np.isnan(of_queries(replace(maps, scores=lost), "hidden")).all()


def test_first_token_is_the_first_that_is_not_padding() -> None:
    weights = np.array([[0.0, 0, 0], [0, 1, 0], [0, 0.25, 0.75]])
    visible = np.array([[False, False, False], [False, True, False], [False, True, True]])
    maps = maps_of(weights[None], tokenize("a b c"), visible)
    np.testing.assert_allclose(of_queries(maps, "first"), [NAN, 1, 0.25])


def test_a_key_that_only_a_query_left_out_sees_is_no_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.metrics.row_blocks.BLOCK_CELLS", 1)
    count = 3 * rows.MIN_ROWS
    weights = np.tri(count) / np.arange(1, count + 1)[:, None]
    maps = maps_of(weights[None], Tokens.numbered(count), np.tri(count, dtype=bool))
    [block] = blocks_of_rows(maps, (0,), stride=2)  # of three blocks the second
    assert block.grid.span == slice(rows.MIN_ROWS, 2 * rows.MIN_ROWS)
    assert block.grid.visible_keys[-1]


@pytest.mark.parametrize("every", [1, 2, 4])
def test_one_in_so_many_blocks_of_queries_is_that_share_of_the_queries(every: int) -> None:
    maps = random_maps(Tokens.numbered(128))
    assert [one.counts["entropy"] for one in measure(maps, ("entropy",), stride=every)] == [128 // every] * HEADS


def test_row_that_sees_nothing_is_absent_from_every_metric() -> None:
    weights, visible = np.full((1, 3, 3), 0.5), np.ones((3, 3), dtype=bool)
    visible[1], visible[:, 1] = False, False
    maps = maps_of(np.where(visible, weights, 0), tokenize("a a a"), visible)
    for name in METRICS:
        if METRICS[name].columns is None:
            assert np.isnan(of_queries(maps, name)[1]), name


def test_nothing_visible_and_one_token_leave_every_metric_absent() -> None:
    dark = maps_of(np.zeros((1, 2, 2)), tokenize("a b"), np.zeros((2, 2), dtype=bool))
    single = maps_of(np.ones((1, 1, 1)), tokenize("a"))
    for maps in (dark, single):
        assert all(np.isnan(value) for value in measure(maps)[0].values.values())


def test_cross_attention_has_no_positions_and_keeps_the_shape_of_its_axes() -> None:
    maps = dense_maps()
    values = measure(maps)[1].values
    absent = {name for name, value in values.items() if np.isnan(value)}
    assert absent == {
        *("special", "self", "previous", "next", "duplicate", "induction", "distance", "spread"),
        *("locality", "block", "pair", "hidden"),
    }
    weights = maps.weights[1].astype(np.float64)
    assert values["entropy"] == pytest.approx(-(weights * np.log2(weights)).sum() / QUERIES, abs=1e-6)
    assert values["sink"] == pytest.approx(weights.mean(axis=0).max(), abs=1e-6)
    assert values["first"] == pytest.approx(weights[:, 0].mean(), abs=1e-6)
    assert values["relative-entropy"] == pytest.approx(values["entropy"] / np.log2(KEYS), abs=1e-6)


def test_special_mass_is_that_on_tokens_the_tokenizer_added() -> None:
    tokens = replace(tokenize("a b c"), special=np.array([True, False, True]))
    weights = np.array([[[0.5, 0.25, 0.25], [0, 1, 0], [0.25, 0.25, 0.5]]])
    np.testing.assert_allclose(of_queries(maps_of(weights, tokens), "special"), [0.75, 0, 0.75])


def test_pair_is_the_weight_across_and_block_that_within_a_segment() -> None:
    tokens = replace(
        tokenize("X a Y b c"),
        special=np.array([True, False, True, False, False]),
        groups={"texts": Groups(np.array([0, 0, 0, 1, 1]))},
    )
    weights = np.tile(np.array([0.1, 0.2, 0.3, 0.15, 0.25]), (1, 5, 1))
    np.testing.assert_allclose(of_queries(maps_of(weights, tokens), "pair"), [NAN, 0.4, NAN, 0.2, 0.2], atol=1e-6)


def test_block_is_the_weight_within_the_own_sentence() -> None:
    tokens = tokenize("One two. Three four?")  # one two . three four ?
    weights = np.tile(np.array([0.1, 0.2, 0.3, 0.05, 0.05, 0.3]), (1, 6, 1))
    np.testing.assert_allclose(of_queries(maps_of(weights, tokens), "block"), [0.6] * 3 + [0.4] * 3, atol=1e-6)


def test_block_counts_a_first_sentence_longer_than_a_block_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, weights = tokenize("one two three four. Five six"), np.tril(np.ones((7, 7))) / np.arange(1, 8)[:, None]
    maps = maps_of(weights[None], tokens, np.tri(7, dtype=bool))
    expected = of_queries(maps, "block")
    np.testing.assert_allclose(expected, [1, 1, 1, 1, 1, 1 / 6, 2 / 7], atol=1e-6)
    monkeypatch.setattr(rows, "BLOCK_CELLS", 2 * 7)
    monkeypatch.setattr(rows, "MIN_ROWS", 1)
    np.testing.assert_allclose(of_queries(maps, "block"), expected)


def test_decimal_point_ends_no_sentence() -> None:
    assert sentences_of(tokenize("Pay 3.50 now. Then go.")).max() == 1


def test_next_is_the_weight_on_the_token_after() -> None:
    weights = np.array([[[0.25, 0.75, 0], [0.5, 0.25, 0.25], [0, 0, 1]]])
    np.testing.assert_allclose(of_queries(maps_of(weights, tokenize("a b c")), "next"), [0.75, 0.25, NAN])


def test_induction_ignores_the_query_itself_and_duplicate_ignores_later_copies() -> None:
    weights = np.full((1, 3, 3), [0.5, 0.3, 0.2])
    maps = maps_of(weights, tokenize("a a a"))
    np.testing.assert_allclose(of_queries(maps, "induction"), [NAN, NAN, 0.3], atol=1e-6)
    np.testing.assert_allclose(of_queries(maps, "duplicate"), [NAN, 0.5, 0.8], atol=1e-6)


def test_queries_with_cached_keys_stand_at_the_end() -> None:
    tokens = tokenize("a b c d")
    two = replace(
        Tokens.numbered(2), ids=tokens.ids[2:].copy(), places=tokens.places[2:].copy(), labels=tokens.labels[2:]
    )
    weights = np.array([[[0.1, 0.7, 0.2, 0], [0, 0.1, 0.6, 0.3]]])
    maps = maps_of(weights, tokens, np.tri(2, 4, 2, dtype=bool), query_tokens=two)
    np.testing.assert_allclose(of_queries(maps, "previous"), [0.7, 0.6], atol=1e-6)
    np.testing.assert_allclose(of_queries(maps, "self"), [0.2, 0.3], atol=1e-6)


def test_tokens_without_ids_have_no_copies() -> None:
    maps = maps_of(np.full((1, 3, 3), 1 / 3), Tokens.numbered(3))
    assert np.isnan(of_queries(maps, "duplicate")).all()


def test_blocks_of_queries_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = dense_maps(causal=True)
    whole = measure(maps)
    monkeypatch.setattr(rows, "BLOCK_CELLS", 2 * HEADS * KEYS)
    monkeypatch.setattr(rows, "MIN_ROWS", 1)
    assert len(list(blocks_of_rows(maps, maps.heads))) == 3
    for one, other in zip(whole, measure(maps), strict=True):
        np.testing.assert_allclose(list(one.values.values()), list(other.values.values()))


def test_groups_of_heads_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = dense_maps(causal=True)
    whole = measure(maps)
    monkeypatch.setattr(rows, "BLOCK_CELLS", 2 * 3 * KEYS)
    monkeypatch.setattr(rows, "MIN_ROWS", 3)
    assert [(block.head_range.start, block.grid.start) for block in blocks_of_rows(maps, maps.heads)] == [
        (0, 0),
        (2, 0),
        (0, 3),
        (2, 3),
    ]
    for one, other in zip(whole, measure(maps), strict=True):
        np.testing.assert_allclose(list(one.values.values()), list(other.values.values()))


def test_blocks_do_not_grow_with_the_tokens() -> None:
    maps = factored()
    factors = replace(
        maps.factors, queries=np.zeros((4, 5000, 6), dtype=np.float32), keys=np.zeros((2, 5000, 6), dtype=np.float32),
        logsumexp=np.zeros((4, 5000), dtype=np.float32), bias=Bias(),
    )  # fmt: skip
    maps = replace(
        maps, factors=factors, query_tokens=Tokens.numbered(5000), key_tokens=Tokens.numbered(5000),
    )  # fmt: skip
    assert next(blocks_of_rows(maps, maps.heads)).weights.size <= rows.LONG_CELLS


def test_rows_sum_up_in_float64() -> None:
    block = next(blocks_of_rows(dense_maps(), (0, 1, 2)))
    for name in ("entropy", "first", "hidden", "induction"):
        assert METRICS[name].query_values(block).dtype == np.float64
        assert METRICS[name].query_values(block).shape == (HEADS, QUERIES)


def test_permuted_heads_permute_the_numbers() -> None:
    maps = dense_maps(causal=True)
    turned = replace(maps, weights=maps.weights[::-1], scores=maps.scores[::-1])
    for one, other in zip(measure(maps), reversed(measure(turned)), strict=True):
        np.testing.assert_allclose(list(one.values.values()), list(other.values.values()))


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=9).filter(lambda row: sum(row) > 0.01))
def test_entropy_lies_between_zero_and_log2_of_the_keys(row: list[float]) -> None:
    weights = np.array(row) / sum(row)
    assert -1e-9 <= entropy_bits(weights) <= np.log2(len(row)) + 1e-5


def test_entropy_of_uniform_row_is_log2_of_visible_keys() -> None:
    assert entropy_bits(np.full(32_768, 1 / 32_768)) == pytest.approx(15, abs=room.of_sums(15))


def test_unknown_metric_lists_the_known() -> None:
    with pytest.raises(
        AttnvizError,
        match=r"unknown metric 'inducton'; did you mean induction\? Choose .*\bentropy, .* or picture-distance",
    ):
        named_measure("inducton", METRICS.values())


def test_every_metric_is_one_function_with_a_docstring_and_a_header_that_fits() -> None:
    for metric in METRICS.values():
        [function] = filter(None, (metric.cells, metric.rows, metric.columns))
        assert function.__doc__
        assert len(metric.header) <= 9


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"context": "Die Katze saß dort"}, {"num_layers": 2, "causal": True}],
    ids=lambda options: " ".join(options) or "plain",
)
def test_maps_kept_as_factors_have_the_metrics_of_whole_maps(options: dict[str, Any], tmp_path: Path) -> None:
    text = "The cat sat on the mat. The cat sat on the mat again. Was it a cat? It was."
    whole, factored = (
        open_reader(ModelSettings(dense=dense, **options)).record(Example(text), Selection()) for dense in (True, False)
    )
    drawable(factored).save(tmp_path / "run.safetensors")
    for kept in (factored, load(tmp_path / "run.safetensors")):
        for maps, expected in zip(kept.maps, whole.maps, strict=True):
            assert isinstance(maps, FactoredMaps)
            for numbers, own in zip(measure(maps), measure(cell_maps(expected)), strict=True):
                assert numbers.sink_label == own.sink_label  # of keys that are equal, rounding picks the first
                assert numbers.values == pytest.approx(own.values, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("engine", ["short", "long", "factors"])
@pytest.mark.parametrize("given_sum", [1, 1 + 1e-6, 0.5])
@pytest.mark.parametrize("width", todays([0.2, 3.0, 16.0, 60.0], one_in=2))
def test_spread_of_far_keys_is_exact_whatever_the_rounding_of_their_sum(
    engine: str, given_sum: float, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.metrics.row_blocks.is_long", lambda queries, keys: engine != "short")
    monkeypatch.setattr("attnviz.metrics.call_metrics.is_long", lambda queries, keys: engine == "factors")
    count = 1000
    tokens = Tokens.numbered(count)
    centred = np.arange(count) - count / 2
    # A normal distribution around a key 900 before the query, and the scores of which it is the softmax.
    queries = np.stack([(centred - 900) / width**2, np.ones(count)], axis=1)[None].astype(np.float32)
    keys = np.stack([centred, -(centred**2) / (2 * width**2)], axis=1)[None].astype(np.float32)
    scores = (queries.astype(np.float64) @ keys.astype(np.float64).mT)[0]
    logsumexp = np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1)) + scores.max(1) - np.log(given_sum)
    weights = np.exp(scores - logsumexp[:, None])
    maps: CellMaps = maps_of(weights[None], tokens)
    if engine == "factors":
        factors = Factors(
            queries=queries, keys=keys, logsumexp=logsumexp[None].astype(np.float32), scale=1.0, mask=Mask(),
            key_heads=(0,), device="cpu",
        )  # fmt: skip
        maps = FactoredMaps(layer=0, module="m", heads=(0,), query_tokens=tokens, key_tokens=tokens, factors=factors)
    distances = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    shares = weights / weights.sum(1, keepdims=True)
    means = (shares * distances).sum(1, keepdims=True)
    expected = np.sqrt((shares * (distances - means) ** 2).sum(1)).mean()
    assert measure(maps, ("spread",))[0].values["spread"] == pytest.approx(expected, abs=1e-5)


MASKS = {
    "causal": Mask(causal=True, offset=20),
    "a window": Mask(causal=True, window=9, offset=20),
    "padding": Mask(causal=True, offset=20, padding=np.arange(90) > 4),
    "rows that see nothing": Mask(causal=True, padding=np.arange(90) > 30),
    "cells": Mask(explicit=np.random.default_rng(3).random((70, 90)) > 0.4),
}


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("cells", todays([2**18, 2**12], one_in=2))
@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("device", [None, "cpu"], ids=["numpy", "torch"])
def test_every_metric_of_factors_under_a_mask_is_that_of_a_dense_computation(
    mask: Mask, kind: Any, cells: int, long: bool, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BLOCK_CELLS", cells)
    monkeypatch.setattr(rows, "LONG_CELLS", cells)
    monkeypatch.setattr("attnviz.metrics.torch_rows.BAND_CELLS", cells)
    monkeypatch.setitem(torch_rows.TILE_KEYS, "cpu", max(cells // 2**8, BLOCK_KEYS))
    ids = np.random.default_rng(1).integers(0, 9, 90)
    keys, queries = (replace(Tokens.numbered(count), ids=ids[-count:].copy()) for count in (90, 70))
    held = with_factors(factored(mask), device=device)
    maps = replace(held, kind=kind, query_tokens=queries, key_tokens=keys)
    expected = measure(dense_of(maps))
    for module in ("call_metrics", "row_blocks"):
        monkeypatch.setattr(f"attnviz.metrics.{module}.is_long", lambda queries, keys: long)
    for numbers, own in zip(measure(maps), expected, strict=True):
        assert numbers.values == pytest.approx(own.values, rel=1e-5, abs=1e-5, nan_ok=True)
        assert np.isnan(numbers.values["induction"]) == (kind == "cross")


@pytest.mark.parametrize("case", ["soft cap", "alibi", "bias by key", "explicit bias", "sink", "chunk", "prefix"])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_metric_by_torch_is_that_of_a_dense_computation_whatever_the_rules(
    case: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.metrics.call_metrics.is_long", lambda queries, keys: True)
    monkeypatch.setattr("attnviz.metrics.torch_rows.BAND_CELLS", 17 * 90)
    monkeypatch.setitem(torch_rows.TILE_KEYS, "cpu", BLOCK_KEYS)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    maps = replace(with_factors(factored(**CASES[case]), device="cpu"), kind="self")
    for numbers, own in zip(measure(maps, heads=(9, 2)), measure(dense_of(maps), heads=(9, 2)), strict=True):
        assert (numbers.head, numbers.sink, numbers.counts) == (own.head, own.sink, own.counts)
        assert numbers.values == pytest.approx(own.values, rel=1e-5, abs=1e-5, nan_ok=True)
    assert torch.get_num_threads() == threads
    torch.set_num_threads(before)


def test_a_metric_of_one_function_and_a_line_is_measured_over_long_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    def last(grid: Grid) -> Cells:
        return grid.at_keys((grid.visible * grid.keys).argmax(axis=-1))

    monkeypatch.setitem(METRICS, "last", Metric("last", "last", "share", "on the last key", cells=last))
    monkeypatch.setattr("attnviz.metrics.call_metrics.is_long", lambda queries, keys: True)
    maps = replace(with_factors(factored(MASKS["a window"]), device="cpu"), kind="self")
    for numbers, own in zip(measure(maps, ("last",)), measure(dense_of(maps), ("last",)), strict=True):
        assert numbers.values["last"] == pytest.approx(own.values["last"], rel=1e-5, abs=1e-5)
        assert numbers.counts["last"] == own.counts["last"] > 0


def test_heads_that_are_not_asked_for_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[int] = set()
    window = DenseMaps.window

    def listened(maps: DenseMaps, heads: tuple[int, ...], *block: slice) -> Window:
        asked.update(heads)
        return window(maps, heads, *block)

    one, other = dense_maps(), dense_maps(1)
    expected = [measure(one)[2], measure(other)[0], measure(one)[0]]
    monkeypatch.setattr(DenseMaps, "window", listened)
    found = measure_heads([(one, 2), (other, 0), (one, 0)])
    assert asked == {0, 2}
    for ours, all_of_them in zip(found, expected, strict=True):
        assert (ours.layer, ours.head) == (all_of_them.layer, all_of_them.head)
        np.testing.assert_equal(ours.values, all_of_them.values)
