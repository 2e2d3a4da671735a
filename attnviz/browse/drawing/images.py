"""Draws images under the weights of their patches, in pixels, half blocks or shades."""

import numpy as np

from attnviz.browse.drawing.themes import CURSOR_COLOR
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.view.boxes import OverImage, PictureArea
from attnviz.render.terminal.lines import Line
from attnviz.render.terminal.maps import half_block
from attnviz.render.terminal.media import draw_border, draw_query_border, shaded_lines
from attnviz.report.picture.overlays import overlay_pixels


def image_lines(box: OverImage, colors: int) -> list[Line]:
    """Returns the lines of an image: pixels if the terminal has them, else half blocks, or shades with few colours.

    Except in shades, borders mark the patch of the query and the patch under the cursor.
    """
    if colors <= ANSI_COLORS:
        return shaded_lines(box.panel, box.lines, box.columns)
    width, height = box.character or (1, 2)  # in pixels; a half block shows two
    pixels = overlay_pixels(box.panel, box.lines * height, box.columns * width)
    draw_query_border(box.panel, pixels)
    if box.cursor is not None:
        draw_border(box.panel, pixels, box.cursor, CURSOR_COLOR)
    if box.character is not None:
        from attnviz.browse.drawing.graphics import picture_lines

        area = PictureArea(box.lines, box.columns, box.character)
        return picture_lines(pixels, np.ones(pixels.shape[:2], dtype=bool), area)
    rows = [[tuple(pixel) for pixel in row] for row in pixels.tolist()]
    return [list(map(half_block, top, bottom)) for top, bottom in zip(rows[::2], rows[1::2], strict=True)]
