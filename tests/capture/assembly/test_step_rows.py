"""Where the rows of a further forward pass may stand in the map of a text."""

import numpy as np
import pytest

from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.assembly.step_rows import StepRows
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.dense import DenseMaps


def cross_call(queries: int, keys: int) -> CapturedCall:
    """Returns a call of cross-attention whose keys have no marks."""
    site = CallSite(0, None, "layers.0", "cross", "layers", "cross")
    fields = {"visible": np.ones((queries, keys), dtype=bool)}
    return CapturedCall(site, (0, 1), (1, 2, queries, keys), None, [None], DenseMaps, [fields])


@pytest.mark.parametrize(("keys", "places"), [(7, [(3, 0, 7)]), (6, [])])
def test_a_place_whose_keys_have_no_marks_is_possible_but_not_proven(
    keys: int, places: list[tuple[int, int, int]]
) -> None:
    found = StepRows.begin(cross_call(3, 7)).places(cross_call(1, keys))
    assert [(place.row, place.column, place.keys) for place in found] == places
    assert not any(place.has_equal_keys for place in found)
