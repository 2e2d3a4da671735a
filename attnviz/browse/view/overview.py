"""Composes the overview: thumbnails of all heads with their patterns, and a status line about the chosen head."""

from dataclasses import replace

import numpy as np
from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import FIXED_LINES, Tiles, tiles
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Body, Box, BoxColumn, BoxRow, Cells, FixedBox, PictureArea, StyledText
from attnviz.browse.view.legends import legend, preview_status, quantity_text
from attnviz.browse.view.text_pane import ShadedTokens, shades_caption, text_pane, unique_label
from attnviz.report.picture.colors import DIVERGING, ColorScale
from attnviz.report.picture.panels import PERCENT

MIN_PATTERN_WIDTH = 9  # columns; with fewer a pattern is left out, since nobody could read it
LEGEND_COLUMNS = 12
MAX_LISTED_KEYS = 6  # of the chosen head
MAX_ROUNDING = 1e-3  # of a sum of weights


def overview_body(screen: Screen, state: State) -> Body:
    """Composes the overview: title, a tile for each head, a shaded text if there is space, and status.

    Adds the thumbnails on the screen that are still previews to the session's unfinished blocks.
    """
    session, grid = screen.session, tiles(screen.session, state, screen.size)
    session.unfinished_blocks += session.thumbnails.unfinished_blocks(
        grid.on_screen(state.top), state.view, grid.pixels
    )
    scale, quantity = _shared_scale(session, state, grid), session.quantity(state.view)
    rows = grid.rows[state.top : state.top + grid.shown_row_count]
    boxes = tuple(BoxRow((*(_tile(screen, state, head, grid, scale) for head in heads),)) for heads in rows)
    lines = len(boxes) * grid.height
    text_boxes = (_mean_row_text(screen, state, grid.text_lines),) if grid.text_lines else ()
    gap = FixedBox(BoxColumn(()), height=screen.size.height - FIXED_LINES - grid.text_lines - lines)
    return Body(
        _title(session, state),
        BoxColumn((*boxes, gap, *text_boxes)),
        _status(screen, state, grid, legend(quantity, scale, LEGEND_COLUMNS)),
    )


def _mean_row_text(screen: Screen, state: State, lines: int) -> Box:
    """Composes the text shaded by the mean of the chosen head's rows; its caption lists the strongest keys that fit."""
    session = screen.session
    row = session.mean_row(state.head, state.view)
    _, keys = session.units(state.head, state.view)
    scale = session.scale(
        replace(state.view, own_scale=True), [CellBlock(row.values[None], row.visible[None])], state.theme
    )
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
    tokens = ShadedTokens(keys, row.values, row.visible, scale, strongest_keys[0], caption, are_shares=are_shares)
    return FixedBox(text_pane(tokens, screen.size, lines), height=lines)


def _title(session: Session, state: State) -> str:
    """Returns the title: the number of listed heads, that of all heads if some are hidden, and that of marked heads."""
    listed_count = len(session.ranking.order(state.view))
    total = "" if listed_count == session.recorded_count else f" of {session.recorded_count}"
    marked_text = f", {len(state.marked_heads)} marked" if state.marked_heads else ""
    return f"{listed_count}{total} head{'s' if session.recorded_count > 1 else ''}{marked_text}{_sign_legend(session)}"


def _sign_legend(session: Session) -> str:
    """Returns the meaning of the signs before heads; "" if no file of effects is open."""
    if not session.added_frames:
        return ""
    measure = session.added_frames[0].measures[0]
    return f", + −: {measure.meaning}, up to {_largest_effect(session):.2g}"


def _shared_scale(session: Session, state: State, grid: Tiles) -> ColorScale:
    """Returns one colour scale for all thumbnails that are computed, whether they are on the screen or not."""
    thumbnails = [session.thumbnails.find(head, state.view, grid.pixels) for head in range(session.recorded_count)]
    cells = [thumbnail for thumbnail in thumbnails if thumbnail is not None]
    return session.scale(replace(state.view, own_scale=False), cells, state.theme)


def _tile(screen: Screen, state: State, head: int, grid: Tiles, scale: ColorScale) -> Box:
    """Composes a tile: the head's name and pattern above its thumbnail, or above an ellipsis until that is computed."""
    session, is_chosen = screen.session, head == state.head
    block = session.thumbnails.find(head, state.view, grid.pixels)
    effect = _effect_cell(session, head)
    width = grid.columns - (2 if effect else 0)  # an effect has two columns
    name = session.names[head] + _sort_number(session, state, head)
    pattern = session.ranking.description(head)
    name += f" {pattern}" if pattern and width >= cell_len(name) + MIN_PATTERN_WIDTH else ""
    marks = ("▸" if is_chosen else "") + ("•" if head in state.marked_heads else "")
    title = BoxRow((*effect, StyledText(marks + name, width, "reverse bold" if is_chosen else ""), StyledText("", 1)))
    if block is None:
        empty = (StyledText("", grid.width),) * (grid.height - 2)
        return BoxColumn((title, StyledText("…", grid.width, "dim"), *empty))
    tile_scale = session.scale(state.view, [block], state.theme) if state.view.own_scale else scale
    gap = BoxColumn((StyledText(" "),) * (grid.height - 1))
    return BoxColumn((title, BoxRow((_thumbnail(screen, block, grid, tile_scale), gap))))


def _thumbnail(screen: Screen, block: CellBlock, grid: Tiles, scale: ColorScale) -> Cells:
    """Composes a thumbnail stretched to its tile, in pixels if the terminal has them, else as half blocks."""
    if screen.size.character is None:
        return Cells(_stretched_block(block, grid.columns), scale, rows_a_line=2)
    return Cells(block, scale, area=PictureArea(grid.height - 1, grid.columns, screen.size.character))


def _stretched_block(cells: CellBlock, pixels: int) -> CellBlock:
    """Returns a block stretched to ``pixels`` x ``pixels`` cells, each a copy of the cell at its place."""
    rows, columns = (np.arange(pixels) * count // pixels for count in cells.values.shape)
    return CellBlock(cells.values[np.ix_(rows, columns)], cells.visible[np.ix_(rows, columns)])


def _effect_cell(session: Session, head: int) -> tuple[Cells, ...]:
    """Returns one cell, two columns wide, whose colour and sign show the head's effect."""
    if not session.added_frames or head >= session.recorded_count:
        return ()
    numbers, largest = session.ranking.frame.column(session.added_frames[0].names[0]), _largest_effect(session)
    value, is_measured = numbers[head], not np.isnan(numbers[head])
    sign = "+ " if value > 0 else "- "
    mark = sign if is_measured else "  "
    block = CellBlock(np.array([[value]], dtype=np.float64), np.array([[is_measured]]))
    scale = ColorScale(-largest, largest, colormap=DIVERGING, signed=True)
    return (Cells(block, scale, cell_width=2, texts=((mark,),)),)


def _largest_effect(session: Session) -> float:
    """Returns the largest absolute effect of a head; 1 if no head has one, or all are 0."""
    numbers = session.ranking.frame.column(session.added_frames[0].names[0])
    return max(np.abs(numbers[~np.isnan(numbers)]).tolist(), default=1.0) or 1.0


def _sort_number(session: Session, state: State, head: int) -> str:
    """Returns the number by which heads are sorted, or a dash for NaN; "" if no number sorts them yet."""
    order, added_names = state.view.order, [frame.names[0] for frame in session.added_frames]
    number = session.ranking.number(head, order)
    if number is None:
        return ""
    spec = "+.4f" if order in added_names else ".2f"
    return " —" if np.isnan(number) else f" {number:{spec}}"


def _status(screen: Screen, state: State, grid: Tiles, legend_boxes: tuple[StyledText, Box, StyledText]) -> Box:
    """Composes the status: the progress of previews, the chosen head, and the legend."""
    progress = preview_status(screen.session.unfinished_blocks)
    last_boxes: tuple[Box, ...]
    if state.view.own_scale:
        remark = "one scale per head"
        last_boxes, last_columns = (StyledText(remark),), len(remark)
    else:
        low, _, high = legend_boxes
        last_boxes, last_columns = legend_boxes, LEGEND_COLUMNS + cell_len(low.text) + cell_len(high.text)
    summary = _head_summary(screen.session, state, grid, progress, screen.size.width - last_columns)
    return BoxRow((StyledText(progress, style="bold"), StyledText(summary), *last_boxes))


def _head_summary(session: Session, state: State, grid: Tiles, progress: str, width: int) -> str:
    """Returns the chosen head's name, then pattern, kind, size and row of tiles, as many of these as fit the width."""
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
    while parts and len(progress) + len(name) + len("; ".join(parts)) + separators > width:
        parts.pop()
    return f"{name}{': ' if parts else ''}{'; '.join(parts)}  "
