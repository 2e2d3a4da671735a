"""Composes a row of a map as running text with shaded tokens; a long text is cut around the cursor."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.state import Size
from attnviz.browse.view.boxes import BoxColumn, Paragraph, Piece, StyledText
from attnviz.browse.view.image_pane import ImageRow, image_pane, images_of, key_at
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
        queries: the units of the queries; ``None`` if the values are no row of a query.
        query: the query of the values; ``None`` for the mean of several.
    """

    units: Units
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int
    caption: str
    queries: Units | None = None
    query: int | None = None

    @property
    def image_row(self) -> ImageRow | None:
        """The values over the images that the tokens are patches of; ``None`` if there are no images.

        ``None`` too if a unit is made of several tokens.
        """
        units, queries = self.units, self.queries or self.units
        if not units.has_unit_for_each_token or not images_of(units.tokens):
            return None
        query = None if self.query is None else int(queries.starts[self.query])
        return ImageRow(units.tokens, self.values, self.visible, self.scale, self.cursor, queries.tokens, query)


def shades_caption(description: str, quantity: Quantity, scale: ColorScale) -> str:
    """Returns the caption of a shaded text: what the shades show, and their limits.

    Args:
        description: the row that shades the text.
        quantity: the quantity of its values.
        scale: the colour scale.
    """
    (_, low), *_, (_, high) = quantity.ticks(scale)
    return f" shades: {description}, {low} to {high}"


def text_pane(tokens: ShadedTokens, size: Size, max_lines: int) -> BoxColumn:
    """Composes the caption, and below it the images that the tokens are patches of, or else the tokens as a paragraph.

    Images that would be too small to recognise are replaced by the paragraph.

    Args:
        tokens: the tokens.
        size: the size of the terminal.
        max_lines: the most lines.
    """
    caption = StyledText(tokens.caption, size.width, "dim")
    image_row = tokens.image_row
    images = None if image_row is None else image_pane(image_row, size.width, max_lines - 1, size)
    if images is not None:
        return BoxColumn((caption, images))
    lines = tuple(map(tuple, wrapped_tokens(tokens, size.width, max_lines - 1)))
    return BoxColumn((caption, Paragraph(lines, tokens.values, tokens.visible, tokens.scale, tokens.cursor)))


def token_at(tokens: ShadedTokens, size: Size, max_lines: int, x: int, y: int) -> int | None:
    """Returns the index of the token, or of the image patch, under a position of the pane; ``None`` if none is there.

    Args:
        tokens: the tokens.
        size: the size of the terminal.
        max_lines: the most lines.
        x: the column of the pane.
        y: the line of the pane.
    """
    image_row = tokens.image_row
    if image_row is not None and image_pane(image_row, size.width, max_lines - 1, size) is not None:
        return key_at(image_row, size.width, max_lines - 1, x, y - 1)
    lines = [[], *wrapped_tokens(tokens, size.width, max_lines - 1)]  # the caption has no token
    if y >= len(lines):
        return None
    token_of_column = [token for token, piece in lines[y] for _ in range(cell_len(piece))]
    return token_of_column[x] if x < len(token_of_column) else None


def wrapped_tokens(tokens: ShadedTokens, columns: int, max_lines: int) -> list[list[Piece]]:
    """Returns the tokens wrapped to lines; if there are more than ``max_lines``, those around the cursor.

    Each piece of a line has the index of its token, ``None`` for a space. A label wider than the pane is cut.

    Args:
        tokens: the tokens.
        columns: columns of the pane.
        max_lines: the most lines.
    """
    units, cursor, width = tokens.units, tokens.cursor, columns - 2  # one column stays blank at each side
    start = max(0, cursor - width * max_lines // 2) if len(units) > width * max_lines else 0
    lines: list[list[Piece]] = [[(None, " ")]]
    used_columns = cursor_line = 0
    for token in range(start, len(units)):
        label = units.labels[token]
        piece = label if cell_len(label) <= width else f"{set_cell_size(label, width - 1)}…"
        piece_columns = cell_len(piece)
        if used_columns and used_columns + piece_columns > width:
            if token > cursor and len(lines) >= cursor_line + max_lines:
                break
            lines.append([(None, " ")])
            used_columns = 0
        if token == cursor:
            cursor_line = len(lines) - 1
        gap = " " if units.is_spaced(token) else ""
        lines[-1] += [(token, piece), *([(None, gap)] if gap else [])]
        used_columns += piece_columns + len(gap)
    first_line = min(max(0, cursor_line - max_lines // 2), max(0, len(lines) - max_lines))
    return lines[first_line : first_line + max_lines]


def unique_label(units: Units, unit: int) -> str:
    """Returns the label of a unit, with the number of its first token if another unit has the same label."""
    label = units.labels[unit]
    return f"{label} {units.starts[unit]}" if label in _repeated_labels(units) else label


@lru_cache(maxsize=64)
def _repeated_labels(units: Units) -> frozenset[str]:
    """Returns the labels that several units have."""
    return frozenset(label for label, count in Counter(units.labels).items() if count > 1)
