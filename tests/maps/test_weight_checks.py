"""A file's weights are checked by a few rows: their range, and their sums within the precision of their numbers."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.dense import DenseMaps
from attnviz.maps.weight_checks import weight_warnings
from tests.conftest import dense_maps
from tests.maps.examples import factored


def maps_with_factor(factor: float) -> DenseMaps:
    """Maps whose weights are those of a softmax times a factor."""
    maps = dense_maps(causal=False)
    return replace(maps, weights=(maps.weights * factor).astype(np.float32))


@pytest.mark.parametrize("factor", [1.0, 0.985, 1.015])
def test_sums_within_the_precision_of_half_are_no_reason_to_warn(factor: float) -> None:
    assert weight_warnings([maps_with_factor(factor)]) == ()


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_rows_that_do_not_sum_to_one_are_said_with_their_sums(factor: float) -> None:
    (warning,) = weight_warnings([maps_with_factor(factor)])
    assert f"{factor:.3g}" in warning


@pytest.mark.parametrize(("cell", "warned"), [(1.0009, False), (1.01, True), (-0.0009, False), (-0.01, True)])
def test_weights_outside_of_0_to_1_are_said(cell: float, warned: bool) -> None:
    maps = dense_maps(causal=False)
    weights = np.zeros_like(maps.weights)
    weights[..., 0], weights[..., 1] = cell, 1 - cell
    warnings = weight_warnings([replace(maps, weights=weights)])
    assert any("from 0 to 1" in warning for warning in warnings) == warned


def test_rows_of_factors_rounded_to_bfloat16_may_differ_more() -> None:
    maps = factored()
    logsumexp = np.asarray(maps.factors.logsumexp) + np.float32(np.log(1.1))  # every row sums to 1 / 1.1
    shifted = replace(maps, factors=replace(maps.factors, logsumexp=logsumexp))
    assert len(weight_warnings([shifted])) == 1
    assert weight_warnings([replace(shifted, rounding=2.0**-8)]) == ()
