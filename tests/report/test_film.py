"""Films: the pictures share the colour scales that their titles and remarks name."""

from dataclasses import replace

import pytest

from attnviz.maps.recording import Recording
from attnviz.report.film import film_of_recordings
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.scales import with_limits
from attnviz.text.tokens import Tokens
from tests.conftest import random_maps

RECORDINGS = [
    Recording(maps=(random_maps(Tokens.numbered(40), heads=2, seed=seed, causal=True),), model="a test")
    for seed in (1, 2)
]


@pytest.mark.parametrize(("limits", "scale_count"), [("shared", 1), ("head", 2)])
def test_pictures_of_a_film_share_one_scale_or_one_for_each_head(limits: str, scale_count: int) -> None:
    frames = film_of_recordings(RECORDINGS, ["a", "b"], ReportOptions(look=Look(limits=limits))).frames
    first, second = (frame.panels for frame in frames)
    assert [panel.scale for panel in first] == [panel.scale for panel in second]
    assert len({panel.scale for panel in first}) == scale_count
    for panels in zip(first, second, strict=True):
        largest = max(panel.peak for panel in panels)
        assert panels[0].scale.high == pytest.approx(largest) or limits == "shared"
        assert [panel.heading == with_limits(panel).heading for panel in panels] == [limits == "head"] * 2
        assert panels[0].scale.clipped, "the first row has one key, whose weight of 1 is above the scale"


def test_scale_of_a_film_that_reaches_all_its_pictures_is_not_clipped() -> None:
    open_maps = [Recording(maps=(random_maps(Tokens.numbered(5), heads=2, seed=seed),), model="a") for seed in (1, 2)]
    frames = film_of_recordings(open_maps, ["a", "b"], ReportOptions(look=replace(Look(), limits="head"))).frames
    assert not any(panel.scale.clipped for frame in frames for panel in frame.panels)
