"""A row as running text: each token on the colour of its value, the part about the cursor where not all fits."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.pixels import shade_at
from attnviz.render.terminal.lines import Line, Span, fit
from attnviz.report.colors import ColorScale
from attnviz.text.units import Units

Piece = tuple[int | None, str]  # of which token, and what is written


@dataclass(frozen=True, eq=False)
class ShadedTokens:
    """Tokens, and the colours that they stand on.

    Attributes:
        units: the tokens.
        values: one each.
        visible: which of them are seen.
        scale: the colours of the values.
        cursor: the token under the cursor.
    """

    units: Units
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int


def text_pane(tokens: ShadedTokens, width: int, most: int, colors: int) -> list[Line]:
    """The tokens as at most so many lines."""
    lines = wrapped(tokens, width, most)
    places = [place for line in lines for place, _ in line if place is not None]
    fractions = dict(zip(places, tokens.scale.fraction(tokens.values[places]).tolist(), strict=True))
    return [
        [Span(" "), *(_shaded(tokens, fractions, place, piece, colors) for place, piece in line[1:])] for line in lines
    ]


def token_at(tokens: ShadedTokens, width: int, most: int, x: int, y: int) -> int | None:
    """The token under a place of the pane, if there is one."""
    lines = wrapped(tokens, width, most)
    places = [place for place, piece in lines[y] for _ in range(cell_len(piece))] if y < len(lines) else []
    return places[x] if x < len(places) else None


def wrapped(tokens: ShadedTokens, columns: int, most: int) -> list[list[Piece]]:
    """The tokens in lines of text, those about the cursor where not all fit."""
    units, cursor, width = tokens.units, tokens.cursor, columns - 2
    start = max(0, cursor - width * most // 2) if len(units) > width * most else 0
    lines: list[list[Piece]] = [[(None, " ")]]
    used = cursor_line = 0
    for place in range(start, len(units)):
        piece = fit(units.labels[place], min(cell_len(units.labels[place]), width))
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


def told_apart(units: Units, place: int) -> str:
    """A token's text, with its number where other tokens have the same."""
    label = units.labels[place]
    return f"{label} {units.starts[place]}" if label in _repeated(units) else label


@lru_cache(maxsize=64)
def _repeated(units: Units) -> frozenset[str]:
    return frozenset(label for label, count in Counter(units.labels).items() if count > 1)


def _shaded(tokens: ShadedTokens, fractions: dict[int, float], place: int | None, piece: str, colors: int) -> Span:
    if place is None or not piece.strip():
        return Span(piece)
    value, visible = float(tokens.values[place]), bool(tokens.visible[place])
    span = shade_at(fractions[place], value, visible, tokens.scale, colors, piece)
    return replace(span, style=f"{span.style} underline bold".strip()) if place == tokens.cursor else span
