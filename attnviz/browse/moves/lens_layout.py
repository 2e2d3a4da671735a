"""Lays out the token lens: the order of heads, and the lines and columns of their rows."""

from dataclasses import dataclass
from typing import NamedTuple

from attnviz.browse.moves.layout import FIXED_LINES, MAX_SCROLLED, MapAxis, text_lines
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State

PATTERN_WIDTHS = ((100, 24), (66, 15), (0, 0))  # least columns of the screen, and columns of a head's pattern
NUMBER_WIDTH = 20  # columns of the strongest token and its number
MAX_CELL = 4  # columns of a cell
MIN_STRIP = 8  # columns


@dataclass(frozen=True)
class LensColumns:
    """The widths of the parts of a line of the lens, in terminal columns.

    Attributes:
        name: the head's name, with its two marks.
        pattern: the head's pattern.
        strip: the head's row of cells.
        number: the strongest token and its number.
    """

    name: int
    pattern: int
    strip: int
    number: int

    @property
    def before(self) -> int:
        """The columns before the row of cells."""
        return self.name + self.pattern


class LensPane(NamedTuple):
    """The layout of the lens.

    Attributes:
        columns: the widths of the parts of a line.
        axis: the tokens of a row on the screen, and their cells.
        cell: columns of a cell.
        layers: the heads of each layer whose mean is shown below.
        lines: the number of heads on the screen.
    """

    columns: LensColumns
    axis: MapAxis
    cell: int
    layers: list[list[int]]
    lines: int


def lens_pane(session: Session, state: State, size: Size) -> LensPane:
    """Returns the layout of the lens for the state's token.

    Args:
        session: the recording.
        state: the state, with the lens's token and cursor.
        size: the size of the terminal.
    """
    layers = session.ranking.by_layer(sorted(lens_heads(session, state)))
    count = len(session.units(state.head, state.view)[state.direction == "to"])
    return place_lens(layers, session.names[: session.recorded], count, state, size)


def place_lens(layers: list[list[int]], names: list[str], count: int, state: State, size: Size) -> LensPane:
    """Returns the layout of a lens.

    Args:
        layers: the listed heads, layer by layer.
        names: the names of the recorded heads.
        count: the number of units in a row.
        state: the state, with its cursors.
        size: the size of the terminal.
    """
    columns = _columns(max(map(len, names)), size)
    axis = _axis(count, state.column, columns.strip)
    cell = max(1, min(MAX_CELL, columns.strip // axis.cells))
    body = size.height - FIXED_LINES - text_lines(size)
    means = _layers_about(state.head, layers, (body - 1) // 3)
    return LensPane(columns, axis, cell, means, max(1, body - 1 - (len(means) + 1 if means else 0)))


def lens_heads(session: Session, state: State) -> list[int]:
    """Returns the listed heads over the same tokens, in their order or sorted by the weight on the second token."""
    alike = set(session.alike(state.head))
    listed = [head for head in session.ranking.order(state.view) if head in alike]
    listed = listed or session.alike(state.head)
    if state.second is None:
        return listed
    place = state.second

    def weight(head: int) -> float:
        row = session.token_rows.find(head, state.view, state.token, state.direction)
        if row is None or place >= len(row.values):
            return -2.0
        return abs(float(row.values[place])) if row.visible[place] else -1.0

    return sorted(listed, key=lambda head: -weight(head))


def _columns(widest: int, size: Size) -> LensColumns:
    """Returns the widths of the parts of a line, for names of up to ``widest`` columns."""
    name = min(3 + widest, 12)
    pattern = next(wide for least, wide in PATTERN_WIDTHS if size.width >= least)
    strip = max(MIN_STRIP, size.width - name - pattern - NUMBER_WIDTH)
    return LensColumns(name, pattern, strip, max(0, size.width - name - pattern - strip))


def _axis(count: int, column: int, columns: int) -> MapAxis:
    """Returns the tokens on the screen and their cells: scrolled if nearly all fit, pooled if not."""
    if columns < count <= MAX_SCROLLED * columns:
        start = min(max(0, column), count - columns)
        return MapAxis(start, start + columns, columns)
    return MapAxis(0, count, min(count, columns))


def _layers_about(head: int, layers: list[list[int]], most: int) -> list[list[int]]:
    """Returns the layers whose means are shown, around the chosen head's layer if not all fit."""
    if len(layers) < 2 or most < 2:
        return []
    here = next((place for place, heads in enumerate(layers) if head in heads), 0)
    first = min(max(0, here - most // 2), max(0, len(layers) - most))
    return layers[first : first + most]
