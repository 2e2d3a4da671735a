"""Composes a row of a map as running text with shaded tokens, around the cursor if not all fits."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from rich.cells import cell_len, set_cell_size

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.view.boxes import Paragraph, Piece
from attnviz.media.text import Text
from attnviz.report.picture.colors import ColorScale
from attnviz.text.units import Units


@dataclass(frozen=True, eq=False)
class ShadedTokens:
    """Tokens with the values that shade them.

    Attributes:
        units: the tokens or groups of them.
        values: the value of each unit, ``(units,)``.
        visible: False for masked units, ``(units,)``.
        scale: the colour scale.
        cursor: the unit under the cursor.
    """

    units: Units
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int


def text_pane(tokens: ShadedTokens, width: int, most: int) -> Paragraph:
    """Composes the tokens as a paragraph.

    Args:
        tokens: the tokens.
        width: columns of the pane.
        most: the most lines.
    """
    match tokens.units.tokens.canvas:
        case Text():
            lines = tuple(map(tuple, wrapped(tokens, width, most)))
            return Paragraph(lines, tokens.values, tokens.visible, tokens.scale, tokens.cursor)
        case unknown:
            assert_never(unknown)


def token_at(tokens: ShadedTokens, width: int, most: int, x: int, y: int) -> int | None:
    """Returns the token under a position of the pane; ``None`` if there is none.

    Args:
        tokens: the tokens.
        width: columns of the pane.
        most: the most lines.
        x: the column of the pane.
        y: the line of the pane.
    """
    lines = wrapped(tokens, width, most)
    places = [place for place, piece in lines[y] for _ in range(cell_len(piece))] if y < len(lines) else []
    return places[x] if x < len(places) else None


def wrapped(tokens: ShadedTokens, columns: int, most: int) -> list[list[Piece]]:
    """Returns the tokens in lines, those around the cursor if not all fit.

    Args:
        tokens: the tokens.
        columns: columns of the pane.
        most: the most lines.
    """
    units, cursor, width = tokens.units, tokens.cursor, columns - 2
    start = max(0, cursor - width * most // 2) if len(units) > width * most else 0
    lines: list[list[Piece]] = [[(None, " ")]]
    used = cursor_line = 0
    for place in range(start, len(units)):
        label = units.labels[place]
        piece = label if cell_len(label) <= width else f"{set_cell_size(label, width - 1)}…"
        length = cell_len(piece)
        if used and used + length > width:
            if place > cursor and len(lines) >= cursor_line + most:
                break
            lines.append([(None, " ")])
            used = 0
        if place == cursor:
            cursor_line = len(lines) - 1
        gap = " " if units.is_spaced(place) else ""
        lines[-1] += [(place, piece), *([(None, gap)] if gap else [])]
        used += length + len(gap)
    first = min(max(0, cursor_line - most // 2), max(0, len(lines) - most))
    return lines[first : first + most]


def unique_label(units: Units, place: int) -> str:
    """Returns a token's text, with its number if another token has the same text."""
    label = units.labels[place]
    return f"{label} {units.starts[place]}" if label in _repeated(units) else label


@lru_cache(maxsize=64)
def _repeated(units: Units) -> frozenset[str]:
    return frozenset(label for label, count in Counter(units.labels).items() if count > 1)
