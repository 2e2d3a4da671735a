"""Where things stand in the token lens: heads in their order, the columns of their rows, and how many are seen."""

from dataclasses import dataclass
from typing import NamedTuple

from attnviz.browse.moves.layout import FIXED_LINES, MAX_SCROLLED, MapAxis, text_lines
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State

PATTERN_WIDTHS = ((100, 24), (66, 15), (0, 0))  # columns of the screen, and of what a head does
NUMBER_WIDTH = 20  # columns of the strongest token and its number
MAX_CELL = 4  # columns of a cell
MIN_STRIP = 8  # columns


@dataclass(frozen=True)
class LensColumns:
    """The columns of a line of the lens.

    Attributes:
        name: of the head's name, its two marks counted.
        pattern: of what it does.
        strip: of its row.
        number: of the strongest token and its number.
    """

    name: int
    pattern: int
    strip: int
    number: int

    @property
    def before(self) -> int:
        """Columns before the row."""
        return self.name + self.pattern


class LensPane(NamedTuple):
    """Where things stand in the lens.

    Attributes:
        columns: how a line is divided.
        axis: the tokens that are seen of a row, and the cells they take.
        cell: columns of a cell.
        layers: the heads of each layer whose mean is seen below.
        lines: how many heads are seen.
    """

    columns: LensColumns
    axis: MapAxis
    cell: int
    layers: list[list[int]]
    lines: int


def lens_pane(session: Session, state: State, size: Size) -> LensPane:
    """Where things stand in the lens of the state's token."""
    layers = session.ranking.by_layer(sorted(lens_heads(session, state)))
    count = len(session.units(state.head, state.view)[state.direction == "to"])
    return place_lens(layers, session.names[: session.recorded], count, state, size)


def place_lens(layers: list[list[int]], names: list[str], count: int, state: State, size: Size) -> LensPane:
    """Where things stand in a lens.

    Args:
        layers: the listed heads, layer by layer.
        names: of the recorded heads.
        count: units of a row.
        state: its cursors.
        size: of the terminal.
    """
    columns = _columns(max(map(len, names)), size)
    axis = _axis(count, state.column, columns.strip)
    cell = max(1, min(MAX_CELL, columns.strip // axis.cells))
    body = size.height - FIXED_LINES - text_lines(size)
    means = _layers_about(state.head, layers, (body - 1) // 3)
    return LensPane(columns, axis, cell, means, max(1, body - 1 - (len(means) + 1 if means else 0)))


def lens_heads(session: Session, state: State) -> list[int]:
    """The heads that are listed and are over the same tokens, in their order, or by the weight on the second token."""
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
    """How a line of the lens is divided: by the widest name, what a head does, its row, and its strongest token."""
    name = min(3 + widest, 12)
    pattern = next(wide for least, wide in PATTERN_WIDTHS if size.width >= least)
    strip = max(MIN_STRIP, size.width - name - pattern - NUMBER_WIDTH)
    return LensColumns(name, pattern, strip, max(0, size.width - name - pattern - strip))


def _axis(count: int, column: int, room: int) -> MapAxis:
    """The tokens that are seen, and the cells they take: scrolled by a few, pooled where they are many."""
    if room < count <= MAX_SCROLLED * room:
        start = min(max(0, column), count - room)
        return MapAxis(start, start + room, room)
    return MapAxis(0, count, min(count, room))


def _layers_about(head: int, layers: list[list[int]], most: int) -> list[list[int]]:
    """The layers whose means are seen, those about the chosen head's where not all fit."""
    if len(layers) < 2 or most < 2:
        return []
    here = next((place for place, heads in enumerate(layers) if head in heads), 0)
    first = min(max(0, here - most // 2), max(0, len(layers) - most))
    return layers[first : first + most]
