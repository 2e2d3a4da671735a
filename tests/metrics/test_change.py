"""How much two rows of weights differ, worked by hand."""

import numpy as np
import pytest

from attnviz.base.arrays import Float64Array
from attnviz.metrics.change import jensen_shannon, total_variation

ONE = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
OTHER = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.2, 0.3, 0.5]])


def test_total_variation_is_half_of_the_sum_of_differences() -> None:
    np.testing.assert_allclose(total_variation(ONE, OTHER), [1, 0.5, 0])


def test_divergence_of_rows_without_a_common_key_is_one_bit_and_of_equal_rows_none() -> None:
    np.testing.assert_allclose(jensen_shannon(ONE, OTHER), [1, 0.5, 0])


def test_divergence_is_the_entropy_of_the_mean_less_the_mean_entropy() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(7), size=(2, 5))

    def entropy(row: Float64Array) -> Float64Array:
        return np.asarray(-(row * np.log2(row)).sum(axis=-1))

    expected = entropy(rows.mean(axis=0)) - entropy(rows).mean(axis=0)
    assert jensen_shannon(*rows) == pytest.approx(expected)
