"""Lays out the screen: thumbnails in the overview, lines of the lens, panes and cells of an open head."""

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.maps.grouped import Units

FIXED_LINES = 3  # title, status and hints
MIN_TILE_WIDTH, MIN_RANKED_TILE_WIDTH = 6, 11  # columns; a tile of sorted heads has a number after its name
MAX_TILE_WIDTH = 42
TILE_STEP = 4  # columns by which one step of zoom changes a tile
SIDE_WIDTH, WIDE_SIDE_WIDTH = 26, 34
MIN_WIDTH_OF_WIDE_SIDE = 100  # columns of a screen that has the wide side pane
MAX_KEY_LABEL_LINES = 4
TWO_PANES_WIDTH = 120  # columns; a screen of this width lists the heads to the left of the open one
LISTED_SHARE = 0.4  # share of the side pane's lines that list heads
MIN_LABEL_WIDTH, MAX_LABEL_WIDTH = 6, 12
NUMBER_CELL = 4  # columns of a cell with a number; wider if labels need it and the screen has them
MAX_SCROLLED = 1.3  # a map with at most 1.3 times the cells that fit is scrolled, a larger one is pooled
CELLS_A_COLUMN = 3, 2, 1  # cells per column of a map that is drawn in pixels, the smallest cells first
MIN_CELL_PIXELS, THUMBNAIL_CELL_PIXELS = 2, 3  # the side of a cell; small, so that a slow connection keeps up
ANSI_COLORS = 16  # on a terminal with at most so many colours no half blocks are drawn
# Of the lens: columns of the screen, of a head's pattern there, and at most of its name with the marks before it.
PATTERN_AND_NAME_WIDTHS = ((100, 24, 24), (66, 15, 12), (0, 0, 12))
NUMBER_WIDTH = 20  # columns of the lens's strongest token and its number
MAX_LENS_CELL, MIN_STRIP_WIDTH = 4, 8  # columns of a cell, and of a row of cells
LINES_A_MEAN = 2  # lines of the lens for each layer, at least, if the means of all layers are shown


@dataclass(frozen=True)
class Tiles:
    """The layout of the overview: heads in rows of tiles, each a title line above a thumbnail."""

    rows: tuple[tuple[int, ...], ...]  # the heads of each row
    width: int  # columns of a tile; the last one is a gap
    height: int  # lines of a tile
    shown_row_count: int
    cells_a_column: int = 1  # of a thumbnail; more than 1 if the terminal draws pixels
    text_lines: int = 0  # below, for the text that the chosen head shades

    @property
    def columns(self) -> int:
        """The number of terminal columns of a thumbnail."""
        return self.width - 1

    @property
    def pixels(self) -> int:
        """The number of cells along a side of a thumbnail."""
        return self.columns * self.cells_a_column

    def position(self, head: int) -> tuple[int, int]:
        """Returns the row and the column of a head's tile, counted in tiles; the head must be listed."""
        return next((row, heads.index(head)) for row, heads in enumerate(self.rows) if head in heads)

    def on_screen(self, top: int) -> list[int]:
        """Returns the heads whose tiles are on the screen if ``top`` is the first row of tiles."""
        return [head for row in self.rows[top : top + self.shown_row_count] for head in row]


@dataclass(frozen=True)
class MapAxis:
    """The part of a map's axis that is on the screen, from a unit to another, and the number of cells that draw it."""

    start: int
    stop: int
    cells: int

    @property
    def span(self) -> slice:
        """The units on the screen, as a slice."""
        return slice(self.start, self.stop)

    @property
    def pooled(self) -> bool:
        """True if a cell stands for several units."""
        return self.cells < self.stop - self.start

    def cell_of(self, unit: int) -> int:
        """Returns the index of the cell that draws a unit, which must be on the screen."""
        cell = (unit - self.start) * self.cells // (self.stop - self.start)
        # this division and that of unit_of round down, so the unit may be the first one of the next cell
        is_in_next_cell = cell + 1 < self.cells and self.unit_of(cell + 1) <= unit
        return cell + 1 if is_in_next_cell else cell

    def unit_of(self, cell: int) -> int:
        """Returns the first unit that a cell draws."""
        return self.start + cell * (self.stop - self.start) // self.cells

    def shifted_unit(self, unit: int, cells: int) -> int:
        """Returns the unit that is ``cells`` cells after a unit, or before it if negative; it may lie off the map."""
        target = self.cell_of(unit) + cells
        if 0 <= target < self.cells:
            return self.unit_of(target)
        units_per_cell = -(-(self.stop - self.start) // self.cells)  # rounded up, as those off the screen are not drawn
        return unit + cells * units_per_cell


class CellForm(NamedTuple):
    """The way to draw the cells of a map."""

    cell_width: int  # columns of a cell: 4 or more with a number, 2, or 1
    rows_a_line: int  # rows of cells per line: 2 with half blocks, or more with pixels
    header_lines: int  # above the cells: one for the cursor's key, the others for key labels
    cells_a_column: int = 1  # more than 1 only with pixels


class ZoomLevel(NamedTuple):
    """A zoom level of a map: the numbers of queries and keys on the screen, in units, and the way to draw them."""

    rows: int
    columns: int
    form: CellForm
    capacity: tuple[int, int]  # the rows and columns of cells that fit the pane of each map


@dataclass(frozen=True)
class MapPane:
    """The layout of a map: its axes, the way to draw a cell, columns of row labels and of the pane.

    Rows are queries of an open head, or heads that all show the row of one token.
    """

    queries: MapAxis  # or heads
    keys: MapAxis  # or, with one token, the other tokens
    form: CellForm
    label_width: int  # without the blank column after a label
    width: int  # labels included
    name_width: int = 0  # of a head's name before its pattern
    layers: list[list[int]] = field(default_factory=list)  # the heads of each layer whose mean is below the heads

    @property
    def map_width(self) -> int:
        """The number of terminal columns of one map, without row labels."""
        return self.column_of(self.keys.cells - 1) + self.form.cell_width

    def column_of(self, cell: int) -> int:
        """Returns the first terminal column of a column of cells, counted from the map's left edge."""
        return cell // self.form.cells_a_column * self.form.cell_width

    def cell_at(self, column: int, line: int) -> tuple[int, int] | None:
        """Returns the query and the key of the cell under a position of the pane; ``None`` if no cell is there."""
        # maps side by side have a gap of one column
        column_of_map = (column - self.label_width - 1) % (self.map_width + 1)
        column_of_cells = column_of_map // self.form.cell_width * self.form.cells_a_column
        row_of_cells = (line - self.form.header_lines) * self.form.rows_a_line
        is_row, is_column = 0 <= row_of_cells < self.queries.cells, column_of_cells < self.keys.cells
        if column <= self.label_width or not is_row or not is_column:
            return None
        return self.queries.unit_of(row_of_cells), self.keys.unit_of(column_of_cells)

    def map_at(self, column: int) -> int:
        """Returns the index, from 0, of the map at a column of the pane, where several maps stand side by side."""
        return max(0, column - self.label_width - 1) // (self.map_width + 1)


def tiles(session: Session, state: State, size: Size) -> Tiles:
    """Returns the layout of the overview.

    If all maps are short, the text of the chosen head gets as many lines below as leave room for all heads. In the
    other lines, tiles are as large as they can be with all heads on the screen. If no tiles are small enough for that,
    the overview is scrolled. In all cases the state's zoom changes the size of tiles.
    """
    is_sorted = session.ranking.is_sorted(state.view)
    heads = session.ranking.order(state.view)
    layers = [heads] if is_sorted else session.ranking.by_call(heads)
    least_width = min(MIN_RANKED_TILE_WIDTH if is_sorted else MIN_TILE_WIDTH, size.width)

    def rows_of(count: int) -> list[list[int]]:
        """Returns the heads of each ``count`` layers together."""
        return [list(chain(*layers[start : start + count])) for start in range(0, len(layers), count)]

    def fits(groups: list[list[int]], width: int, lines: int) -> bool:
        """True if tiles of this width fit the screen without scrolling; groups that are not sorted stay whole rows."""
        if not is_sorted and max(map(len, groups)) * width > size.width:
            return False
        return len(_tile_rows(groups, size.width // width)) * _tile_height(width) <= lines

    widths = range(least_width, min(MAX_TILE_WIDTH, size.width) + 1)
    max_text_lines = text_lines(size) if size.text_lines is not None and session.has_short_maps else 0
    free_lines, counts_of_lines = size.height - FIXED_LINES, range(max_text_lines, -1, -1)
    # a layer in a row if all can be seen so, else several layers; if all never fit, as many as there are columns for
    shapes = [(1, lines) for lines in counts_of_lines]
    shapes += [(count, lines) for lines in counts_of_lines for count in range(2, len(layers) + 1)]
    most = max(1, size.width // (least_width * max(map(len, layers))))
    fitting = (shape for shape in shapes if fits(rows_of(shape[0]), least_width, free_lines - shape[1]))
    count, text_height = next(fitting, (most, 0))
    groups = rows_of(count)
    body = free_lines - text_height
    # tiles that are scrolled stay near the least width, so that many are on the screen
    whole_row_width = max(least_width, size.width // max(map(len, groups)))
    scrolled_width = min(whole_row_width, least_width + TILE_STEP // 2)
    usual_width = max((width for width in widths if fits(groups, width, body)), default=scrolled_width)
    width_of_highest_tile = 2 * (body - 1)  # one as high as the body
    width = max(least_width, min(usual_width + TILE_STEP * state.tile_zoom, size.width, width_of_highest_tile))
    height = _tile_height(width)
    cells_a_column = 1 if size.character is None else max(1, size.character[0] // THUMBNAIL_CELL_PIXELS)
    return Tiles(
        _tile_rows(groups, size.width // width),
        width,
        height,
        shown_row_count=max(1, body // height),
        cells_a_column=cells_a_column,
        text_lines=text_height or min(max_text_lines, body % height),  # else the lines that rows of tiles leave free
    )


def _tile_height(width: int) -> int:
    """Returns the height of a tile in lines: one for the title, and one for every two columns, so that it is square."""
    return 1 + width // 2


def open_map_pane(session: Session, state: State, size: Size, colors: int) -> MapPane:
    """Returns the layout of the open head's map at the state's zoom, or at the closest level if there are fewer."""
    queries, keys = session.units(state.head, state.view)
    levels = open_map_levels(session, state, size, colors)
    rows, columns, form, (fitting_rows, fitting_columns) = levels[min(state.zoom, len(levels) - 1)]
    if form.cell_width == NUMBER_CELL:  # as wide as the column labels need, if the pane has space
        free_width = fitting_columns * NUMBER_CELL // columns
        form = form._replace(cell_width=max(NUMBER_CELL, min(free_width, keys.label_width + 1)))
    return MapPane(
        queries=MapAxis(state.row, state.row + rows, min(rows, fitting_rows)),
        keys=MapAxis(state.column, state.column + columns, min(columns, fitting_columns)),
        form=form,
        label_width=label_columns(queries),
        width=size.width - side_width(size) - 1,
    )


def open_map_levels(session: Session, state: State, size: Size, colors: int) -> list[ZoomLevel]:
    """Returns the zoom levels of the open head, the whole map first.

    On the levels of a long map the part that is shown is halved until every unit has a cell; then cells grow.
    """
    queries, keys = session.units(state.head, state.view)
    counts, map_count, forms = (len(queries), len(keys)), 1 + len(state.heads_beside), _map_forms(size, colors)
    # one column after the labels, and one for the edge or the gap of each map
    free_columns = size.width - side_width(size) - label_columns(queries) - 1 - map_count
    capacities = {
        form: (
            max(1, (map_lines(size) - form.header_lines) * form.rows_a_line),
            max(1, free_columns // map_count // form.cell_width * form.cells_a_column),
        )
        for form in forms
    }
    fitting_forms = [form for form in forms if _nearly_fits(counts, capacities[form])]
    while (
        len(fitting_forms) > 1
        and fitting_forms[-1].cell_width == 1
        and not _nearly_fits(counts, capacities[fitting_forms[-1]], tolerance=1)
    ):
        fitting_forms.pop()  # smaller pixels show the whole map without scrolling

    levels: list[ZoomLevel] = []
    if not fitting_forms:  # the whole map, then halves of it, as long as cells have to be pooled
        rows, columns = counts
        fitting = capacities[forms[0]]
        while not _nearly_fits((rows, columns), fitting):
            levels.append(ZoomLevel(rows, columns, forms[0], fitting))
            rows, columns = (
                max(min(count, fit), -(-count // 2)) for count, fit in zip((rows, columns), fitting, strict=True)
            )
    for form in forms[forms.index(fitting_forms[-1]) :] if fitting_forms else forms:
        fitting = capacities[form]  # as many units as fit the pane, a cell each
        levels.append(ZoomLevel(min(counts[0], fitting[0]), min(counts[1], fitting[1]), form, fitting))
    return levels


def _nearly_fits(counts: tuple[int, int], capacity: tuple[int, int], tolerance: float = MAX_SCROLLED) -> bool:
    """True if neither axis has more than ``tolerance`` times the cells that fit the pane."""
    return all(count <= tolerance * fitting for count, fitting in zip(counts, capacity, strict=True))


def _map_forms(size: Size, colors: int) -> tuple[CellForm, ...]:
    """Returns the ways to draw cells on this terminal, from the smallest cell to the largest."""
    label_lines = min(MAX_KEY_LABEL_LINES, max(1, map_lines(size) // 5))  # at most a fifth of the pane
    larger_forms = (
        CellForm(cell_width=2, rows_a_line=1, header_lines=1),
        CellForm(cell_width=2, rows_a_line=1, header_lines=1 + label_lines),
        CellForm(cell_width=NUMBER_CELL, rows_a_line=1, header_lines=2),
    )
    if size.character is None:
        return CellForm(cell_width=1, rows_a_line=2 if colors > ANSI_COLORS else 1, header_lines=1), *larger_forms
    width, height = size.character
    counts = [count for count in CELLS_A_COLUMN if count * MIN_CELL_PIXELS <= width]
    pixel_forms = [
        CellForm(cell_width=1, rows_a_line=max(1, height * count // width), header_lines=1, cells_a_column=count)
        for count in counts
    ]
    return *pixel_forms, *larger_forms


def label_columns(queries: Units) -> int:
    """Returns the width of the map's row labels in terminal columns: that of the widest one, within limits."""
    return max(MIN_LABEL_WIDTH, min(MAX_LABEL_WIDTH, queries.label_width))


def side_width(size: Size) -> int:
    """Returns the width of the side pane in terminal columns: larger on a wide screen, half of a narrow one at most."""
    return min(SIDE_WIDTH, size.width // 2) if size.width < MIN_WIDTH_OF_WIDE_SIDE else WIDE_SIDE_WIDTH


def has_two_panes(size: Size) -> bool:
    """True if the screen is wide enough to list the heads to the left of the open one."""
    return size.width >= TWO_PANES_WIDTH


def listed_lines(size: Size) -> int:
    """Returns the height in lines of the list of heads in the side pane; 0 on a narrow screen, which has no list."""
    return int(map_lines(size) * LISTED_SHARE) if has_two_panes(size) else 0


def text_lines(size: Size) -> int:
    """Returns the number of lines of the pane under the map.

    Images take half of the free lines. A text takes its own lines, at most 3, or 5 on a terminal of 30 or more lines,
    and one for its caption. If the length of the text is unknown, the pane has 3 or 5 lines.
    """
    if size.has_images:
        return (size.height - FIXED_LINES) // 2
    max_lines = 3 if size.height < 30 else 5
    return max_lines if size.text_lines is None else min(max_lines, size.text_lines) + 1


def map_lines(size: Size) -> int:
    """Returns the height in lines of the map's pane, between the title and the text."""
    return size.height - FIXED_LINES - text_lines(size)


def _tile_rows(groups: list[list[int]], columns: int) -> tuple[tuple[int, ...], ...]:
    """Returns the rows of tiles: each group of heads, broken after every ``columns`` heads."""
    return tuple(tuple(group[start : start + columns]) for group in groups for start in range(0, len(group), columns))


def open_lens_pane(session: Session, state: State, size: Size) -> MapPane:
    """Returns the layout of the lens, a map of heads by tokens: what is shown of both, and how many means fit below."""
    heads = lens_heads(session, state)
    layers = session.ranking.by_call(sorted(heads))
    queries, keys = session.units(state.head, state.view)
    count = len(keys if state.direction == "to" else queries)
    names = session.names[: session.recorded_count]
    pattern_columns, max_name_columns = next(
        widths for min_screen_width, *widths in PATTERN_AND_NAME_WIDTHS if size.width >= min_screen_width
    )
    name_columns = min(3 + max(map(len, names)), max_name_columns)  # two marks come before a name, and a blank after it
    strip_columns = max(MIN_STRIP_WIDTH, size.width - name_columns - pattern_columns - NUMBER_WIDTH)
    shown_count = strip_columns if count <= MAX_SCROLLED * strip_columns else count
    shown_count = min(count, shown_count)
    start = min(max(0, state.column), count - shown_count)
    columns = MapAxis(start, start + shown_count, min(shown_count, strip_columns))
    # all means if these leave enough lines for heads, else means in a third of the lines
    body = size.height - FIXED_LINES - text_lines(size)
    max_layers = len(layers) if len(layers) <= (body - 1) // LINES_A_MEAN else (body - 1) // 3
    mean_layers: list[list[int]] = []
    if len(layers) > 1 and max_layers > 1:  # those around the layer of the chosen head
        chosen_layer = next((index for index, layer in enumerate(layers) if state.head in layer), 0)
        first = min(max(0, chosen_layer - max_layers // 2), max(0, len(layers) - max_layers))
        mean_layers = layers[first : first + max_layers]
    lines = min(len(heads), max(1, body - 1 - (len(mean_layers) + 1 if mean_layers else 0)))
    top = min(max(0, state.top), len(heads) - lines)
    cell_width = max(1, min(MAX_LENS_CELL, strip_columns // columns.cells))
    return MapPane(
        queries=MapAxis(top, top + lines, lines),
        keys=columns,
        form=CellForm(cell_width, rows_a_line=1, header_lines=1),
        label_width=name_columns + pattern_columns - 1,
        width=name_columns + pattern_columns + strip_columns,
        name_width=name_columns,
        layers=mean_layers,
    )


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
