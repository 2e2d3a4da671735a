"""Where things stand in the token lens: heads in their order, the columns of their rows, and how many are seen."""

from dataclasses import dataclass

from attnviz.browse.layout import FIXED_LINES, MAX_SCROLLED, MapAxis, text_lines
from attnviz.browse.session import Session
from attnviz.browse.state import Size, State

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


def lens_columns(session: Session, size: Size) -> LensColumns:
    """How a line of the lens is divided."""
    name = min(3 + max(map(len, session.names[: session.recorded])), 12)
    pattern = next(wide for least, wide in PATTERN_WIDTHS if size.width >= least)
    strip = max(MIN_STRIP, size.width - name - pattern - NUMBER_WIDTH)
    return LensColumns(name, pattern, strip, max(0, size.width - name - pattern - strip))


def lens_heads(session: Session, state: State) -> list[int]:
    """The heads that are listed and are over the same tokens, in their order, or by the weight on the second token."""
    alike = set(session.alike(state.head))
    listed = [head for head in session.ranking.order(state.view) if head in alike]
    listed = listed or session.alike(state.head)
    if state.second is None:
        return listed
    place = state.second

    def weight(head: int) -> float:
        row = session.token_row(head, state.view, state.token, state.direction)
        if row is None or place >= len(row.values):
            return -2.0
        return abs(float(row.values[place])) if row.visible[place] else -1.0

    return sorted(listed, key=lambda head: -weight(head))


def lens_layers(session: Session, state: State, size: Size) -> list[list[int]]:
    """The heads of the layers whose means are seen below, those about the chosen head's where not all fit."""
    layers = session.ranking.by_layer(sorted(lens_heads(session, state)))
    most = (_body(size) - 1) // 3
    if len(layers) < 2 or most < 2:
        return []
    here = next((place for place, heads in enumerate(layers) if state.head in heads), 0)
    first = min(max(0, here - most // 2), max(0, len(layers) - most))
    return layers[first : first + most]


def lens_lines(session: Session, state: State, size: Size) -> int:
    """How many heads are seen."""
    layers = len(lens_layers(session, state, size))
    return max(1, _body(size) - 1 - (layers + 1 if layers else 0))


def lens_axis(session: Session, state: State, size: Size) -> MapAxis:
    """The tokens of the rows that are seen, and the cells they take: scrolled by a few, pooled where they are many."""
    count = len(session.units(state.head, state.view)[state.direction == "to"])
    room = lens_columns(session, size).strip
    if room < count <= MAX_SCROLLED * room:
        start = min(max(0, state.column), count - room)
        return MapAxis(start, start + room, room)
    return MapAxis(0, count, min(count, room))


def lens_cell(session: Session, state: State, size: Size) -> int:
    """Columns of a cell."""
    cells = lens_axis(session, state, size).cells
    return max(1, min(MAX_CELL, lens_columns(session, size).strip // cells))


def _body(size: Size) -> int:
    return size.height - FIXED_LINES - text_lines(size)
