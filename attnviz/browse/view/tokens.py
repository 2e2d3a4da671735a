"""Draws a row of a map as running text with shaded tokens; a long text is cut around the cursor."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.view.cells import shaded_span
from attnviz.browse.view.parts import ClickArea, Hit, ScreenPart
from attnviz.render.terminal.lines import Line, Span
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Quantity
from attnviz.text.units import Units

_Piece = tuple[int | None, str]  # a token and its text; None with the blanks between tokens


@dataclass(frozen=True, eq=False)
class ShadedTokens:
    """Tokens, or groups of them, with the values that shade them, ``(units,)``, and what the shades show."""

    units: Units
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int  # the unit under the cursor
    caption: str
    axis: str = ""  # the field of the state that a click on a token changes; empty for none
    queries: Units | None = None  # None if the values are no row of a query
    query: int | None = None  # None for the mean of several
    are_shares: bool = False  # the values are weights of a query, or of the mean query, which add up to 100 %

    def hit(self, unit: int | None) -> Hit | None:
        """Returns the answer to a click on a unit; ``None`` without a unit, or if tokens do not answer clicks."""
        return None if unit is None or not self.axis else Hit({self.axis: unit})


def shades_caption(description: str, quantity: Quantity, scale: ColorScale) -> str:
    """Returns the caption of a shaded text: what the shades show, and their limits."""
    (_, low), *_, (_, high) = quantity.ticks(scale)
    return f" shades: {description}, {low} to {high}"


def text_part(
    tokens: ShadedTokens, columns: int, max_lines: int, colors: int, chosen_units: Sequence[int] | None = None
) -> ScreenPart:
    """Returns the tokens wrapped to lines, each on the colour of its value, the cursor's token underlined."""
    lines = _wrapped_tokens(tokens, columns, max_lines, chosen_units)
    shown = [token for line in lines for token, _ in line if token is not None]
    fractions = dict(zip(shown, tokens.scale.fraction(tokens.values[shown]).tolist(), strict=True))
    drawn_lines: list[Line] = []
    for line in lines:
        spans = [Span(" ")]  # one column stays blank at each side
        for token, piece in line:
            if token is None or not piece.strip():
                spans.append(Span(piece))
                continue
            value, is_visible = float(tokens.values[token]), bool(tokens.visible[token])
            span = shaded_span(fractions[token], value, is_visible, tokens.scale, colors, piece)
            has_cursor = token == tokens.cursor
            spans.append(replace(span, style=f"{span.style} underline bold".strip()) if has_cursor else span)
        drawn_lines.append(spans)

    def hit(x: int, y: int) -> Hit | None:
        token_of_column = [token for token, piece in lines[y] for _ in range(cell_len(piece))]
        return tokens.hit(token_of_column[x]) if x < len(token_of_column) else None

    return ScreenPart(drawn_lines, [ClickArea(1, 0, columns, len(lines), hit)])


def _wrapped_tokens(
    tokens: ShadedTokens, columns: int, max_lines: int, chosen_units: Sequence[int] | None
) -> list[list[_Piece]]:
    """Returns the tokens wrapped to lines; if there are more than ``max_lines``, those around the cursor."""
    units, cursor, width = tokens.units, tokens.cursor, columns - 2
    shown_units = range(len(units)) if chosen_units is None else chosen_units
    cursor_index = bisect_left(shown_units, cursor)
    start = max(0, cursor_index - width * max_lines // 2) if len(shown_units) > width * max_lines else 0
    lines: list[list[_Piece]] = [[]]
    used_columns = cursor_line = 0
    for token in shown_units[start:]:
        label = units.labels[token]
        piece = label if cell_len(label) <= width else f"{set_cell_size(label, width - 1)}…"
        piece_columns = cell_len(piece)
        if used_columns and used_columns + piece_columns > width:
            if token > cursor and len(lines) >= cursor_line + max_lines:
                break
            lines.append([])
            used_columns = 0
        if token <= cursor:
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
    return frozenset(label for label, count in Counter(units.labels).items() if count > 1)
