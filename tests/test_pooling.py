"""Tiles to pixels: by numpy alone and beside torch, and with masks remembered from head to head."""

import sys

import numpy as np
import pytest

from attnviz import pooling
from attnviz.masks import Mask
from attnviz.pooling import product
from tests.test_maps_factored import ALL, dense_of, factored, same_overview


@pytest.mark.parametrize("loaded", [True, False], ids=["torch", "numpy"])
def test_product_is_the_same_with_torch_and_without(loaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not loaded:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    random = np.random.default_rng(0)
    keys, queries = (random.normal(size=(count, 4)).astype(np.float32) for count in (5, 7))
    out = np.empty((5, 7), dtype=np.float32)
    product(keys, queries, out)
    np.testing.assert_allclose(out, np.einsum("kf,qf->kq", keys, queries), atol=1e-6)


@pytest.mark.parametrize("mask", [Mask(causal=True), Mask(causal=True, chunk=16, prefix=3)], ids=["along", "chunks"])
def test_forgetting_masks_changes_nothing(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("ROWS", 8), ("COLUMNS", 8), ("LONGEST", 3), ("MOST_SEEN", 2)):
        monkeypatch.setattr(pooling, name, number)
    maps = factored(mask=mask)
    block = ((2, 9), 10, 15, ALL, ALL)
    same_overview(maps.overview(*block), dense_of(maps).overview(*block), 1e-5)
