"""One pass over tiles finds what the dense computation holds, for every rule, at ragged edges, and in hard numbers."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz.attention.mask import Mask
from attnviz.base.errors import AttnvizError
from attnviz.maps.dense import DenseMaps
from attnviz.maps.factored import FactoredMaps
from attnviz.streaming import plan
from attnviz.streaming.overview import block_edges
from attnviz.streaming.plan import Plan
from attnviz.streaming.torch_pass import NUMBERS, DeviceFactors, Streamed, stream
from tests.maps.examples import CASES, HEADS, KEYS, QUERIES, dense_of, factored, tolerance

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plan.TILE, "cpu", (16, 24))
    monkeypatch.setattr("attnviz.streaming.plan.LONGEST", 5)


def numbers_of(maps: DenseMaps, offset: int) -> dict[str, NDArray[np.float64]]:
    """The numbers of dense maps, each from its sentence, in float64."""
    weights = np.where(maps.visible, maps.weights, 0).astype(np.float64)
    rows, columns = np.indices(maps.visible.shape)
    steps = columns - rows - offset
    logarithm = np.log2(np.where(weights > 0, weights, 1))
    return {
        "entropy": -(weights * logarithm).sum(-1),
        "peak": weights.max(-1),
        "distance": (weights * abs(steps)).sum(-1),
        "first": weights[..., 0],
        "self": (weights * (steps == 0)).sum(-1),
        "previous": (weights * (steps == -1)).sum(-1),
        "next": (weights * (steps == 1)).sum(-1),
    }


def check(streamed: Streamed, maps: FactoredMaps, size: tuple[int, int], atol: float) -> None:
    dense = dense_of(maps)
    expected = dense.overview(maps.heads, *size, slice(0, QUERIES), slice(0, KEYS))
    np.testing.assert_array_equal(streamed.overview.visible, expected.visible)
    np.testing.assert_allclose(streamed.overview.mean, expected.mean, atol=atol)
    np.testing.assert_allclose(streamed.overview.maximum, expected.maximum, atol=atol)
    np.testing.assert_allclose(streamed.logsumexp, maps.factors.logsumexp[:], rtol=1e-5, atol=1e-5)
    for name, number in numbers_of(dense, maps.factors.mask.offset).items():
        np.testing.assert_allclose(streamed.numbers[name], number, atol=atol * 50, err_msg=name)


@cases
def test_one_pass_finds_what_the_dense_maps_hold(case: dict[str, Any]) -> None:
    maps = factored(**case)
    check(stream(DeviceFactors.of(maps.factors), 7, 9, numbers=NUMBERS), maps, (7, 9), tolerance(maps))


@pytest.mark.parametrize("size", [(20, 33), (70, 90), (1, 1)])
@pytest.mark.parametrize("case", ["window", "padding", "alibi"])
def test_pixels_may_be_large_small_or_single_tokens(case: str, size: tuple[int, int]) -> None:
    maps = factored(**CASES[case])
    check(stream(DeviceFactors.of(maps.factors), *size, numbers=NUMBERS), maps, size, tolerance(maps))


RULES = {
    "causal": Mask(causal=True),
    "causal after cached keys": Mask(causal=True, offset=11),
    "first queries before every key": Mask(causal=True, offset=-9),
    "window": Mask(causal=True, window=7),
    "window both ways": Mask(window=7, offset=-4),
    "prefix and window": Mask(causal=True, window=6, prefix=3),
    "chunk": Mask(chunk=13),
}


@pytest.mark.parametrize("size", [(6, 8), (23, 31)])
@pytest.mark.parametrize("tokens", [(83, 83), (97, 61), (61, 97)])
@pytest.mark.parametrize("mask", RULES.values(), ids=RULES)
def test_bands_that_end_within_a_tile_hold_what_the_dense_weights_in_float64_do(
    mask: Mask, tokens: tuple[int, int], size: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    queries, keys = (torch.randn(2, count, 5) for count in tokens)
    visible = mask.visible(*(slice(0, count) for count in tokens))
    scores = np.where(visible, queries.double() @ keys.double().mT * 0.7, -np.inf)
    powers = np.exp(scores - np.where(visible.any(1), scores.max(-1), 0)[..., None])
    weights = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    streamed = stream(DeviceFactors(queries, keys, (0, 1), 0.7, mask), *size, numbers=NUMBERS)
    rows, columns = (block_edges(count, pixels)[:-1] for count, pixels in zip(tokens, size, strict=True))
    count, total = (_reduced(np.add, cells, rows, columns) for cells in (visible.astype(float), weights))
    np.testing.assert_allclose(streamed.overview.mean, total / np.maximum(count, 1), atol=1e-6)
    np.testing.assert_allclose(streamed.overview.maximum, _reduced(np.maximum, weights, rows, columns), atol=1e-5)
    steps = abs(np.arange(tokens[1]) - np.arange(tokens[0])[:, None] - mask.offset)
    np.testing.assert_allclose(streamed.numbers["distance"], (weights * steps).sum(-1), atol=1e-4)
    np.testing.assert_allclose(streamed.numbers["peak"], weights.max(-1), atol=1e-5)
    np.testing.assert_allclose(streamed.numbers["first"], weights[..., 0], atol=1e-5)


def _reduced(how: np.ufunc, cells: NDArray[np.float64], rows: Any, columns: Any) -> NDArray[np.float64]:
    reduced: NDArray[np.float64] = how.reduceat(how.reduceat(cells, rows, axis=-2), columns, axis=-1)
    return reduced


@pytest.mark.parametrize("mask", [Mask(causal=True), Mask(causal=True, window=7), Mask(window=5, offset=9)])
def test_a_band_computes_no_pixel_that_none_of_its_queries_sees(mask: Mask) -> None:
    factors = DeviceFactors(torch.randn(1, 83, 3), torch.randn(1, 97, 3), (0,), 1.0, mask)
    plan = Plan(factors, 23, 31, maximum=False, numbers=frozenset())
    for row in plan.rows:
        seen = mask.visible(row.tile.tokens, slice(0, 97)).any(axis=0)
        pixels = np.flatnonzero(np.logical_or.reduceat(seen, plan.column_axis.edges[:-1]))
        assert row.pixels == slice(pixels[0], pixels[-1] + 1)
        assert [pixel for tile in row.columns for pixel in range(97)[tile.blocks]] == pixels.tolist()


def test_more_pixels_than_tokens_give_a_pixel_a_token() -> None:
    assert stream(DeviceFactors.of(factored().factors), 500, 500).overview.mean.shape == (HEADS, QUERIES, KEYS)


@pytest.mark.parametrize("height", [-1e4, 1e4])
def test_a_score_of_ten_thousand_far_from_the_diagonal_takes_its_row(height: float) -> None:
    queries, keys = torch.ones(1, 64, 2), torch.zeros(1, 64, 2)
    keys[0, 50] = height / 2
    streamed = stream(DeviceFactors(queries, keys, (0,), 1.0), 64, 64, numbers=NUMBERS)
    expected = np.zeros(64) if height > 0 else np.full(64, 1 / 63)
    expected[50] = float(height > 0)
    np.testing.assert_allclose(streamed.overview.mean[0], np.tile(expected, (64, 1)), atol=1e-6)
    np.testing.assert_allclose(streamed.numbers["entropy"], 0 if height > 0 else np.log2(63), atol=1e-5)
    np.testing.assert_allclose(streamed.logsumexp, 1e4 if height > 0 else np.log(63), rtol=1e-6)


def test_a_sink_that_dwarfs_the_row_leaves_nothing_and_no_nan() -> None:
    factors = DeviceFactors(
        torch.randn(1, 40, 3), torch.randn(1, 40, 3), (0,), 1.0, sink=np.array([5e3], dtype=np.float32)
    )
    streamed = stream(factors, 8, 8, numbers=NUMBERS)
    assert not streamed.overview.mean.any()
    np.testing.assert_allclose(streamed.logsumexp, 5e3)
    assert all(np.isfinite(number).all() and number.max() < 1e-6 for number in streamed.numbers.values())


def test_rows_that_see_nothing_are_zero_and_absent() -> None:
    mask = Mask(causal=True, padding=np.arange(40) >= 20)
    streamed = stream(
        DeviceFactors(torch.randn(1, 40, 3), torch.randn(1, 40, 3), (0,), 1.0, mask), 4, 4, numbers=NUMBERS
    )
    assert streamed.overview.visible.any(axis=1).tolist() == [False, False, True, True]
    assert np.isneginf(streamed.logsumexp[0, :20]).all()
    assert not any(number[0, :20].any() for number in streamed.numbers.values())


def test_half_precision_factors_are_computed_in_float32() -> None:
    queries, keys = (torch.randn(2, 50, 8).bfloat16() for _ in range(2))
    half = stream(DeviceFactors(queries, keys, (0, 1), 0.3), 10, 10)
    single = stream(DeviceFactors(queries.float(), keys.float(), (0, 1), 0.3), 10, 10)
    np.testing.assert_array_equal(half.overview.mean, single.overview.mean)


def test_progress_counts_bands_and_an_interrupt_in_it_ends_the_pass() -> None:
    seen: list[tuple[int, int]] = []
    stream(DeviceFactors.of(factored().factors), 7, 9, progress=lambda done, count: seen.append((done, count)))
    assert seen == [(done, len(seen)) for done in range(1, len(seen) + 1)]

    def interrupt(done: int, count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream(DeviceFactors.of(factored().factors), 7, 9, progress=interrupt)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_heads_on_two_threads_are_those_of_one_and_leave_torch_its_threads() -> None:
    factors, seen = DeviceFactors.of(factored(**CASES["padding"]).factors), []
    found = stream(factors, 7, 9, numbers=NUMBERS, progress=lambda done, count: seen.append((done, count)))
    assert torch.get_num_threads() == 2
    assert seen == [(done, len(seen)) for done in range(1, len(seen) + 1)]
    torch.set_num_threads(1)
    alone = stream(factors, 7, 9, numbers=NUMBERS)
    np.testing.assert_array_equal(found.overview.mean, alone.overview.mean)
    np.testing.assert_array_equal(found.numbers["distance"], alone.numbers["distance"])


@pytest.mark.usefixtures("two_threads")
def test_an_interrupt_ends_every_worker() -> None:
    def interrupt(done: int, count: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        stream(DeviceFactors.of(factored().factors), 7, 9, progress=interrupt)
    assert torch.get_num_threads() == 2
    assert threading.active_count() == before


def test_refuses_an_unknown_number() -> None:
    with pytest.raises(AttnvizError, match="unknown number 'luck'; entropy, peak, distance, first, self"):
        stream(DeviceFactors.of(factored().factors), 7, 9, numbers=("luck",))
