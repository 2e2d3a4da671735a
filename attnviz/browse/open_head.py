"""An open head as lines: its map, what the cursor's query sees beside it, and that row as shaded text below."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray
from attnviz.browse.blocks import CellBlock
from attnviz.browse.cursor import Screen, strongest_keys
from attnviz.browse.layout import ANSI_COLORS, NUMBER_CELL, MapPane, map_lines, map_of, side_width, text_lines
from attnviz.browse.pixels import CURSOR_COLOR, legend, pixel_lines, row_spans, shade_span
from attnviz.browse.session import QueryRow
from attnviz.browse.state import State
from attnviz.render.terminal.lines import Line, Span, fit, right
from attnviz.report.panels import Panel
from attnviz.text.units import Units

BAR_WIDTH = 6  # columns of a bar beside a key
MINIMAP_LINES = 8
OFF_SCREEN_BRIGHTNESS = 0.35  # brightness of what is not on the screen, in the minimap


@dataclass(frozen=True, eq=False)
class OpenHead:
    """An open head laid out on the screen: what its panes are drawn from, and what is asked by a click.

    Attributes:
        screen: the recording and the terminal.
        state: which head, and where its cursor is.
        queries: what the rows stand for.
        keys: what the columns stand for.
        pane: where the map's cells are.
        row: what the cursor's query looks at.
        strongest: its keys, the strongest first.
    """

    screen: Screen
    state: State
    queries: Units
    keys: Units
    pane: MapPane
    row: QueryRow
    strongest: list[int]

    @cached_property
    def panel(self) -> Panel:
        """The numbers of the map as it is pooled."""
        pane, session = self.pane, self.screen.session
        spans = pane.queries.span, pane.keys.span
        return session.panel(self.state.head, self.state.view, *spans, pane.queries.cells, pane.keys.cells)

    @property
    def side_width(self) -> int:
        """Columns of the side pane."""
        return side_width(self.screen.size)


@dataclass(frozen=True)
class SideLine:
    """A line of the side pane.

    Attributes:
        line: as it is drawn.
        key: the key that it lists.
        query: in the minimap, the query of its upper pixels.
    """

    line: Line
    key: int | None = None
    query: int | None = None


def lay_out(screen: Screen, state: State) -> OpenHead:
    """The head that is open."""
    queries, keys = screen.session.units(state.head, state.view)
    return OpenHead(
        screen=screen,
        state=state,
        queries=queries,
        keys=keys,
        pane=map_of(screen.session, state, screen.size, screen.colors),
        row=screen.session.row(state.head, state.view, state.query),
        strongest=strongest_keys(screen, state),
    )


def draw_head(head: OpenHead) -> list[Line]:
    """The body: the map and its side pane, then the row as text."""
    left, right = _map_lines(head), side_lines(head)
    lines: list[Line] = []
    for place in range(map_lines(head.screen.size)):
        line = _filled(left[place] if place < len(left) else [], head.pane.width)
        lines.append([*line, Span("│", style="dim"), *(right[place].line if place < len(right) else [])])
    return lines + _text_lines(head)


def place_status(head: OpenHead) -> Line:
    """What the cursor is on, and how much of the map is seen."""
    shown, text = head.pane, ""
    if shown.queries.pooled or shown.keys.pooled:
        sides = (-(-(axis.stop - axis.start) // axis.cells) for axis in (shown.queries, shown.keys))
        text = " a cell is {} x {} tokens (+ zooms in)".format(*sides)
    if head.state.zoom:
        axes = (shown.queries, head.queries), (shown.keys, head.keys)
        parts = [f"{axis.start}–{axis.stop - 1} of {len(units)}" for axis, units in axes]
        text = f" queries {parts[0]}, keys {parts[1]};" + text
    return [Span(text or " every cell is one query (row) and one key (column)")]


def clicked_in_head(screen: Screen, state: State, x: int, y: int) -> State:
    """The state with the cursor on what was clicked: a cell, a listed key, the minimap, or a token of the text."""
    head, state = lay_out(screen, state), replace(state, message="")
    lines, side = map_lines(screen.size), screen.size.width - side_width(screen.size)
    if y >= lines:
        return _clicked_in_text(head, state, x, y - lines)
    if x >= side:
        return _clicked_beside(head, state, x - side, y)
    cell = head.pane.cell_at(x, y)
    return state if cell is None else replace(state, query=cell[0], key=cell[1])


def _clicked_in_text(head: OpenHead, state: State, x: int, y: int) -> State:
    texts = _wrapped(head)
    keys = [key for key, piece in texts[y] for _ in range(cell_len(piece))] if y < len(texts) else []
    key = keys[x] if x < len(keys) else None
    return state if key is None else replace(state, key=key)


def _clicked_beside(head: OpenHead, state: State, x: int, y: int) -> State:
    lines = side_lines(head)
    if y >= len(lines):
        return state
    width = min(len(head.keys), head.side_width - 2)
    if (query := lines[y].query) is not None and 0 <= x - 1 < width:
        return replace(state, query=query, key=(x - 1) * len(head.keys) // width)
    key = lines[y].key
    return state if key is None else replace(state, key=key)


def _map_lines(head: OpenHead) -> list[Line]:
    shown, panel, state = head.pane, head.panel, head.state
    cells = CellBlock(panel.values, panel.visible)
    at = shown.queries.cell_of(state.query), shown.keys.cell_of(state.key)
    if shown.form.rows_a_line == 2:
        rows = pixel_lines(cells, panel.scale, head.screen.colors, at)
    else:
        rows = [_row(head, cells, row, at[1] if row == at[0] else None) for row in range(len(panel.values))]
    lines = _header(head, at[1])
    for number, row in enumerate(rows):
        first = number * shown.form.rows_a_line
        here = first <= at[0] < first + shown.form.rows_a_line
        name = head.queries.labels[state.query] if here else panel.rows.labels[first]
        label = Span(f"{right(name, shown.labels)}", style="reverse" if here else "dim")
        lines.append([label, Span("▸" if here else " "), *row])
    return lines


def _row(head: OpenHead, cells: CellBlock, row: int, cursor: int | None) -> Line:
    panel, colors = head.panel, head.screen.colors
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
    """The cursor's key over its column, then the keys' labels where cells are wide enough."""
    shown, panel = head.pane, head.panel
    margin = Span(" " * (shown.labels + 1))
    width = shown.width - shown.labels - 1
    key = head.keys.labels[head.state.key]
    before = at * shown.form.cell
    name = fit(key, min(cell_len(key), width - 2))
    if before + 2 + cell_len(name) <= width:
        pointer = [Span(" " * before), Span(f"▾ {name}", style="bold")]
    else:
        pointer = [Span(" " * (before - cell_len(name) - 1)), Span(f"{name} ▾", style="bold")]
    lines: list[Line] = [[margin, *pointer]]
    labels = panel.columns.labels
    if shown.form.cell >= NUMBER_CELL:
        return [
            *lines,
            [margin, Span("".join(right(label, shown.form.cell - 1) + " " for label in labels), style="dim")],
        ]
    if shown.form.cell == 2:
        depth = shown.form.header - 1
        stacks = [_stacked(label, depth) for label in labels]
        lines += [
            [margin, Span("".join(fit(stack[line], 2) for stack in stacks), style="dim")] for line in range(depth)
        ]
    return lines


def _stacked(label: str, depth: int) -> list[str]:
    """The label's characters downwards, at the bottom of ``depth`` lines."""
    characters = list(label[:depth]) if len(label) <= depth else [*label[: depth - 1], "…"]
    return [""] * (depth - len(characters)) + characters


def side_lines(head: OpenHead) -> list[SideLine]:
    """The cursor in words and numbers, the strongest keys, the minimap and the colours."""
    room = map_lines(head.screen.size) - 1
    minimap = _minimap(head) if head.state.zoom else []
    above = [*_cursor_lines(head)]
    above += _key_lines(head, room - len(above) - (MINIMAP_LINES + 1 if minimap else 0))
    blank = [SideLine([])] * (room - len(minimap) - len(above))
    bar = legend(head.panel.quantity, head.panel.scale, head.screen.colors, max(4, head.side_width - 16))
    return [*[*above, *blank, *minimap][:room], SideLine([Span(" "), *bar])]


def _cursor_lines(head: OpenHead) -> list[SideLine]:
    state, width = head.state, head.side_width
    names = (
        f" query {head.queries.starts[state.query]} {head.queries.labels[state.query]}",
        f" key {head.keys.starts[state.key]} {head.keys.labels[state.key]}",
    )
    lines: list[Line] = [
        *([Span(fit(name, width), style="bold")] for name in names),
        *([Span(text)] for text in _cursor_numbers(head.row, state.key, state.view.words)),
        [],
        [Span(fit(" strongest keys", width), style="dim")],
    ]
    return [SideLine(line) for line in lines]


def _key_lines(head: OpenHead, room: int) -> list[SideLine]:
    """As many of the strongest keys as there is room for, each with its number and a bar."""
    if not head.strongest:
        return [SideLine([Span(" none is visible", style="dim")])]
    listed = head.strongest[: max(0, room)]
    shown = np.abs(head.row.shown(head.state.view)[listed])
    most = float(shown[np.isfinite(shown)].max(initial=0)) or 1.0
    return [SideLine(_key_line(head, key, most), key=key) for key in listed]


def _cursor_numbers(row: QueryRow, key: int, words: bool) -> list[str]:
    score = f" score  {row.scores[key]:.4f}"
    if np.isnan(row.scores[key]):
        score = " a word has no score" if words else " score  NaN"
    if not row.visible[key]:
        return [" masked: may not look", score]
    weight = f" weight {row.weights[key]:.2%}"
    if row.change is not None:
        weight += f" {row.change[key]:+.2%}"
    return [weight, score]


def _key_line(head: OpenHead, key: int, most: float) -> Line:
    view = head.state.view
    value = float(head.row.shown(view)[key])
    number = f"{value:.2f}" if view.scores else f"{value:+.1%}" if view.difference else f"{value:.1%}"
    number = "NaN" if math.isnan(value) else number
    room = head.side_width - BAR_WIDTH - len(number) - 4
    here = key == head.state.key
    filled = "█" * max(1, round(abs(value) / most * BAR_WIDTH)) if math.isfinite(value) else ""
    return [
        Span(f"{'▸' if here else ' '}{fit(head.keys.labels[key], room)} {number} ", style="bold" if here else ""),
        Span(fit(filled, BAR_WIDTH), style="" if here else "dim"),
    ]


def _minimap(head: OpenHead) -> list[SideLine]:
    """The whole head small, what is not on the screen darkened."""
    units, colors, scale = (head.queries, head.keys), head.screen.colors, head.panel.scale
    rows, columns = (slice(0, len(each)) for each in units)
    size = MINIMAP_LINES * 2, head.side_width - 2
    cells = head.screen.session.cells(head.state.head, head.state.view, rows, columns, *size)
    inside = _inside(head, cells.values.shape)
    if colors <= ANSI_COLORS:
        lines = pixel_lines(CellBlock(cells.values, cells.visible & inside), scale, colors)
    else:
        lines = [
            [_dimmed(span, *pair) for span, *pair in zip(line, *_pair(inside, number), strict=True)]
            for number, line in enumerate(pixel_lines(cells, scale, colors))
        ]
    height = len(cells.values)
    queries = [2 * number * len(head.queries) // height for number in range(len(lines))]
    return [SideLine([Span(" "), *line], query=query) for line, query in zip(lines, queries, strict=True)]


def _inside(head: OpenHead, shape: tuple[int, ...]) -> BoolArray:
    """Which pixels of the minimap are on the screen, ``(rows, columns)``."""
    marks = []
    axes = zip((head.pane.queries, head.pane.keys), shape, (len(head.queries), len(head.keys)), strict=True)
    for axis, pixels, count in axes:
        starts = np.arange(pixels) * count // pixels
        stops = np.append(starts[1:], count)
        marks.append((stops > axis.start) & (starts < axis.stop))
    return np.asarray(marks[0][:, None] & marks[1][None, :])


def _pair(inside: BoolArray, line: int) -> tuple[list[bool], list[bool]]:
    above = inside[2 * line].tolist()
    return above, inside[2 * line + 1].tolist() if 2 * line + 1 < len(inside) else above


def _dimmed(span: Span, above: bool, below: bool) -> Span:
    ink_inside = below if span.text == "▄" else above
    ink = span.ink if ink_inside or span.ink is None else _darker(span.ink)
    paper = span.paper if below or span.paper is None else _darker(span.paper)
    return replace(span, ink=ink, paper=paper)


def _darker(color: tuple[int, int, int]) -> tuple[int, int, int]:
    red, green, blue = (round(channel * OFF_SCREEN_BRIGHTNESS) for channel in color)
    return red, green, blue


def _text_lines(head: OpenHead) -> list[Line]:
    """The keys as running text, each on the colour of its value."""
    return [[Span(" "), *(_text_span(head, key, piece) for key, piece in places[1:])] for places in _wrapped(head)]


def _text_span(head: OpenHead, key: int | None, piece: str) -> Span:
    if key is None or not piece.strip():
        return Span(piece)
    value, visible = float(head.row.shown(head.state.view)[key]), bool(head.row.visible[key])
    span = shade_span(value, visible, head.panel.scale, head.screen.colors, piece)
    return _underlined(span) if key == head.state.key else span


def _underlined(span: Span) -> Span:
    return replace(span, style=f"{span.style} underline bold".strip())


def _wrapped(head: OpenHead) -> list[list[tuple[int | None, str]]]:
    """The keys in lines of text, those about the cursor's key where not all fit."""
    units, state = head.keys, head.state
    width, most = head.screen.size.width - 2, text_lines(head.screen.size)
    start = max(0, state.key - width * most // 2) if len(units) > width * most else 0
    lines: list[list[tuple[int | None, str]]] = [[(None, " ")]]
    used = cursor_line = 0
    for key in range(start, len(units)):
        piece = fit(units.labels[key], min(cell_len(units.labels[key]), width))
        length = cell_len(piece)
        if used and used + length > width:
            if key > state.key and len(lines) >= cursor_line + most:
                break
            lines.append([(None, " ")])
            used = 0
        if key == state.key:
            cursor_line = len(lines) - 1
        gap = " " if units.spaced[key] else ""
        lines[-1] += [(key, piece), *([(None, gap)] if gap else [])]
        used += length + len(gap)
    first = min(max(0, cursor_line - most // 2), max(0, len(lines) - most))
    return lines[first : first + most]


def _filled(line: Line, width: int) -> Line:
    used = sum(cell_len(span.text) for span in line)
    return [*line, Span(" " * max(0, width - used))]
