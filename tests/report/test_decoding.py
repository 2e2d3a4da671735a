"""What an answer loses without units, in words."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.recording import Recording
from attnviz.metrics.unit_shares import UnitChecks
from attnviz.render.formats import options_for_medium
from attnviz.report.decoding import units_report
from attnviz.report.picture.options import ReportOptions

CHECKS = UnitChecks(
    by="passages",
    heads=("0.1",),
    last="answer",
    units=("a.txt", "b.txt", "c.txt"),
    tokens=np.array([3, 4, 5]),
    shares=np.array([0.5, 0.2, 0.1]),
    lifts=np.array([1.5, 0.6, 0.3]),
    strongest=np.array([0.4, 0.2, 0.1]),
    calibrated=None,
    reversed=None,
    lost=np.zeros(3),
    log_probability=-2.0,
    written=4,
)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ([0.1, 0.3, -0.2], "{}“b.txt” its log-probability falls by 0.30 nats, the most of 3 passages."),
        ([0.1, np.nan, np.nan], "{}“a.txt” its log-probability falls by 0.10 nats."),
        ([-0.1, np.nan, -0.2], "nothing; {}“a.txt” its log-probability rises by 0.10 nats, the least of 2 passages."),
        ([0.0, -0.1, np.nan], "nothing; {}“a.txt” its log-probability stays the same."),
    ],
)
def test_caption_calls_only_a_fall_a_loss(recording: Recording, lost: list[float], said: str) -> None:
    checks = replace(CHECKS, lost=np.array(lost))
    caption = units_report(recording, checks, options_for_medium(ReportOptions(), ".txt")).caption
    assert caption.endswith(f". What it lost: {said.format('without the passage ')}")
