"""A mask's shortcuts (counts, coverage, reach, single cells) say what its cells say."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.attention.mask import Mask
from attnviz.base.errors import AttnvizError

QUERIES, KEYS = 13, 17


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 9)),
        chunk=draw(st.none() | st.integers(1, 9)),
        prefix=draw(st.integers(0, 4)),
        offset=draw(st.integers(0, 6)),
        padding=draw(st.sampled_from([None, random.random(KEYS) > 0.3])),
        explicit=draw(st.sampled_from([None, None, random.random((QUERIES, KEYS)) > 0.3])),
    )


def visible_by_hand(mask: Mask, query: int, key: int) -> bool:
    """The rules as their sentences say them, one cell at a time."""
    position = query + mask.offset
    near = mask.window is None or abs(position - key) < mask.window
    same = mask.chunk is None or position // mask.chunk == key // mask.chunk
    allowed = key < mask.prefix or ((not mask.causal or key <= position) and near and same)
    allowed = allowed and (mask.padding is None or bool(mask.padding[key]))
    return allowed and (mask.explicit is None or bool(mask.explicit[query, key]))


@given(masks())
@settings(max_examples=150, deadline=None)
def test_cells_follow_the_rules_and_the_shortcuts_follow_the_cells(mask: Mask) -> None:
    expected = np.array([[visible_by_hand(mask, query, key) for key in range(KEYS)] for query in range(QUERIES)])
    np.testing.assert_array_equal(mask.visible(slice(0, QUERIES), slice(0, KEYS)), expected)
    rows, columns = np.arange(QUERIES)[:, None], np.arange(KEYS)
    np.testing.assert_array_equal(mask.sees(rows, columns), expected)
    row_edges, column_edges = np.array([2, 3, 8, 13]), np.array([1, 2, 9, 10, 17])
    counts = mask.counts(row_edges, column_edges)
    for i, row in enumerate(pairwise(row_edges.tolist())):
        reach = mask.reach(slice(*row), KEYS)
        assert not expected[slice(*row), : reach.start].any()
        assert not expected[slice(*row), reach.stop :].any()
        for j, column in enumerate(pairwise(column_edges.tolist())):
            cells = expected[slice(*row), slice(*column)]
            assert counts[i, j] == cells.sum()
            coverage = mask.coverage(slice(*row), slice(*column))
            assert coverage is None or cells.all() == coverage == cells.any()


def test_a_mask_that_hides_everything_is_refused() -> None:
    with pytest.raises(AttnvizError, match="chunk of 0 tokens hides every key"):
        Mask(chunk=0)


def test_a_key_before_the_first_is_seen_by_no_query() -> None:
    assert Mask().sees(np.arange(3), np.arange(3) - 1).tolist() == [False, True, True]


def test_causal_shows_a_query_its_own_position_and_those_before() -> None:
    visible = Mask(causal=True).visible(slice(0, 3), slice(0, 5))
    assert visible.astype(int).tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
