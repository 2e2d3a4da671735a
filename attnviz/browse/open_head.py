"""An open head as lines: its map, what the cursor's query sees beside it, and that row as shaded text below."""

from dataclasses import replace

from rich.cells import cell_len

from attnviz.browse.blocks import CellBlock
from attnviz.browse.cursor import Screen
from attnviz.browse.layout import (
    ANSI_COLORS,
    NUMBER_CELL,
    listed_lines,
    map_column,
    map_lines,
    side_column,
    side_width,
    text_lines,
    two_panes,
)
from attnviz.browse.opened import OpenHead, lay_out
from attnviz.browse.pixels import CURSOR_COLOR, pixel_lines, row_spans, shade_span
from attnviz.browse.side_pane import listed_heads, side_lines
from attnviz.browse.state import State
from attnviz.browse.text_pane import text_pane, token_at
from attnviz.maps.heads import tokens_of
from attnviz.render.terminal.lines import Line, Span, fit, right
from attnviz.report.colors import ColorScale
from attnviz.report.panels import Panel


def draw_head(head: OpenHead) -> list[Line]:
    """The body: the map and its side pane, then the row as text."""
    size = head.screen.size
    cells, beside = _map_lines(head), [line.line for line in side_lines(head)]
    widths = head.pane.width, head.side_width
    first, second, width = (beside, cells, widths[1]) if two_panes(size) else (cells, beside, widths[0])
    lines: list[Line] = []
    for place in range(map_lines(size)):
        line = _filled(first[place] if place < len(first) else [], width)
        lines.append([*line, Span("│", style="dim"), *(second[place] if place < len(second) else [])])
    return lines + text_pane(head.text, size.width, text_lines(size), head.screen.colors)


def place_status(head: OpenHead) -> Line:
    """What the cursor is on, and how much of the map is seen."""
    shown, parts = head.pane, list[str]()
    blocks = tokens_of(head.screen.session.heads[head.state.head][0]).block
    if head.scrolled:
        axes = ("queries", shown.queries, head.queries), ("keys", shown.keys, head.keys)
        parts.append(", ".join(f"{name} {axis.start}–{axis.stop - 1} of {len(units)}" for name, axis, units in axes))
    if shown.queries.pooled or shown.keys.pooled:
        sides = (-(-(axis.stop - axis.start) // axis.cells) for axis in (shown.queries, shown.keys))
        parts.append("a cell is {} x {} {} (+ zooms in)".format(*sides, "tokens" if blocks == (1, 1) else "blocks"))
    if not parts and blocks != (1, 1):
        parts.append("every cell is a block of {} x {} tokens, as it was captured".format(*blocks))
    return [Span(f" {'; '.join(parts) or 'every cell is one query (row) and one key (column)'}")]


def clicked_in_head(screen: Screen, state: State, x: int, y: int) -> State:
    """The state with the cursor on what was clicked: a cell, a listed head or key, the minimap, a token of the text."""
    head, state = lay_out(screen, state), replace(state, message="")
    size = screen.size
    if y >= map_lines(size):
        key = token_at(head.text, size.width, text_lines(size), x, y - map_lines(size))
        return state if key is None else replace(state, key=key)
    if side_column(size) <= x < side_column(size) + side_width(size):
        return _clicked_beside(head, state, x - side_column(size), y)
    cell = head.pane.cell_at(x - map_column(size), y)
    return state if cell is None else replace(state, query=cell[0], key=cell[1])


def cell_under(screen: Screen, state: State, x: int, y: int) -> tuple[int, int, int] | None:
    """The head, the query and the key under a place of the body, if a cell is there."""
    head = lay_out(screen, state)
    across = x - map_column(screen.size)
    cell = head.pane.cell_at(across, y) if across >= 0 and y < map_lines(screen.size) else None
    which = head.pane.map_at(across)
    return None if cell is None or which >= len(head.heads) else (head.heads[which], *cell)


def _clicked_beside(head: OpenHead, state: State, x: int, y: int) -> State:
    lines = side_lines(head)
    if y < listed_lines(head.screen.size):
        listed = listed_heads(head)
        return replace(state, head=listed[y], beside=()) if y < len(listed) else state
    if y >= len(lines):
        return state
    width = min(len(head.keys), head.side_width - 2)
    if (query := lines[y].query) is not None and 0 <= x - 1 < width:
        return replace(state, query=query, key=(x - 1) * len(head.keys) // width)
    key = lines[y].key
    return state if key is None else replace(state, key=key)


def _map_lines(head: OpenHead) -> list[Line]:
    shown, state = head.pane, head.state
    at = shown.queries.cell_of(state.query), shown.keys.cell_of(state.key)
    maps = [_cell_lines(head, each, at) for each in head.panels]
    lines = _header(head, at[1])
    for number, rows in enumerate(zip(*maps, strict=True)):
        cell = number * shown.form.rows_a_line
        here, first = cell <= at[0] < cell + shown.form.rows_a_line, shown.queries.unit_of(cell)
        label = Span(_row_label(head, state.query if here else first, here), style="reverse" if here else "dim")
        cells = [span for place, row in enumerate(rows) for span in ([Span(" ")] if place else []) + row]
        lines.append([label, Span("▸" if here else " "), *cells])
    return lines


def _row_label(head: OpenHead, query: int, here: bool) -> str:
    """The query's text; where a row stands for several, its number too as far as there is room."""
    label, width = head.queries.labels[query], head.pane.labels
    numbered = f"{label} {head.queries.starts[query]}"
    with_number = head.pane.queries.pooled and not here and cell_len(numbered) <= width
    return right(numbered if with_number else label, width)


def _cell_lines(head: OpenHead, panel: Panel, at: tuple[int, int]) -> list[Line]:
    cells = CellBlock(panel.values, panel.visible)
    if head.pane.form.cell == 1 and head.screen.size.character is not None:
        return _picture(head, cells, panel.scale, at, head.screen.size.character)
    if head.pane.form.rows_a_line == 2:
        return pixel_lines(cells, panel.scale, head.screen.colors, at)
    return [_row(head, panel, cells, row, at[1] if row == at[0] else None) for row in range(len(panel.values))]


def _picture(
    head: OpenHead, cells: CellBlock, scale: ColorScale, at: tuple[int, int], character: tuple[int, int]
) -> list[Line]:
    """The map in pixels."""
    from attnviz.browse.graphics import PictureArea, picture_lines

    form = head.pane.form
    lines = -(-len(cells.values) // form.rows_a_line)
    area = PictureArea(lines, head.pane.map_width, character, (form.rows_a_line, form.cells_a_column))
    return picture_lines(cells, scale, area, at)


def _row(head: OpenHead, panel: Panel, cells: CellBlock, row: int, cursor: int | None) -> Line:
    colors = head.screen.colors
    if head.pane.form.cell < NUMBER_CELL:
        return row_spans(cells, row, panel.scale, colors, head.pane.form.cell, cursor)
    line = []
    for column, (value, seen) in enumerate(zip(panel.values[row].tolist(), panel.visible[row].tolist(), strict=True)):
        text = right(_number(value, panel) if seen else "  · ", head.pane.form.cell)
        span = shade_span(value, seen, panel.scale, colors, text, column == cursor)
        colored = column == cursor and colors > ANSI_COLORS
        line.append(replace(span, ink=(255, 255, 255), paper=CURSOR_COLOR, style="bold") if colored else span)
    return line


def _number(value: float, panel: Panel) -> str:
    """The value in a cell of four columns, the last a gap where it fits."""
    text = panel.cell(value)
    short = text if len(text) <= 4 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return f"{short:>3} "[:4] if len(short) <= 3 else short[:4]


def _header(head: OpenHead, at: int) -> list[Line]:
    """The cursor's key over its column, or the heads' names; then the keys' labels where cells are wide."""
    shown = head.pane
    margin = Span(" " * (shown.labels + 1))
    lines: list[Line] = [[margin, *(_names(head, at) if head.state.beside else _pointer(head, at))]]
    labels = [_labels(head, panel) for panel in head.panels]
    for places in zip(*labels, strict=True):
        lines.append([margin, *(Span(text, style="dim") for text in " \0".join(places).split("\0"))])
    return lines


def _pointer(head: OpenHead, at: int) -> Line:
    width = head.pane.width - head.pane.labels - 1
    key, before = head.keys.labels[head.state.key], head.pane.column_of(at)
    name = fit(key, min(cell_len(key), width - 2))
    if before + 2 + cell_len(name) <= width:
        return [Span(" " * before), Span(f"▾ {name}", style="bold")]
    return [Span(" " * (before - cell_len(name) - 1)), Span(f"{name} ▾", style="bold")]


def _names(head: OpenHead, at: int) -> Line:
    """Over each map its head, and where its column of the cursor is."""
    width, before = head.pane.map_width, head.pane.column_of(at)
    line: Line = []
    for place, number in enumerate(head.heads):
        name = head.screen.session.names[number]
        clear = cell_len(name) < before
        text = fit(name, before) + "▾" if clear else " " * before + "▾" + (f" {name}" if before + 2 < width else "")
        line.append(Span(fit(text, width) + (" " if place + 1 < len(head.heads) else ""), style="bold"))
    return line


def _labels(head: OpenHead, panel: Panel) -> list[str]:
    """The lines of key labels over one map."""
    form, labels = head.pane.form, panel.columns.labels
    if form.cell >= NUMBER_CELL:
        return ["".join(right(label, form.cell - 1) + " " for label in labels)]
    depth = form.header - 1
    stacks = [_stacked(label, depth) for label in labels] if depth else []
    return ["".join(fit(stack[line], 2) for stack in stacks) for line in range(depth)]


def _stacked(label: str, depth: int) -> list[str]:
    """The label's characters downwards, at the bottom of ``depth`` lines."""
    characters = list(label[:depth]) if len(label) <= depth else [*label[: depth - 1], "…"]
    return [""] * (depth - len(characters)) + characters


def _filled(line: Line, width: int) -> Line:
    used = sum(cell_len(span.text) for span in line)
    return [*line, Span(" " * max(0, width - used))]
