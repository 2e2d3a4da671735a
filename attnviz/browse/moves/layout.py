"""Lays out the inspector's screen: thumbnails in the overview, panes and cells in an open head."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attnviz.browse.session.session import Session
from attnviz.browse.session.state import MapShape, Size, State

FIXED_LINES = 3  # title, status and hints
MIN_TILE_WIDTH, MIN_RANKED_TILE_WIDTH = 6, 11  # columns; a ranked tile has a number beside its name
MAX_TILE_WIDTH = 42
TILE_STEP = 4
SIDE_WIDTH, WIDE_SIDE_WIDTH = 26, 34
TWO_PANES_WIDTH = 120  # columns; a screen as wide lists the heads beside the open one
HELP_WIDTH = 40  # columns of a key in the help
LISTED_SHARE = 0.4  # share of the lines beside the map that list heads
MAX_LABEL_WIDTH = 12
NUMBER_CELL = 4  # columns of a cell with a number; wider if labels need it and the screen has them
MAX_SCROLLED = 1.3  # a map with up to 1.3 times the cells that fit is scrolled, a larger one is pooled
CELLS_A_COLUMN = 3, 2, 1  # cells per column of a map in pixels, from the smallest cells
MIN_CELL_PIXELS, THUMBNAIL_CELL_PIXELS = 2, 3  # the side of a cell; small, so that a slow connection keeps up
ANSI_COLORS = 16  # a terminal with no more colours draws no half blocks


@dataclass(frozen=True)
class Tiles:
    """The layout of the overview: heads in rows of tiles, each a title line above a thumbnail.

    Attributes:
        rows: the heads of each row.
        width: columns of a tile; the last one is a gap.
        height: lines of a tile.
        shown: the number of rows on the screen.
        cells_a_column: cells of a thumbnail per column; more than 1 if the terminal draws pixels.
    """

    rows: tuple[tuple[int, ...], ...]
    width: int
    height: int
    shown: int
    cells_a_column: int = 1

    @property
    def columns(self) -> int:
        """The columns of a thumbnail."""
        return self.width - 1

    @property
    def pixels(self) -> int:
        """The side of a thumbnail in cells."""
        return self.columns * self.cells_a_column

    def place(self, head: int) -> tuple[int, int]:
        """Returns the row and the column of a head."""
        return next((row, heads.index(head)) for row, heads in enumerate(self.rows) if head in heads)

    def on_screen(self, top: int) -> list[int]:
        """Returns the heads on the screen if ``top`` is the first row."""
        return [head for row in self.rows[top : top + self.shown] for head in row]

    def head_at(self, top: int, column: int, line: int) -> int | None:
        """Returns the head under a position of the body; ``None`` if there is none.

        Args:
            top: the first row of tiles on the screen.
            column: the column of the body.
            line: the line of the body.
        """
        row, across = top + line // self.height, column // self.width
        on_a_row = line < self.shown * self.height and row < len(self.rows) and across < len(self.rows[row])
        return self.rows[row][across] if on_a_row else None


@dataclass(frozen=True)
class MapAxis:
    """The part of an axis on the screen, and the cells that draw it.

    Attributes:
        start: the first unit.
        stop: the unit after the last.
        cells: the number of cells.
    """

    start: int
    stop: int
    cells: int

    @property
    def span(self) -> slice:
        """The units as a slice."""
        return slice(self.start, self.stop)

    @property
    def pooled(self) -> bool:
        """True if a cell stands for several units."""
        return self.cells < self.stop - self.start

    def cell_of(self, unit: int) -> int:
        """Returns the cell of a unit."""
        near = (unit - self.start) * self.cells // (self.stop - self.start)
        return near + 1 if near + 1 < self.cells and self.unit_of(near + 1) <= unit else near

    def unit_of(self, cell: int) -> int:
        """Returns the first unit of a cell."""
        return self.start + cell * (self.stop - self.start) // self.cells

    def moved(self, unit: int, cells: int) -> int:
        """Returns the unit ``cells`` cells further; off the screen, the unit that many times a cell's length away."""
        target = self.cell_of(unit) + cells
        if 0 <= target < self.cells:
            return self.unit_of(target)
        return unit + cells * -(-(self.stop - self.start) // self.cells)


@dataclass(frozen=True)
class CellForm:
    """The way to draw a cell.

    Attributes:
        cell: columns of a cell: 4 or more with a number, 2, or 1.
        rows_a_line: rows of cells per line: 2 with half blocks, or more with pixels.
        header: lines above the cells: the cursor's key, then key labels.
        cells_a_column: cells per column; more than 1 with pixels.
    """

    cell: int
    rows_a_line: int
    header: int
    cells_a_column: int = 1

    def capacity(self, size: Size, labels: int, maps: int = 1) -> tuple[int, int]:
        """Returns the rows and columns of cells that fit the pane, for each map.

        Args:
            size: the size of the terminal.
            labels: columns of the row labels.
            maps: the number of maps side by side.
        """
        rows = (map_lines(size) - self.header) * self.rows_a_line
        columns = (size.width - side_width(size) - labels - 1 - maps) // maps // self.cell * self.cells_a_column
        return max(1, rows), max(1, columns)


@dataclass(frozen=True)
class ZoomLevel:
    """A zoom level of a map.

    Attributes:
        rows: units of the queries on the screen.
        columns: units of the keys on the screen.
        form: the way to draw a cell.
    """

    rows: int
    columns: int
    form: CellForm


@dataclass(frozen=True)
class MapPane:
    """The layout of an open head's map.

    Attributes:
        queries: the axis of the rows.
        keys: the axis of the columns.
        form: the way to draw a cell.
        labels: columns of the row labels.
        width: columns of the pane, labels included.
    """

    queries: MapAxis
    keys: MapAxis
    form: CellForm
    labels: int
    width: int

    @property
    def map_width(self) -> int:
        """The columns of one map, without row labels."""
        return self.column_of(self.keys.cells - 1) + self.form.cell

    def column_of(self, cell: int) -> int:
        """Returns the first column of the screen, counted from the map's left, of a column of cells."""
        return cell // self.form.cells_a_column * self.form.cell

    def cell_at(self, column: int, line: int) -> tuple[int, int] | None:
        """Returns the query and the key under a position of the pane, in any of the maps; ``None`` outside."""
        across = (column - self.labels - 1) % (self.map_width + 1) // self.form.cell * self.form.cells_a_column
        down = (line - self.form.header) * self.form.rows_a_line
        if column <= self.labels or not 0 <= down < self.queries.cells or across >= self.keys.cells:
            return None
        return self.queries.unit_of(down), self.keys.unit_of(across)

    def map_at(self, column: int) -> int:
        """Returns which of the maps side by side a column belongs to, from 0."""
        return max(0, column - self.labels - 1) // (self.map_width + 1)


def tiles(session: Session, state: State, size: Size) -> Tiles:
    """Returns the tiles of the overview: as large as all heads fit, but never too small to read.

    Args:
        session: the recording.
        state: the state, with the order and the filter of heads.
        size: the size of the terminal.
    """
    body = size.height - FIXED_LINES
    ranked = session.ranking.is_sorted(state.view)
    listed = session.ranking.order(state.view)
    groups = [listed] if ranked else session.ranking.by_layer(listed)
    smallest = min(MIN_RANKED_TILE_WIDTH if ranked else MIN_TILE_WIDTH, size.width)
    fitting = [
        width
        for width in range(smallest, min(MAX_TILE_WIDTH, size.width) + 1)
        if _all_fit(groups, width, size.width, body, whole_rows=not ranked)
    ]
    whole = [width for width in range(smallest, size.width + 1) if max(map(len, groups)) * width <= size.width]
    chosen = max(fitting, default=min(max(whole, default=smallest), smallest + TILE_STEP // 2))
    width = max(smallest, min(chosen + TILE_STEP * state.enlarged, size.width, 2 * (body - 1)))
    height = tile_height(width)
    cells = 1 if size.character is None else max(1, size.character[0] // THUMBNAIL_CELL_PIXELS)
    return Tiles(_chunks(groups, size.width // width), width, height, max(1, body // height), cells)


def tile_height(width: int) -> int:
    """Returns the lines of a tile: a title, and a line for every two pixels."""
    return 1 + width // 2


def map_of(session: Session, state: State, size: Size, colors: int) -> MapPane:
    """Returns the layout of the open head's map at the state's zoom.

    Args:
        session: the recording.
        state: the state.
        size: the size of the terminal.
        colors: the number of colours of the terminal.
    """
    return place_map(session.shape(state.head, state.view), state, size, colors)


def levels(session: Session, state: State, size: Size, colors: int) -> tuple[ZoomLevel, ...]:
    """Returns the zoom levels of the open head, the whole map first.

    Args:
        session: the recording.
        state: the state.
        size: the size of the terminal.
        colors: the number of colours of the terminal.
    """
    return zoom_levels(session.shape(state.head, state.view), 1 + len(state.beside), size, colors)


def place_map(shape: MapShape, state: State, size: Size, colors: int) -> MapPane:
    """Returns the layout of a map at the state's zoom.

    Args:
        shape: the size of the map.
        state: the state.
        size: the size of the terminal.
        colors: the number of colours of the terminal.
    """
    maps, labels = 1 + len(state.beside), label_columns(shape)
    every = zoom_levels(shape, maps, size, colors)
    level = every[min(state.zoom, len(every) - 1)]
    rows, columns = level.form.capacity(size, labels, maps)
    form = level.form
    if form.cell == NUMBER_CELL:
        form = replace(form, cell=max(NUMBER_CELL, min(columns * NUMBER_CELL // level.columns, shape.column_label + 1)))
    return MapPane(
        queries=MapAxis(state.row, state.row + level.rows, min(level.rows, rows)),
        keys=MapAxis(state.column, state.column + level.columns, min(level.columns, columns)),
        form=form,
        labels=labels,
        width=size.width - side_width(size) - 1,
    )


def zoom_levels(shape: MapShape, maps: int, size: Size, colors: int) -> tuple[ZoomLevel, ...]:
    """Returns the zoom levels: the whole map, halves of it until every unit has a cell, then larger cells.

    Args:
        shape: the size of the map.
        maps: the number of maps side by side.
        size: the size of the terminal.
        colors: the number of colours of the terminal.
    """
    counts = shape.rows, shape.columns
    forms, labels = map_forms(size, colors), label_columns(shape)
    capacities = {form: form.capacity(size, labels, maps) for form in forms}
    fitting = [form for form in forms if _nearly_fits(counts, capacities[form])]
    while len(fitting) > 1 and fitting[-1].cell == 1 and not _nearly_fits(counts, capacities[fitting[-1]], 1):
        fitting.pop()  # smaller pixels show the whole map without scrolling
    first = forms[0]
    found = (
        [_level(counts, capacities, fitting[-1])] if fitting else list(_pooled_levels(counts, first, capacities[first]))
    )
    larger = forms[forms.index(found[-1].form) + bool(fitting) :]
    return (*found, *(_level(counts, capacities, form) for form in larger))


def _level(counts: tuple[int, int], capacities: dict[CellForm, tuple[int, int]], form: CellForm) -> ZoomLevel:
    """Returns a level with as many cells of a form as the map has, or as fit the pane."""
    rows, columns = (min(count, most) for count, most in zip(counts, capacities[form], strict=True))
    return ZoomLevel(rows, columns, form)


def _nearly_fits(counts: tuple[int, int], capacity: tuple[int, int], times: float = MAX_SCROLLED) -> bool:
    """True if all cells fit the pane, or so many that scrolling shows the others."""
    return all(count <= times * most for count, most in zip(counts, capacity, strict=True))


def _pooled_levels(counts: tuple[int, int], form: CellForm, capacity: tuple[int, int]) -> Iterator[ZoomLevel]:
    """Yields the whole map, then halves of it until every unit nearly has a cell."""
    rows, columns = counts
    while not _nearly_fits((rows, columns), capacity):
        yield ZoomLevel(rows, columns, form)
        rows = max(min(rows, capacity[0]), -(-rows // 2))
        columns = max(min(columns, capacity[1]), -(-columns // 2))


def map_forms(size: Size, colors: int) -> tuple[CellForm, ...]:
    """Returns the ways to draw a cell, from the smallest cell to the largest."""
    stacked = min(4, max(1, map_lines(size) // 5))
    larger = CellForm(2, 1, 1), CellForm(2, 1, 1 + stacked), CellForm(NUMBER_CELL, 1, 2)
    if size.character is None:
        return CellForm(1, 2 if colors > ANSI_COLORS else 1, 1), *larger
    width, height = size.character
    across = [count for count in CELLS_A_COLUMN if count * MIN_CELL_PIXELS <= width]
    return *(CellForm(1, max(1, height * count // width), 1, count) for count in across), *larger


def label_columns(shape: MapShape) -> int:
    """Returns the columns of the map's row labels."""
    return max(6, min(MAX_LABEL_WIDTH, shape.row_label))


def side_width(size: Size) -> int:
    """Returns the columns of the pane beside the map."""
    return SIDE_WIDTH if size.width < 100 else WIDE_SIDE_WIDTH


def two_panes(size: Size) -> bool:
    """True if the screen is wide enough to list the heads to the left of the open one."""
    return size.width >= TWO_PANES_WIDTH


def map_column(size: Size) -> int:
    """Returns the first column of the map's pane."""
    return side_width(size) + 1 if two_panes(size) else 0


def side_column(size: Size) -> int:
    """Returns the first column of the pane beside the map."""
    return 0 if two_panes(size) else size.width - side_width(size)


def listed_lines(size: Size) -> int:
    """Returns the lines of the list of heads, which is above the numbers of the cursor; 0 on a narrow screen."""
    return int(map_lines(size) * LISTED_SHARE) if two_panes(size) else 0


def help_columns(size: Size) -> int:
    """Returns the number of columns in which the help lists keys."""
    return max(1, size.width // HELP_WIDTH)


def help_pages(size: Size, keys: int) -> int:
    """Returns the number of screens of the help."""
    return -(-keys // (help_columns(size) * max(1, size.height - 2)))


def text_lines(size: Size) -> int:
    """Returns the lines of the shaded text under the map."""
    return 3 if size.height < 30 else 5


def map_lines(size: Size) -> int:
    """Returns the lines of the map's pane, between the title and the text."""
    return size.height - FIXED_LINES - text_lines(size)


def _all_fit(groups: list[list[int]], width: int, columns: int, lines: int, whole_rows: bool) -> bool:
    if whole_rows and max(map(len, groups)) * width > columns:
        return False
    return len(_chunks(groups, columns // width)) * tile_height(width) <= lines


def _chunks(groups: list[list[int]], across: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group[start : start + across]) for group in groups for start in range(0, len(group), across))
