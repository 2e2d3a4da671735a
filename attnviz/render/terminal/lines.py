"""Measures the terminal, cuts styled text to its columns, and writes it with the colours that the look allows."""

import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import groupby
from typing import IO

import numpy as np
from rich.cells import cell_len, set_cell_size

from attnviz.report.picture.colors import Rgb
from attnviz.report.picture.look import Look

ASCII_FOR = str.maketrans(
    {"…": "~", "·": ".", "−": "-", "“": '"', "”": '"', "␣": "_", "◌": "o", "±": "~", "–": "-", "≥": ">", "×": "x"}
    | {"→": ">"}
)
DISPUTED = {"Mc", "Me", "Mn", "Cf", "Sk"}  # categories of characters whose width differs between terminals
EXTRA_COLUMNS = {"Mc": 1, "Sk": 2}  # that some terminals add for a character of the category
WORDS = re.compile(r"( *[^ ]*)( *)")
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
CUBE = np.array([0, 95, 135, 175, 215, 255])


@dataclass(frozen=True)
class Span:
    """A run of text in one style; a colour of ``None`` is that of the terminal."""

    text: str
    ink: Rgb | None = None
    paper: Rgb | None = None
    style: str = ""


Line = list[Span]


def print_lines(lines: list[Line], look: Look, file: IO[bytes]) -> None:
    """Writes lines to a file as UTF-8 with escape sequences for colours, or as plain ASCII."""
    if look.ascii:
        texts = (_plain_text(line).translate(ASCII_FOR).encode("ascii", "backslashreplace") for line in lines)
    else:
        lines_with_moves = (_with_cursor_moves(line) for line in lines) if look.moves_cursor and look.colors else lines
        texts = (_escaped_text(line, look.colors).encode() for line in lines_with_moves)
    file.write(b"".join(text + b"\n" for text in texts))


def fit(text: str, width: int) -> str:
    """Returns a text of exactly ``width`` columns: padded with blanks, or cut with an ellipsis."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1) + "…", width)


def wrap(text: str, width: int) -> list[str]:
    """Returns a text in lines of at most ``width`` columns, broken at spaces, and within words that are longer."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
            continue
        pieces = [""]  # of a word that is longer than a line
        for character in word:
            if cell_len(pieces[-1] + character) > width:
                pieces.append("")
            pieces[-1] += character
        lines = [*lines, *pieces] if lines[-1] else [*lines[:-1], *pieces]
    return lines


def right_aligned(text: str, width: int) -> str:
    """Returns a text right-aligned in ``width`` columns; a longer text is cut."""
    return fit(" " * (width - cell_len(text) - _extra_columns(text)) + text, width)


def widest_label(labels: Iterable[str]) -> int:
    """Returns the width in columns of the widest label; 1 if there is no label."""
    return max((cell_len(label) + _extra_columns(label) for label in labels), default=1)


@lru_cache(4096)
def _extra_columns(text: str) -> int:
    """Returns the columns added to a text by terminals that show vowel signs and skin tones separately; 0 for ASCII."""
    return 0 if text.isascii() else sum(EXTRA_COLUMNS.get(unicodedata.category(character), 0) for character in text)


def cut(line: Line, width: int) -> Line:
    """Returns a line of at most ``width`` columns; spans beyond them are empty."""
    parts: Line = []
    for span in line:
        free_columns = width - sum(cell_len(part.text) for part in parts)
        text = fit(span.text, min(free_columns, cell_len(span.text))) if free_columns > 0 else ""
        parts.append(replace(span, text=text))
    return parts


def bar(value: float, full_value: float, width: int) -> str:
    """Returns a bar of blocks, padded with blanks to ``width`` columns.

    It is all blanks if the value is not finite or ``full_value`` is not above 0.
    """
    if not math.isfinite(value) or not full_value > 0:
        return " " * width
    return blocks(min(8 * width, round(8 * width * abs(value) / full_value))).ljust(width)


def blocks(eighths: int) -> str:
    """Returns a bar that is ``eighths`` eighths of a column long."""
    full_blocks, remainder = divmod(eighths, 8)
    return "█" * full_blocks + EIGHTHS[remainder]


def to_ascii(text: str) -> str:
    """Returns a text in ASCII: signs of `ASCII_FOR` are replaced, others become an escape with their code point."""
    return text.translate(ASCII_FOR).encode("ascii", "backslashreplace").decode("ascii")


def nearest_of_256(color: Rgb) -> int:
    """Returns the number of the nearest colour of a 256-colour terminal: of its 6 x 6 x 6 cube, or of its 24 greys."""
    channels = np.array(color)
    steps = np.abs(channels[:, None] - CUBE).argmin(axis=1)
    # Numbers 16 to 231 are the cube; 232 to 255 are greys from 8 to 238 in steps of 10.
    grey = int(np.clip(round((channels.mean() - 8) / 10), 0, 23))
    cube_error = np.square(CUBE[steps] - channels).sum()
    grey_error = np.square(8 + 10 * grey - channels).sum()
    return 232 + grey if grey_error < cube_error else int(16 + steps @ (36, 6, 1))


def _plain_text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def _with_cursor_moves(line: Line) -> Line:
    """Returns a line that moves the cursor to its true column in gaps after text of disputed width."""
    spans: Line = []
    column, extra_columns, has_disputed_width = 1, 0, False
    for span in line:
        text = ""
        for word, gap in [(span.text, "")] if span.text.isascii() else WORDS.findall(span.text):
            column += cell_len(word + gap)
            extra_columns += _extra_columns(word)
            has_disputed_width = has_disputed_width or not DISPUTED.isdisjoint(map(unicodedata.category, word))
            text += word + gap
            if has_disputed_width and extra_columns < len(gap):
                text += f"\x1b[{column}G"
                extra_columns, has_disputed_width = 0, False
        spans.append(replace(span, text=text))
    return spans


def _escaped_text(line: Line, colors: int) -> str:
    """Returns a line as text, with escape sequences around each styled run of spans; unstyled blanks at its end go."""
    if not colors:
        return _plain_text(line)
    escaped_text = ""
    for codes, spans in groupby(line, lambda span: _style_codes(span, colors)):
        text = "".join(span.text for span in spans)
        escaped_text += f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
    return escaped_text.rstrip(" ")


def _style_codes(span: Span, colors: int) -> str:
    """Returns the parameters of the escape sequence of a span's style and colours, with semicolons; "" for none."""
    codes = {"bold": ["1"], "dim": ["2"], "underline": ["1", "4"], "": []}[span.style]
    if span.ink is not None:
        codes.append(f"38;{_color_code(span.ink, colors)}")
    if span.paper is not None:
        codes.append(f"48;{_color_code(span.paper, colors)}")
    return ";".join(codes)


@cache
def _color_code(color: Rgb, colors: int) -> str:
    return f"5;{nearest_of_256(color)}" if colors == 256 else "2;{};{};{}".format(*color)


MIN_COLUMNS = 20  # the least width that is drawn for, even if the terminal is narrower
LINES_WITHOUT_TERMINAL = 24  # assumed if no stream is a terminal, as in a log or a notebook


def look_of_terminal(look: Look, reserved_lines: int = 0) -> Look:
    """Returns a look with the size and the colours of the terminal; in ASCII if standard output is not in UTF-8.

    A pipe gets the size of the terminal in which the command runs, or 80 x 24 without a terminal.
    """
    from rich.console import Console

    console = Console()
    colors = {"truecolor": 2**24, "256": 256}.get(console.color_system or "", 0)
    is_height_known = os.environ.get("LINES", "").isdigit() or any(map(os.isatty, range(3)))
    screen_lines = console.height if is_height_known else LINES_WITHOUT_TERMINAL
    # Terminals that say their background put its number at the end: 7 and 15 are white. Most others are dark,
    # and notebooks light.
    is_light = console.is_jupyter or os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return replace(
        look,
        width=max(console.width, MIN_COLUMNS),
        height=max(screen_lines - reserved_lines, 1),
        moves_cursor=sys.stdout.isatty(),
        theme=look.theme or ("light" if is_light else "dark"),
        colors=0 if console.no_color or look.ascii else colors,
        ascii=look.ascii or encoding != "utf8",
    )
