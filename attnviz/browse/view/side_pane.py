"""Composes the side pane of an open head: the list of heads, the cursor's numbers and strongest keys, the minimap."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.browse.moves.layout import listed_lines, map_lines
from attnviz.browse.session.blocks import CellBlock, pool
from attnviz.browse.session.rows import QueryRow
from attnviz.browse.session.session import pools_by_mean
from attnviz.browse.view.boxes import Box, BoxRow, Cells, ShareBar, StyledText
from attnviz.browse.view.head_layout import OpenHead
from attnviz.browse.view.legends import legend, quantity_text
from attnviz.browse.view.text_pane import unique_label
from attnviz.browse.view.why import why_lines
from attnviz.report.picture.panels import PERCENT

BAR_WIDTH = 6  # columns of a bar beside a key
MINIMAP_LINES = 8
MIN_LISTED_KEYS = 4  # if a minimap leaves fewer lines for keys, it is left out
LEGEND_NUMBER_COLUMNS, MIN_LEGEND_COLUMNS = 16, 4  # columns of the legend's two numbers, and of its strip of colours


@dataclass(frozen=True)
class _SideLine:
    """A line of the side pane.

    Attributes:
        box: the box that draws it.
        key: the key on the line, which a click chooses; ``None`` if the line has no key.
        query: on a line of the minimap, the first query of its upper row of cells; ``None`` on other lines.
    """

    box: Box
    key: int | None = None
    query: int | None = None


EMPTY = _SideLine(StyledText(""))


def side_lines(head: OpenHead) -> list[_SideLine]:
    """Returns the lines of the side pane, as many as the map has.

    They are the listed heads, the numbers at the cursor or the explanation of its weight, and in the last line the
    legend.
    """
    head_lines = _head_lines(head)
    count = map_lines(head.screen.size) - 1 - len(head_lines)
    lines = [_SideLine(line) for line in why_lines(head, count)] if head.state.why else _cursor_pane(head, count)
    strip_columns = max(MIN_LEGEND_COLUMNS, head.side_width - LEGEND_NUMBER_COLUMNS)
    legend_boxes = legend(head.panel.quantity, head.scale, strip_columns)
    padding = [EMPTY] * (count - len(lines))
    return [*head_lines, *lines[:count], *padding, _SideLine(BoxRow((StyledText("", 1), *legend_boxes)))]


def listed_heads(head: OpenHead) -> list[int]:
    """Returns the heads that the list shows; those around the open head if not all fit."""
    heads = head.screen.session.ranking.order(head.state.view)
    count = max(0, listed_lines(head.screen.size) - 1)
    position = heads.index(head.state.head) if head.state.head in heads else 0
    first = min(max(0, position - count // 2), max(0, len(heads) - count))
    return heads[first : first + count]


def _head_lines(head: OpenHead) -> list[_SideLine]:
    """Returns the lines of the list of heads and a rule below it; none on a narrow screen."""
    lines = listed_lines(head.screen.size)
    if not lines:
        return []
    head_lines = [_SideLine(_listed_head_line(head, head_index)) for head_index in listed_heads(head)]
    padding = [EMPTY] * (lines - 1 - len(head_lines))
    return [*head_lines, *padding, _SideLine(StyledText("─" * head.side_width, style="dim"))]


def _listed_head_line(open_head: OpenHead, listed_head: int) -> StyledText:
    """Composes the line of a head in the list: a mark if it is open or marked, its name, sort number and pattern."""
    session, state = open_head.screen.session, open_head.state
    is_open = listed_head in open_head.heads
    mark = "•" if listed_head in state.marked_heads else " "
    if is_open:
        mark = "▸"
    sort_number = session.ranking.number(listed_head, state.view.order)
    number_text = "" if sort_number is None else f" {sort_number:.2f}"
    pattern = session.ranking.description(listed_head)
    text = f"{mark}{session.names[listed_head]}{number_text} {pattern}"
    return StyledText(text, open_head.side_width, "reverse bold" if is_open else "")


def _cursor_pane(head: OpenHead, count: int) -> list[_SideLine]:
    """Returns at most ``count`` lines: the cursor's numbers, its query's strongest keys, and the minimap if it fits."""
    minimap = _minimap(head) if head.is_scrolled else []
    cursor_lines = _cursor_lines(head)
    minimap_lines = MINIMAP_LINES + 1 if minimap else 0  # with a blank line above it
    max_keys = max(count - len(cursor_lines) - minimap_lines, min(MIN_LISTED_KEYS, count))
    lines = [*cursor_lines, *_key_lines(head, max_keys)]
    free_lines = count - len(lines)
    if len(minimap) >= free_lines:
        return lines[:count]
    return [*lines, *[EMPTY] * (free_lines - len(minimap)), *minimap]


def _cursor_lines(head: OpenHead) -> list[_SideLine]:
    """Returns the lines with the cursor's query and key, their numbers, and the heading of the strongest keys."""
    state, width = head.state, head.side_width
    names = (
        f" query {head.queries.starts[state.query]} {head.queries.labels[state.query]}",
        f" key {head.keys.starts[state.key]} {head.keys.labels[state.key]}",
    )
    if state.heads_beside:
        numbers, heading = _number_texts_of_heads(head), f" strongest keys of {head.screen.session.names[state.head]}"
    else:
        numbers, heading = _cursor_number_texts(head), " strongest keys"
    lines = (
        *(StyledText(name, width, "bold") for name in names),
        *map(StyledText, numbers),
        StyledText(""),
        StyledText(heading, width, "dim"),
    )
    return [_SideLine(line) for line in lines]


def _number_texts_of_heads(head: OpenHead) -> list[str]:
    """Returns a line for each of the heads open side by side: its name, and its number at the cursor or ``masked``."""
    session, state = head.screen.session, head.state
    lines = []
    for head_index in head.heads:
        row, text = session.row(head_index, state.view, state.query), "masked"
        if row.visible[state.key]:
            text = quantity_text(head.panel.quantity, float(row.numbers(state.view)[state.key]))
        lines.append(f" {session.names[head_index]:>6} {text}")
    return lines


def _cursor_number_texts(head: OpenHead) -> list[str]:
    """Returns a line with the weight at the cursor, or a remark if the cell is masked; and a line with the score."""
    row, key = head.row, head.state.key
    if not np.isnan(row.scores[key]):
        score_text = f" score  {row.scores[key]:.4f}"
    elif head.state.view.words:
        score_text = " only tokens have scores"
    else:
        is_combined = head.state.head >= head.screen.session.recorded_count
        score_text = "" if is_combined else " score  NaN"
    return [_weight_text(head, row, key) if row.visible[key] else " masked: cannot be seen", score_text]


def _weight_text(head: OpenHead, row: QueryRow, key: int) -> str:
    """Returns the weight of a key, and its change if the head is compared; the contribution if the session shows
    those.
    """
    quantity = head.screen.session.weight_quantity
    if quantity is not PERCENT:
        return f" {quantity.name.split(' ')[0]} {row.weights[key]:.4f}"
    text = f" weight {row.weights[key]:.2%}"
    return text if row.change is None else f"{text} {row.change[key]:+.2%}"


def _key_lines(head: OpenHead, count: int) -> list[_SideLine]:
    """Returns at most ``count`` lines of the strongest keys, each with number and bar; one line if all are masked."""
    if not head.strongest_keys:
        return [_SideLine(StyledText(" every key is masked", style="dim"))]
    keys = head.strongest_keys[: max(0, count)]
    lengths = np.abs(head.row.numbers(head.state.view)[keys])
    full_bar = 1.0 if head.panel.quantity is PERCENT else float(lengths[np.isfinite(lengths)].max(initial=0)) or 1.0
    return [_SideLine(_key_line(head, key, full_bar), key=key) for key in keys]


def _key_line(head: OpenHead, key: int, full_bar: float) -> Box:
    """Composes the line of a key: number, bar and label."""
    value = float(head.row.numbers(head.state.view)[key])
    number = f"{quantity_text(head.panel.quantity, value):>6}"
    label_columns = head.side_width - BAR_WIDTH - len(number) - 3  # without the cursor's mark and two spaces
    has_cursor = key == head.state.key
    return BoxRow(
        (
            StyledText(f"{'▸' if has_cursor else ' '}{number} ", style="bold" if has_cursor else ""),
            ShareBar(value, full_bar, BAR_WIDTH, "" if has_cursor else "dim"),
            StyledText(f" {unique_label(head.keys, key)}", 1 + label_columns, "bold" if has_cursor else ""),
        )
    )


def _minimap(head: OpenHead) -> list[_SideLine]:
    """Returns the lines of the minimap, a small picture of the whole map, darkened where it is not on the screen."""
    rows, columns = (slice(0, len(units)) for units in (head.queries, head.keys))
    max_cells = MINIMAP_LINES * 2, head.side_width - 2  # a line has two rows of cells
    # as many cells as the map has before it is zoomed, since these are often in the cache
    cell_counts = map(max, (head.whole_pane.queries.cells, head.whole_pane.keys.cells), max_cells)
    large_block = head.screen.session.cells(head.state.head, head.state.view, rows, columns, *cell_counts)
    block = pool(large_block, *max_cells, mean=pools_by_mean(head.state.view))
    are_on_screen, height = _cells_on_screen(head, block.values.shape), len(block.values)
    lines = []
    for first_row in range(0, height, 2):
        line_rows = slice(first_row, first_row + 2)
        line_block = CellBlock(block.values[line_rows], block.visible[line_rows])
        cells = Cells(line_block, head.scale, rows_a_line=2, bright_cells=are_on_screen[line_rows])
        lines.append(_SideLine(BoxRow((StyledText("", 1), cells)), query=first_row * len(head.queries) // height))
    return lines


def _cells_on_screen(head: OpenHead, shape: tuple[int, ...]) -> BoolArray:
    """Returns True for each cell of the minimap of which at least a part is on the screen, ``(rows, columns)``."""
    overlaps = []
    axes = zip((head.pane.queries, head.pane.keys), shape, (len(head.queries), len(head.keys)), strict=True)
    for axis, cell_count, unit_count in axes:
        starts = np.arange(cell_count) * unit_count // cell_count
        stops = np.append(starts[1:], unit_count)
        overlaps.append((stops > axis.start) & (starts < axis.stop))
    return np.asarray(overlaps[0][:, None] & overlaps[1][None, :])
