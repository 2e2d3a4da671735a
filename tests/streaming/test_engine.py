"""Both engines give the overview of the dense computation, for every rule, at ragged edges, and in hard numbers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.attention.mask import Mask
from attnviz.base.arrays import Float64Array
from attnviz.base.machine import pooling_device
from attnviz.streaming import overview
from attnviz.streaming.engine import overview_of, write_product
from attnviz.streaming.fused_pass import DeviceFactors
from attnviz.streaming.overview import Factors, Overview, TilePlan, block_edges
from tests import room
from tests.maps.examples import (
    ALL,
    CASES,
    HEADS,
    KEYS,
    QUERIES,
    dense_of,
    factored,
    same_overview,
    softmax,
    tolerance,
    with_factors,
)
from tests.today import todays

WHOLE = slice(0, QUERIES), slice(0, KEYS)
engines = pytest.mark.parametrize("device", [None, "cpu"], ids=["numpy", "torch"])
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(overview.TILE, "cpu", (16, 24))
    monkeypatch.setattr(overview, "MAX_RUN", 5)


def pooled(factors: Factors, height: int, width: int, maximum: bool = True) -> Overview:
    queries, keys = (slice(0, array.shape[1]) for array in (factors.queries, factors.keys))
    return overview_of(factors, range(len(factors.key_heads)), (height, width), queries, keys, maximum)


@engines
@cases
@pytest.mark.parametrize(
    "block", todays([(7, 9, ALL, ALL), (5, 11, slice(3, 70), slice(10, 77)), (70, 4, ALL, ALL)], one_in=3)
)
def test_overview_is_the_dense_one_pixel_by_pixel(case: dict[str, Any], block: Any, device: str | None) -> None:
    maps = with_factors(factored(**case), device=device)
    same_overview(maps.overview((5, 9), *block), dense_of(maps).overview((5, 9), *block), tolerance(maps))


RULES = {
    "causal": Mask(causal=True),
    "causal after cached keys": Mask(causal=True, offset=11),
    "first queries before every key": Mask(causal=True, offset=-9),
    "window": Mask(causal=True, window=7),
    "window both ways": Mask(window=7, offset=-4),
    "prefix and window": Mask(causal=True, window=6, prefix=3),
    "chunk": Mask(chunk=13),
    "tail": Mask(causal=True, window=7, tail=60),
}


@engines
@pytest.mark.parametrize("size", [(6, 8), (23, 31)])
@pytest.mark.parametrize("tokens", todays([(83, 83), (97, 61), (61, 97)], one_in=3))
@pytest.mark.parametrize("mask", RULES.values(), ids=RULES)
def test_bands_that_end_within_a_tile_hold_what_the_dense_weights_in_float64_do(
    mask: Mask, tokens: tuple[int, int], size: tuple[int, int], device: str | None
) -> None:
    random = np.random.default_rng(1)
    queries, keys = (random.normal(size=(2, count, 5)).astype(np.float32) for count in tokens)
    visible = mask.visible(*(slice(0, count) for count in tokens))
    scores = queries.astype(np.float64) @ keys.astype(np.float64).swapaxes(1, 2) * 0.7
    weights, logsumexp = softmax(scores, visible, None)
    found = pooled(factors_of(queries, keys, 0.7, logsumexp, mask, device), *size)
    rows, columns = (block_edges(count, pixels)[:-1] for count, pixels in zip(tokens, size, strict=True))
    count, total = (_reduced(np.add, cells.astype(np.float64), rows, columns) for cells in (visible, weights))
    np.testing.assert_allclose(found.mean, total / np.maximum(count, 1), atol=1e-5)
    np.testing.assert_allclose(found.maximum, _reduced(np.maximum, weights, rows, columns), atol=1e-5)


def factors_of(
    queries: Any, keys: Any, scale: float, logsumexp: Any, mask: Mask | None = None, device: str | None = None
) -> Factors:
    heads = tuple(range(len(queries)))
    given: dict[str, Any] = {
        "queries": queries,
        "keys": keys,
        "logsumexp": logsumexp,
        "mask": mask or Mask(),
        "device": device,
    }
    return Factors(key_heads=heads, scale=scale, **given)


def _reduced(how: np.ufunc, cells: Any, rows: Any, columns: Any) -> Float64Array:
    reduced: Float64Array = how.reduceat(how.reduceat(cells, rows, axis=-2), columns, axis=-1)
    return reduced


@pytest.mark.parametrize("mask", [Mask(causal=True), Mask(causal=True, window=7), Mask(window=5, offset=9)])
def test_a_band_computes_no_pixel_that_none_of_its_queries_sees(mask: Mask) -> None:
    factors = factors_of(np.ones((1, 83, 3)), np.ones((1, 97, 3)), 1.0, np.zeros((1, 83)), mask)
    made = TilePlan(factors, slice(0, 83), slice(0, 97), (23, 31), maximum=False, tile=(16, 24))
    for band in made.bands:
        seen = mask.visible(band.row.tokens, slice(0, 97)).any(axis=0)
        pixels = np.flatnonzero(np.logical_or.reduceat(seen, made.column_axis.edges[:-1]))
        assert [pixel for tile in band.columns for pixel in range(97)[tile.blocks]] == pixels.tolist()


@pytest.mark.parametrize("mask", [Mask(causal=True), Mask(causal=True, chunk=16, prefix=3)], ids=["along", "chunks"])
def test_forgetting_masks_changes_nothing(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MASK_CACHE_SIZE", 2)
    maps = factored(mask=mask)
    block = ((2, 9), 10, 15, ALL, ALL)
    same_overview(maps.overview(*block), dense_of(maps).overview(*block), 1e-5)


@engines
def test_a_maximum_that_is_not_wanted_is_zero_and_the_mean_is_the_same(device: str | None) -> None:
    factors = replace(factored(mask=Mask(causal=True)).factors, device=device)
    both, mean = (pooled(factors, 10, 15, maximum) for maximum in (True, False))
    np.testing.assert_array_equal(mean.mean, both.mean)
    assert both.maximum.any()
    assert not mean.maximum.any()


@engines
@pytest.mark.parametrize("height", [-1e4, 1e4])
def test_a_score_of_ten_thousand_far_from_the_diagonal_takes_its_row(height: float, device: str | None) -> None:
    queries, keys = np.ones((1, 64, 2), dtype=np.float32), np.zeros((1, 64, 2), dtype=np.float32)
    keys[0, 50] = height / 2
    logsumexp = np.full((1, 64), 1e4 if height > 0 else np.log(63), dtype=np.float32)
    found = pooled(factors_of(queries, keys, 1.0, logsumexp, device=device), 64, 64)
    expected = np.zeros(64) if height > 0 else np.full(64, 1 / 63)
    expected[50] = float(height > 0)
    np.testing.assert_allclose(found.mean[0], np.tile(expected, (64, 1)), atol=1e-6)


@pytest.mark.parametrize("case", ["causal", "padding", "sink", "soft cap"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_however_many_threads_compute_the_pixels_are_the_same(
    case: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = replace(factored(**CASES[case]).factors, device="cpu")
    expected = pooled(factors, 7, 9)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = pooled(factors, 7, 9)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.maximum, expected.maximum)


def test_whole_means_on_an_accelerator_are_left_to_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    factors, kernel = replace(factored(mask=Mask(causal=True)).factors, device="cuda:0"), []

    def suits(held: DeviceFactors) -> bool:
        kernel.append(held)
        return True

    on, expected = DeviceFactors.on_device, pooled(factored(mask=Mask(causal=True)).factors, 7, 9)
    monkeypatch.setattr("attnviz.streaming.engine.pooling_device", lambda name: name)
    monkeypatch.setattr("attnviz.streaming.fused_pass.prefers_kernel", suits)
    monkeypatch.setattr(DeviceFactors, "on_device", lambda device, *rest: on("cpu", *rest))
    np.testing.assert_allclose(pooled(factors, 7, 9, maximum=False).mean, expected.mean, atol=1e-6)
    assert len(kernel) == 1


def test_an_accelerator_without_room_leaves_the_work_to_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [3 * 2**30]
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(mem_get_info=lambda name: (free[0], 0)))
    assert pooling_device("cuda:1") == "cuda:1"
    free[0] = 2**30
    assert pooling_device("cuda:1") == pooling_device("cpu") == pooling_device("mps") == "cpu"


@engines
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_products_are_the_same_by_either_engine(device: str | None, kind: Any) -> None:
    queries, keys = (np.random.default_rng(0).normal(size=(count, 4)).astype(kind) for count in (5, 7))
    keys.setflags(write=False)
    out = np.empty((5, 7), dtype=kind)
    write_product(device, queries, keys, out)
    size = float((np.abs(queries) @ np.abs(keys).T).max())
    np.testing.assert_allclose(out, np.einsum("qf,kf->qk", queries, keys), atol=room.of_sums(size))


def test_heads_that_share_keys_are_in_the_order_asked_for() -> None:
    maps = with_factors(factored(), device="cpu")
    whole = maps.overview(maps.heads, 7, 9, ALL, ALL).mean
    assert len(whole) == HEADS
    np.testing.assert_array_equal(maps.overview((9, 2), 7, 9, ALL, ALL).mean, whole[[3, 0]])
