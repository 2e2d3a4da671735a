"""Composes an open head: its map, the numbers of the cursor beside it, and the row as text below."""

from dataclasses import replace

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import (
    NUMBER_CELL,
    listed_lines,
    map_column,
    map_lines,
    side_column,
    side_width,
    text_lines,
    two_panes,
)
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Below, Beside, Body, Box, Cells, PictureArea, Sized, Words
from attnviz.browse.view.head_layout import OpenHead, lay_out
from attnviz.browse.view.legends import preview
from attnviz.browse.view.side_pane import listed_heads, side_lines
from attnviz.browse.view.text_pane import text_pane, token_at
from attnviz.maps.heads import tokens_of
from attnviz.report.picture.panels import Panel

_GAP = Words(" ", style="dim")


def head_body(screen: Screen, state: State) -> Body:
    """Composes the map, the pane beside it, and the row as text."""
    head = lay_out(screen, state)
    size = screen.size
    cells, title, status = Below(_map_lines(head)), _title(head), _status(head)
    beside = Below(tuple(line.line for line in side_lines(head)))
    widths = head.pane.width, head.side_width
    first, second, width = (beside, cells, widths[1]) if two_panes(size) else (cells, beside, widths[0])
    height = map_lines(size)
    edge = Below((Words("│", style="dim"),) * height)
    panes = Beside((Sized(first, width, height), edge, Sized(second, height=height)))
    text = Sized(text_pane(head.text, size.width, text_lines(size)), height=text_lines(size))
    return Body(title, Below((panes, text)), status)


def _title(head: OpenHead) -> str:
    """Returns the names of the open heads, with the pattern of a single one."""
    session, state = head.screen.session, head.state
    if state.beside:
        return "heads " + ", ".join(session.names[number] for number in head.heads)
    pattern = session.ranking.pattern(state.head)
    combined = state.head >= session.recorded
    return f"{'' if combined else 'head '}{session.names[state.head]}{f': {pattern}' if pattern else ''}"


def _status(head: OpenHead) -> Box:
    """Composes the status: the progress of a preview, the size of a cell, and the part of the map on the screen."""
    spans = head.pane.queries.span, head.pane.keys.span
    on_map = [block for block in head.screen.session.unfinished if (block.queries, block.keys) == spans]
    place = Words(place_status(head))
    return Beside((Words(preview(on_map), style="bold"), place))


def place_status(head: OpenHead) -> str:
    """Returns the part of the map that is on the screen, and how many tokens a cell stands for."""
    shown, parts = head.pane, list[str]()
    blocks = tokens_of(head.screen.session.heads[head.state.head][0]).block
    if head.scrolled:
        axes = ("queries", shown.queries, head.queries), ("keys", shown.keys, head.keys)
        parts.append(", ".join(f"{name} {axis.start}–{axis.stop - 1} of {len(units)}" for name, axis, units in axes))
    if shown.queries.pooled or shown.keys.pooled:
        sides = (-(-(axis.stop - axis.start) // axis.cells) for axis in (shown.queries, shown.keys))
        parts.append("a cell is {} x {} {} (+ zooms in)".format(*sides, "tokens" if blocks == (1, 1) else "blocks"))
    if not parts and blocks != (1, 1):
        parts.append("every cell is a block of {} x {} tokens, as captured".format(*blocks))
    return f" {'; '.join(parts) or 'every cell is one query (row) and one key (column)'}"


def clicked_in_head(screen: Screen, state: State, x: int, y: int) -> State:
    """Returns the state after a click on a cell, a listed head or key, the minimap, or a token of the text.

    Args:
        screen: the recording and the terminal.
        state: the state before the click.
        x: the column of the screen.
        y: the line below the title.
    """
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
    """Returns the head, the query and the key of the cell under a position; ``None`` if there is none.

    Args:
        screen: the recording and the terminal.
        state: the state.
        x: the column of the screen.
        y: the line below the title.
    """
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


def _map_lines(head: OpenHead) -> tuple[Box, ...]:
    """Composes the labels of the keys, and the rows of the map with their labels."""
    shown, state = head.pane, head.state
    at = shown.queries.cell_of(state.query), shown.keys.cell_of(state.key)
    maps = [_cells(head, panel, at) for panel in head.panels]
    labels: list[Box] = []
    for cell in range(0, shown.queries.cells, shown.form.rows_a_line):
        here = cell <= at[0] < cell + shown.form.rows_a_line
        text = _row_label(head, state.query if here else shown.queries.unit_of(cell), here)
        label = Words(text, shown.labels, "reverse" if here else "dim", right=True)
        labels.append(Beside((label, Words("▸" if here else " "))))
    gap = Below((Words("", 1),) * len(labels))
    beside = [box for place, cells in enumerate(maps) for box in ((gap, cells) if place else (cells,))]
    return *_header(head, at[1]), Beside((Below(tuple(labels)), *beside))


def _row_label(head: OpenHead, query: int, here: bool) -> str:
    """Returns the query's text, with its number if a row stands for several queries and the label has space."""
    label, width = head.queries.labels[query], head.pane.labels
    numbered = f"{label} {head.queries.starts[query]}"
    return numbered if head.pane.queries.pooled and not here and cell_len(numbered) <= width else label


def _cells(head: OpenHead, panel: Panel, at: tuple[int, int]) -> Cells:
    """Composes the cells of one map: in pixels, as half blocks, or one row per line."""
    form, character = head.pane.form, head.screen.size.character
    block = CellBlock(panel.values, panel.visible)
    if form.cell == 1 and character is not None:
        lines = -(-len(panel.values) // form.rows_a_line)
        area = PictureArea(lines, head.pane.map_width, character, (form.rows_a_line, form.cells_a_column))
        return Cells(block, panel.scale, cursor=at, area=area)
    texts = _numbers(panel) if form.cell >= NUMBER_CELL else None
    return Cells(block, panel.scale, form.cell, form.rows_a_line, at, texts)


def _numbers(panel: Panel) -> tuple[tuple[str, ...], ...]:
    """Returns the number of every cell, and a dot in masked ones."""
    pairs = zip(panel.values.tolist(), panel.visible.tolist(), strict=True)
    return tuple(
        tuple(_number(value, panel) if shown else "  · " for value, shown in zip(values, visible, strict=True))
        for values, visible in pairs
    )


def _number(value: float, panel: Panel) -> str:
    """Returns a value in four columns; the last one stays blank if the number is short enough."""
    text = panel.cell(value)
    short = text if len(text) <= 4 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return f"{short:>3} "[:4] if len(short) <= 3 else short[:4]


def _header(head: OpenHead, at: int) -> list[Box]:
    """Composes the lines above the map: the cursor's key, or the heads' names, then key labels if cells are wide."""
    shown = head.pane
    margin = Words("", shown.labels + 1)
    lines: list[Box] = [Beside((margin, *(_names(head, at) if head.state.beside else _pointer(head, at))))]
    labels = [_labels(head, panel) for panel in head.panels]
    for places in zip(*labels, strict=True):
        beside = [box for place, line in enumerate(places) for box in ((_GAP, *line) if place else line)]
        lines.append(Beside((margin, *beside)))
    return lines


def _pointer(head: OpenHead, at: int) -> tuple[Box, ...]:
    """Composes a mark over the cursor's column, with the key's text to its right, or to its left near the edge."""
    width = head.pane.width - head.pane.labels - 1
    key, before = head.keys.labels[head.state.key], head.pane.column_of(at)
    columns = min(cell_len(key), width - 2)
    name = Words(key, columns, "bold")
    if before + 2 + columns <= width:
        return Words("", before), Words("▾ ", style="bold"), name
    return Words("", before - columns - 1), name, Words(" ▾", style="bold")


def _names(head: OpenHead, at: int) -> list[Box]:
    """Composes the names of heads side by side, each with a mark over the cursor's column."""
    width, before = head.pane.map_width, head.pane.column_of(at)
    line: list[Box] = []
    for place, number in enumerate(head.heads):
        name = head.screen.session.names[number]
        text = f"{name}{' ' * (before - cell_len(name))}▾"
        if cell_len(name) >= before:
            text = " " * before + "▾" + (f" {name}" if before + 2 < width else "")
        line.append(Words(text, width, "bold"))
        if place + 1 < len(head.heads):
            line.append(Words(" ", style="bold"))
    return line


def _labels(head: OpenHead, panel: Panel) -> list[list[Words]]:
    """Returns the lines of key labels over one map."""
    form, labels = head.pane.form, panel.columns.labels
    if form.cell >= NUMBER_CELL:
        return [[box for label in labels for box in (Words(label, form.cell - 1, "dim", right=True), _GAP)]]
    depth = form.header - 1
    stacks = [_stacked(label, depth) for label in labels] if depth else []
    return [[Words(stack[line], 2, "dim") for stack in stacks] for line in range(depth)]


def _stacked(label: str, depth: int) -> list[str]:
    """Returns a label's characters from top to bottom, aligned to the last of ``depth`` lines."""
    characters = list(label[:depth]) if len(label) <= depth else [*label[: depth - 1], "…"]
    return [""] * (depth - len(characters)) + characters
