"""Tiles to pixels: by numpy alone and beside torch, and with masks remembered from head to head."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnviz.attention.mask import Mask
from attnviz.base.machine import accelerator
from attnviz.streaming import numpy_pass as pooling
from attnviz.streaming.numpy_pass import powers_of_two, product, reduce_middle
from attnviz.streaming.torch_pass import DeviceFactors
from tests.maps.examples import ALL, CASES, KEYS, QUERIES, dense_of, factored, same_overview


@pytest.mark.parametrize("loaded", [True, False], ids=["torch", "numpy"])
def test_arithmetic_is_the_same_with_torch_and_without(loaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not loaded:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    random = np.random.default_rng(0)
    keys, queries = (random.normal(size=(count, 4)).astype(np.float32) for count in (5, 7))
    out = np.empty((5, 7), dtype=np.float32)
    product(keys, queries, out)
    np.testing.assert_allclose(out, np.einsum("kf,qf->kq", keys, queries), atol=1e-6)
    cells = random.normal(size=(2, 3, 5)).astype(np.float32)
    np.testing.assert_allclose(reduce_middle("sum", cells), np.einsum("kmq->kq", cells), atol=1e-6)
    np.testing.assert_array_equal(reduce_middle("amax", cells), [[column.max() for column in cell.T] for cell in cells])
    np.testing.assert_allclose(powers_of_two(np.array([3, -1, -1e30], dtype=np.float32)), [8, 0.5, 0])


@pytest.mark.parametrize("mask", [Mask(causal=True), Mask(causal=True, chunk=16, prefix=3)], ids=["along", "chunks"])
def test_forgetting_masks_changes_nothing(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("ROWS", 8), ("COLUMNS", 8), ("LONGEST", 3), ("MOST_SEEN", 2)):
        monkeypatch.setattr(pooling, name, number)
    maps = factored(mask=mask)
    block = ((2, 9), 10, 15, ALL, ALL)
    same_overview(maps.overview(*block), dense_of(maps).overview(*block), 1e-5)


@pytest.mark.parametrize("mask", [Mask(causal=True, window=9), Mask(causal=True, prefix=30)], ids=["window", "prefix"])
def test_only_blocks_of_keys_that_are_seen_are_computed(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("ROWS", 8), ("COLUMNS", 8), ("LONGEST", 3)):
        monkeypatch.setattr(pooling, name, number)
    computed: list[tuple[int, ...]] = []

    def counted(keys: Any, queries: Any, out: Any) -> None:
        computed.append(out.shape)
        product(keys, queries, out)

    monkeypatch.setattr(pooling, "product", counted)
    maps = factored(mask=mask)
    maps.overview((9,), 10, 15, ALL, ALL, maximum=False)
    cells = mask.visible(slice(0, QUERIES), slice(0, KEYS)).sum()
    assert cells <= sum(keys * queries for keys, queries in computed) < QUERIES * KEYS


def test_a_maximum_that_is_not_wanted_is_zero_and_the_mean_is_the_same() -> None:
    maps = factored(mask=Mask(causal=True))
    both, mean = (maps.overview((2, 9), 10, 15, ALL, ALL, maximum=maximum) for maximum in (True, False))
    np.testing.assert_array_equal(mean.mean, both.mean)
    assert both.maximum.any()
    assert not mean.maximum.any()


@pytest.mark.parametrize("case", ["causal", "padding", "sink", "soft cap"])
def test_whole_maps_are_pooled_on_the_device_that_the_model_ran_on(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = factored(**CASES[case])
    expected = dense_of(maps).overview((9, 2), 10, 15, ALL, ALL)
    streamed: list[str] = []
    on = DeviceFactors.on

    def followed(device: str, *rest: Any) -> DeviceFactors:
        streamed.append(device)
        return on(device, *rest)

    monkeypatch.setattr(DeviceFactors, "on", followed)
    monkeypatch.setattr("attnviz.maps.factored.accelerator", lambda: "cpu")
    same_overview(maps.overview((9, 2), 10, 15, ALL, ALL), expected, 1e-5)
    maps.overview((9, 2), 5, 5, slice(0, 20), ALL)
    assert streamed == ["cpu"]


def test_no_accelerator_is_looked_for_where_torch_or_cuda_is_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerator() is None
    cuda = SimpleNamespace(is_initialized=lambda: True, mem_get_info=lambda: (3 * 2**30, 0))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert accelerator() == "cuda"
    cuda.mem_get_info = lambda: (2**30, 0)
    assert accelerator() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert accelerator() is None
