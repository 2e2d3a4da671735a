"""FactoredMaps give what a dense computation in float64 gives, for every rule that a score may follow."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.attention.bias import Bias
from attnviz.base.errors import AttnvizError
from attnviz.maps.factored import FactoredMaps
from tests.attention.biases import alibi_bias
from tests.maps.examples import ALL, CASES, KEYS, QUERIES, dense_of, factored, tolerance, with_factors

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cases
def test_any_window_is_what_the_dense_computation_gives(case: dict[str, Any]) -> None:
    maps = factored(**case)
    for queries, keys in ((ALL, ALL), (slice(31, 53), slice(2, 60)), (slice(69, 70), slice(89, 90))):
        window, expected = (each.window((9, 2), queries, keys) for each in (maps, dense_of(maps)))
        np.testing.assert_allclose(window.scores, expected.scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(window.weights, expected.weights, atol=tolerance(maps))
        np.testing.assert_array_equal(window.visible, expected.visible)
    assert not maps.window((2,), ALL, ALL).weights[0][~expected_visible(maps)].any()


def expected_visible(maps: FactoredMaps) -> NDArray[np.bool_]:
    return maps.factors.mask.visible(slice(0, QUERIES), slice(0, KEYS))


def test_refuses_factors_whose_shapes_disagree() -> None:
    maps = factored()
    with pytest.raises(AttnvizError, match=r"layer 3: keys has shape \(1, 90, 6\), not \(2, 90, 6\)"):
        with_factors(maps, keys=maps.factors.keys[:1])
    with pytest.raises(AttnvizError, match="layer 3: 4 heads, but key_heads has 3 entries; give one per head"):
        with_factors(maps, key_heads=(0, 0, 1))
    with pytest.raises(AttnvizError, match=r"'by_key' of shape \(4, 9\) does not fit 4 heads, 70 queries and 90 keys"):
        with_factors(maps, bias=Bias(by_key=np.zeros((4, 9), dtype=np.float32)))
    with pytest.raises(AttnvizError, match="bias 'relative' of shape"):
        with_factors(maps, bias=alibi_bias(np.ones(4, dtype=np.float32), 8, KEYS))


@cases
def test_scores_alone_are_those_of_the_window(case: dict[str, Any]) -> None:
    maps = factored(**case)
    block = ((9, 2), slice(3, 40), slice(11, 90))
    np.testing.assert_array_equal(maps.scores_of(*block), maps.window(*block).scores)
    dense = dense_of(maps)
    np.testing.assert_array_equal(dense.scores_of(*block), dense.window(*block).scores)
