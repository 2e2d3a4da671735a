import numpy as np
import pytest

from attnviz.browse.session.blocks import CellBlock, InspectedHead, LruCache, RefinedBlock, pool
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import View
from attnviz.maps.recording import Recording
from tests.conftest import KEYS, QUERIES, dense_maps

ROWS, COLUMNS = slice(0, QUERIES), slice(0, KEYS)


def block(view: View, causal: bool = False) -> RefinedBlock:
    partner = dense_maps(0, seed=9) if view.difference else None
    return RefinedBlock(InspectedHead(dense_maps(0, causal=causal), 1, partner), view, ROWS, COLUMNS, height=2, width=3)


def test_at_first_each_row_of_cells_is_the_query_in_the_middle_of_its_own() -> None:
    weights = dense_maps(0).weights[1]  # 5 queries in 2 rows of cells: 0 and 1, 2 to 4; 7 keys: 0-1, 2-3, 4-6
    expected = [[weights[query, span].max() for span in (slice(0, 2), slice(2, 4), slice(4, 7))] for query in (1, 3)]
    refined = block(View())
    assert np.allclose(refined.cells.values, expected)
    assert refined.queries_a_row == 3
    assert not refined.is_finished


@pytest.mark.parametrize("view", [View(), View(mean=True), View(scores=True), View(difference=True)])
def test_refined_to_the_end_it_is_the_pooled_block(view: View) -> None:
    refined = block(view, causal=not view.difference)
    while not refined.is_finished:
        refined.advance()
    recording, other = (
        Recording(maps=(maps,), model="a test")
        for maps in (dense_maps(0, causal=not view.difference), dense_maps(0, seed=9))
    )
    session = Session(recording, other if view.difference else None)
    whole = session.panel(1, view, ROWS, COLUMNS, 2, 3, exact=True)
    assert np.allclose(refined.cells.values, whole.values, atol=1e-6)
    assert np.array_equal(refined.cells.visible, whole.visible)
    assert refined.refined_share == 1


def test_what_is_drawn_is_never_half_written() -> None:
    refined = block(View())
    before = refined.cells
    copy = before.values.copy()
    refined.advance()
    assert np.array_equal(before.values, copy)
    assert refined.cells is not before


def test_masked_cells_do_not_count_in_a_pooled_mean() -> None:
    cells = CellBlock(np.array([[2.0, 9.0], [4.0, 9.0]], dtype=np.float32), np.array([[True, False], [True, False]]))
    assert pool(cells, 1, 1, mean=True).values.tolist() == [[3.0]]
    assert pool(cells, 1, 1, mean=False).values.tolist() == [[4.0]]


def test_cache_forgets_what_was_asked_for_longest_ago() -> None:
    cache: LruCache[int] = LruCache(2)
    cache.keep("a", 1)
    cache.keep("b", 2)
    assert cache.get("a", lambda: 0) == 1
    assert cache.get("c", lambda: 3) == 3
    assert (cache.find("a"), cache.find("b"), cache.find("c")) == (1, None, 3)
