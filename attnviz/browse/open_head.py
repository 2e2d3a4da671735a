"""An open head as lines: its map, what the cursor's query sees beside it, and that row as shaded text below."""

import math
from dataclasses import replace

import numpy as np
from rich.cells import cell_len

from attnviz.browse.blocks import Cells
from attnviz.browse.cursor import Screen, strongest_keys
from attnviz.browse.layout import ANSI, Map, map_lines, map_of, side_width, text_lines
from attnviz.browse.pixels import CURSOR, legend, pixel_lines, row_spans, shade_span
from attnviz.browse.session import Row
from attnviz.browse.state import State
from attnviz.render.terminal.lines import Line, Span, fit
from attnviz.report.colors import ColorScale
from attnviz.report.panels import Panel

BAR = 6  # columns of a bar beside a key
MINIMAP_LINES = 8
OUTSIDE = 0.35  # brightness of what is not on the screen, in the minimap


def draw_head(screen: Screen, state: State) -> list[Line]:
    """The body: the map and its side pane, then the row as text."""
    shown, panel = open_map(screen, state)
    row = screen.session.row(state.head, state.view, state.query)
    left = _map_lines(screen, state, shown, panel)
    right = _side_lines(screen, state, row, panel)
    lines: list[Line] = []
    for place in range(map_lines(screen.size)):
        line = _filled(left[place] if place < len(left) else [], shown.width)
        lines.append([*line, Span("│", style="dim"), *(right[place] if place < len(right) else [])])
    return lines + _text_lines(screen, state, row, panel.scale)


def open_map(screen: Screen, state: State) -> tuple[Map, Panel]:
    """The geometry of the map and its numbers."""
    shown = map_of(screen.session, state, screen.size, screen.colors)
    spans = shown.queries.span, shown.keys.span
    return shown, screen.session.panel(state.head, state.view, *spans, shown.queries.cells, shown.keys.cells)


def place_status(screen: Screen, state: State) -> Line:
    """What the cursor is on, and how much of the map is seen."""
    shown = map_of(screen.session, state, screen.size, screen.colors)
    units = screen.session.units(state.head, state.view)
    text = ""
    if shown.queries.pooled or shown.keys.pooled:
        sides = (-(-(axis.stop - axis.start) // axis.cells) for axis in (shown.queries, shown.keys))
        text = " a cell is {} x {} tokens (+ zooms in)".format(*sides)
    if state.zoom:
        axes = (shown.queries, units[0]), (shown.keys, units[1])
        parts = [f"{axis.start}–{axis.stop - 1} of {len(all_units)}" for axis, all_units in axes]
        text = f" queries {parts[0]}, keys {parts[1]};" + text
    return [Span(text or " every cell is one query (row) and one key (column)")]


def text_places(screen: Screen, state: State) -> list[list[int | None]]:
    """Which key stands in each column of each line of the shaded text."""
    return [[key for key, piece in line for _ in range(cell_len(piece))] for line in _wrapped(screen, state)]


def side_key(screen: Screen, state: State, line: int) -> int | None:
    """The key listed on a line of the side pane."""
    order = strongest_keys(screen, state)
    place = line - 6
    return order[place] if 0 <= place < min(len(order), _listed(screen, state)) else None


def _map_lines(screen: Screen, state: State, shown: Map, panel: Panel) -> list[Line]:
    cells = Cells(panel.values, panel.visible)
    at = shown.queries.cell_of(state.query), shown.keys.cell_of(state.key)
    header = _header(screen, state, shown, panel, at[1])
    if shown.form.rows_a_line == 2:
        rows = pixel_lines(cells, panel.scale, screen.colors, at)
    else:
        rows = [
            _row(screen, shown, panel, cells, row, at[1] if row == at[0] else None) for row in range(len(panel.values))
        ]
    lines = header
    for number, row in enumerate(rows):
        first = number * shown.form.rows_a_line
        here = first <= at[0] < first + shown.form.rows_a_line
        name = screen.session.units(state.head, state.view)[0].labels[state.query] if here else panel.rows.labels[first]
        label = Span(f"{_right(name, shown.labels)}", style="reverse" if here else "dim")
        lines.append([label, Span("▸" if here else " "), *row])
    return lines


def _row(screen: Screen, shown: Map, panel: Panel, cells: Cells, row: int, cursor: int | None) -> Line:
    if shown.form.cell < 4:
        return row_spans(cells, row, panel.scale, screen.colors, shown.form.cell, cursor)
    line = []
    for column, (value, seen) in enumerate(zip(panel.values[row].tolist(), panel.visible[row].tolist(), strict=True)):
        text = _number(value, panel) if seen else "  · "
        span = shade_span(value, seen, panel.scale, screen.colors, text, column == cursor)
        colored = column == cursor and screen.colors > ANSI
        line.append(replace(span, ink=(255, 255, 255), paper=CURSOR, style="bold") if colored else span)
    return line


def _number(value: float, panel: Panel) -> str:
    """The value in a cell of four columns, the last a gap where it fits."""
    text = panel.quantity.cell(value)
    short = text if len(text) <= 4 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return f"{short:>3} "[:4] if len(short) <= 3 else short[:4]


def _header(screen: Screen, state: State, shown: Map, panel: Panel, at: int) -> list[Line]:
    """The cursor's key over its column, then the keys' labels where cells are wide enough."""
    margin = Span(" " * (shown.labels + 1))
    width = shown.width - shown.labels - 1
    key = screen.session.units(state.head, state.view)[1].labels[state.key]
    before = at * shown.form.cell
    name = fit(key, min(cell_len(key), width - 2))
    if before + 2 + cell_len(name) <= width:
        pointer = [Span(" " * before), Span(f"▾ {name}", style="bold")]
    else:
        pointer = [Span(" " * (before - cell_len(name) - 1)), Span(f"{name} ▾", style="bold")]
    lines: list[Line] = [[margin, *pointer]]
    labels = panel.columns.labels
    if shown.form.cell == 4:
        return [*lines, [margin, Span("".join(fit(label, 3) + " " for label in labels), style="dim")]]
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


def _side_lines(screen: Screen, state: State, row: Row, panel: Panel) -> list[Line]:
    """The cursor in words and numbers, the strongest keys, the minimap and the colours."""
    width = side_width(screen.size)
    queries, keys = screen.session.units(state.head, state.view)
    lines: list[Line] = [
        [Span(fit(f" query {queries.starts[state.query]} {queries.labels[state.query]}", width), style="bold")],
        [Span(fit(f" key {keys.starts[state.key]} {keys.labels[state.key]}", width), style="bold")],
        *([Span(text)] for text in _cursor_numbers(row, state.key, state.view.words)),
        [],
        [Span(fit(" strongest keys", width), style="dim")],
    ]
    order = strongest_keys(screen, state)
    listed = _listed(screen, state)
    shown = np.abs(row.shown(state.view)[order[:listed]])
    most = float(shown[np.isfinite(shown)].max(initial=0)) or 1.0
    lines += [_key_line(screen, state, row, panel, key, most) for key in order[:listed]]
    lines += [[Span(" none is visible", style="dim")]] if not order else []
    room = map_lines(screen.size) - 1
    minimap = _minimap(screen, state, panel.scale) if state.zoom else []
    lines += [[] for _ in range(room - len(minimap) - len(lines))] + minimap
    bar = max(4, width - 16)
    return [*lines[:room], [Span(" "), *legend(panel.quantity, panel.scale, screen.colors, bar)]]


def _cursor_numbers(row: Row, key: int, words: bool) -> list[str]:
    score = f" score  {row.scores[key]:.4f}"
    if np.isnan(row.scores[key]):
        score = " a word has no score" if words else " score  NaN"
    if not row.visible[key]:
        return [" masked: may not look", score]
    weight = f" weight {row.weights[key]:.2%}"
    if row.change is not None:
        weight += f" {row.change[key]:+.2%}"
    return [weight, score]


def _listed(screen: Screen, state: State) -> int:
    """How many of the strongest keys there is room for."""
    return max(0, map_lines(screen.size) - 7 - (MINIMAP_LINES + 1 if state.zoom else 0))


def _key_line(screen: Screen, state: State, row: Row, panel: Panel, key: int, most: float) -> Line:
    width = side_width(screen.size)
    value = float(row.shown(state.view)[key])
    label = screen.session.units(state.head, state.view)[1].labels[key]
    number = f"{value:.2f}" if state.view.scores else f"{value:+.1%}" if state.view.difference else f"{value:.1%}"
    number = "NaN" if math.isnan(value) else number
    room = width - BAR - len(number) - 4
    here = key == state.key
    filled = "█" * max(1, round(abs(value) / most * BAR)) if math.isfinite(value) else ""
    return [
        Span(f"{'▸' if here else ' '}{fit(label, room)} {number} ", style="bold" if here else ""),
        Span(fit(filled, BAR), style="" if here else "dim"),
    ]


def _minimap(screen: Screen, state: State, scale: ColorScale) -> list[Line]:
    """The whole head small, what is not on the screen darkened."""
    units = screen.session.units(state.head, state.view)
    height, width = MINIMAP_LINES * 2, side_width(screen.size) - 2
    rows, columns = (slice(0, len(each)) for each in units)
    cells = screen.session.cells(state.head, state.view, rows, columns, height, width)
    inside = _inside(screen, state, cells.values.shape, [len(each) for each in units])
    if screen.colors <= ANSI:
        seen = Cells(cells.values, cells.visible & inside)
        lines = pixel_lines(seen, scale, screen.colors)
    else:
        lines = [
            [_dimmed(span, *inside_pair) for span, *inside_pair in zip(line, *_pair(inside, number), strict=True)]
            for number, line in enumerate(pixel_lines(cells, scale, screen.colors))
        ]
    return [[Span(" "), *line] for line in lines]


def minimap_at(screen: Screen, state: State, column: int, line: int) -> tuple[int, int] | None:
    """The query and the key under a place of the side pane, where its minimap is."""
    units = screen.session.units(state.head, state.view)
    height, width = (min(len(units[0]), MINIMAP_LINES * 2), min(len(units[1]), side_width(screen.size) - 2))
    first = map_lines(screen.size) - 1 - -(-height // 2)
    row = (line - first) * 2
    if not state.zoom or not 0 <= row < height or not 0 <= column - 1 < width:
        return None
    return row * len(units[0]) // height, (column - 1) * len(units[1]) // width


def _inside(screen: Screen, state: State, shape: tuple[int, ...], counts: list[int]) -> np.ndarray:
    """Which pixels of the minimap are on the screen, ``(rows, columns)``."""
    shown = map_of(screen.session, state, screen.size, screen.colors)
    marks = []
    for axis, pixels, count in zip((shown.queries, shown.keys), shape, counts, strict=True):
        starts = np.arange(pixels) * count // pixels
        stops = np.append(starts[1:], count)
        marks.append((stops > axis.start) & (starts < axis.stop))
    return np.asarray(marks[0][:, None] & marks[1][None, :])


def _pair(inside: np.ndarray, line: int) -> tuple[list[bool], list[bool]]:
    above = inside[2 * line].tolist()
    return above, inside[2 * line + 1].tolist() if 2 * line + 1 < len(inside) else above


def _dimmed(span: Span, above: bool, below: bool) -> Span:
    ink_inside = below if span.text == "▄" else above
    ink = span.ink if ink_inside or span.ink is None else _darker(span.ink)
    paper = span.paper if below or span.paper is None else _darker(span.paper)
    return replace(span, ink=ink, paper=paper)


def _darker(color: tuple[int, int, int]) -> tuple[int, int, int]:
    red, green, blue = (round(channel * OUTSIDE) for channel in color)
    return red, green, blue


def _text_lines(screen: Screen, state: State, row: Row, scale: ColorScale) -> list[Line]:
    """The keys as running text, each on the colour of its value."""
    lines: list[Line] = []
    shown = row.shown(state.view)
    for places in _wrapped(screen, state):
        line = [Span(" ")]
        for key, piece in places[1:]:
            if key is None or not piece.strip():
                line.append(Span(piece))
            else:
                line.append(shade_span(float(shown[key]), bool(row.visible[key]), scale, screen.colors, piece))
                line[-1] = _underlined(line[-1]) if key == state.key else line[-1]
        lines.append(line)
    return lines


def _underlined(span: Span) -> Span:
    return replace(span, style=f"{span.style} underline bold".strip())


def _wrapped(screen: Screen, state: State) -> list[list[tuple[int | None, str]]]:
    """The keys in lines of text, those about the cursor's key where not all fit."""
    units = screen.session.units(state.head, state.view)[1]
    width, most = screen.size.width - 2, text_lines(screen.size)
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


def _right(text: str, width: int) -> str:
    """The text at the right of ``width`` columns, cut and marked where it is longer."""
    cut = fit(text, min(cell_len(text), width))
    return " " * (width - cell_len(cut)) + cut
