"""Draws pixels, one line of the screen at a time, in kitty's graphics protocol or as sixels."""

import base64
import fcntl
import struct
import termios
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, ByteArray, IntArray
from attnviz.browse.drawing.themes import CURSOR_COLOR
from attnviz.browse.view.boxes import PictureArea
from attnviz.render.terminal.lines import Line, Span

Protocol = Literal["kitty", "sixel"]
KITTY_TERMINALS = ("xterm-kitty", "xterm-ghostty")  # values of TERM
CHUNK = 4096  # characters of one message, the most that kitty's protocol allows
SIXEL_ATTRIBUTE = "4"  # in a terminal's answer to the query for its attributes
BAND = 6  # rows of pixels in a row of sixels
MAX_REGISTERS = 256  # colours of a sixel picture: many terminals have no more registers


@dataclass(frozen=True)
class PixelSpan(Span):
    """Blank columns with pixels over them.

    Attributes:
        rgba: the pixels as bytes, ``(height, columns * width of a character, 4)``; masked cells are transparent.
        height: rows of pixels.
    """

    rgba: bytes = b""
    height: int = 0

    def pixels(self, width: int) -> ByteArray:
        """Returns the pixels over the columns of the text, which may have been cut; a column has ``width`` pixels."""
        every = np.frombuffer(self.rgba, np.uint8).reshape(self.height, -1, 4)
        return every[:, : len(self.text) * width]


def picture_lines(
    rgb: ByteArray, visible: BoolArray, area: PictureArea, cursor: tuple[int, int] | None = None
) -> list[Line]:
    """Draws cells as pixels, one span per line of the area, with a frame around the cell of the cursor.

    Args:
        rgb: the colour of each cell, ``(rows, columns, 3)``.
        visible: the cells to draw, ``(rows, columns)``; the others stay transparent.
        area: the size of the picture.
        cursor: the row and the column of the cell under the cursor; ``None`` for no frame.
    """
    colored = np.zeros((*(count + 1 for count in visible.shape), 4), np.uint8)  # one more: transparent padding
    colored[:-1, :-1, :3] = rgb
    colored[:-1, :-1, 3] = np.where(visible, 255, 0)
    down, across = _places(area, visible.shape)
    last = [count - 1 for count in colored.shape[:2]]
    whole = colored.view(np.uint32)[..., 0]  # a pixel as one number, so that np.take copies it at once
    wide = np.take(whole, np.minimum(across, last[1]), axis=1)
    picture = np.take(wide, np.minimum(down, last[0]), axis=0).view(np.uint8).reshape(len(down), len(across), 4)
    width, height = area.character
    if cursor is not None:
        _frame(picture, np.flatnonzero(down == cursor[0]), np.flatnonzero(across == cursor[1]), max(1, width // 4))
    bands = np.split(picture, area.lines)
    return [[PixelSpan(" " * area.columns, rgba=band.tobytes(), height=height)] for band in bands]


def _places(area: PictureArea, shape: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    """Returns the row of cells of each row of pixels, and the column of cells of each column of pixels."""
    width, height = area.character
    down, across = np.arange(area.lines * height), np.arange(area.columns * width)
    if area.cells is None:
        return down * shape[0] // len(down), across * shape[1] // len(across)
    return down * area.cells[0] // height, across * area.cells[1] // width


def _frame(picture: ByteArray, down: IntArray, across: IntArray, thick: int) -> None:
    """Draws a frame around one cell into ``picture``, with a gap as wide as the frame between them."""
    inner, outer = (
        tuple(slice(max(0, int(side[0]) - away), int(side[-1]) + 1 + away) for side in (down, across))
        for away in (thick, 2 * thick)
    )
    inside = picture[inner].copy()
    picture[outer] = (*CURSOR_COLOR, 255)
    picture[inner] = inside


def known_protocol(environment: Mapping[str, str]) -> Protocol | None:
    """Returns kitty's protocol if the terminal's name says that it has it; sixels need an answer of the terminal."""
    multiplexed = "TMUX" in environment or environment.get("TERM", "").startswith(("screen", "tmux"))
    kitty = environment.get("TERM") in KITTY_TERMINALS or environment.get("TERM_PROGRAM") == "ghostty"
    return "kitty" if kitty and not multiplexed else None


def terminal_character() -> tuple[int, int] | None:
    """Returns the width and height of a character in pixels, from the terminal of stderr; ``None`` if unknown."""
    try:
        answer = fcntl.ioctl(2, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return None
    lines, columns, width, height = struct.unpack("HHHH", answer)
    size = (width // columns, height // lines) if lines and columns else (0, 0)
    return size if min(size) >= 2 else None


def escapes(line: Line, y: int, character: tuple[int, int], protocol: Protocol) -> str:
    """Returns the escape sequence that draws the pixels of a line over its text, as one picture.

    Args:
        line: the spans of the line.
        y: the line on the screen, from 0.
        character: width and height of a character in pixels.
        protocol: the protocol of the terminal.
    """
    spans, x = list[tuple[int, PixelSpan]](), 0
    for span in line:
        if isinstance(span, PixelSpan):
            spans.append((x, span))
        x += cell_len(span.text)
    if not spans:
        return ""
    first = spans[0][0]
    return f"\x1b[{y + 1};{first + 1}H" + _encoded(
        tuple((x - first, span) for x, span in spans), character[0], protocol
    )


def clear_escape(y: int) -> str:
    """Returns the escape sequence that deletes kitty's pictures on a line; text overwrites sixels by itself."""
    return f"\x1b_Ga=d,d=Y,y={y + 1},q=2\x1b\\"


@lru_cache(maxsize=128)
def _encoded(spans: tuple[tuple[int, PixelSpan], ...], width: int, protocol: Protocol) -> str:
    """Returns the escape sequence of one picture of several spans, each with its first column in the picture."""
    last = spans[-1][0] + len(spans[-1][1].text)
    pixels = np.zeros((max(span.height for _, span in spans), last * width, 4), np.uint8)
    for x, span in spans:
        pixels[: span.height, x * width : (x + len(span.text)) * width] = span.pixels(width)
    return _kitty(pixels, last) if protocol == "kitty" else _sixels(pixels)


def _kitty(pixels: ByteArray, columns: int) -> str:
    """Returns a picture of one line in kitty's protocol; it is drawn at the cursor, which does not move."""
    height, width, _ = pixels.shape
    content = base64.b64encode(zlib.compress(pixels.tobytes(), 1)).decode("ascii")
    chunks = [content[start : start + CHUNK] for start in range(0, len(content), CHUNK)]
    first = f"a=T,f=32,o=z,s={width},v={height},c={columns},r=1,C=1,q=2,"
    return "".join(
        f"\x1b_G{'' if place else first}m={int(place + 1 < len(chunks))};{chunk}\x1b\\"
        for place, chunk in enumerate(chunks)
    )


def _sixels(pixels: ByteArray) -> str:
    """Returns a picture as sixels: colours in per cent, transparent pixels left out."""
    height, width, _ = pixels.shape
    colors = np.ascontiguousarray(pixels).view(np.uint32)[..., 0]
    # a cell covers many equal rows and columns: encode one of each, and repeat it
    across = np.append(True, (colors[:, 1:] != colors[:, :-1]).any(axis=0))
    down = np.append(True, (colors[1:] != colors[:-1]).any(axis=1))
    numbers, registers = _registers(pixels[down][:, across])
    numbers = numbers[np.cumsum(down) - 1]
    widths = np.diff(np.append(np.flatnonzero(across), width))
    defined = "".join(f"#{number};2;{red};{green};{blue}" for number, (red, green, blue) in enumerate(registers))
    bands = (_band(numbers[start : start + BAND], widths, len(registers)) for start in range(0, height, BAND))
    return f'\x1bP0;1;0q"1;1;{width};{height}{defined}' + "-".join(bands) + "\x1b\\"


def _registers(pixels: ByteArray) -> tuple[IntArray, list[list[int]]]:
    """Returns the register of each pixel, -1 for a transparent one, and the colours of the registers in per cent.

    Colours are rounded until ``MAX_REGISTERS`` are enough.
    """
    percents = (pixels[..., :3].astype(np.int64) * 100 + 127) // 255
    step = 1
    while True:
        colors, numbers = np.unique(percents // step * step @ [1_000_000, 1_000, 1], return_inverse=True)
        if len(colors) <= MAX_REGISTERS:
            break
        step += 1
    registers = [[color // 1_000_000, color // 1_000 % 1_000, color % 1_000] for color in colors.tolist()]
    return np.where(pixels[..., 3] == 0, -1, numbers.reshape(pixels.shape[:2])), registers


def _band(numbers: IntArray, widths: IntArray, registers: int) -> str:
    """Returns six rows of pixels: for each colour, the pixels of each column that have it.

    Args:
        numbers: the register of each pixel, ``(rows, columns)``, only columns that differ from the one before.
        widths: how often each of these columns is repeated.
        registers: the number of registers.
    """
    sixels = np.zeros((registers + 1, len(widths)), np.uint8)  # index -1, the last row, collects transparent pixels
    columns = np.arange(len(widths))
    for place, row in enumerate(numbers):
        sixels[row, columns] |= 1 << place
    used = np.flatnonzero(sixels[:-1].any(axis=1))
    drawn = sixels[used]
    starts = np.ones(drawn.shape, dtype=bool)
    np.not_equal(drawn[:, 1:], drawn[:, :-1], out=starts[:, 1:])
    lengths = np.add.reduceat(np.tile(widths, len(used)), np.flatnonzero(starts)) if len(used) else widths[:0]
    runs = [*map(_run, drawn[starts].tolist(), lengths.tolist())]
    edges = [0, *np.cumsum(starts.sum(axis=1)).tolist()]
    return "$".join(
        f"#{number}" + "".join(runs[begin:end])
        for number, (begin, end) in zip(used.tolist(), pairwise(edges), strict=True)
    )


@lru_cache(maxsize=65_536)
def _run(sixel: int, count: int) -> str:
    """Returns ``count`` columns of a sixel, run-length encoded where that is shorter."""
    character = chr(sixel + 63)
    return f"!{count}{character}" if count > 3 else character * count
