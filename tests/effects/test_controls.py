"""Random sets of heads: matched by layer where that is possible, different, the same in each call; and their rank."""

import numpy as np
import pytest

from attnviz.effects.controls import random_sets, rank_p
from attnviz.text.head_name import HeadName

HEADS = [HeadName(layer, head) for layer in range(6) for head in range(4)]


@pytest.mark.parametrize(
    ("names", "count", "drawn", "layers"),
    [
        ([(2, 0)], 3, 3, {2}),  # each of the three others of the layer
        ([(2, 0)], 5, 5, {1, 2, 3}),  # which are too few here
        ([(0, 0), (3, 1)], 9, 9, {0, 3}),
        ([(0, 0), (3, 1)], 12, 12, {0, 1, 2, 3, 4}),
        ([(1, 0), (1, 1)], 1, 1, {1}),
        ([(2, 0), (2, 1), (2, 2)], 20, 20, {1, 2, 3}),  # one other of this layer
        ([(5, 3)], 40, 23, set(range(6))),  # all that there are
        ([(layer, head) for layer in range(3) for head in range(4)], 3, 1, {3, 4, 5}),
        ([(layer, head) for layer in range(4) for head in range(4)], 3, 0, set()),  # eight others are not sixteen
        ([(2, 0)], 0, 0, set()),
    ],
)
def test_as_many_other_heads_are_drawn_from_the_same_layers_or_the_nearest(
    names: list[tuple[int, int]], count: int, drawn: int, layers: set[int]
) -> None:
    heads = tuple(HeadName(*name) for name in names)
    sets = random_sets(heads, HEADS, count)
    assert len(sets) == len({frozenset(each) for each in sets}) == drawn
    assert all(len(set(each)) == len(heads) and not set(each) & set(heads) for each in sets)
    assert {head.layer for each in sets for head in each} <= layers
    assert sets == random_sets(heads, reversed(HEADS), count)


def test_heads_of_another_part_come_last() -> None:
    cross = [head._replace(part="cross") for head in HEADS]
    assert {head.part for each in random_sets((cross[0],), HEADS + cross, 23) for head in each} == {"cross"}
    assert {head.part for each in random_sets((cross[0],), HEADS + cross, 30) for head in each} == {"cross", ""}


def test_p_counts_the_effect_itself_among_its_controls() -> None:
    assert rank_p(2.0, np.array([1.0, 1.5, 1.9])) == 1 / 4
    assert rank_p(1.5, np.array([1.0, 1.5, 1.9])) == 3 / 4
    assert rank_p(1.5, np.zeros(0)) == 1
