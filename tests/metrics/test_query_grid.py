"""Places of a grid of queries among its keys."""

import numpy as np

from attnviz.metrics.query_grid import CountedCells, NumberedTokens, QueryGrid
from attnviz.text.tokens import Tokens


def grid_of(queries: int, keys: int, start: int, shown: int) -> QueryGrid:
    """A causal grid of ``shown`` queries from ``start`` on, as wide as its last query sees."""
    visible = np.tri(queries, keys, keys - queries, dtype=bool)[start : start + shown]
    width = int(visible.any(axis=0).sum())
    return QueryGrid(
        visible=visible[:, :width],
        visible_keys=np.ones(keys, dtype=bool),
        start=start,
        query_tokens=NumberedTokens(Tokens.numbered(queries)),
        key_tokens=NumberedTokens(Tokens.numbered(keys)),
        cross=False,
    )


def test_first_hidden_key_is_the_first_that_not_all_queries_see() -> None:
    assert grid_of(5, 5, 2, 3).first_hidden == 3
    assert grid_of(5, 5, 2, 1).first_hidden == 3


def test_cells_of_each_query_begin_at_its_first() -> None:
    picked = CountedCells((6, 5), picked=(np.array([0, 0, 2, 2, 2, 5]), np.array([0, 3, 1, 2, 4, 0])))
    assert picked.starts.tolist() == [0, 2, 5]
    assert CountedCells((6, 5), np.ones((6, 5), dtype=bool)).starts.tolist() == []
