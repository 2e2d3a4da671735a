"""Composes an open head: its map, the side pane with the cursor's numbers, and the cursor's row as text below."""

from dataclasses import replace

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import (
    NUMBER_CELL,
    has_two_panes,
    listed_lines,
    map_column,
    map_lines,
    side_column,
    side_width,
    text_lines,
)
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Body, Box, BoxColumn, BoxRow, Cells, FixedBox, PictureArea, StyledText
from attnviz.browse.view.head_layout import OpenHead, lay_out
from attnviz.browse.view.legends import preview_status
from attnviz.browse.view.side_pane import listed_heads, side_lines
from attnviz.browse.view.sound_pane import marked_seconds, seconds_of_columns
from attnviz.browse.view.text_pane import text_pane, token_at
from attnviz.maps.heads import maps_over_tokens
from attnviz.media.sound import Sound
from attnviz.report.picture.panels import Panel

_GAP = StyledText(" ", style="dim")
_NUMBER_COLUMNS = 4  # columns of the number in a large cell, with a blank one after a short number


def head_body(screen: Screen, state: State) -> Body:
    """Composes the screen of an open head: map, side pane and text; a wide screen has the side pane at the left."""
    head = lay_out(screen, state)
    size = screen.size
    map_box, title, status = BoxColumn(_map_boxes(head)), _title(head), _status(head)
    side = BoxColumn(tuple(line.box for line in side_lines(head)))
    if has_two_panes(size):
        left, right, left_width = side, map_box, head.side_width
    else:
        left, right, left_width = map_box, side, head.pane.width
    height = map_lines(size)
    edge = BoxColumn((StyledText("│", style="dim"),) * height)
    panes = BoxRow((FixedBox(left, left_width, height), edge, FixedBox(right, height=height)))
    text = FixedBox(text_pane(head.text, size, text_lines(size)), height=text_lines(size))
    return Body(title, BoxColumn((panes, text)), status)


def _title(head: OpenHead) -> str:
    """Returns the names of the open heads; a single head is followed by its pattern."""
    session, state = head.screen.session, head.state
    if state.heads_beside:
        return "heads " + ", ".join(session.names[index] for index in head.heads)
    pattern = session.ranking.description(state.head)
    return f"{head.name}{f': {pattern}' if pattern else ''}"


def _status(head: OpenHead) -> Box:
    """Composes the status: the progress of a preview, the part of the map on the screen, and the size of a cell."""
    spans = head.pane.queries.span, head.pane.keys.span
    previews = [block for block in head.screen.session.unfinished_blocks if (block.queries, block.keys) == spans]
    part = StyledText(_part_status(head))
    return BoxRow((StyledText(preview_status(previews), style="bold"), part))


def _part_status(head: OpenHead) -> str:
    """Returns a sentence on the part of the map that is on the screen, and on how many units a cell stands for."""
    pane, parts, session = head.pane, list[str](), head.screen.session
    block = maps_over_tokens(session.heads[head.state.head][0]).block
    if head.is_scrolled:
        axes = ("queries", pane.queries, head.queries), ("keys", pane.keys, head.keys)
        parts.append(", ".join(f"{name} {axis.start}–{axis.stop - 1} of {len(units)}" for name, axis, units in axes))
    if pane.queries.pooled or pane.keys.pooled:
        sides = (-(-(axis.stop - axis.start) // axis.cells) for axis in (pane.queries, pane.keys))  # rounded up
        token_unit = "tokens" if block == (1, 1) else "blocks"
        unit = session.unit_name if head.state.view.words else token_unit
        parts.append("a cell is up to {} x {} {} (+ zooms in)".format(*sides, unit))
    if not parts and block != (1, 1):
        parts.append("every cell is a block of {} x {} tokens, as captured".format(*block))
    return f" {'; '.join(parts) or 'every cell is one query (row) and one key (column)'}"


def click_in_head(screen: Screen, state: State, x: int, y: int) -> State:
    """Returns the state after a click on a cell, a listed head or key, the minimap, or a token of the text.

    Every click clears the message; a click elsewhere changes nothing else.
    """
    head, state = lay_out(screen, state), replace(state, message="")
    size = screen.size
    if y >= map_lines(size):
        key = token_at(head.text, size, text_lines(size), x, y - map_lines(size))
        return state if key is None else replace(state, key=key)
    if side_column(size) <= x < side_column(size) + side_width(size):
        return _click_in_side_pane(head, state, x - side_column(size), y)
    cell = head.pane.cell_at(x - map_column(size), y)
    return state if cell is None else replace(state, query=cell[0], key=cell[1])


def cell_at_position(screen: Screen, state: State, x: int, y: int) -> tuple[int, int, int] | None:
    """Returns the head, the query and the key of the cell under a position; ``None`` if no cell is there."""
    head = lay_out(screen, state)
    pane_column = x - map_column(screen.size)
    cell = head.pane.cell_at(pane_column, y) if pane_column >= 0 and y < map_lines(screen.size) else None
    map_index = head.pane.map_at(pane_column)
    return None if cell is None or map_index >= len(head.heads) else (head.heads[map_index], *cell)


def _click_in_side_pane(head: OpenHead, state: State, x: int, y: int) -> State:
    """Returns the state after a click in the side pane: a listed head opens, or the cursor moves."""
    lines = side_lines(head)
    if y < listed_lines(head.screen.size):
        heads_in_list = listed_heads(head)
        return replace(state, head=heads_in_list[y], heads_beside=()) if y < len(heads_in_list) else state
    if y >= len(lines):
        return state
    line, minimap_column = lines[y], x - 1  # the minimap has a blank column at its left
    minimap_width = min(len(head.keys), head.side_width - 2)
    if line.query is not None and 0 <= minimap_column < minimap_width:
        return replace(state, query=line.query, key=minimap_column * len(head.keys) // minimap_width)
    return state if line.key is None else replace(state, key=line.key)


def _map_boxes(head: OpenHead) -> tuple[Box, ...]:
    """Composes a box for each line above the maps, with the labels of keys, and one box for all lines of the maps."""
    pane, state = head.pane, head.state
    cursor_cell = pane.queries.cell_of(state.query), pane.keys.cell_of(state.key)
    maps = [_map_cells(head, panel, cursor_cell) for panel in head.panels]
    labels: list[Box] = []
    for row in range(0, pane.queries.cells, pane.form.rows_a_line):
        has_cursor = row <= cursor_cell[0] < row + pane.form.rows_a_line
        text = _row_label(head, state.query if has_cursor else pane.queries.unit_of(row), has_cursor)
        label = StyledText(text, pane.label_width, "reverse" if has_cursor else "dim", right=True)
        labels.append(BoxRow((label, StyledText("▸" if has_cursor else " "))))
    gap = BoxColumn((StyledText("", 1),) * len(labels))
    first_map, *other_maps = maps
    boxes = [first_map, *(box for cells in other_maps for box in (gap, cells))]
    return *_header(head, cursor_cell[1]), BoxRow((BoxColumn(tuple(labels)), *boxes))


def _row_label(head: OpenHead, query: int, has_cursor: bool) -> str:
    """Returns the label of a row: the query's text, with its number if rows are pooled and the label has space."""
    label, width = head.queries.labels[query], head.pane.label_width
    numbered_label = f"{label} {head.queries.starts[query]}"
    shows_number = head.pane.queries.pooled and not has_cursor and cell_len(numbered_label) <= width
    return numbered_label if shows_number else label


def _map_cells(head: OpenHead, panel: Panel, cursor_cell: tuple[int, int]) -> Cells:
    """Composes the cells of one map, in the form of the zoom level."""
    form, character = head.pane.form, head.screen.size.character
    block = CellBlock(panel.values, panel.visible)
    if form.cell_width == 1 and character is not None:
        lines = -(-len(panel.values) // form.rows_a_line)  # rounded up
        area = PictureArea(lines, head.pane.map_width, character, (form.rows_a_line, form.cells_a_column))
        return Cells(block, panel.scale, cursor=cursor_cell, area=area)
    texts = _cell_numbers(panel) if form.cell_width >= NUMBER_CELL else None
    return Cells(block, panel.scale, form.cell_width, form.rows_a_line, cursor_cell, texts)


def _cell_numbers(panel: Panel) -> tuple[tuple[str, ...], ...]:
    """Returns the text of every cell of a panel, ``(rows, columns)``: its number, or a dot if it is masked."""

    def text(value: float, is_visible: bool) -> str:
        """Returns the text of one cell of ``panel``: its number, or a dot if it is masked."""
        return _number_in_four_columns(value, panel) if is_visible else "  · "

    rows = zip(panel.values.tolist(), panel.visible.tolist(), strict=True)
    return tuple(tuple(map(text, values, visible)) for values, visible in rows)


def _number_in_four_columns(value: float, panel: Panel) -> str:
    """Returns a value of a panel as text of exactly four columns: with fewer decimals if it is longer, then cut."""
    text = panel.cell(value)
    if len(text) > _NUMBER_COLUMNS:
        text = f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return f"{text:>{_NUMBER_COLUMNS - 1}} " if len(text) < _NUMBER_COLUMNS else text[:_NUMBER_COLUMNS]


def _header(head: OpenHead, cursor_column: int) -> list[Box]:
    """Composes the lines above the maps: the cursor's key, or the names of several heads; then the labels of keys."""
    pane = head.pane
    margin = StyledText("", pane.label_width + 1)
    compose_first_line = _head_names if head.state.heads_beside else _cursor_key_line
    lines: list[Box] = [BoxRow((margin, *compose_first_line(head, cursor_column)))]
    labels = [_key_label_lines(head, panel) for panel in head.panels]
    for label_lines in zip(*labels, strict=True):
        first_map_line, *other_map_lines = label_lines
        boxes = [*first_map_line, *(box for line in other_map_lines for box in (_GAP, *line))]
        lines.append(BoxRow((margin, *boxes)))
    return lines


def _cursor_key_line(head: OpenHead, cursor_column: int) -> tuple[Box, ...]:
    """Composes a mark over the cursor's column with the key's label at its right, or at its left if it fits only
    there.
    """
    width = head.pane.width - head.pane.label_width - 1
    seconds = seconds_of_columns(head.keys, head.pane.map_width, head.pane.keys.span)
    if seconds is not None:
        tokens, token = head.keys.tokens, int(head.keys.starts[head.state.key])
        assert isinstance(tokens.canvas, Sound)
        second = float(tokens.canvas.middles(tokens.places[[token]])[0])
        before, mark, after = marked_seconds(seconds, (second, f"{second:.2f}s"), "▾")
        return StyledText(before, style="dim"), StyledText(mark, style="bold"), StyledText(after, style="dim")
    label, mark_column = head.keys.labels[head.state.key], head.pane.column_of(cursor_column)
    label_columns = min(cell_len(label), width - 2)
    label_box = StyledText(label, label_columns, "bold")
    if mark_column + 2 + label_columns <= width:
        return StyledText("", mark_column), StyledText("▾ ", style="bold"), label_box
    return StyledText("", mark_column - label_columns - 1), label_box, StyledText(" ▾", style="bold")


def _head_names(head: OpenHead, cursor_column: int) -> list[Box]:
    """Composes the names of heads side by side, each with a mark over the cursor's column."""
    width, mark_column = head.pane.map_width, head.pane.column_of(cursor_column)
    line: list[Box] = []
    for head_index in head.heads:
        name = head.screen.session.names[head_index]
        if cell_len(name) < mark_column:
            text = f"{name}{' ' * (mark_column - cell_len(name))}▾"
        else:
            text = " " * mark_column + "▾" + (f" {name}" if mark_column + 2 < width else "")
        if line:
            line.append(StyledText(" ", style="bold"))
        line.append(StyledText(text, width, "bold"))
    return line


def _key_label_lines(head: OpenHead, panel: Panel) -> list[list[StyledText]]:
    """Returns the lines of key labels over one map: in wide cells one line, else characters below each other."""
    form, labels = head.pane.form, panel.columns.labels
    if form.cell_width >= NUMBER_CELL:
        return [[box for label in labels for box in (StyledText(label, form.cell_width - 1, "dim", right=True), _GAP)]]
    depth = form.header_lines - 1
    stacks = [_stacked_characters(label, depth) for label in labels] if depth else []
    return [[StyledText(stack[line], 2, "dim") for stack in stacks] for line in range(depth)]


def _stacked_characters(label: str, depth: int) -> list[str]:
    """Returns a label's characters for ``depth`` lines, from top to bottom: blank lines come first."""
    characters = list(label[:depth]) if len(label) <= depth else [*label[: depth - 1], "…"]
    return [""] * (depth - len(characters)) + characters
