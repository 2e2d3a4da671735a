"""Lays out the inspector's screen: thumbnails in the overview, panes and cells in an open head."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attnviz.browse.session.session import Session
from attnviz.browse.session.state import MapShape, Size, State

FIXED_LINES = 3  # title, status and hints
MIN_TILE_WIDTH, MIN_RANKED_TILE_WIDTH = 6, 11  # columns; a tile of sorted heads has a number after its name
MAX_TILE_WIDTH = 42
TILE_STEP = 4  # columns by which one step of zoom changes a tile
SIDE_WIDTH, WIDE_SIDE_WIDTH = 26, 34
MIN_WIDTH_OF_WIDE_SIDE = 100  # columns of a screen that has the wide side pane
MAX_KEY_LABEL_LINES = 4
TWO_PANES_WIDTH = 120  # columns; a screen of this width lists the heads to the left of the open one
HELP_WIDTH = 40  # columns of a key with its description in the help
LISTED_SHARE = 0.4  # share of the side pane's lines that list heads
MIN_LABEL_WIDTH, MAX_LABEL_WIDTH = 6, 12
NUMBER_CELL = 4  # columns of a cell with a number; wider if labels need it and the screen has them
MAX_SCROLLED = 1.3  # a map with at most 1.3 times the cells that fit is scrolled, a larger one is pooled
CELLS_A_COLUMN = 3, 2, 1  # cells per column of a map that is drawn in pixels, the smallest cells first
MIN_CELL_PIXELS, THUMBNAIL_CELL_PIXELS = 2, 3  # the side of a cell; small, so that a slow connection keeps up
ANSI_COLORS = 16  # on a terminal with at most so many colours no half blocks are drawn


@dataclass(frozen=True)
class Tiles:
    """The layout of the overview: heads in rows of tiles, each a title line above a thumbnail.

    Attributes:
        rows: the heads of each row.
        width: columns of a tile; the last one is a gap.
        height: lines of a tile.
        shown_row_count: the number of rows on the screen.
        cells_a_column: cells of a thumbnail per column; more than 1 if the terminal draws pixels.
        text_lines: lines below for the text, shaded by the chosen head; 0 for none.
    """

    rows: tuple[tuple[int, ...], ...]
    width: int
    height: int
    shown_row_count: int
    cells_a_column: int = 1
    text_lines: int = 0

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

    def head_at(self, top: int, column: int, line: int) -> int | None:
        """Returns the head whose tile is under a position of the body; ``None`` if no tile is there."""
        row, column_of_tiles = top + line // self.height, column // self.width
        is_shown = line < self.shown_row_count * self.height and row < len(self.rows)
        return self.rows[row][column_of_tiles] if is_shown and column_of_tiles < len(self.rows[row]) else None


@dataclass(frozen=True)
class MapAxis:
    """The part of a map's axis that is on the screen, and the number of cells that draw it.

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


@dataclass(frozen=True)
class _CellForm:
    """The way to draw the cells of a map.

    Attributes:
        cell_width: columns of a cell: 4 or more with a number, 2, or 1.
        rows_a_line: rows of cells per line: 2 with half blocks, or more with pixels.
        header_lines: lines above the cells: one for the cursor's key, the others for key labels.
        cells_a_column: cells per terminal column; more than 1 only with pixels.
    """

    cell_width: int
    rows_a_line: int
    header_lines: int
    cells_a_column: int = 1

    def capacity(self, size: Size, label_width: int, map_count: int = 1) -> tuple[int, int]:
        """Returns the numbers of rows and columns of cells that fit the pane, for each of the maps in it."""
        rows = (map_lines(size) - self.header_lines) * self.rows_a_line
        # one column after the labels, and one for the edge or the gap of each map
        free_columns = size.width - side_width(size) - label_width - 1 - map_count
        columns = free_columns // map_count // self.cell_width * self.cells_a_column
        return max(1, rows), max(1, columns)


@dataclass(frozen=True)
class _ZoomLevel:
    """A zoom level of a map: the number of units on the screen, and the way to draw them.

    Attributes:
        rows: the number of units of the queries on the screen.
        columns: the number of units of the keys on the screen.
        form: the way to draw a cell.
    """

    rows: int
    columns: int
    form: _CellForm


@dataclass(frozen=True)
class MapPane:
    """The layout of an open head's map.

    Attributes:
        queries: the axis of the rows.
        keys: the axis of the columns.
        form: the way to draw a cell.
        label_width: columns of the row labels.
        width: columns of the pane, labels included.
    """

    queries: MapAxis
    keys: MapAxis
    form: _CellForm
    label_width: int
    width: int

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
        if (
            column <= self.label_width
            or not 0 <= row_of_cells < self.queries.cells
            or column_of_cells >= self.keys.cells
        ):
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
    groups = [heads] if is_sorted else session.ranking.by_call(heads)
    least_width = min(MIN_RANKED_TILE_WIDTH if is_sorted else MIN_TILE_WIDTH, size.width)

    def widths_that_fit(body: int) -> list[int]:
        """Returns the widths of tiles at which all ``groups`` of heads fit ``body`` lines; empty if there is none."""
        widths = range(least_width, min(MAX_TILE_WIDTH, size.width) + 1)
        return [width for width in widths if _tiles_fit(groups, width, size.width, body, whole_rows=not is_sorted)]

    max_text_lines = text_lines(size) if size.text_lines is not None and session.has_short_maps else 0
    text_height = next(
        (lines for lines in range(max_text_lines, 0, -1) if widths_that_fit(size.height - FIXED_LINES - lines)), 0
    )
    body = size.height - FIXED_LINES - text_height
    fitting_widths = widths_that_fit(body)
    whole_row_widths = [
        width for width in range(least_width, size.width + 1) if max(map(len, groups)) * width <= size.width
    ]
    # tiles that are scrolled stay near the least width, so that many are on the screen
    scrolled_width = min(max(whole_row_widths, default=least_width), least_width + TILE_STEP // 2)
    usual_width = max(fitting_widths, default=scrolled_width)
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
    """Returns the layout of the open head's map at the state's zoom."""
    return map_pane(session.shape(state.head, state.view), state, size, colors)


def open_map_levels(session: Session, state: State, size: Size, colors: int) -> tuple[_ZoomLevel, ...]:
    """Returns the zoom levels of the open head, the whole map first."""
    return zoom_levels(session.shape(state.head, state.view), 1 + len(state.heads_beside), size, colors)


def map_pane(shape: MapShape, state: State, size: Size, colors: int) -> MapPane:
    """Returns the layout of a map at the state's zoom, or at the closest zoom level if there are fewer."""
    map_count, label_width = 1 + len(state.heads_beside), label_columns(shape)
    all_levels = zoom_levels(shape, map_count, size, colors)
    level = all_levels[min(state.zoom, len(all_levels) - 1)]
    fitting_rows, fitting_columns = level.form.capacity(size, label_width, map_count)
    form = level.form
    if form.cell_width == NUMBER_CELL:  # as wide as the column labels need, if the pane has space
        free_width = fitting_columns * NUMBER_CELL // level.columns
        form = replace(form, cell_width=max(NUMBER_CELL, min(free_width, shape.column_label + 1)))
    return MapPane(
        queries=MapAxis(state.row, state.row + level.rows, min(level.rows, fitting_rows)),
        keys=MapAxis(state.column, state.column + level.columns, min(level.columns, fitting_columns)),
        form=form,
        label_width=label_width,
        width=size.width - side_width(size) - 1,
    )


def zoom_levels(shape: MapShape, map_count: int, size: Size, colors: int) -> tuple[_ZoomLevel, ...]:
    """Returns the zoom levels of a map, the whole map first.

    On the levels of a long map the part that is shown is halved until every unit has a cell; then cells grow.
    """
    counts = shape.rows, shape.columns
    forms, label_width = _map_forms(size, colors), label_columns(shape)
    capacities = {form: form.capacity(size, label_width, map_count) for form in forms}
    fitting_forms = [form for form in forms if _nearly_fits(counts, capacities[form])]
    while (
        len(fitting_forms) > 1
        and fitting_forms[-1].cell_width == 1
        and not _nearly_fits(counts, capacities[fitting_forms[-1]], tolerance=1)
    ):
        fitting_forms.pop()  # smaller pixels show the whole map without scrolling
    smallest_form = forms[0]
    if fitting_forms:
        first_levels = [_zoom_level(counts, capacities, fitting_forms[-1])]
        next_forms = forms[forms.index(fitting_forms[-1]) + 1 :]
    else:
        first_levels = list(_pooled_zoom_levels(counts, smallest_form, capacities[smallest_form]))
        next_forms = forms
    return (*first_levels, *(_zoom_level(counts, capacities, form) for form in next_forms))


def _zoom_level(counts: tuple[int, int], capacities: dict[_CellForm, tuple[int, int]], form: _CellForm) -> _ZoomLevel:
    """Returns the zoom level at which each unit has a cell of this form, with as many units as fit the pane."""
    rows, columns = (min(count, fitting) for count, fitting in zip(counts, capacities[form], strict=True))
    return _ZoomLevel(rows, columns, form)


def _nearly_fits(counts: tuple[int, int], capacity: tuple[int, int], tolerance: float = MAX_SCROLLED) -> bool:
    """True if neither axis has more than ``tolerance`` times the cells that fit the pane."""
    return all(count <= tolerance * fitting for count, fitting in zip(counts, capacity, strict=True))


def _pooled_zoom_levels(counts: tuple[int, int], form: _CellForm, capacity: tuple[int, int]) -> Iterator[_ZoomLevel]:
    """Yields levels for the whole map, then for halves of it, as long as cells have to be pooled."""
    rows, columns = counts
    while not _nearly_fits((rows, columns), capacity):
        yield _ZoomLevel(rows, columns, form)
        rows = max(min(rows, capacity[0]), -(-rows // 2))
        columns = max(min(columns, capacity[1]), -(-columns // 2))


def _map_forms(size: Size, colors: int) -> tuple[_CellForm, ...]:
    """Returns the ways to draw cells on this terminal, from the smallest cell to the largest.

    The smallest are squares of pixels; half blocks if the terminal has no pixels; characters if it has few colours.
    Then come cells of two columns, the same with key labels, and cells with numbers.
    """
    label_lines = min(MAX_KEY_LABEL_LINES, max(1, map_lines(size) // 5))  # at most a fifth of the pane
    larger_forms = (
        _CellForm(cell_width=2, rows_a_line=1, header_lines=1),
        _CellForm(cell_width=2, rows_a_line=1, header_lines=1 + label_lines),
        _CellForm(cell_width=NUMBER_CELL, rows_a_line=1, header_lines=2),
    )
    if size.character is None:
        return _CellForm(cell_width=1, rows_a_line=2 if colors > ANSI_COLORS else 1, header_lines=1), *larger_forms
    width, height = size.character
    counts = [count for count in CELLS_A_COLUMN if count * MIN_CELL_PIXELS <= width]
    pixel_forms = [
        _CellForm(cell_width=1, rows_a_line=max(1, height * count // width), header_lines=1, cells_a_column=count)
        for count in counts
    ]
    return *pixel_forms, *larger_forms


def label_columns(shape: MapShape) -> int:
    """Returns the width of the map's row labels in terminal columns: that of the widest one, within limits."""
    return max(MIN_LABEL_WIDTH, min(MAX_LABEL_WIDTH, shape.row_label))


def side_width(size: Size) -> int:
    """Returns the width of the side pane in terminal columns, which is larger on a wide screen."""
    return SIDE_WIDTH if size.width < MIN_WIDTH_OF_WIDE_SIDE else WIDE_SIDE_WIDTH


def has_two_panes(size: Size) -> bool:
    """True if the screen is wide enough to list the heads to the left of the open one."""
    return size.width >= TWO_PANES_WIDTH


def map_column(size: Size) -> int:
    """Returns the terminal column at which the map's pane begins: 0, or on a wide screen after the side pane."""
    return side_width(size) + 1 if has_two_panes(size) else 0


def side_column(size: Size) -> int:
    """Returns the terminal column at which the side pane begins: after the map, or on a wide screen 0."""
    return 0 if has_two_panes(size) else size.width - side_width(size)


def listed_lines(size: Size) -> int:
    """Returns the height in lines of the list of heads in the side pane; 0 on a narrow screen, which has no list."""
    return int(map_lines(size) * LISTED_SHARE) if has_two_panes(size) else 0


def help_columns(size: Size) -> int:
    """Returns the number of columns in which the help lists keys."""
    return max(1, size.width // HELP_WIDTH)


def help_pages(size: Size, binding_count: int) -> int:
    """Returns the number of pages that the help needs for this number of bindings."""
    return -(-binding_count // (help_columns(size) * max(1, size.height - 2)))


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


def _tiles_fit(groups: list[list[int]], width: int, columns: int, lines: int, whole_rows: bool) -> bool:
    """True if tiles of this width fit the screen without scrolling."""
    if whole_rows and max(map(len, groups)) * width > columns:
        return False
    return len(_tile_rows(groups, columns // width)) * _tile_height(width) <= lines


def _tile_rows(groups: list[list[int]], columns: int) -> tuple[tuple[int, ...], ...]:
    """Returns the rows of tiles: each group of heads, broken after every ``columns`` heads."""
    return tuple(tuple(group[start : start + columns]) for group in groups for start in range(0, len(group), columns))
