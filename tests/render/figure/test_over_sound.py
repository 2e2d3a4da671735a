"""Figures of sounds: maps of few words are high enough, and a row over a sound is larger on a page with space."""

from typing import Any

import pytest

from attnviz.api.drawing import figure
from attnviz.render.figure.grid import MAX_ASPECT_RATIO, MAX_SOUND_RATIO
from tests.metrics.sound_examples import heard_recording


def size_of_axes(**options: Any) -> tuple[float, float]:
    """Returns width and height in inches of the first axes of the figure of head 0.0."""
    drawn = figure(heard_recording(), heads="0.0", **options)
    box, (width, height) = drawn.axes[0].get_position(), drawn.get_size_inches()
    return box.width * width, box.height * height


@pytest.mark.parametrize("options", [{}, {"size": "16:9"}])
def test_map_over_frames_is_high(options: dict[str, str]) -> None:
    width, height = size_of_axes(**options)
    assert width / height == pytest.approx(MAX_SOUND_RATIO, rel=0.1)
    assert MAX_SOUND_RATIO < MAX_ASPECT_RATIO


def test_row_over_a_sound_grows_with_the_page() -> None:
    _, small = size_of_axes(query="fellow")
    _, large = size_of_axes(query="fellow", size="16:9")
    assert large > 1.5 * small
