"""Biases are what the papers' own code adds to the scores."""

import numpy as np

from attnviz.attention.bias import Bias
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


def test_single_cells_are_those_of_the_block() -> None:
    random = np.random.default_rng(0)
    bias = Bias(
        relative=random.random((3, 11), dtype=np.float32),
        origin=4,
        by_key=random.random((3, 7), dtype=np.float32),
        explicit=random.random((3, 5, 7), dtype=np.float32),
    )
    queries, keys = np.indices((5, 7)).reshape(2, -1)
    whole = bias.block([2, 0], slice(0, 5), slice(0, 7))
    np.testing.assert_array_equal(bias.of_cells([2, 0], queries, keys), whole.reshape(2, -1))
    np.testing.assert_array_equal(bias.block([2, 0], slice(1, 4), slice(2, 6)), whole[:, 1:4, 2:6])
    assert whole[1, 4, 1] == bias.relative[0, 1] + bias.by_key[0, 1] + bias.explicit[0, 4, 1]  # type: ignore[index]
    assert bias
    assert not Bias()
