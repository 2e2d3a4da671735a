"""Lays out the token lens, which shows one token's row in every head: the order of heads, and their lines."""

from dataclasses import dataclass
from typing import NamedTuple

from attnviz.browse.moves.layout import FIXED_LINES, MAX_SCROLLED, MapAxis, text_lines
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State

PATTERN_WIDTHS = ((100, 24), (66, 15), (0, 0))  # least columns of the screen, and columns of a head's pattern
NUMBER_WIDTH = 20  # columns of the strongest token and its number
MAX_NAME_WIDTH = 12  # columns of a head's name, with the marks before it
MAX_CELL_WIDTH = 4  # columns of a cell
MIN_STRIP_WIDTH = 8  # columns
LINES_A_MEAN = 2  # lines of the lens for each layer, at least, if the means of all layers are shown


@dataclass(frozen=True)
class _LensColumns:
    """The widths of the parts of a line of the lens, in terminal columns.

    Attributes:
        name: the head's name, after two marks.
        pattern: the head's pattern.
        strip: the head's row of cells.
        number: the strongest token and its number.
    """

    name: int
    pattern: int
    strip: int
    number: int

    @property
    def label_width(self) -> int:
        """The columns to the left of the row of cells: name and pattern."""
        return self.name + self.pattern


class LensPane(NamedTuple):
    """The layout of the lens.

    Attributes:
        columns: the widths of the parts of a line.
        axis: the part of a row that is on the screen, and its cells.
        cell_width: columns of a cell.
        layers: for each layer whose mean is shown below the heads, its heads.
        lines: the number of heads that fit the screen.
    """

    columns: _LensColumns
    axis: MapAxis
    cell_width: int
    layers: list[list[int]]
    lines: int


def open_lens_pane(session: Session, state: State, size: Size) -> LensPane:
    """Returns the layout of the lens for the state's token."""
    layers = session.ranking.by_call(sorted(lens_heads(session, state)))
    queries, keys = session.units(state.head, state.view)
    count = len(keys if state.direction == "to" else queries)
    return lens_pane(layers, session.names[: session.recorded_count], count, state, size)


def lens_pane(layers: list[list[int]], names: list[str], count: int, state: State, size: Size) -> LensPane:
    """Returns the layout of a lens: the widths of a line's parts, the units shown, and how many heads and means fit."""
    columns = _lens_columns(max(map(len, names)), size)
    axis = _strip_axis(count, state.column, columns.strip)
    cell = max(1, min(MAX_CELL_WIDTH, columns.strip // axis.cells))
    body = size.height - FIXED_LINES - text_lines(size)
    # all means if these leave enough lines for heads, else means in a third of the lines
    max_layers = len(layers) if len(layers) <= (body - 1) // LINES_A_MEAN else (body - 1) // 3
    mean_layers = _layers_around(state.head, layers, max_layers)
    mean_lines = len(mean_layers) + 1 if mean_layers else 0
    return LensPane(columns, axis, cell, mean_layers, max(1, body - 1 - mean_lines))


def lens_heads(session: Session, state: State) -> list[int]:
    """Returns the heads of the lens: the listed heads over the same tokens as the chosen one.

    If the filter hides all of these, returns all heads over the same tokens. With a sort token, heads with a large
    absolute weight on it come first; heads in which it is masked, and then heads without a computed row, come last.
    """
    same_tokens = set(session.heads_over_same_tokens(state.head))
    listed_heads = [head for head in session.ranking.order(state.view) if head in same_tokens]
    listed_heads = listed_heads or session.heads_over_same_tokens(state.head)
    if state.sort_token is None:
        return listed_heads
    unit = state.sort_token

    def weight_or_rank(head: int) -> float:
        """Returns a head's absolute weight on the sort token; -1 if it is masked, -2 if it is not computed yet."""
        row = session.token_rows.find(head, state.view, state.token, state.direction)
        if row is None or unit >= len(row.values):
            return -2.0
        return abs(float(row.values[unit])) if row.visible[unit] else -1.0

    return sorted(listed_heads, key=lambda head: -weight_or_rank(head))


def _lens_columns(name_width: int, size: Size) -> _LensColumns:
    """Returns the widths of the parts of a line if the longest name has ``name_width`` columns."""
    name_columns = min(3 + name_width, MAX_NAME_WIDTH)  # two marks come before the name, and a blank after it
    pattern_columns = next(columns for min_screen_width, columns in PATTERN_WIDTHS if size.width >= min_screen_width)
    strip_columns = max(MIN_STRIP_WIDTH, size.width - name_columns - pattern_columns - NUMBER_WIDTH)
    return _LensColumns(
        name_columns,
        pattern_columns,
        strip_columns,
        max(0, size.width - name_columns - pattern_columns - strip_columns),
    )


def _strip_axis(count: int, column: int, columns: int) -> MapAxis:
    """Returns the units on the screen and their cells."""
    if columns < count <= MAX_SCROLLED * columns:
        start = min(max(0, column), count - columns)
        return MapAxis(start, start + columns, columns)
    return MapAxis(0, count, min(count, columns))


def _layers_around(head: int, layers: list[list[int]], max_layers: int) -> list[list[int]]:
    """Returns up to ``max_layers`` layers around the layer of ``head``, or the first ones if no layer has the head."""
    if len(layers) < 2 or max_layers < 2:
        return []
    chosen_layer = next((index for index, heads in enumerate(layers) if head in heads), 0)
    first = min(max(0, chosen_layer - max_layers // 2), max(0, len(layers) - max_layers))
    return layers[first : first + max_layers]
