"""Draws pixels over lines of the screen, in kitty's graphics protocol or as sixels."""

import base64
import fcntl
import struct
import termios
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, ByteArray, IntArray
from attnviz.browse.view.parts import CURSOR_COLOR
from attnviz.render.terminal.lines import Line, Span

Protocol = Literal["kitty", "sixel"]
KITTY_TERMINALS = ("xterm-kitty", "xterm-ghostty")  # values of TERM
CHUNK = 4096  # characters of a message; kitty's protocol allows no more
SIXEL_ATTRIBUTE = "4"  # among the attributes that a terminal with sixels answers
BAND = 6  # rows of pixels in a row of sixels
STDERR = 2  # its file descriptor
MAX_REGISTERS = 256  # colours of a sixel picture: many terminals have no more registers


class PictureArea(NamedTuple):
    """The size of a picture: lines and columns of the screen, and the pixels of a character, its width first."""

    lines: int
    columns: int
    character: tuple[int, int]
    cells: tuple[int, int] | None = None  # rows and columns of cells per character; None stretches them to the area


@dataclass(frozen=True)
class PixelSpan(Span):
    """Blank columns with pixels over them."""

    rgba: bytes = b""  # of the pixels, (height, columns * width of a character, 4); masked cells are transparent
    height: int = 0  # rows of pixels

    def pixels(self, character_width: int) -> ByteArray:
        """Returns the pixels over the span's text, which may have been cut, ``(height, columns * width, 4)``."""
        all_pixels = np.frombuffer(self.rgba, np.uint8).reshape(self.height, -1, 4)
        return all_pixels[:, : len(self.text) * character_width]


def picture_lines(
    rgb: ByteArray, visible: BoolArray, area: PictureArea, cursor: tuple[int, int] | None = None
) -> list[Line]:
    """Returns lines of one span each, with the cells drawn as pixels and a frame around the cell of the cursor.

    Args:
        rgb: the colour of each cell, ``(rows, columns, 3)``.
        visible: the cells to draw, ``(rows, columns)``; the others stay transparent.
    """
    cell_colors = np.zeros((*(count + 1 for count in visible.shape), 4), np.uint8)  # one more: transparent padding
    cell_colors[:-1, :-1, :3] = rgb
    cell_colors[:-1, :-1, 3] = np.where(visible, 255, 0)  # opaque or transparent
    width, height = area.character
    pixel_rows, pixel_columns = np.arange(area.lines * height), np.arange(area.columns * width)
    if area.cells is None:
        cell_rows, cell_columns = (
            pixels * count // len(pixels)
            for pixels, count in zip((pixel_rows, pixel_columns), visible.shape, strict=True)
        )
    else:
        cell_rows, cell_columns = pixel_rows * area.cells[0] // height, pixel_columns * area.cells[1] // width
    last_row, last_column = (count - 1 for count in cell_colors.shape[:2])  # the transparent ones
    packed_colors = cell_colors.view(np.uint32)[..., 0]  # a pixel as one number, so that np.take copies it at once
    packed_columns = np.take(packed_colors, np.minimum(cell_columns, last_column), axis=1)
    packed_picture = np.take(packed_columns, np.minimum(cell_rows, last_row), axis=0)
    picture = packed_picture.view(np.uint8).reshape(len(cell_rows), len(cell_columns), 4)
    if cursor is not None:
        frame_width = max(1, width // 4)  # a quarter of a character
        spans = [np.flatnonzero(cell_rows == cursor[0]), np.flatnonzero(cell_columns == cursor[1])]
        inside, with_frame = (
            tuple(slice(max(0, int(span[0]) - margin), int(span[-1]) + 1 + margin) for span in spans)
            for margin in (frame_width, 2 * frame_width)
        )
        pixels_inside = picture[inside].copy()
        picture[with_frame] = (*CURSOR_COLOR, 255)
        picture[inside] = pixels_inside
    bands = np.split(picture, area.lines)
    return [[PixelSpan(" " * area.columns, rgba=band.tobytes(), height=height)] for band in bands]


def protocol_of_environment(environment: Mapping[str, str]) -> Protocol | None:
    """Returns kitty's protocol if environment variables name a terminal that has it; otherwise ``None``.

    Terminals with sixels say so in their answer to ``ASK_ATTRIBUTES``. Multiplexers do not pass kitty's pictures on.
    """
    in_multiplexer = "TMUX" in environment or environment.get("TERM", "").startswith(("screen", "tmux"))
    is_kitty = environment.get("TERM") in KITTY_TERMINALS or environment.get("TERM_PROGRAM") == "ghostty"
    return "kitty" if is_kitty and not in_multiplexer else None


def terminal_character() -> tuple[int, int] | None:
    """Returns the width and height of a character in pixels, as the terminal of stderr reports them.

    Returns ``None`` if stderr is no terminal, if it reports none, or if a character has a side of less than two pixels.
    """
    try:
        answer = fcntl.ioctl(STDERR, termios.TIOCGWINSZ, bytes(struct.calcsize("HHHH")))
    except OSError:
        return None
    lines, columns, width, height = struct.unpack("HHHH", answer)
    size = (width // columns, height // lines) if lines and columns else (0, 0)
    return size if min(size) >= 2 else None


def picture_escape(line: Line, x: int, y: int, character_size: tuple[int, int], protocol: Protocol) -> str:
    """Returns the escape sequence that draws the pixels of a line at a place of the screen; "" if it has none."""
    pixel_spans: list[tuple[int, PixelSpan]] = []
    column = 0
    for span in line:
        if isinstance(span, PixelSpan):
            pixel_spans.append((column, span))
        column += cell_len(span.text)
    if not pixel_spans:
        return ""
    first_column = pixel_spans[0][0]
    # columns that count from the first, so that a cached picture serves at every position
    shifted_spans = tuple((start - first_column, span) for start, span in pixel_spans)
    return f"\x1b[{y + 1};{x + first_column + 1}H" + _spans_escape(shifted_spans, character_size[0], protocol)


def clear_escape(y: int) -> str:
    """Returns the escape sequence that deletes kitty's pictures on a line; sixels are overwritten by text."""
    return f"\x1b_Ga=d,d=Y,y={y + 1},q=2\x1b\\"


@lru_cache(maxsize=128)
def _spans_escape(spans: tuple[tuple[int, PixelSpan], ...], character_width: int, protocol: Protocol) -> str:
    """Returns the escape sequence that draws one picture of several spans, transparent between them."""
    last_start, last_span = spans[-1]
    columns = last_start + len(last_span.text)
    pixels = np.zeros((max(span.height for _, span in spans), columns * character_width, 4), np.uint8)
    for start, span in spans:
        stop = start + len(span.text)
        pixels[: span.height, start * character_width : stop * character_width] = span.pixels(character_width)
    return _kitty_escape(pixels, columns) if protocol == "kitty" else _sixel_escape(pixels)


def _kitty_escape(pixels: ByteArray, columns: int) -> str:
    """Returns the escape sequence in kitty's protocol that draws a picture at the cursor, which does not move."""
    height, width, _ = pixels.shape
    content = base64.b64encode(zlib.compress(pixels.tobytes(), 1)).decode("ascii")
    chunks = [content[start : start + CHUNK] for start in range(0, len(content), CHUNK)]
    # a=T shows at once, f=32 is RGBA, o=z is zlib, s and v pixels, c and r characters, C=1 keeps the cursor, q=2: quiet
    header = f"a=T,f=32,o=z,s={width},v={height},c={columns},r=1,C=1,q=2,"
    messages = []
    for index, chunk in enumerate(chunks):
        options = header if index == 0 else ""
        has_next = int(index + 1 < len(chunks))
        messages.append(f"\x1b_G{options}m={has_next};{chunk}\x1b\\")
    return "".join(messages)


def _sixel_escape(pixels: ByteArray) -> str:
    """Returns the escape sequence that draws a picture as sixels; the screen stays under transparent pixels."""
    height, width, _ = pixels.shape
    packed_pixels = np.ascontiguousarray(pixels).view(np.uint32)[..., 0]  # a pixel as one number, to compare at once
    # a cell covers many equal rows and columns: encode one of each, and repeat it; the first one is always new
    is_new_column = np.append(True, (packed_pixels[:, 1:] != packed_pixels[:, :-1]).any(axis=0))
    is_new_row = np.append(True, (packed_pixels[1:] != packed_pixels[:-1]).any(axis=1))
    distinct_pixels = packed_pixels[is_new_row][:, is_new_column]
    widths = np.diff(np.append(np.flatnonzero(is_new_column), width))

    # the register of each pixel, -1 for a transparent one, and the colours of the registers in per cent
    packed_colors, color_numbers = np.unique(distinct_pixels, return_inverse=True)
    rgba = packed_colors.view(np.uint8).reshape(-1, 4)
    percents = (rgba[:, :3].astype(np.int64) * 100 + 127) // 255  # rounded; at most 100, so three fit in one number
    for step in range(1, 101):  # coarser steps until the colours fit the registers
        colors, numbers = np.unique(percents // step * step @ [1_000_000, 1_000, 1], return_inverse=True)
        if len(colors) <= MAX_REGISTERS:
            break
    register_of_color = np.where(rgba[:, 3] == 0, -1, numbers)
    registers = register_of_color[color_numbers.reshape(distinct_pixels.shape)][np.cumsum(is_new_row) - 1]
    definitions = "".join(
        f"#{number};2;{color // 1_000_000};{color // 1_000 % 1_000};{color % 1_000}"
        for number, color in enumerate(colors.tolist())
    )

    # the sixels of each colour, (bands, registers, columns), with one bit for each of six rows of pixels
    bands, columns = np.arange(-(-height // BAND))[:, None], np.arange(registers.shape[1])
    sixels = np.zeros((len(bands), len(colors) + 1, len(columns)), np.uint8)  # the last register: transparent pixels
    for bit in range(BAND):
        rows = registers[bit::BAND]  # the last band may have no such row
        sixels[bands[: len(rows)], rows, columns] |= 1 << bit

    # a text for each band: for each of its colours, the sixels of that colour
    band_numbers, register_numbers = np.nonzero(sixels[:, :-1].any(axis=2))
    texts: list[list[str]] = [[] for _ in bands]
    rows_of_sixels = _sixel_rows(sixels[band_numbers, register_numbers], widths)
    for band, register, row in zip(band_numbers.tolist(), register_numbers.tolist(), rows_of_sixels, strict=True):
        texts[band].append(f"#{register}{row}")
    # the second 1 keeps the screen under transparent pixels; pixels are square
    return f'\x1bP0;1;0q"1;1;{width};{height}{definitions}{"-".join(map("$".join, texts))}\x1b\\'


def _sixel_rows(rows: ByteArray, widths: IntArray) -> list[str]:
    """Returns the text of each row of sixels, run-length encoded, without those at its end that have no pixels."""
    if not len(rows):
        return []
    starts_run = np.ones(rows.shape, dtype=bool)
    np.not_equal(rows[:, 1:], rows[:, :-1], out=starts_run[:, 1:])
    lengths = np.add.reduceat(np.tile(widths, len(rows)), np.flatnonzero(starts_run))
    runs = [*map(_sixel_run, rows[starts_run].tolist(), lengths.tolist())]
    run_counts = starts_run.sum(axis=1)
    ends = np.cumsum(run_counts)
    stops = ends - (rows[:, -1] == 0)  # without the last run if it has no pixels
    return ["".join(runs[start:stop]) for start, stop in zip((ends - run_counts).tolist(), stops.tolist(), strict=True)]


@lru_cache(maxsize=65_536)
def _sixel_run(sixel: int, count: int) -> str:
    """Returns ``count`` repetitions of a sixel, run-length encoded if that is shorter."""
    character = chr(ord("?") + sixel)  # the character of the sixel without pixels is a question mark
    return f"!{count}{character}" if count > 3 else character * count
