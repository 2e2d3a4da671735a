"""Draws the overview: thumbnails of all heads with their patterns, and a status line about the chosen head."""

from dataclasses import replace

import numpy as np
from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import Tiles, tiles
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State
from attnviz.browse.view.cells import Cells, cell_lines, legend, preview_status, quantity_text
from attnviz.browse.view.graphics import PictureArea
from attnviz.browse.view.parts import Drawing, Hit, Parts, beside, short_name, words
from attnviz.browse.view.text import ShadedTokens, shades_caption, text_pane, unique_label
from attnviz.render.terminal.lines import Line
from attnviz.report.picture.colors import DIVERGING, ColorScale
from attnviz.report.picture.panels import PERCENT

MIN_PATTERN_WIDTH = 9  # columns; with fewer a pattern is left out, since nobody could read it
LEGEND_COLUMNS = 12
MAX_LISTED_KEYS = 6  # of the chosen head
MAX_ROUNDING = 1e-3  # of a sum of weights


def overview_parts(screen: Screen, state: State) -> Parts:
    """Returns the parts of the overview: a tile for each head, and a shaded text if there is space.

    Adds the thumbnails on the screen that are still previews to the session's unfinished blocks. The title counts the
    listed heads, all heads if some are hidden, and marked heads, and says what signs before heads mean.
    """
    session, grid = screen.session, tiles(screen.session, state, screen.size)
    session.unfinished_blocks += session.thumbnails.unfinished_blocks(
        grid.on_screen(state.top), state.view, grid.pixels
    )
    # one colour scale for all thumbnails that are computed, whether they are on the screen or not
    thumbnails = [session.thumbnails.find(head, state.view, grid.pixels) for head in range(session.recorded_count)]
    blocks = [thumbnail for thumbnail in thumbnails if thumbnail is not None]
    leaves_out = session.left_out is not None and not state.view.all_keys  # the largest weights, so that others show
    scale = session.scale(replace(state.view, own_scale=leaves_out), blocks, state.theme)
    shown_rows = grid.rows[state.top : state.top + grid.shown_row_count]
    lines = [
        line
        for heads in shown_rows
        for line in beside(*((Drawing(_tile(screen, state, head, grid, scale)), grid.width) for head in heads)).lines
    ]

    def hit(x: int, y: int) -> Hit | None:
        row, column = y // grid.height, x // grid.width
        if row >= len(shown_rows) or column >= len(shown_rows[row]):
            return None
        head = shown_rows[row][column]
        return Hit({"head": head}, opens=head == state.head)

    text = text_pane(_mean_row_text(screen, state), screen, grid.text_lines) if grid.text_lines else Drawing([])
    listed_count = len(session.ranking.order(state.view))
    total = "" if listed_count == session.recorded_count else f" of {session.recorded_count}"
    marked_text = f", {len(state.marked_heads)} marked" if state.marked_heads else ""
    title = f"{listed_count}{total} head{'s' if session.recorded_count > 1 else ''}{marked_text}"
    if session.added_frames:
        title += f", + −: {session.added_frames[0].measures[0].meaning}, up to {_largest_effect(session):.2g}"
    return Parts([words(title)], Drawing(lines, hit), text, _status(screen, state, grid, scale))


def _mean_row_text(screen: Screen, state: State) -> ShadedTokens:
    """Returns the keys shaded by the mean of the chosen head's rows; the caption lists the strongest ones that fit."""
    session = screen.session
    row = session.mean_row(state.head, state.view)
    _, keys = session.units(state.head, state.view)
    block = CellBlock(row.values[None], row.visible[None])
    scale = session.scale(replace(state.view, own_scale=True), [block], state.theme)
    quantity = session.quantity(state.view)
    strengths = np.where(row.visible, np.abs(np.nan_to_num(row.values)), -1)  # masked keys come last
    strongest_keys = np.argsort(-strengths, kind="stable")[:MAX_LISTED_KEYS].tolist()
    key_texts = [
        f"{unique_label(keys, key)} {quantity_text(quantity, float(row.values[key]))}" for key in strongest_keys
    ]
    caption = shades_caption(f"mean of all queries in head {session.names[state.head]}", quantity, scale)
    while key_texts and cell_len(f"{caption}: {', '.join(key_texts)}") > screen.size.width:
        key_texts.pop()
    caption += f": {', '.join(key_texts)}" if key_texts else ""
    # Under a causal mask, the mean of each key is over other queries, so that their sums are no shares.
    sums_to_shares = float(np.where(row.visible, np.nan_to_num(row.values), 0).sum()) <= 1 + MAX_ROUNDING
    are_shares = quantity is PERCENT and sums_to_shares
    return ShadedTokens(keys, row.values, row.visible, scale, strongest_keys[0], caption, are_shares=are_shares)


def _tile(screen: Screen, state: State, head: int, grid: Tiles, scale: ColorScale) -> list[Line]:
    """Returns a tile: the head's effect, name, sort number and pattern above its thumbnail, or above an ellipsis."""
    session, is_chosen = screen.session, head == state.head
    effect = _effect_spans(screen, state, head)
    width = grid.columns - (2 if effect else 0)  # an effect has two columns
    marks = ("▸" if is_chosen else "") + ("•" if head in state.marked_heads else "")
    order, number_text = state.view.order, ""
    number = session.ranking.number(head, order)
    if number is not None:
        spec = "+.4f" if order in [frame.names[0] for frame in session.added_frames] else ".2f"
        number_text = " —" if np.isnan(number) else f" {number:{spec}}"
    name = short_name(session.names[head], width - len(marks) - len(number_text)) + number_text
    pattern = session.ranking.description(head)
    name += f" {pattern}" if pattern and width >= cell_len(name) + MIN_PATTERN_WIDTH else ""
    title: Line = [*effect, words(marks + name, width, "reverse bold" if is_chosen else "")]
    block, character = session.thumbnails.find(head, state.view, grid.pixels), screen.size.character
    if block is None:
        lines: list[Line] = [[words("…", grid.width, "dim")]]
    else:
        tile_scale = session.scale(state.view, [block], state.theme) if state.view.own_scale else scale
        if character is None:  # stretched to the tile
            rows, columns = (np.arange(grid.columns) * count // grid.columns for count in block.values.shape)
            block = CellBlock(block.values[np.ix_(rows, columns)], block.visible[np.ix_(rows, columns)])
            cells = Cells(block, tile_scale, rows_a_line=2)
        else:
            cells = Cells(block, tile_scale, area=PictureArea(grid.height - 1, grid.columns, character))
        lines = cell_lines(cells, screen.colors)
    return [title, *lines, *([] for _ in range(grid.height - 1 - len(lines)))]


def _effect_spans(screen: Screen, state: State, head: int) -> Line:
    """Returns a cell, two columns wide, whose colour and sign show the head's effect; empty without effects."""
    session = screen.session
    if not session.added_frames or head >= session.recorded_count:
        return []
    numbers, largest = session.ranking.frame.column(session.added_frames[0].names[0]), _largest_effect(session)
    value, is_measured = numbers[head], not np.isnan(numbers[head])
    sign = "+ " if value > 0 else "- "
    block = CellBlock(np.array([[value]], dtype=np.float64), np.array([[is_measured]]))
    scale = session.themed_scale(ColorScale(-largest, largest, colormap=DIVERGING, signed=True), state.theme)
    cells = Cells(block, scale, cell_width=2, texts=((sign if is_measured else "  ",),))
    return cell_lines(cells, screen.colors)[0]


def _largest_effect(session: Session) -> float:
    """Returns the largest absolute effect of a head; 1 if no head has one, or all are 0."""
    numbers = session.ranking.frame.column(session.added_frames[0].names[0])
    return max(np.abs(numbers[~np.isnan(numbers)]).tolist(), default=1.0) or 1.0


def _status(screen: Screen, state: State, grid: Tiles, scale: ColorScale) -> Line:
    """Returns the status: the progress of previews, as much of the chosen head as fits, and the legend."""
    session = screen.session
    progress = preview_status(session.unfinished_blocks)
    last_spans: Line = [words("one scale per head")]
    if not state.view.own_scale:
        last_spans = legend(session.quantity(state.view), scale, LEGEND_COLUMNS, screen.colors)
    free_columns = screen.size.width - sum(cell_len(span.text) for span in last_spans)
    maps, _ = session.heads[state.head]
    tile_row, _ = grid.position(state.head)
    parts = [
        session.ranking.description(state.head),
        "cross-attention" if maps.kind == "cross" else "",
        f"{len(maps.query_tokens)} x {len(maps.key_tokens)} tokens",
        f"row {tile_row + 1} of {len(grid.rows)}" if len(grid.rows) > grid.shown_row_count else "",
    ]
    parts = [part for part in parts if part]
    name = f" {session.title(state.head)}"
    separators = 4  # characters: a colon, and three spaces
    while parts and len(progress.text) + len(name) + len("; ".join(parts)) + separators > free_columns:
        parts.pop()
    return [progress, words(f"{name}{': ' if parts else ''}{'; '.join(parts)}  "), *last_spans]
