"""Cuts styled runs of text to columns of a terminal, and writes them with the colours that the look allows."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import IO

import numpy as np
from rich.cells import cell_len, set_cell_size

from attnviz.report.picture.colors import Rgb
from attnviz.report.picture.look import Look

ASCII_FOR = str.maketrans(
    {"…": "~", "·": ".", "−": "-", "“": '"', "”": '"', "␣": "_", "◌": "o", "±": "~", "–": "-", "≥": ">", "×": "x"}
)
DISPUTED = {"Mc", "Me", "Mn", "Cf", "Sk"}  # categories of characters whose width differs between terminals
WIDEST = {"Mc": 1, "Sk": 2}  # their width in the terminals that give them most columns
WORDS = re.compile(r"( *[^ ]*)( *)")
CUBE = np.array([0, 95, 135, 175, 215, 255])


@dataclass(frozen=True)
class Span:
    """A run of text in one style; ``None`` keeps the colour of the terminal."""

    text: str
    ink: Rgb | None = None
    paper: Rgb | None = None
    style: str = ""


Line = list[Span]


def print_lines(lines: list[Line], look: Look, file: IO[bytes]) -> None:
    """Writes lines as UTF-8 with escapes for the colours that the look allows, or as plain ASCII.

    Args:
        lines: the lines to write.
        look: the number of colours; ``ascii`` asks for plain ASCII.
        file: the open file to write to.
    """
    if look.ascii:
        texts = (_plain(line).translate(ASCII_FOR).encode("ascii", "backslashreplace") for line in lines)
    else:
        shown = (_in_columns(line) for line in lines) if look.moves_cursor and look.colors else lines
        texts = (_encoded(line, look.colors).encode() for line in shown)
    file.write(b"".join(text + b"\n" for text in texts))


def fit(text: str, width: int) -> str:
    """The text in exactly ``width`` columns: padded, or cut with an ellipsis."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1) + "…", width)


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` columns, broken at spaces if possible."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
            continue
        pieces = list(_chopped(word, width))
        lines = [*lines, *pieces] if lines[-1] else [*lines[:-1], *pieces]
    return lines


def right(text: str, width: int) -> str:
    """The text right-aligned in ``width`` columns, cut if it is longer."""
    return fit(" " * (width - cell_len(text) - _spare(text)) + text, width)


def widest(labels: Iterable[str]) -> int:
    """The columns of the widest label; 1 if there is none."""
    return max((cell_len(label) + _spare(label) for label in labels), default=1)


def _spare(text: str) -> int:
    """The extra columns of a text in terminals that give each vowel sign and skin tone columns of its own."""
    return 0 if text.isascii() else sum(WIDEST.get(unicodedata.category(one), 0) for one in text)


def cut(line: Line, width: int) -> Line:
    """The line, cut to a width in columns."""
    parts: Line = []
    for span in line:
        space = width - sum(cell_len(one.text) for one in parts)
        parts.append(replace(span, text=fit(span.text, min(space, cell_len(span.text))) if space > 0 else ""))
    return parts


def in_ascii(text: str) -> str:
    """The text in ASCII: signs become similar signs, all other characters their code point."""
    return text.translate(ASCII_FOR).encode("ascii", "backslashreplace").decode("ascii")


def nearest_of_256(color: Rgb) -> int:
    """The number of the nearest colour of a 256-colour terminal, from its colour cube or its greys."""
    wanted = np.array(color)
    steps = np.abs(wanted[:, None] - CUBE).argmin(axis=1)
    grey = int(np.clip(round((wanted.mean() - 8) / 10), 0, 23))
    cube_error = np.square(CUBE[steps] - wanted).sum()
    grey_error = np.square(8 + 10 * grey - wanted).sum()
    return 232 + grey if grey_error < cube_error else int(16 + steps @ (36, 6, 1))


def _chopped(word: str, width: int) -> Iterator[str]:
    piece = ""
    for character in word:
        if cell_len(piece + character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def _plain(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def _in_columns(line: Line) -> Line:
    """The line with escapes that move the cursor to the right column after characters of disputed width.

    An escape comes after a gap wide enough for the columns that a terminal may have used too many.
    """
    placed: Line = []
    column, too_far, disputed = 1, 0, False
    for span in line:
        text = ""
        for word, gap in [(span.text, "")] if span.text.isascii() else WORDS.findall(span.text):
            column, too_far, disputed = (
                column + cell_len(word + gap),
                too_far + _spare(word),
                disputed or _disputed(word),
            )
            text += word + gap
            if disputed and too_far < len(gap):
                text, too_far, disputed = f"{text}\x1b[{column}G", 0, False
        placed.append(replace(span, text=text))
    return placed


def _disputed(word: str) -> bool:
    return not word.isascii() and any(unicodedata.category(one) in DISPUTED for one in word)


def _encoded(line: Line, colors: int) -> str:
    """The line with one escape for each run of spans of equal style."""
    if not colors:
        return _plain(line)
    encoded = ""
    for codes, spans in groupby(line, lambda span: _codes(span, colors)):
        text = "".join(span.text for span in spans)
        encoded += f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
    return encoded.rstrip(" ")


def _codes(span: Span, colors: int) -> str:
    codes = {"bold": ["1"], "dim": ["2"], "underline": ["1", "4"], "": []}[span.style]
    codes = codes + ([f"38;{_color_code(span.ink, colors)}"] if span.ink is not None else [])
    return ";".join(codes + ([f"48;{_color_code(span.paper, colors)}"] if span.paper is not None else []))


@cache
def _color_code(color: Rgb, colors: int) -> str:
    return f"5;{nearest_of_256(color)}" if colors == 256 else "2;{};{};{}".format(*color)
