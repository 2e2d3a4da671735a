"""A mask's shortcuts (counts, coverage, reach, single cells) say what its cells say."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.attention.mask import Bias, Mask
from attnviz.base.errors import AttnvizError
from tests.attention.biases import alibi_bias, bucket_of


def test_alibi_is_minus_slope_times_distance() -> None:
    bias = alibi_bias(np.array([1, 0.25], dtype=np.float32), queries=2, keys=3, offset=1)
    assert bias.block([1, 0], slice(0, 2), slice(0, 3)).tolist() == [
        [[-0.25, 0, -0.25], [-0.5, -0.25, 0]],
        [[-1, 0, -1], [-2, -1, 0]],
    ]


def test_buckets_are_those_that_transformers_gives_t5() -> None:
    distances = np.array([-300, -128, -60, -16, -15, -9, -8, -7, -1, 0, 1, 7, 8, 9, 15, 16, 60, 128, 300])
    encoder = [15, 15, 13, 10, 9, 8, 8, 7, 1, 0, 17, 23, 24, 24, 25, 26, 29, 31, 31]
    decoder = [31, 31, 26, 16, 15, 9, 8, 7, 1, *[0] * 10]
    assert bucket_of(distances, 32, True, 128).tolist() == encoder
    assert bucket_of(distances, 32, False, 128).tolist() == decoder


def test_a_part_of_a_block_has_the_numbers_of_the_whole() -> None:
    random = np.random.default_rng(0)
    bias = Bias(
        relative=random.random((3, 11), dtype=np.float32),
        origin=4,
        by_key=random.random((3, 7), dtype=np.float32),
        explicit=random.random((3, 5, 7), dtype=np.float32),
    )
    whole = bias.block([2, 0], slice(0, 5), slice(0, 7))
    np.testing.assert_array_equal(bias.block([2, 0], slice(1, 4), slice(2, 6)), whole[:, 1:4, 2:6])
    assert whole[1, 4, 1] == bias.relative[0, 1] + bias.by_key[0, 1] + bias.explicit[0, 4, 1]  # type: ignore[index]
    assert bias
    assert not Bias()


QUERIES, KEYS = 13, 17


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 9)),
        chunk=draw(st.none() | st.integers(1, 9)),
        prefix=draw(st.integers(0, 4)),
        tail=draw(st.none() | st.integers(0, KEYS)),
        offset=draw(st.integers(0, 6)),
        padding=draw(st.sampled_from([None, random.random(KEYS) > 0.3])),
        explicit=draw(st.sampled_from([None, None, random.random((QUERIES, KEYS)) > 0.3])),
    )


def visible_by_hand(mask: Mask, query: int, key: int) -> bool:
    """The rules as their sentences say them, one cell at a time."""
    position = query + mask.offset
    near = mask.window is None or abs(position - key) < mask.window
    same = mask.chunk is None or position // mask.chunk == key // mask.chunk
    is_in_tail = mask.tail is not None and key >= mask.tail
    allowed = key < mask.prefix or is_in_tail or ((not mask.causal or key <= position) and near and same)
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
