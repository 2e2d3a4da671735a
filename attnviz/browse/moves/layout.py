"""Where things stand on the inspector's screen: thumbnails in the overview, panes and cells in an open head."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attnviz.browse.session.session import Session
from attnviz.browse.session.state import MapShape, Size, State

FIXED_LINES = 3  # the title above, the status and the hints below
MIN_TILE_WIDTH, MIN_RANKED_TILE_WIDTH = 6, 11  # columns; ranked tiles have their number beside their name
MAX_TILE_WIDTH = 42
TILE_STEP = 4
SIDE_WIDTH, WIDE_SIDE_WIDTH = 26, 34
TWO_PANES_WIDTH = 120  # columns from which on the heads stay on the screen beside the open one
HELP_WIDTH = 40  # columns of a key and what it does
LISTED_SHARE = 0.4  # of the lines beside the map, which are the heads'
MAX_LABEL_WIDTH = 12
NUMBER_CELL = 4  # columns of a cell with its number, or more where labels take them and there is room
MAX_SCROLLED = 1.3  # times as many cells as there is room for are scrolled through; more are pooled
CELLS_A_COLUMN = 3, 2, 1  # of a map that is drawn in pixels, from the smallest cells
MIN_CELL_PIXELS, THUMBNAIL_CELL_PIXELS = 2, 3  # of the side of a cell, as few as go over a slow line
ANSI_COLORS = 16  # colours, with which half blocks cannot be told apart


@dataclass(frozen=True)
class Tiles:
    """The overview: heads in rows of thumbnails, each a title line over half-block pixels.

    Attributes:
        rows: the heads of each row, by their places in the recording.
        width: columns of a tile, the last of them a gap.
        height: lines of a tile.
        shown: how many rows the screen holds.
        cells_a_column: how many cells of a thumbnail a column shows, more than one where the terminal draws pixels.
    """

    rows: tuple[tuple[int, ...], ...]
    width: int
    height: int
    shown: int
    cells_a_column: int = 1

    @property
    def columns(self) -> int:
        """Those of a thumbnail."""
        return self.width - 1

    @property
    def pixels(self) -> int:
        """The side of a thumbnail in cells."""
        return self.columns * self.cells_a_column

    def place(self, head: int) -> tuple[int, int]:
        """The row and the column of a head."""
        return next((row, heads.index(head)) for row, heads in enumerate(self.rows) if head in heads)

    def on_screen(self, top: int) -> list[int]:
        """The heads that are seen when ``top`` is the first row."""
        return [head for row in self.rows[top : top + self.shown] for head in row]

    def head_at(self, top: int, column: int, line: int) -> int | None:
        """The head under a place of the body, if there is one."""
        row, across = top + line // self.height, column // self.width
        on_a_row = line < self.shown * self.height and row < len(self.rows) and across < len(self.rows[row])
        return self.rows[row][across] if on_a_row else None


@dataclass(frozen=True)
class MapAxis:
    """One axis of the map on the screen.

    Attributes:
        start: its first unit.
        stop: the unit after its last.
        cells: how many cells it takes.
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
        """Whether a cell stands for several units."""
        return self.cells < self.stop - self.start

    def cell_of(self, unit: int) -> int:
        """The cell that a unit is in."""
        near = (unit - self.start) * self.cells // (self.stop - self.start)
        return near + 1 if near + 1 < self.cells and self.unit_of(near + 1) <= unit else near

    def unit_of(self, cell: int) -> int:
        """The first unit of a cell."""
        return self.start + cell * (self.stop - self.start) // self.cells

    def moved(self, unit: int, cells: int) -> int:
        """The first unit of the cell so many cells on; beyond the screen, as many units as those cells are long."""
        wanted = self.cell_of(unit) + cells
        if 0 <= wanted < self.cells:
            return self.unit_of(wanted)
        return unit + cells * -(-(self.stop - self.start) // self.cells)


@dataclass(frozen=True)
class CellForm:
    """How a cell is drawn.

    Attributes:
        cell: columns of a cell: 4 or more with its number, 2, or 1.
        rows_a_line: 2 where half blocks put two rows on a line, or more of pixels.
        header: lines of key labels above the cells, the cursor's own line counted.
        cells_a_column: more than 1 where the terminal draws pixels.
    """

    cell: int
    rows_a_line: int
    header: int
    cells_a_column: int = 1

    def capacity(self, size: Size, labels: int, maps: int = 1) -> tuple[int, int]:
        """How many rows and columns of each of so many maps side by side the pane holds."""
        rows = (map_lines(size) - self.header) * self.rows_a_line
        columns = (size.width - side_width(size) - labels - 1 - maps) // maps // self.cell * self.cells_a_column
        return max(1, rows), max(1, columns)


@dataclass(frozen=True)
class ZoomLevel:
    """One zoom: how many rows and columns of units are on the screen, and how a cell is drawn."""

    rows: int
    columns: int
    form: CellForm


@dataclass(frozen=True)
class MapPane:
    """The open head on the screen.

    Attributes:
        queries: down.
        keys: across.
        form: how a cell is drawn.
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
        """Columns of one map."""
        return self.column_of(self.keys.cells - 1) + self.form.cell

    def column_of(self, cell: int) -> int:
        """The first column of the map over which a column of cells is."""
        return cell // self.form.cells_a_column * self.form.cell

    def cell_at(self, column: int, line: int) -> tuple[int, int] | None:
        """The query and the key under a place of the pane, if there is a cell, of whichever map."""
        across = (column - self.labels - 1) % (self.map_width + 1) // self.form.cell * self.form.cells_a_column
        down = (line - self.form.header) * self.form.rows_a_line
        if column <= self.labels or not 0 <= down < self.queries.cells or across >= self.keys.cells:
            return None
        return self.queries.unit_of(down), self.keys.unit_of(across)

    def map_at(self, column: int) -> int:
        """Which of the maps side by side a column is in."""
        return max(0, column - self.labels - 1) // (self.map_width + 1)


def tiles(session: Session, state: State, size: Size) -> Tiles:
    """The overview's tiles: as large as show every head, and no smaller than can be read."""
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
    """Lines of a tile: its title, and half a line for each pixel."""
    return 1 + width // 2


def map_of(session: Session, state: State, size: Size, colors: int) -> MapPane:
    """The pane of the open head's map at the state's zoom."""
    return place_map(session.shape(state.head, state.view), state, size, colors)


def levels(session: Session, state: State, size: Size, colors: int) -> tuple[ZoomLevel, ...]:
    """The zooms of the open head."""
    return zoom_levels(session.shape(state.head, state.view), 1 + len(state.beside), size, colors)


def place_map(shape: MapShape, state: State, size: Size, colors: int) -> MapPane:
    """The pane of a map of this shape at the state's zoom."""
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
    """The zooms: the whole map, halves of it until every unit has a cell, then larger cells, each filling the pane.

    Args:
        shape: of the map.
        maps: how many of them are side by side.
        size: of the terminal.
        colors: how many it has.
    """
    counts = shape.rows, shape.columns
    forms, labels = map_forms(size, colors), label_columns(shape)
    room = {form: form.capacity(size, labels, maps) for form in forms}
    fitting = [form for form in forms if _nearly_fits(counts, room[form])]
    while len(fitting) > 1 and fitting[-1].cell == 1 and not _nearly_fits(counts, room[fitting[-1]], 1):
        fitting.pop()  # smaller pixels show all of it
    found = [_level(counts, room, fitting[-1])] if fitting else list(_pooled_levels(counts, forms[0], room[forms[0]]))
    larger = forms[forms.index(found[-1].form) + bool(fitting) :]
    return (*found, *(_level(counts, room, form) for form in larger))


def _level(counts: tuple[int, int], room: dict[CellForm, tuple[int, int]], form: CellForm) -> ZoomLevel:
    """As many cells of a form as there are, or as there is room for."""
    rows, columns = (min(count, most) for count, most in zip(counts, room[form], strict=True))
    return ZoomLevel(rows, columns, form)


def _nearly_fits(counts: tuple[int, int], room: tuple[int, int], times: float = MAX_SCROLLED) -> bool:
    """Whether all cells are seen, or all but so few that they are scrolled to."""
    return all(count <= times * most for count, most in zip(counts, room, strict=True))


def _pooled_levels(counts: tuple[int, int], form: CellForm, room: tuple[int, int]) -> Iterator[ZoomLevel]:
    """The whole, and halves of what does not nearly fit."""
    rows, columns = counts
    while not _nearly_fits((rows, columns), room):
        yield ZoomLevel(rows, columns, form)
        rows = max(min(rows, room[0]), -(-rows // 2))
        columns = max(min(columns, room[1]), -(-columns // 2))


def map_forms(size: Size, colors: int) -> tuple[CellForm, ...]:
    """The ways to draw a cell, from the smallest."""
    stacked = min(4, max(1, map_lines(size) // 5))
    larger = CellForm(2, 1, 1), CellForm(2, 1, 1 + stacked), CellForm(NUMBER_CELL, 1, 2)
    if size.character is None:
        return CellForm(1, 2 if colors > ANSI_COLORS else 1, 1), *larger
    width, height = size.character
    across = [count for count in CELLS_A_COLUMN if count * MIN_CELL_PIXELS <= width]
    return *(CellForm(1, max(1, height * count // width), 1, count) for count in across), *larger


def label_columns(shape: MapShape) -> int:
    """Columns of the map's row labels."""
    return max(6, min(MAX_LABEL_WIDTH, shape.row_label))


def side_width(size: Size) -> int:
    """Columns of the pane beside the map."""
    return SIDE_WIDTH if size.width < 100 else WIDE_SIDE_WIDTH


def two_panes(size: Size) -> bool:
    """Whether the heads stay on the screen, at the left of the open one."""
    return size.width >= TWO_PANES_WIDTH


def map_column(size: Size) -> int:
    """The first column of the map's pane."""
    return side_width(size) + 1 if two_panes(size) else 0


def side_column(size: Size) -> int:
    """The first column of the pane beside the map."""
    return 0 if two_panes(size) else size.width - side_width(size)


def listed_lines(size: Size) -> int:
    """Lines of the list of heads, above what is said of the cursor."""
    return int(map_lines(size) * LISTED_SHARE) if two_panes(size) else 0


def help_columns(size: Size) -> int:
    """How many columns of keys are legible side by side."""
    return max(1, size.width // HELP_WIDTH)


def help_pages(size: Size, keys: int) -> int:
    """How many screens the help takes."""
    return -(-keys // (help_columns(size) * max(1, size.height - 2)))


def text_lines(size: Size) -> int:
    """Lines of the row as shaded text, under the map."""
    return 3 if size.height < 30 else 5


def map_lines(size: Size) -> int:
    """Lines of the map pane, between the title and the text."""
    return size.height - FIXED_LINES - text_lines(size)


def _all_fit(groups: list[list[int]], width: int, columns: int, lines: int, whole_rows: bool) -> bool:
    if whole_rows and max(map(len, groups)) * width > columns:
        return False
    return len(_chunks(groups, columns // width)) * tile_height(width) <= lines


def _chunks(groups: list[list[int]], across: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group[start : start + across]) for group in groups for start in range(0, len(group), across))
