"""Groups of tokens: their runs, and cells reduced over them."""

import numpy as np
import pytest

from attnviz.text.groups import Groups

SCATTERED = [0, 1, 1, -1, 0, 2, 0]  # group 0 stands at three places


def groups(numbers: list[int]) -> Groups:
    return Groups(np.array(numbers))


def test_runs_are_those_of_every_group_in_order_of_the_tokens() -> None:
    runs = groups(SCATTERED).runs
    assert runs.starts.tolist() == [0, 1, 4, 5, 6]
    assert runs.stops.tolist() == [1, 3, 5, 6, 7]
    assert runs.groups.tolist() == [0, 1, 0, 2, 0]


def test_groups_reach_from_their_first_token_to_their_last() -> None:
    scattered = groups(SCATTERED)
    assert not scattered.in_order
    assert (scattered.starts.tolist(), scattered.stops.tolist()) == ([0, 1, 5], [7, 3, 6])
    assert scattered.sizes.tolist() == [3, 2, 1]


@pytest.mark.parametrize("numbers", [SCATTERED, [-1, 0, 0, 1, 1, 1, 2], [0, 0, -1, 1, -1, 2, 2]], ids=str)
@pytest.mark.parametrize("axis", [1, 2])
def test_reduction_is_that_of_each_group_by_itself(numbers: list[int], axis: int) -> None:
    made = groups(numbers)
    cells = np.random.default_rng(0).normal(size=(2, 7, 7)).take(range(*made.token_span.indices(7)), axis)
    inside = np.array(numbers)[made.token_span]
    expected = [cells.compress(inside == group, axis).sum(axis) for group in range(len(made))]
    np.testing.assert_allclose(made.reduce(np.add, cells, axis), np.stack(expected, axis), atol=1e-12)


def test_axis_without_groups_has_none() -> None:
    assert len(groups([-1, -1])) == 0
    assert len(groups([])) == 0
