"""Composes a row of a map as running text with shaded tokens; a long text is cut around the cursor."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from rich.cells import cell_len, set_cell_size

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.view.boxes import BoxColumn, Paragraph, Piece, StyledText
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Quantity
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
        caption: what the shades show, and their limits.
    """

    units: Units
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int
    caption: str


def shades(description: str, quantity: Quantity, scale: ColorScale) -> str:
    """Returns the caption of a shaded text: what the shades show, and their limits.

    Args:
        description: the row that shades the text.
        quantity: the quantity of its values.
        scale: the colour scale.
    """
    (_, low), *_, (_, high) = quantity.ticks(scale)
    return f" shades: {description}, {low} to {high}"


def text_pane(tokens: ShadedTokens, width: int, max_lines: int) -> BoxColumn:
    """Composes the line that says what shades the text, and the tokens as a paragraph.

    Args:
        tokens: the tokens.
        width: columns of the pane.
        max_lines: the most lines.
    """
    caption = StyledText(tokens.caption, width, "dim")
    match tokens.units.tokens.canvas:
        case Text() | Image():  # an image by the labels of its patches
            lines = tuple(map(tuple, wrapped_tokens(tokens, width, max_lines - 1)))
            return BoxColumn((caption, Paragraph(lines, tokens.values, tokens.visible, tokens.scale, tokens.cursor)))
        case unknown:
            assert_never(unknown)


def token_at(tokens: ShadedTokens, width: int, max_lines: int, x: int, y: int) -> int | None:
    """Returns the token under a position of the pane; ``None`` if no token is there.

    Args:
        tokens: the tokens.
        width: columns of the pane.
        max_lines: the most lines.
        x: the column of the pane.
        y: the line of the pane.
    """
    lines = [[], *wrapped_tokens(tokens, width, max_lines - 1)]
    pieces_of_line = (
        [piece_index for piece_index, piece in lines[y] for _ in range(cell_len(piece))] if y < len(lines) else []
    )
    return pieces_of_line[x] if x < len(pieces_of_line) else None


def wrapped_tokens(tokens: ShadedTokens, columns: int, max_lines: int) -> list[list[Piece]]:
    """Returns the tokens wrapped to lines; if there are too many lines, those around the cursor.

    Args:
        tokens: the tokens.
        columns: columns of the pane.
        max_lines: the most lines.
    """
    units, cursor, width = tokens.units, tokens.cursor, columns - 2
    start = max(0, cursor - width * max_lines // 2) if len(units) > width * max_lines else 0
    lines: list[list[Piece]] = [[(None, " ")]]
    used_columns = cursor_line = 0
    for token in range(start, len(units)):
        label = units.labels[token]
        piece = label if cell_len(label) <= width else f"{set_cell_size(label, width - 1)}…"
        length = cell_len(piece)
        if used_columns and used_columns + length > width:
            if token > cursor and len(lines) >= cursor_line + max_lines:
                break
            lines.append([(None, " ")])
            used_columns = 0
        if token == cursor:
            cursor_line = len(lines) - 1
        gap = " " if units.is_spaced(token) else ""
        lines[-1] += [(token, piece), *([(None, gap)] if gap else [])]
        used_columns += length + len(gap)
    first_line = min(max(0, cursor_line - max_lines // 2), max(0, len(lines) - max_lines))
    return lines[first_line : first_line + max_lines]


def unique_label(units: Units, unit: int) -> str:
    """Returns the label of a unit, with the number of its first token if another unit has the same label."""
    label = units.labels[unit]
    return f"{label} {units.starts[unit]}" if label in _repeated_labels(units) else label


@lru_cache(maxsize=64)
def _repeated_labels(units: Units) -> frozenset[str]:
    return frozenset(label for label, count in Counter(units.labels).items() if count > 1)
