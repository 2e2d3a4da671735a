"""Composes the pane beside an open head: the list of heads, the cursor's numbers and strongest keys, the minimap."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.browse.moves.layout import listed_lines, map_lines
from attnviz.browse.session.blocks import CellBlock, pool
from attnviz.browse.session.rows import QueryRow
from attnviz.browse.session.session import means
from attnviz.browse.view.boxes import Beside, Box, Cells, ShareBar, Words
from attnviz.browse.view.head_layout import OpenHead
from attnviz.browse.view.legends import legend, quantity_text
from attnviz.browse.view.text_pane import unique_label
from attnviz.browse.view.why import why_lines
from attnviz.report.picture.panels import PERCENT

BAR_WIDTH = 6  # columns of a bar beside a key
MINIMAP_LINES = 8
MIN_LISTED_KEYS = 4  # the minimap is left out rather than list fewer


@dataclass(frozen=True)
class SideLine:
    """A line of the side pane.

    Attributes:
        line: the box that draws it.
        key: the key that it lists; ``None`` for none.
        query: the query of the upper pixels of a line of the minimap; ``None`` elsewhere.
    """

    line: Box
    key: int | None = None
    query: int | None = None


EMPTY = SideLine(Words(""))


def side_lines(head: OpenHead) -> list[SideLine]:
    """Returns the lines of the pane: heads on a wide screen, the cursor and its strongest keys, minimap, legend."""
    above = _head_lines(head)
    count = map_lines(head.screen.size) - 1 - len(above)
    lines = _cursor_pane(head, count) if not head.state.why else [SideLine(line) for line in why_lines(head, count)]
    colors = legend(head.panel.quantity, head.scale, max(4, head.side_width - 16))
    rest = [EMPTY] * (count - len(lines))
    return [*above, *lines[:count], *rest, SideLine(Beside((Words("", 1), *colors)))]


def listed_heads(head: OpenHead) -> list[int]:
    """Returns the heads of the list, around the open one if not all fit."""
    listed = head.screen.session.ranking.order(head.state.view)
    most = max(0, listed_lines(head.screen.size) - 1)
    here = listed.index(head.state.head) if head.state.head in listed else 0
    first = min(max(0, here - most // 2), max(0, len(listed) - most))
    return listed[first : first + most]


def _head_lines(head: OpenHead) -> list[SideLine]:
    """Returns the lines of the list of heads, each with its mark and its pattern."""
    lines = listed_lines(head.screen.size)
    if not lines:
        return []
    listed = [SideLine(_listed_line(head, number)) for number in listed_heads(head)]
    rest = [EMPTY] * (lines - 1 - len(listed))
    return [*listed, *rest, SideLine(Words("─" * head.side_width, style="dim"))]


def _listed_line(head: OpenHead, number: int) -> Words:
    session, state = head.screen.session, head.state
    here = number in head.heads
    mark = "▸" if here else "•" if number in state.marked else " "
    measured = session.ranking.number(number, state.view.order)
    order = "" if measured is None else f" {measured:.2f}"
    pattern = session.ranking.pattern(number)
    text = f"{mark}{session.names[number]}{order} {pattern}"
    return Words(text, head.side_width, "reverse bold" if here else "")


def _cursor_pane(head: OpenHead, count: int) -> list[SideLine]:
    """Returns ``count`` lines: the cursor's numbers, its strongest keys, and a minimap if lines are left for it."""
    minimap = _minimap(head) if head.scrolled else []
    above = _cursor_lines(head)
    most = max(count - len(above) - (MINIMAP_LINES + 1 if minimap else 0), min(MIN_LISTED_KEYS, count))
    shown = [*above, *_key_lines(head, most)]
    free = count - len(shown)
    if len(minimap) >= free:
        return shown[:count]
    return [*shown, *[EMPTY] * (free - len(minimap)), *minimap]


def _cursor_lines(head: OpenHead) -> list[SideLine]:
    state, width = head.state, head.side_width
    names = (
        f" query {head.queries.starts[state.query]} {head.queries.labels[state.query]}",
        f" key {head.keys.starts[state.key]} {head.keys.labels[state.key]}",
    )
    lines = (
        *(Words(name, width, "bold") for name in names),
        *(Words(text) for text in (_cursor_numbers(head) if not state.beside else _side_by_side(head))),
        Words(""),
        Words(" strongest keys", width, "dim"),
    )
    return [SideLine(line) for line in lines]


def _side_by_side(head: OpenHead) -> list[str]:
    """Returns the cursor's number in each of the heads side by side."""
    session, state = head.screen.session, head.state
    rows = [session.row(number, state.view, state.query) for number in head.heads]
    shown = [
        quantity_text(head.panel.quantity, float(row.shown(state.view)[state.key]))
        if row.visible[state.key]
        else "masked"
        for row in rows
    ]
    return [f" {session.names[number]:>6} {text}" for number, text in zip(head.heads, shown, strict=True)]


def _cursor_numbers(head: OpenHead) -> list[str]:
    row, key, view = head.row, head.state.key, head.state.view
    score = f" score  {row.scores[key]:.4f}"
    if np.isnan(row.scores[key]):
        combined = head.state.head >= head.screen.session.recorded
        score = " a word has no score" if view.words else "" if combined else " score  NaN"
    if not row.visible[key]:
        return [" masked: cannot be seen", score]
    return [weight_text(head, row, key), score]


def weight_text(head: OpenHead, row: QueryRow, key: int) -> str:
    """Returns the weight or the contribution of a key, and its change.

    Args:
        head: the open head.
        row: the numbers of the cursor's query.
        key: the key, in units.
    """
    quantity = head.screen.session.weights
    if quantity is not PERCENT:
        return f" {quantity.name.split(' ')[0]} {row.weights[key]:.4f}"
    text = f" weight {row.weights[key]:.2%}"
    return text if row.change is None else f"{text} {row.change[key]:+.2%}"


def _key_lines(head: OpenHead, count: int) -> list[SideLine]:
    """Returns up to ``count`` lines of the strongest keys, each with its number and a bar."""
    if not head.strongest:
        return [SideLine(Words(" every key is masked", style="dim"))]
    listed = head.strongest[: max(0, count)]
    shown = np.abs(head.row.shown(head.state.view)[listed])
    most = 1.0 if head.panel.quantity is PERCENT else float(shown[np.isfinite(shown)].max(initial=0)) or 1.0
    return [SideLine(_key_line(head, key, most), key=key) for key in listed]


def _key_line(head: OpenHead, key: int, most: float) -> Box:
    """Composes the line of a key; its label comes last, since a terminal may draw it wider than it is counted."""
    value = float(head.row.shown(head.state.view)[key])
    number = f"{quantity_text(head.panel.quantity, value):>6}"
    width = head.side_width - BAR_WIDTH - len(number) - 3
    here = key == head.state.key
    return Beside(
        (
            Words(f"{'▸' if here else ' '}{number} ", style="bold" if here else ""),
            ShareBar(value, most, BAR_WIDTH, "" if here else "dim"),
            Words(f" {unique_label(head.keys, key)}", 1 + width, "bold" if here else ""),
        )
    )


def _minimap(head: OpenHead) -> list[SideLine]:
    """Returns the lines of the minimap: the whole head, with the part off the screen darkened."""
    rows, columns = (slice(0, len(each)) for each in (head.queries, head.keys))
    size = MINIMAP_LINES * 2, head.side_width - 2
    # as many cells as the map has before it is zoomed, since these are often in the cache
    finest = map(max, (head.whole.queries.cells, head.whole.keys.cells), size)
    whole = head.screen.session.cells(head.state.head, head.state.view, rows, columns, *finest)
    block = pool(whole, *size, mean=means(head.state.view))
    bright, height = _on_screen(head, block.values.shape), len(block.values)
    lines = []
    for first in range(0, height, 2):
        pair = slice(first, first + 2)
        part = CellBlock(block.values[pair], block.visible[pair])
        cells = Cells(part, head.scale, rows_a_line=2, bright=bright[pair])
        lines.append(SideLine(Beside((Words("", 1), cells)), query=first * len(head.queries) // height))
    return lines


def _on_screen(head: OpenHead, shape: tuple[int, ...]) -> BoolArray:
    """Returns True for each pixel of the minimap that is on the screen, ``(rows, columns)``."""
    marks = []
    axes = zip((head.pane.queries, head.pane.keys), shape, (len(head.queries), len(head.keys)), strict=True)
    for axis, pixels, count in axes:
        starts = np.arange(pixels) * count // pixels
        stops = np.append(starts[1:], count)
        marks.append((stops > axis.start) & (starts < axis.stop))
    return np.asarray(marks[0][:, None] & marks[1][None, :])
