"""Draws the envelope of a sound: above its weights, or in a strip above a map whose columns are its frames."""

from typing import TYPE_CHECKING

import numpy as np

from attnviz.media.sound import Sound
from attnviz.render.figure.theme import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnviz.report.picture.panels import Panel

STRIP_HEIGHT = 0.4  # inches of the envelope above a map, in a slide's scale


def strip_height(panels: tuple["Panel", ...]) -> float:
    """Returns the inches above each map for the envelope of its sound, at the scale of a slide; 0 without a sound."""
    return STRIP_HEIGHT if any(panel.columns.seconds is not None for panel in panels) else 0.0


def draw_strip(map_axes: "Axes", panel: "Panel", share: float, theme: Theme) -> None:
    """Draws the envelope of a sound above a map, over the same seconds as its columns.

    Draws nothing if the columns are not frames of a sound.
    """
    if panel.columns.seconds is None:
        return
    start, seconds_per_frame = panel.columns.seconds
    # `start` is the middle of the first frame, and a frame begins half a frame before its middle
    first, last = (
        start + (edge - 0.5) * seconds_per_frame for edge in (panel.columns.edges[0], panel.columns.edges[-1])
    )
    axes = map_axes.inset_axes((0, 1, 1, share))
    axes.set_axis_off()
    draw_envelope(axes, panel, (first, last), theme)
    axes.set_xlim(first, last)


def draw_envelope(axes: "Axes", panel: "Panel", seconds: tuple[float, float], theme: Theme) -> None:
    """Draws the envelope of a sound between two seconds as an area around a middle line, and sets the axes' y
    limits.
    """
    sound = panel.columns.canvas
    assert isinstance(sound, Sound)
    times = (np.arange(len(sound.envelope)) + 0.5) / len(sound.envelope) * sound.seconds
    heights = sound.envelope / 255
    is_shown = (times >= seconds[0]) & (times <= seconds[1])
    axes.fill_between(times[is_shown], -heights[is_shown], heights[is_shown], color=theme["faint"], linewidth=0)
    axes.set_ylim(-1.05, 1.05)  # the loudest sound, 1, stays off the edges
