"""Lays out and draws images and sounds with the weights of one query over them, one for each head."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np

from attnviz.media.sound import Sound
from attnviz.render.figure.page import IMAGE_SIZES, Box, Content, PlacedPanel, TextLine, fitting_title
from attnviz.render.figure.picture import PageSize, Theme
from attnviz.render.figure.words import LINE_HEIGHT, POINTS_PER_INCH, ROUNDING_INCHES, Ruler
from attnviz.render.terminal.maps import ROUND_SECONDS
from attnviz.report.picture.overlays import band_tops, outline_segments, panel_image, query_box
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import DrawnReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnviz.render.figure.own_figure import OwnFigure

SIDE = 3.6  # inches: width of an image in 14 points, where the page has space for it
LARGEST_FONT = 14.0  # points, at which images and sounds have these widths
MAX_TITLE_POINTS = 11.0  # most points of a head's title
MIN_TITLE_POINTS, SMALLEST_POINTS = 6.0, 3.5  # of titles that are cut, and of the names of heads over tiny images
AXIS_POINTS = 8.0  # of seconds and bands of a spectrogram
IMAGE_GAP = 0.18  # inches between images
MAX_GAP_SHARE = 0.15  # of the space of an image, where images are small
MAX_ACROSS, MAX_LAYER_ACROSS = 6, 16  # images side by side: in general, and if they are the heads of one layer
MAX_ROW_ACROSS = 24  # heads of several layers side by side
MAX_IMAGE_TITLE_LINES = 2
MIN_LINE_SHARE = 0.75  # of the largest letters; titles whose letters would be smaller have two lines
MIN_ACROSS = 4  # images side by side, if so many leave no more space empty than rows that form a square
OUTLINE_POINTS, QUERY_POINTS = 1.2, 2.0  # line widths over images of half the largest width or more
MIN_LINE_SIZE = 0.4  # of these widths, over small images
SOUND_HEIGHT, SOUND_GAP = 0.9, 0.3  # inches of a sound, with its seconds, and between two
SOUND_WIDTH = 8.0  # inches, where the page has space for them
MAX_GROWTH = 2.4  # of the height on a page with space
SOUND_MARGIN = 0.2  # inches at least to the edge of the page, where labels of seconds extend beyond the sound
SOUND_TITLE_POINTS, TICK_POINTS, MAX_TICK_POINTS = 10.0, 8.0, 12.0
ENVELOPE_SHARE, SECONDS_SHARE = 0.5, 0.24  # of the height; the weights have what remains


def draw_image(matplotlib_figure: "OwnFigure", placed: PlacedPanel, theme: Theme) -> None:
    """Draws an image under its weights, with an outline around marked patches and a frame around the query, if any."""
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D, Bbox, TransformedBbox

    from attnviz.render.figure.own_figure import OverlaidImage

    box, panel = placed.box, placed.panel
    medium, query = panel_image(panel), query_box(panel)
    line_size = min(max(box.width / (SIDE / 2), MIN_LINE_SIZE), 1.0)
    inches = matplotlib_figure.dpi_scale_trans
    area = TransformedBbox(Bbox.from_bounds(box.x, box.y, box.width, box.height), inches)
    # Axes for each image would take four times as long as everything else in a figure of many heads.
    matplotlib_figure.add_artist(OverlaidImage(panel, area))
    x_scale, y_scale = box.width / medium.width, box.height / medium.height
    from_pixels = Affine2D().scale(x_scale, -y_scale).translate(box.x, box.y + box.height) + inches
    if panel.inside is not None and panel.columns.places is not None:
        segments = outline_segments(panel.columns.places, panel.inside)
        codes = [Path.MOVETO, Path.LINETO] * len(segments)  # one path: one for each segment takes far longer
        outline = PathPatch(Path(np.reshape(segments, (-1, 2)), codes), fill=False, edgecolor=theme["ink"])
        outline.set(linewidth=OUTLINE_POINTS * line_size, capstyle="round", transform=from_pixels)
        matplotlib_figure.add_artist(outline)
        outline.set_clip_box(area)
    if query is not None:
        left, top, right, bottom = query
        frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=theme["mark"])
        frame.set(linewidth=QUERY_POINTS * line_size, zorder=3, transform=from_pixels)  # above the outline
        matplotlib_figure.add_artist(frame)


def images_content(picture: DrawnReport, points: float, area: PageSize, ruler: Ruler) -> Content:
    """Returns an image for each head under its title, as large as the area allows, as `arrange_tokens` asks."""
    panels, width, scale = picture.panels, area.width, area.scale
    groups = [panel.group for panel in panels]
    layer_sizes = {len(list(images_of_layer)) for _, images_of_layer in groupby(groups)}
    shape = max(panel_image(panel).height / panel_image(panel).width for panel in panels)
    title_line = MAX_TITLE_POINTS * scale * LINE_HEIGHT / POINTS_PER_INCH

    def largest_width(across: int) -> float:
        """Returns the width of images that fill the height of a fixed page."""
        rows = math.ceil(len(panels) / across)
        return ((area.height + IMAGE_GAP * scale) / rows - IMAGE_GAP * scale - title_line) / shape

    if len(layer_sizes) == 1 and len(set(groups)) > 1 and 1 < max(layer_sizes) <= MAX_LAYER_ACROSS:
        across = max(layer_sizes)
        if area.is_fixed:  # two or more layers in a row where this makes the images of a wide page larger
            across = max(
                range(across, MAX_ROW_ACROSS + 1, across), key=lambda across: min(width / across, largest_width(across))
            )
    else:
        square = math.ceil(math.sqrt(len(groups)))
        fullest = min(range(square, max(MIN_ACROSS, square) + 1), key=lambda across: (-len(groups) % across, -across))
        across = min(len(groups), MAX_ACROSS, fullest)
    gap = min(IMAGE_GAP * scale, MAX_GAP_SHARE * width / across)
    max_width = SIDE * points / LARGEST_FONT
    if area.is_fixed and picture.look.font_size is None:  # the largest size of letters fills the page
        max_width = largest_width(across) * points / (IMAGE_SIZES[0] * scale)
    image_width = min((width - gap * (across - 1)) / across, max_width)
    first_image = panel_image(panels[0])
    heights = [image_width * panel_image(panel).height / panel_image(panel).width for panel in panels]
    # If the shapes of images differ, the space of each is at most a square, or all of them are upright.
    image_height = min(max(heights), max(image_width, min(heights)))
    title_points = _title_points(panels, image_width, scale, ruler)
    short_titles = tuple(panel.heading.shortened().text for panel in panels)
    titles_fit = ruler.longest_width(short_titles, title_points) <= image_width + ROUNDING_INCHES
    max_lines = 1 if titles_fit else MAX_IMAGE_TITLE_LINES
    titles = [fitting_title(panel.heading, title_points, max_lines, image_width, ruler).split("\n") for panel in panels]
    line_height = title_points * LINE_HEIGHT / POINTS_PER_INCH
    title_height = max(map(len, titles)) * line_height
    images, lines = [], []
    for panel_index, (panel, height) in enumerate(zip(panels, heights, strict=True)):
        row, column = divmod(panel_index, across)
        x, y = column * (image_width + gap), -row * (title_height + image_height + gap)
        title = titles[panel_index]
        title_y = y - title_height + len(title) * line_height  # a title of fewer lines stands just above its image
        lines += [
            TextLine(x, title_y - line_index * line_height, text, title_points, faint=False)
            for line_index, text in enumerate(title)
        ]
        smaller = min(1.0, image_height / height)
        box = Box(x, y - title_height - height * smaller, image_width * smaller, height * smaller)
        images.append(PlacedPanel(panel, box))
    rows = math.ceil(len(panels) / across)
    body = Content(
        width=image_width * across + gap * (across - 1),
        height=(title_height + image_height) * rows + gap * (rows - 1),
        points=points,
        lines=tuple(lines),
        panels=tuple(images),
    )
    return _with_axes(body, AXIS_POINTS * scale, ruler) if first_image.seconds else body


def _title_points(panels: Sequence[Panel], width: float, scale: float, ruler: Ruler) -> float:
    """Returns the largest font size at which titles fit: in a line, in two if one is small, or as names alone."""
    names, titles = [panel.heading.name for panel in panels], [panel.title for panel in panels]
    smallest = ruler.largest_points(names, width, MIN_TITLE_POINTS, SMALLEST_POINTS)
    largest = MAX_TITLE_POINTS * scale
    points_in_a_line = min(ruler.largest_points(titles, width, math.inf, smallest), largest)
    if points_in_a_line >= MIN_LINE_SHARE * largest:
        return points_in_a_line

    words = [word for title in titles for word in title.split()]
    most_points = min(largest, ruler.largest_points(words, width, largest))  # at which no word is broken
    for points in np.arange(most_points, points_in_a_line, -0.5).tolist():
        if all(len(ruler.wrap(title, points, width)) <= MAX_IMAGE_TITLE_LINES for title in titles):
            return float(points)
    return points_in_a_line


def _with_axes(body: Content, points: float, ruler: Ruler) -> Content:
    """Returns the content with seconds below each column of spectrograms, and bands at the left of each row."""
    left = min(image.box.x for image in body.panels)
    columns = {image.box.x: image for image in body.panels}  # the lowest of each column
    lines = []
    for image in columns.values():  # a text at each round second, none beyond the right edge
        box, seconds = image.box, panel_image(image.panel).seconds
        min_distance = 2 * ruler.width(f"{seconds:.1f} s", points)
        step = next((step for step in ROUND_SECONDS if step * box.width >= min_distance * seconds), ROUND_SECONDS[-1])
        for second in np.arange(0, seconds, step).tolist():
            label = f"{second:g} s"
            width = ruler.width(label, points)
            x = max(second / seconds * box.width - width / 2, 0)
            if x + width <= box.width:
                lines.append(TextLine(box.x + x, box.y, label, points))
    line_height = points * LINE_HEIGHT / POINTS_PER_INCH
    for image in body.panels:  # the names of bands at the left, from the lowest up, where they have space
        box, height, last_y = image.box, panel_image(image.panel).height, -math.inf
        if box.x > left:
            continue
        for band, (bottom, top) in enumerate(pairwise(reversed([*band_tops(image.panel), height]))):
            y = box.y + box.height * (1 - (top + bottom) / 2 / height) + line_height / 2
            if y - last_y >= line_height:
                label, last_y = f"b{band}", y
                lines.append(TextLine(box.x - ruler.width(f"{label} ", points), y, label, points))
    indent = left - min(line.x for line in lines)
    lines_of_body = (*body.lines, *lines)
    body = replace(body, width=body.width + indent, height=body.height + line_height, lines=lines_of_body)
    return body.moved(indent, 0)


def draw_sound(matplotlib_figure: "OwnFigure", placed: PlacedPanel, theme: Theme) -> None:
    """Draws the envelope of a sound, the weights of its frames below, and an axis of seconds at the bottom."""
    box, panel = placed.box, placed.panel
    weights_share = 1 - ENVELOPE_SHARE - SECONDS_SHARE
    bottoms_and_heights = ((SECONDS_SHARE, weights_share), (SECONDS_SHARE + weights_share, ENVELOPE_SHARE))
    weights_axes, envelope_axes = (
        matplotlib_figure.axes_at(Box(box.x, box.y + bottom * box.height, box.width, share * box.height), "none")
        for bottom, share in bottoms_and_heights
    )

    sound, places = panel.columns.canvas, panel.columns.places
    assert isinstance(sound, Sound)
    assert places is not None
    is_in_sound = places[:, 1] > places[:, 0]  # a frame of padding has no samples
    edges = np.append(places[is_in_sound, 0], places[is_in_sound, 1][-1:]) / sound.rate
    colors = panel.scale.rgb(panel.levels)[0, is_in_sound] / 255
    weights_axes.pcolorfast(edges, np.array([0.0, 1.0]), colors[None])
    seconds = float(edges[0]), float(edges[-1])
    _draw_envelope(envelope_axes, panel, seconds, theme)
    for axes in (weights_axes, envelope_axes):
        axes.set(xlim=seconds, yticks=[])
    envelope_axes.set_xticks([])
    points = min(MAX_TICK_POINTS, TICK_POINTS * box.height / SOUND_HEIGHT)  # the height has the scale of the page
    weights_axes.tick_params(axis="x", colors=theme["faint"], labelsize=points, length=2, width=0.6)
    weights_axes.xaxis.set_major_formatter("{x:g} s")


def sounds_content(picture: DrawnReport, points: float, area: PageSize, ruler: Ruler) -> Content:
    """Returns a sound for each head under its title, as wide as the area allows, as `arrange_tokens` asks."""
    scale = area.scale
    margin = max(0.0, SOUND_MARGIN * scale - area.margin)
    sound_width = min(area.width, SOUND_WIDTH * points / LARGEST_FONT)
    height = SOUND_HEIGHT * scale * min(MAX_GROWTH, max(1.0, points / (LARGEST_FONT * scale)))
    title_points = SOUND_TITLE_POINTS * scale
    line_height = title_points * LINE_HEIGHT / POINTS_PER_INCH
    sounds, lines = [], []
    for panel_index, panel in enumerate(picture.panels):
        y = -panel_index * (line_height + height + SOUND_GAP * scale)
        lines.append(
            TextLine(
                margin, y, ruler.cut(panel.title, title_points, sound_width - 2 * margin), title_points, faint=False
            )
        )
        sounds.append(PlacedPanel(panel, Box(margin, y - line_height - height, sound_width - 2 * margin, height)))
    total = len(picture.panels) * (line_height + height) + (len(picture.panels) - 1) * SOUND_GAP * scale
    return Content(sound_width, total, points, panels=tuple(sounds), lines=tuple(lines))


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
