"""The colour scale that panels share."""

from dataclasses import replace

import numpy as np

from attnviz.maps.recording import Recording
from attnviz.report.panels import CHANGE, PERCENT, SCORE
from attnviz.report.scales import shared_scale
from attnviz.text.selection import Selection
from tests.conftest import KEYS, QUERIES, dense
from tests.report.examples import report_of


def test_all_panels_share_one_scale_from_zero_to_the_largest_weight(recording: Recording) -> None:
    scales = {panel.scale for panel in report_of(recording).panels}
    largest = max(float(dense(recording, layer).weights.max()) for layer in (0, 1))
    assert [(scale.low, scale.high) for scale in scales] == [(0.0, largest)]


def test_masked_cells_never_set_the_scale(causal_recording: Recording) -> None:
    maps = dense(causal_recording)
    scores = np.where(maps.visible, maps.scores, -1e9).astype(np.float32)
    masked = replace(causal_recording, maps=(replace(maps, scores=scores),))
    assert report_of(masked, table="scores").panels[0].scale.low > -10


def test_scale_of_changes_is_centred_on_zero(recording: Recording) -> None:
    [panel] = report_of(recording, selection=Selection.parse(heads="0.0")).panels
    values = np.array([[-0.5, 0.2]], dtype=np.float32)
    change = replace(panel, values=values, visible=np.ones((1, 2), dtype=bool), quantity=CHANGE)
    scale = shared_scale(CHANGE, [change])
    assert (scale.low, scale.high) == (-0.5, 0.5)


def test_scale_holds_where_nothing_differs(recording: Recording) -> None:
    [panel] = report_of(recording, selection=Selection.parse(heads="0.0")).panels
    flat = replace(panel, values=np.zeros((QUERIES, KEYS), dtype=np.float32))
    hidden = replace(panel, visible=np.zeros((QUERIES, KEYS), dtype=bool))
    for quantity in (PERCENT, SCORE, CHANGE):
        for one in (flat, hidden):
            scale = shared_scale(quantity, [one])
            assert scale.low < scale.high
