"""Letters put into the pixels of a palette picture, without matplotlib."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from attnviz.base.arrays import ByteArray
from attnviz.render.figure.fonts import font_runs

COLOR_LEVELS = 232  # of the colormap; the rest of a palette's 256 colours are paper, ink and what has no value
INK_STEPS = 8  # from paper to ink, for smooth letters
INK = COLOR_LEVELS + 3
FAINT = INK + INK_STEPS
PAPER = INK


@dataclass(frozen=True)
class Mark:
    """A line of text: its place in pixels from the upper left corner, and what of it stands there (Pillow's anchor)."""

    x: float
    y: float
    text: str
    size: int
    faint: bool = False
    bold: bool = False
    anchor: str = "ls"


def write_mark(pixels: ByteArray, mark: Mark) -> None:
    """The text of a mark put into the pixels, each run of it in a font that has its characters."""
    x, y = round(mark.x), round(mark.y)
    runs = font_runs(mark.text)
    for run, file in runs:
        font = _font(mark.size, mark.bold, file)
        left, top, right, bottom = (int(side) for side in font.getbbox(run, anchor=mark.anchor))
        drawn = Image.new("L", (right - left + 2, bottom - top + 2))
        ImageDraw.Draw(drawn).text((1 - left, 1 - top), run, fill=255, font=font, anchor=mark.anchor)
        _put(pixels, np.asarray(drawn), x + left - 1, y + top - 1, FAINT if mark.faint else INK)
        x += round(font.getlength(run)) if len(runs) > 1 else 0


def _put(pixels: ByteArray, letters: ByteArray, x: int, y: int, ink: int) -> None:
    """Letters put into the pixels, from paper to ink in a few steps; what stands beyond the edges is left out."""
    place = pixels[max(y, 0) : max(y + letters.shape[0], 0), max(x, 0) : max(x + letters.shape[1], 0)]
    shown = letters[max(-y, 0) :, max(-x, 0) :][: place.shape[0], : place.shape[1]]
    steps = shown.astype(np.uint16) * (INK_STEPS - 1) // 255
    np.copyto(place, (ink + steps).astype(np.uint8), where=steps > 0)


def text_width(text: str, size: int, bold: bool = False) -> float:
    """Pixels that the text takes."""
    return sum(float(_font(size, bold, file).getlength(run)) for run, file in font_runs(text))


@cache
def _font(size: int, bold: bool = False, file: str | None = None) -> ImageFont.FreeTypeFont:
    """The font of a file, or DejaVu Sans as matplotlib brings it, found without importing matplotlib."""
    if file is not None:
        return ImageFont.truetype(file, max(size, 6))
    found = find_spec("matplotlib")
    assert found is not None
    assert found.origin is not None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / name), max(size, 6))


@cache
def wrap_text(text: str, room: float, size: int) -> tuple[str, ...]:
    """The text in lines of at most ``room`` pixels, broken at spaces."""
    lines: list[str] = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size) <= room:
            lines[-1] = joined
        else:
            lines.append(word)
    return tuple(lines)
