"""Lays out and draws sounds: their envelope above a map of frames, or above the weights of one query, for each head."""

from typing import TYPE_CHECKING

import numpy as np

from attnviz.media.sound import Sound
from attnviz.render.figure.arcs_and_text import Content, PlacedImage, TokenLayout, token_layout
from attnviz.render.figure.bars import Box
from attnviz.render.figure.picture import Picture, page_size
from attnviz.render.figure.ruler import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.render.figure.text_blocks import TextLine
from attnviz.render.figure.theme import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnviz.report.picture.panels import Panel

HEIGHT, GAP = 0.9, 0.3  # inches of a sound, with its seconds, and between two
WIDTH = 8.0  # inches, where the page has space for them
LARGEST_FONT = 14.0  # points, at which sounds have this width
MAX_GROWTH = 2.4  # of the height on a page with space
MARGIN = 0.2  # inches at least to the edge of the page, where labels of seconds extend beyond the sound
TITLE_POINTS, TICK_POINTS, MAX_TICK_POINTS = 10.0, 8.0, 12.0
ENVELOPE_SHARE, SECONDS_SHARE = 0.5, 0.24  # of the height; the weights have what remains


def arrange_sounds(picture: Picture, ruler: Ruler) -> TokenLayout:
    """Returns the layout of a sound for each head, as wide as the page allows, and the colour bar."""
    return token_layout(picture, _sounds_content, ruler)


def draw_sound(matplotlib_figure: "Figure", placed_sound: PlacedImage, layout: TokenLayout, theme: Theme) -> None:
    """Draws the envelope of a sound, the weights of its frames below, and an axis of seconds at the bottom."""
    box, panel = placed_sound.box, placed_sound.panel
    weights_share = 1 - ENVELOPE_SHARE - SECONDS_SHARE
    bottoms_and_heights = ((SECONDS_SHARE, weights_share), (SECONDS_SHARE + weights_share, ENVELOPE_SHARE))
    weights_axes, envelope_axes = (
        matplotlib_figure.add_axes(
            (
                box.x / layout.width,
                (box.y + bottom * box.height) / layout.height,
                box.width / layout.width,
                share * box.height / layout.height,
            ),
            facecolor="none",
        )
        for bottom, share in bottoms_and_heights
    )
    seconds = _draw_weights(weights_axes, panel)
    _draw_envelope(envelope_axes, panel, seconds, theme)
    for axes in (weights_axes, envelope_axes):
        axes.set(xlim=seconds, yticks=[])
        for spine in axes.spines.values():
            spine.set_visible(False)
    envelope_axes.set_xticks([])
    points = min(MAX_TICK_POINTS, TICK_POINTS * box.height / HEIGHT)  # the height has the scale of the page
    weights_axes.tick_params(axis="x", colors=theme["faint"], labelsize=points, length=2, width=0.6)
    weights_axes.xaxis.set_major_formatter("{x:g} s")


def _draw_weights(axes: "Axes", panel: "Panel") -> tuple[float, float]:
    """Draws the colour of each frame's weight, and returns the seconds at which the first begins and the last ends."""
    sound, places = panel.columns.canvas, panel.columns.places
    assert isinstance(sound, Sound)
    assert places is not None
    is_in_sound = places[:, 1] > places[:, 0]  # a frame of padding has no samples
    edges = np.append(places[is_in_sound, 0], places[is_in_sound, 1][-1:]) / sound.rate
    colors = panel.scale.rgb(panel.levels)[0, is_in_sound] / 255
    axes.pcolorfast(edges, np.array([0.0, 1.0]), colors[None])
    return float(edges[0]), float(edges[-1])


def _sounds_content(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    margin = max(0.0, MARGIN * scale - page_size(picture.look).margin)
    sound_width = min(width, WIDTH * points / LARGEST_FONT)
    height = HEIGHT * scale * min(MAX_GROWTH, max(1.0, points / (LARGEST_FONT * scale)))
    title_points = TITLE_POINTS * scale
    line_height = title_points * LINE_HEIGHT / POINTS_PER_INCH
    sounds, lines = [], []
    for panel_index, panel in enumerate(picture.panels):
        y = -panel_index * (line_height + height + GAP * scale)
        lines.append(
            TextLine(
                margin, y, ruler.cut(panel.title, title_points, sound_width - 2 * margin), title_points, faint=False
            )
        )
        sounds.append(PlacedImage(Box(margin, y - line_height - height, sound_width - 2 * margin, height), panel))
    total = len(picture.panels) * (line_height + height) + (len(picture.panels) - 1) * GAP * scale
    return Content(width=sound_width, height=total, words=(), lines=tuple(lines), images=tuple(sounds))


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
    _draw_envelope(axes, panel, (first, last), theme)
    axes.set_xlim(first, last)


def _draw_envelope(axes: "Axes", panel: "Panel", seconds: tuple[float, float], theme: Theme) -> None:
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
