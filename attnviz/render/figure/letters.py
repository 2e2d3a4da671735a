"""Writes text into the pixels of a palette picture, without matplotlib."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from attnviz.base.arrays import ByteArray
from attnviz.render.figure.fonts import font_runs

COLOR_LEVELS = 232  # colours of the colormap; the other 24 of a palette are paper, ink and cells without a value
INK_STEPS = 8  # shades from paper to ink, for smooth letters
INK = COLOR_LEVELS + 3
FAINT = INK + INK_STEPS
PAPER = INK
MIN_FONT_PIXELS = 6


@dataclass(frozen=True)
class Mark:
    """A line of text in a picture; lengths are in pixels.

    Attributes:
        x: the horizontal place of its anchor.
        y: the vertical place of its anchor, from the upper edge.
        text: the text.
        size: the font size.
        faint: True for the faint ink.
        bold: True for bold letters.
        anchor: the point of the text that is at ``x`` and ``y``, by Pillow's name: ``ls`` is the left of the baseline.
    """

    x: float
    y: float
    text: str
    size: int
    faint: bool = False
    bold: bool = False
    anchor: str = "ls"


def write_mark(pixels: ByteArray, mark: Mark) -> None:
    """Writes the text of a mark into the pixels, which are changed, in fonts that have its characters."""
    x, y = round(mark.x), round(mark.y)
    runs = font_runs(mark.text)
    for characters, file in runs:
        font = _font(mark.size, mark.bold, file)
        left, top, right, bottom = (int(side) for side in font.getbbox(characters, anchor=mark.anchor))
        letters = Image.new("L", (right - left + 2, bottom - top + 2))  # with a border of one pixel
        ImageDraw.Draw(letters).text((1 - left, 1 - top), characters, fill=255, font=font, anchor=mark.anchor)
        # Shades from paper to ink; pixels under no letter, and letters beyond the edges, stay as they are.
        x_of_letters, y_of_letters = x + left - 1, y + top - 1
        target = pixels[
            max(y_of_letters, 0) : max(y_of_letters + letters.height, 0),
            max(x_of_letters, 0) : max(x_of_letters + letters.width, 0),
        ]
        letters_inside = np.asarray(letters)[max(-y_of_letters, 0) :, max(-x_of_letters, 0) :]
        steps = letters_inside[: target.shape[0], : target.shape[1]].astype(np.uint16) * (INK_STEPS - 1) // 255
        ink = FAINT if mark.faint else INK
        np.copyto(target, (ink + steps).astype(np.uint8), where=steps > 0)
        if len(runs) > 1:
            x += round(font.getlength(characters))


def text_width(text: str, size: int, bold: bool = False) -> float:
    """Returns the width of a text in pixels."""
    return sum(float(_font(size, bold, file).getlength(run)) for run, file in font_runs(text))


@cache
def _font(size: int, bold: bool = False, file: str | None = None) -> ImageFont.FreeTypeFont:
    """Returns a font, read from its file without importing matplotlib."""
    font_size = max(size, MIN_FONT_PIXELS)
    if file is not None:
        return ImageFont.truetype(file, font_size)
    matplotlib = find_spec("matplotlib")
    assert matplotlib is not None
    assert matplotlib.origin is not None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.origin).parent / "mpl-data" / "fonts" / "ttf" / name), font_size)


@cache
def wrap_text(text: str, limit: float, size: int) -> tuple[str, ...]:
    """Returns a text in lines broken at spaces; no line for a blank text."""
    lines: list[str] = []
    for word in text.split():
        longer_line = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer_line, size) <= limit:
            lines[-1] = longer_line
        else:
            lines.append(word)
    return tuple(lines)
