"""Draws the map of an open head, or the maps of several side by side, with the labels of rows and columns."""

from dataclasses import dataclass, replace
from functools import cached_property

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import NUMBER_CELL, MapPane, open_map_pane
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.rows import QueryRow
from attnviz.browse.session.state import State
from attnviz.browse.view.cells import Cells, cell_lines
from attnviz.browse.view.graphics import PictureArea
from attnviz.browse.view.media import seconds_above
from attnviz.browse.view.parts import ClickArea, Hit, ScreenPart, short_name, words
from attnviz.render.terminal.lines import Line, Span
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Panel
from attnviz.text.units import Units

_NUMBER_COLUMNS = 4  # columns of the number in a large cell, with a blank one after a short number


@dataclass(frozen=True, eq=False)
class OpenHead:
    """An open head, or several heads side by side, with the layout and the numbers of the cursor's query."""

    screen: Screen
    state: State  # without the toggles that do not apply to the head
    queries: Units
    keys: Units
    pane: MapPane
    whole_pane: MapPane  # at the first zoom level, which shows all of the map
    row: QueryRow  # of the cursor's query
    strongest_keys: list[int]  # the visible keys of the cursor's query, the strongest first

    @property
    def heads(self) -> tuple[int, ...]:
        """The open head, then the heads beside it."""
        return self.state.head, *self.state.heads_beside

    @cached_property
    def panels(self) -> list[Panel]:
        """A panel of each open head's cells on the screen, all with one colour scale."""
        pane, session, view = self.pane, self.screen.session, self.state.view
        spans = pane.queries.span, pane.keys.span
        panels = [session.panel(head, view, *spans, pane.queries.cells, pane.keys.cells) for head in self.heads]
        low, high = min(panel.scale.low for panel in panels), max(panel.scale.high for panel in panels)
        scale = session.themed_scale(replace(panels[0].scale, low=low, high=high), self.state.theme)
        return [replace(panel, scale=scale) for panel in panels]

    @property
    def panel(self) -> Panel:
        """The cells of the open head."""
        return self.panels[0]

    @property
    def scale(self) -> ColorScale:
        """The colour scale of all maps."""
        return self.panel.scale

    @property
    def is_scrolled(self) -> bool:
        """True if a part of the map is not on the screen."""
        axes = (self.pane.queries, self.queries), (self.pane.keys, self.keys)
        return any(axis.stop - axis.start < len(units) for axis, units in axes)

    @property
    def query(self) -> str:
        """The cursor's query in quotes, with its number."""
        return f"“{self.queries.labels[self.state.query]}” ({self.queries.starts[self.state.query]})"


def lay_out(screen: Screen, state: State) -> OpenHead:
    """Returns the open head with its layout and the numbers of the cursor's query, or of the last one before it."""
    session, size = screen.session, screen.size
    view = session.view_of(state.head, state.view)
    head_state = replace(state, view=view)
    queries, keys = session.units(state.head, view)
    row = session.row(state.head, view, min(state.query, len(queries) - 1))
    return OpenHead(
        screen=screen,
        state=head_state,
        queries=queries,
        keys=keys,
        row=row,
        strongest_keys=row.strongest_keys(view),
        pane=open_map_pane(session, head_state, size, screen.colors),
        whole_pane=open_map_pane(session, replace(head_state, zoom=0, row=0, column=0), size, screen.colors),
    )


def map_part(head: OpenHead) -> ScreenPart:
    """Returns the maps side by side, with the labels of rows at their left and those of keys above."""
    pane, state = head.pane, head.state
    form, character = pane.form, head.screen.size.character
    cursor_row, cursor_column = pane.queries.cell_of(state.query), pane.keys.cell_of(state.key)
    lines: list[Line] = []
    for row in range(0, pane.queries.cells, form.rows_a_line):
        has_cursor = row <= cursor_row < row + form.rows_a_line
        query = state.query if has_cursor else pane.queries.unit_of(row)
        label = head.queries.labels[query]
        numbered_label = f"{label} {head.queries.starts[query]}"  # with its number if rows are pooled and it has space
        if pane.queries.pooled and not has_cursor and cell_len(numbered_label) <= pane.label_width:
            label = numbered_label
        span = words(label, pane.label_width, "reverse" if has_cursor else "dim", right=True)
        lines.append([span, words("▸" if has_cursor else " ")])
    for index, panel in enumerate(head.panels):
        cells = Cells(CellBlock(panel.values, panel.visible), panel.scale, cursor=(cursor_row, cursor_column))
        if form.cell_width == 1 and character is not None:
            area = PictureArea(len(lines), pane.map_width, character, (form.rows_a_line, form.cells_a_column))
            cells = cells._replace(area=area)
        else:
            texts = _cell_numbers(panel) if form.cell_width >= NUMBER_CELL else None
            cells = cells._replace(cell_width=form.cell_width, rows_a_line=form.rows_a_line, texts=texts)
        for line, spans in zip(lines, cell_lines(cells, head.screen.colors), strict=True):
            line += [*([words(" ")] if index else []), *spans]

    def hit(x: int, y: int) -> Hit | None:
        cell, map_index = pane.cell_at(x, y), pane.map_at(x)
        if cell is None or map_index >= len(head.heads):
            return None
        return Hit({"query": cell[0], "key": cell[1]}, cell=(head.heads[map_index], *cell))

    header = _header(head, cursor_column)
    return ScreenPart([*header, *lines], [ClickArea(0, 0, pane.width, len(header) + len(lines), hit)])


def _cell_numbers(panel: Panel) -> tuple[tuple[str, ...], ...]:
    """Returns the text of every cell in four columns, ``(rows, columns)``: its number, or a dot if it is masked."""

    def text(value: float, is_visible: bool) -> str:
        if not is_visible:
            return "  · "
        number = panel.cell(value)
        if len(number) > _NUMBER_COLUMNS:  # with fewer decimals, then cut
            number = f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
        is_short = len(number) < _NUMBER_COLUMNS
        return f"{number:>{_NUMBER_COLUMNS - 1}} " if is_short else number[:_NUMBER_COLUMNS]

    rows = zip(panel.values.tolist(), panel.visible.tolist(), strict=True)
    return tuple(tuple(map(text, values, visible)) for values, visible in rows)


def _header(head: OpenHead, cursor_column: int) -> list[Line]:
    """Returns the lines above the maps: the cursor's key, or the names of several heads; then the labels of keys."""
    pane, form = head.pane, head.pane.form
    margin, mark_column = words("", pane.label_width + 1), pane.column_of(cursor_column)
    if head.state.heads_beside:
        first_line: Line = []
        for index, head_index in enumerate(head.heads):
            name = short_name(head.screen.session.names[head_index], max(mark_column, pane.map_width - mark_column - 2))
            text = " " * mark_column + "▾" + (f" {name}" if mark_column + 2 < pane.map_width else "")
            if cell_len(name) < mark_column:
                text = f"{name}{' ' * (mark_column - cell_len(name))}▾"
            first_line += [*([words(" ", style="bold")] if index else []), words(text, pane.map_width, "bold")]
    else:
        seconds = seconds_above(head.keys, pane.map_width, pane.keys.span, head.state.key)
        label, width = head.keys.labels[head.state.key], pane.width - pane.label_width - 1
        first_line = seconds or marked_label(label, mark_column, width, min(cell_len(label), width - 2))
    lines = [[margin, *first_line]]
    depth = 1 if form.cell_width >= NUMBER_CELL else form.header_lines - 1
    for line in range(depth):
        spans: Line = [margin]
        for index, panel in enumerate(head.panels):
            spans += [words(" ", style="dim")] if index else []
            for label in panel.columns.labels:
                if form.cell_width >= NUMBER_CELL:
                    spans += [words(label, form.cell_width - 1, "dim", right=True), words(" ", style="dim")]
                else:  # the characters of the label below each other, blank lines first
                    characters = list(label[:depth]) if len(label) <= depth else [*label[: depth - 1], "…"]
                    blank_lines = depth - len(characters)
                    spans.append(words("" if line < blank_lines else characters[line - blank_lines], 2, "dim"))
        lines.append(spans)
    return lines


def marked_label(label: str, mark_column: int, width: int, label_columns: int) -> list[Span]:
    """Returns a mark over a column with a label at its right, or at its left if it fits only there."""
    if mark_column + 2 + label_columns <= width:
        return [words("", mark_column), words("▾ ", style="bold"), words(label, label_columns, "bold")]
    gap = max(0, mark_column - label_columns - 1)
    return [words("", gap), words(label, label_columns, "bold"), words(" ▾", style="bold")]
