"""Queries are found among their keys, whatever cache, padding and mask they have."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.api.recording import drawable
from attnviz.attention.mask import Mask
from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.maps.visibility import place_of_first_query, position_of_first_query
from attnviz.text.tokens import Tokens


def real_keys(keys: int, hidden: slice) -> BoolArray:
    is_real = np.ones(keys, dtype=bool)
    is_real[hidden] = False
    return is_real


@pytest.mark.parametrize(
    ("queries", "keys", "mask", "first"),
    [
        (6, 9, Mask(causal=True, offset=3, padding=real_keys(9, slice(7, 9))), 3),
        (6, 9, Mask(padding=real_keys(9, slice(7, 9))), 3),
        (6, 9, Mask(causal=True, offset=3, padding=real_keys(9, slice(3, 5))), 3),
        (6, 9, Mask(causal=True, offset=3, window=2, padding=real_keys(9, slice(6, 9))), 3),
        (6, 9, Mask(causal=True, offset=3, prefix=5), 3),
        (4, 20, Mask(causal=True), 0),
        (4, 20, Mask(causal=True, prefix=3), 0),
        (4, 20, Mask(causal=True, padding=real_keys(20, slice(0, 2))), 0),
        (1, 20, Mask(causal=True, offset=4), 4),
        (6, 8, Mask(causal=True, tail=6), 0),  # keys of several tokens each, after the text's own
        (6, 8, Mask(causal=True, window=3, tail=6), 0),
        (5, 5, Mask(causal=True), 0),
        (7, 3, Mask(), -4),
    ],
)
def test_first_query_is_found_by_the_rules_and_by_the_cells(queries: int, keys: int, mask: Mask, first: int) -> None:
    assert position_of_first_query(mask.last_keys(queries, keys), keys) == first
    assert place_of_first_query(mask.visible(slice(0, queries), slice(0, keys))) == first


def table_of(weights: FloatArray, visible: BoolArray) -> dict[str, NDArray[Any]]:
    heads, queries, keys = weights.shape
    maps = DenseMaps(
        layer=0,
        module="layers.0",
        heads=tuple(range(heads)),
        query_tokens=Tokens.numbered(queries),
        key_tokens=Tokens.numbered(keys),
        scores=weights,
        weights=weights,
        visible=visible,
    )
    return drawable(Recording(maps=(maps,), model="a test")).head_table()


@pytest.mark.parametrize("causal", [True, False])
def test_numbers_after_a_cache_are_the_same_however_far_the_text_is_padded(causal: bool) -> None:
    cached, count, padding, random = 3, 7, 4, np.random.default_rng(2)
    visible = np.tri(count, cached + count, cached if causal else count + cached, dtype=bool)
    weights = random.dirichlet(np.ones(cached + count) / 4, (2, count)) * visible + 1e-9 * visible
    weights /= weights.sum(axis=-1, keepdims=True)
    widths = [(0, padding), (0, padding)]
    seen = np.pad(visible, widths)
    seen[count:, : cached + count] = True  # padding looks at the text, and nothing looks at padding
    padded = np.pad(weights, [(0, 0), *widths])
    padded[:, count:] = seen[count:] / seen[count:].sum(axis=-1, keepdims=True)
    alone, found = (table_of(cells.astype(np.float32), mask) for cells, mask in ((weights, visible), (padded, seen)))
    numbers = [name for name, values in alone.items() if values.dtype.kind == "f"]
    assert "previous" in numbers
    for name in numbers:
        np.testing.assert_allclose(found[name], alone[name], atol=1e-5, err_msg=name)
