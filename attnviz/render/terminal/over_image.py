"""Draws images in a terminal under the weights of one query: in half blocks, or in shades if there are no colours."""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import ByteArray
from attnviz.media.image import Image
from attnviz.render.terminal.cells import ASCII_SHADES, SHADES, half_block, shades
from attnviz.render.terminal.lines import Line, Span, fit
from attnviz.render.terminal.over_sound import seconds_text
from attnviz.report.picture.colors import Rgb
from attnviz.report.picture.look import Look
from attnviz.report.picture.overlays import overlay_pixels, panel_image, query_box
from attnviz.report.picture.panels import NOTE, Panel

LEAST_COLUMNS, MOST_COLUMNS = 24, 56  # columns of one image; a screen shows several side by side
LEAST_COLUMNS_OF_LAYER = 16  # of one image, if all heads of a layer then stand side by side
GAP = 2
FRAME = (255, 64, 64)  # of the query


def image_lines(panels: list[Panel], look: Look) -> Iterator[Line]:
    """Yields the lines of the panels' images under their titles, as many side by side as the width allows."""
    across = _images_across(panels, look.width)
    columns = min(MOST_COLUMNS, (look.width - GAP * (across - 1)) // across)
    # Titles have a line each if every head's name and its first note fit it, else a line for names and one for notes.
    titles_fit = all(cell_len(panel.title.split(", ")[0]) <= columns for panel in panels)
    for first_panel in range(0, len(panels), across):
        band = panels[first_panel : first_panel + across]
        titles = [[panel.title] if titles_fit else panel.title.split(NOTE, 1) for panel in band]
        for parts in zip_longest(*titles, fillvalue=""):
            yield _side_by_side([_title_line(part, columns) for part in parts])
        images = [_image_lines(panel, columns, look) for panel in band]
        blank_line: Line = [Span(" " * columns)]  # below an image that is less high than its neighbour
        yield from (_side_by_side(list(lines)) for lines in zip_longest(*images, fillvalue=blank_line))
        yield []


def _images_across(panels: list[Panel], width: int) -> int:
    """Returns the number of images side by side: all heads of a layer if they have space, else as many as fit."""
    heads_of_layer = sum(panel.group == panels[0].group for panel in panels)
    if (width + GAP) // heads_of_layer >= LEAST_COLUMNS_OF_LAYER + GAP:
        return heads_of_layer
    fitting_images = max(1, min(len(panels), (width + GAP) // (LEAST_COLUMNS + GAP)))
    images_of_head = sum(panel.name == panels[0].name for panel in panels)
    return fitting_images - fitting_images % images_of_head or fitting_images


def _title_line(title: str, columns: int) -> Line:
    """Returns a line of a title; if it is too long, it loses its last parts, or is cut."""
    parts = title.split(", ")
    titles = [", ".join(parts[:count]) for count in range(len(parts), 0, -1)]
    shown_title = next((text for text in titles if cell_len(text) <= columns), titles[-1])
    return [Span(fit(shown_title, columns), style="bold")]


def _side_by_side(lines: list[Line]) -> Line:
    joined_line = list(lines[0])
    for line in lines[1:]:
        joined_line += [Span(" " * GAP), *line]
    return joined_line


def _image_lines(panel: Panel, columns: int, look: Look) -> list[Line]:
    """Returns the lines of one image with its weights, in half blocks or shades; a spectrogram has seconds below."""
    image = panel_image(panel)
    # Each line of half blocks shows two rows of pixels, so their number is even.
    rows = max(2, 2 * round(columns * image.height / image.width / 2))
    axis = [[Span(seconds_axis(image, columns), style="dim")]] if image.seconds else []
    if not look.colors or look.ascii:
        return [*shaded_lines(panel, rows // 2, columns, ASCII_SHADES if look.ascii else SHADES), *axis]
    pixels = overlay_pixels(panel, rows, columns)
    draw_query_border(panel, pixels)
    colors = [[tuple(pixel) for pixel in row] for row in pixels.tolist()]
    return [*(list(map(half_block, colors[row], colors[row + 1])) for row in range(0, rows, 2)), *axis]


def seconds_axis(image: Image, columns: int) -> str:
    """Returns a line of round seconds below a spectrogram, as wide as the spectrogram."""
    return seconds_text(np.linspace(0, image.seconds, columns + 1)).ljust(columns)


def draw_query_border(panel: Panel, pixels: ByteArray) -> None:
    """Draws the border of the query's patch into the pixels; does nothing if the query has no patch."""
    box = query_box(panel)
    if box is not None:
        draw_border(panel, pixels, box, FRAME)


def draw_border(panel: Panel, pixels: ByteArray, box: tuple[int, int, int, int], color: Rgb) -> None:
    """Draws the border of a rectangle into the pixels of an overlay.

    Args:
        pixels: the pixels, ``(rows, columns, 3)``, which are changed.
    """
    image = panel_image(panel)
    rows, columns, _ = pixels.shape
    left, right = (min(int(side * columns / image.width), columns - 1) for side in (box[0], box[2] - 1))
    top, bottom = (min(int(side * rows / image.height), rows - 1) for side in (box[1], box[3] - 1))
    for border in (
        np.s_[top, left : right + 1],
        np.s_[bottom, left : right + 1],
        np.s_[top : bottom + 1, left],
        np.s_[top : bottom + 1, right],
    ):
        pixels[border] = color


def shaded_lines(panel: Panel, rows: int, columns: int, signs: str = SHADES) -> list[Line]:
    """Returns the lines of one image without colour: shades for visible weights, ``Q`` for a query in the image."""
    image, boxes = panel_image(panel), panel.columns.places
    characters = np.full((rows, columns), " ")
    patch_shades = shades(panel.levels[0], panel.scale, signs)
    characters_a_pixel = [columns / image.width, rows / image.height] * 2  # of left and top, right and bottom
    scaled_boxes = (np.zeros((0, 4)) if boxes is None else boxes) * characters_a_pixel
    for (left, top, right, bottom), shade, is_visible in zip(
        np.rint(scaled_boxes).astype(int), patch_shades, panel.visible[0], strict=False
    ):
        if is_visible:
            characters[top:bottom, left:right] = shade
    box = query_box(panel)
    if box is not None:
        x, y = (box[0] + box[2]) / 2 * columns / image.width, (box[1] + box[3]) / 2 * rows / image.height
        characters[min(int(y), rows - 1), min(int(x), columns - 1)] = "Q"
    return [[Span("".join(row))] for row in characters.tolist()]
