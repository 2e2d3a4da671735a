"""Weights summed over groups: as of the whole map, whatever is read at once."""

import numpy as np
import pytest

from attnviz.attention.mask import Mask
from attnviz.maps.visibility import sum_groups
from attnviz.text.groups import Groups
from tests.maps.examples import KEYS, QUERIES, factored

ROWS = np.repeat([0, 1, 2, -1, 3], [1, 30, 20, 4, 15])  # of 70 queries
COLUMNS = np.repeat([-1, 0, 1, 2], [2, 8, 60, 20])  # of 90 keys
SCATTERED = np.arange(QUERIES) % 3


@pytest.mark.parametrize("most", [2**24, 4 * KEYS * 25, 4 * KEYS * 7, 1], ids=["whole", "groups", "bands", "queries"])
@pytest.mark.parametrize("rows", [ROWS, SCATTERED], ids=["runs", "scattered"])
def test_sums_are_those_of_the_whole_map(rows: np.ndarray, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.maps.visibility.MAX_SUMMED_CELLS", most)
    maps = factored(Mask(causal=True))
    sums = maps.group_sums(maps.heads, Groups(rows), Groups(COLUMNS))
    whole = maps.window(maps.heads, slice(0, QUERIES), slice(0, KEYS))
    queries, keys = np.eye(rows.max() + 2)[rows][:, :-1], np.eye(COLUMNS.max() + 2)[COLUMNS][:, :-1]
    np.testing.assert_allclose(sums.weights, np.einsum("hqk,qr,kc->hrc", whole.weights, queries, keys), atol=2e-6)
    np.testing.assert_array_equal(sums.visible, queries.T @ whole.visible @ keys > 0)


def test_heads_that_see_different_cells_are_summed_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.maps.visibility.MAX_SUMMED_CELLS", 10)
    visible = np.array([[[True, False]] * 4, [[False, True]] * 4])
    weights = visible.astype(np.float32)
    groups = Groups(np.array([0, 0, 0, 1])), Groups(np.arange(2))
    sums = sum_groups(lambda queries, keys: (weights[:, queries, keys], visible[:, queries, keys]), 2, *groups)
    np.testing.assert_array_equal(sums.weights, [[[3, 0], [1, 0]], [[0, 3], [0, 1]]])
    np.testing.assert_array_equal(sums.visible, sums.weights > 0)


def test_never_more_is_read_at_once_than_fits_but_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.maps.visibility.MAX_SUMMED_CELLS", 60)
    read = []

    def weights(queries: slice, keys: slice) -> tuple[np.ndarray, np.ndarray]:
        read.append((queries.stop - queries.start) * (keys.stop - keys.start))
        shape = queries.stop - queries.start, keys.stop - keys.start
        return np.ones((1, *shape), dtype=np.float32), np.ones(shape, dtype=bool)

    rows, columns = Groups(np.repeat([0, 1, 2, 3], [1, 2, 40, 1])), Groups(np.repeat([0, 1], [15, 5]))
    sums = sum_groups(weights, 1, rows, columns)
    assert max(read) <= 60
    np.testing.assert_array_equal(sums.weights[0], [[15, 5], [30, 10], [600, 200], [15, 5]])
