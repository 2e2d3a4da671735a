"""Lays out and draws images with the weights of one query over them, one image for each head."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np

from attnviz.render.figure.arcs_and_text import Content, PlacedImage, TokenLayout, token_layout
from attnviz.render.figure.bars import Box
from attnviz.render.figure.picture import Picture
from attnviz.render.figure.ruler import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.render.figure.text_blocks import MAX_TITLE_LINES, ROUNDING_INCHES, TextLine, fitting_title
from attnviz.render.figure.theme import Theme
from attnviz.render.terminal.maps import ROUND_SECONDS
from attnviz.report.picture.overlays import band_tops, outline_segments, panel_image, query_box
from attnviz.report.picture.panels import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 3.6  # inches: width of an image in 14 points, where the page has space for it
LARGEST_FONT = 14.0  # points, at which images have this width
TITLE_POINTS = 11.0  # most points of a head's title
MIN_TITLE_POINTS, SMALLEST_POINTS = 6.0, 3.5  # of titles that are cut, and of the names of heads over tiny images
AXIS_POINTS = 8.0  # of seconds and bands of a spectrogram
GAP = 0.18  # inches between images
MAX_GAP_SHARE = 0.15  # of the space of an image, where images are small
MAX_ACROSS, MAX_LAYER_ACROSS = 6, 16  # images side by side: in general, and if they are the heads of one layer
MIN_ACROSS = 4  # images side by side in rows that form a square, if there are so many
OUTLINE_POINTS, QUERY_POINTS = 1.2, 2.0  # line widths over images of half the largest width or more
MIN_LINE_SIZE = 0.4  # of these widths, over small images


def arrange_images(picture: Picture, ruler: Ruler) -> TokenLayout:
    """Returns the layout of an image for each head, as large as the page allows, and the colour bar."""
    return token_layout(picture, _images_content, ruler)


def draw_image(matplotlib_figure: "Figure", image: PlacedImage, theme: Theme) -> None:
    """Draws an image under its weights, with an outline around marked patches and a frame around the query, if any."""
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D, Bbox, TransformedBbox

    from attnviz.render.figure.own_figure import OverlaidImage

    box, panel = image.box, image.panel
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
        outline = PathPatch(Path(np.reshape(segments, (-1, 2)), codes), fill=False, edgecolor="white")
        outline.set(linewidth=OUTLINE_POINTS * line_size, capstyle="round", transform=from_pixels)
        matplotlib_figure.add_artist(outline)
        outline.set_clip_box(area)
    if query is not None:
        left, top, right, bottom = query
        frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=theme["mark"])
        frame.set(linewidth=QUERY_POINTS * line_size, zorder=3, transform=from_pixels)  # above the outline
        matplotlib_figure.add_artist(frame)


def _images_content(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    panels = picture.panels
    across = _images_across([panel.group for panel in panels])
    gap = min(GAP * scale, MAX_GAP_SHARE * width / across)
    image_width = min((width - gap * (across - 1)) / across, SIDE * points / LARGEST_FONT)
    first_image = panel_image(panels[0])
    heights = [image_width * panel_image(panel).height / panel_image(panel).width for panel in panels]
    # If the shapes of images differ, the space of each is at most a square, or all of them are upright.
    image_height = min(max(heights), max(image_width, min(heights)))
    title_points = _title_points(panels, image_width, scale, ruler)
    short_titles = tuple(panel.heading.shortened().text for panel in panels)
    titles_fit = ruler.longest_width(short_titles, title_points) <= image_width + ROUNDING_INCHES
    titles = [
        fitting_title(panel.heading, title_points, 1 if titles_fit else MAX_TITLE_LINES, image_width, ruler).split("\n")
        for panel in panels
    ]
    line_height = title_points * LINE_HEIGHT / POINTS_PER_INCH
    title_height = max(map(len, titles)) * line_height
    images, lines = [], []
    for panel_index, (panel, height) in enumerate(zip(panels, heights, strict=True)):
        row, column = divmod(panel_index, across)
        x, y = column * (image_width + gap), -row * (title_height + image_height + gap)
        lines += [
            TextLine(x, y - line_index * line_height, text, title_points, faint=False)
            for line_index, text in enumerate(titles[panel_index])
        ]
        smaller = min(1.0, image_height / height)
        box = Box(x, y - title_height - height * smaller, image_width * smaller, height * smaller)
        images.append(PlacedImage(box, panel))
    rows = math.ceil(len(panels) / across)
    content = Content(
        width=image_width * across + gap * (across - 1),
        height=(title_height + image_height) * rows + gap * (rows - 1),
        words=(),
        lines=tuple(lines),
        images=tuple(images),
    )
    return _with_axes(content, AXIS_POINTS * scale, ruler) if first_image.seconds else content


def _title_points(panels: Sequence[Panel], width: float, scale: float, ruler: Ruler) -> float:
    names = tuple(panel.heading.name for panel in panels)
    # Titles may be empty, since a slide has them elsewhere; the minimum avoids a division by 0.
    title_width, name_width = (
        max(1e-6, ruler.longest_width(texts, 1.0)) for texts in (tuple(panel.title for panel in panels), names)
    )
    smallest = max(min(MIN_TITLE_POINTS, width / name_width), SMALLEST_POINTS)
    return min(max(width / title_width, smallest), TITLE_POINTS * scale)


def _with_axes(content: Content, points: float, ruler: Ruler) -> Content:
    """Returns the content with seconds below each column of spectrograms, and bands at the left of each row."""
    left = min(image.box.x for image in content.images)
    columns = {image.box.x: image for image in content.images}  # the lowest of each column
    lines = [line for image in columns.values() for line in _seconds_lines(image, points, ruler)]
    for image in content.images:
        lines += _band_lines(image, points, ruler) if image.box.x == left else []
    indent = left - min(line.x for line in lines)
    height = content.height + points * LINE_HEIGHT / POINTS_PER_INCH
    content = replace(content, width=content.width + indent, height=height, lines=(*content.lines, *lines))
    return content.moved(indent, 0)


def _seconds_lines(image: PlacedImage, points: float, ruler: Ruler) -> Iterator[TextLine]:
    """Yields a text at each round second, below a spectrogram; no text extends beyond its right edge."""
    box, seconds = image.box, panel_image(image.panel).seconds
    min_distance = 2 * ruler.width(f"{seconds:.1f} s", points)
    step = next((step for step in ROUND_SECONDS if step * box.width >= min_distance * seconds), ROUND_SECONDS[-1])
    for second in np.arange(0, seconds, step).tolist():
        label = f"{second:g} s"
        width = ruler.width(label, points)
        x = max(second / seconds * box.width - width / 2, 0)
        if x + width <= box.width:
            yield TextLine(box.x + x, box.y, label, points)


def _band_lines(image: PlacedImage, points: float, ruler: Ruler) -> Iterator[TextLine]:
    """Yields the names of bands at the left of a spectrogram, from the lowest up; those without space are left out."""
    box, height = image.box, panel_image(image.panel).height
    tops = [*band_tops(image.panel), height]
    line_height, last_y = points * LINE_HEIGHT / POINTS_PER_INCH, -math.inf
    for band, (bottom, top) in enumerate(pairwise(reversed(tops))):
        y = box.y + box.height * (1 - (top + bottom) / 2 / height) + line_height / 2
        if y - last_y >= line_height:
            label, last_y = f"b{band}", y
            yield TextLine(box.x - ruler.width(f"{label} ", points), y, label, points)


def _images_across(groups: list[str]) -> int:
    layer_sizes = {len(list(images_of_layer)) for _, images_of_layer in groupby(groups)}
    if len(layer_sizes) == 1 and len(set(groups)) > 1 and max(layer_sizes) <= MAX_LAYER_ACROSS:
        return max(layer_sizes)
    return min(len(groups), MAX_ACROSS, max(MIN_ACROSS, math.ceil(math.sqrt(len(groups)))))
