"""Composes the overview: thumbnails of all heads with their patterns, and the chosen head in the status line."""

from dataclasses import replace

import numpy as np
from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import Tiles, tiles
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Below, Beside, Body, Box, Cells, PictureArea, Words
from attnviz.browse.view.legends import legend, preview
from attnviz.report.picture.colors import DIVERGING, ColorScale

MIN_PATTERN_WIDTH = 9  # columns; a pattern in less could not be read
LEGEND_COLUMNS = 12


def overview_body(screen: Screen, state: State) -> Body:
    """Composes the rows of tiles on the screen."""
    session, grid = screen.session, tiles(screen.session, state, screen.size)
    session.unfinished += session.thumbnails.unfinished(grid.on_screen(state.top), state.view, grid.pixels)
    scale, quantity = _shared_scale(session, state, grid), session.quantity(state.view)
    rows = grid.rows[state.top : state.top + grid.shown]
    boxes = tuple(Beside((*(_tile(screen, state, head, grid, scale) for head in heads),)) for heads in rows)
    return Body(
        _title(session, state), Below(boxes), _status(screen, state, grid, legend(quantity, scale, LEGEND_COLUMNS))
    )


def _title(session: Session, state: State) -> str:
    """Returns the number of listed heads, and of marked ones."""
    listed = len(session.ranking.order(state.view))
    of = "" if listed == session.recorded else f" of {session.recorded}"
    marked = f", {len(state.marked)} marked" if state.marked else ""
    return f"{listed}{of} head{'s' if session.recorded > 1 else ''}{marked}"


def _shared_scale(session: Session, state: State, grid: Tiles) -> ColorScale:
    """Returns the colour scale of all thumbnails that are computed."""
    computed = [session.thumbnails.find(head, state.view, grid.pixels) for head in range(session.recorded)]
    cells = [each for each in computed if each is not None]
    return session.scale(replace(state.view, own_scale=False), cells, state.theme)


def _tile(screen: Screen, state: State, head: int, grid: Tiles, scale: ColorScale) -> Box:
    """Composes a tile: the head's name and pattern above its thumbnail."""
    session, chosen = screen.session, head == state.head
    block = session.thumbnails.find(head, state.view, grid.pixels)
    effect = _effect(session, head)
    width = grid.columns - (2 if effect else 0)
    name = session.names[head] + _number(session, state, head)
    pattern = session.ranking.pattern(head)
    name += f" {pattern}" if pattern and width >= cell_len(name) + MIN_PATTERN_WIDTH else ""
    marks = ("▸" if chosen else "") + ("•" if head in state.marked else "")
    title = Beside((*effect, Words(marks + name, width, "reverse bold" if chosen else ""), Words("", 1)))
    if block is None:
        empty = (Words("", grid.width),) * (grid.height - 2)
        return Below((title, Words("…", grid.width, "dim"), *empty))
    if state.view.own_scale:
        scale = session.scale(state.view, [block], state.theme)
    gap = Below((Words(" "),) * (grid.height - 1))
    return Below((title, Beside((_thumbnail(screen, block, grid, scale), gap))))


def _thumbnail(screen: Screen, block: CellBlock, grid: Tiles, scale: ColorScale) -> Cells:
    """Composes the cells of a head, stretched to the tile, as half blocks or in pixels."""
    if screen.size.character is None:
        return Cells(stretched(block, grid.columns), scale, rows_a_line=2)
    return Cells(block, scale, area=PictureArea(grid.height - 1, grid.columns, screen.size.character))


def stretched(cells: CellBlock, pixels: int) -> CellBlock:
    """Returns a block stretched to ``pixels`` x ``pixels`` cells by repeating cells."""
    rows, columns = (np.arange(pixels) * count // pixels for count in cells.values.shape)
    return CellBlock(cells.values[np.ix_(rows, columns)], cells.visible[np.ix_(rows, columns)])


def _effect(session: Session, head: int) -> tuple[Cells, ...]:
    """Composes a cell with the head's effect and its sign; none if no file of effects is open."""
    if not session.added or head >= session.recorded:
        return ()
    numbers = session.ranking.frame.column(session.added[0].names[0])
    largest = max(np.abs(numbers[~np.isnan(numbers)]).tolist(), default=1.0) or 1.0
    value, measured = numbers[head], not np.isnan(numbers[head])
    mark = "  " if not measured else "+ " if value > 0 else "- "
    block = CellBlock(np.array([[value]], dtype=np.float64), np.array([[measured]]))
    scale = ColorScale(-largest, largest, colormap=DIVERGING)
    return (Cells(block, scale, cell=2, texts=((mark,),)),)


def _number(session: Session, state: State, head: int) -> str:
    """Returns the number by which heads are sorted, "" if they are not sorted by a number."""
    order, added = state.view.order, [each.names[0] for each in session.added]
    number = session.ranking.number(head, order)
    if number is None:
        return ""
    return " —" if np.isnan(number) else f" {number:{'+.4f' if order in added else '.2f'}}"


def _status(screen: Screen, state: State, grid: Tiles, shown: tuple[Words, Box, Words]) -> Box:
    """Composes the status: the progress of a preview, the chosen head, and the legend."""
    before = preview(screen.session.unfinished)
    low, _, high = shown
    colors: tuple[Box, ...] = shown
    width = screen.size.width - LEGEND_COLUMNS - cell_len(low.text) - cell_len(high.text)
    if state.view.own_scale:
        own = "one scale per head"
        colors, width = (Words(own),), screen.size.width - len(own)
    return Beside(
        (Words(before, style="bold"), Words(_head_summary(screen.session, state, grid, before, width)), *colors)
    )


def _head_summary(session: Session, state: State, grid: Tiles, before: str, width: int) -> str:
    """Returns the chosen head with its pattern, its size and its row, as much of it as fits the width."""
    maps, _ = session.heads[state.head]
    line, _ = grid.place(state.head)
    parts = [
        session.ranking.pattern(state.head),
        "cross-attention" if maps.kind == "cross" else "",
        f"{len(maps.query_tokens)} x {len(maps.key_tokens)} tokens",
        f"row {line + 1} of {len(grid.rows)}" if len(grid.rows) > grid.shown else "",
    ]
    parts = [part for part in parts if part]
    name = f" head {session.names[state.head]}"
    while parts and len(before) + len(name) + len("; ".join(parts)) + 4 > width:
        parts.pop()
    return f"{name}{': ' if parts else ''}{'; '.join(parts)}  "
