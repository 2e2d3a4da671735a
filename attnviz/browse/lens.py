"""The token lens: one token's row in every head, exactly, the layers' means below, and the text."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from rich.cells import cell_len

from attnviz.browse.blocks import CellBlock, pool
from attnviz.browse.boxes import Below, Beside, Body, Box, Cells, Sized, Words
from attnviz.browse.cursor import Screen, on_other
from attnviz.browse.layout import MapAxis, text_lines
from attnviz.browse.legends import quantity_text
from attnviz.browse.lens_layout import (
    LensColumns,
    lens_axis,
    lens_cell,
    lens_columns,
    lens_heads,
    lens_layers,
    lens_lines,
)
from attnviz.browse.session import TokenRow
from attnviz.browse.state import State
from attnviz.browse.text_pane import ShadedTokens, text_pane, token_at, told_apart
from attnviz.browse.themes import themed
from attnviz.report.colors import LOG_RANGE, ColorScale
from attnviz.text.units import Units


@dataclass(frozen=True, eq=False)
class LaidOutLens:
    """The lens on the screen.

    Attributes:
        screen: the recording and the terminal.
        state: its token, and where its cursor is.
        heads: the heads in their order.
        layers: those of each layer whose mean is seen.
        axis: the tokens that are seen of a row.
        columns: how a line is divided.
    """

    screen: Screen
    state: State
    heads: list[int]
    layers: list[list[int]]
    axis: MapAxis
    columns: LensColumns

    @property
    def shown(self) -> list[int]:
        """The heads on the screen."""
        lines = lens_lines(self.screen.session, self.state, self.screen.size)
        return self.heads[self.state.top : self.state.top + lines]

    @cached_property
    def units(self) -> tuple[Units, Units]:
        """What the lens's token is one of, and what the columns stand for."""
        queries, keys = self.screen.session.units(self.state.head, self.state.view)
        return (queries, keys) if self.state.direction == "to" else (keys, queries)

    @cached_property
    def cell(self) -> int:
        """Columns of a cell."""
        return lens_cell(self.screen.session, self.state, self.screen.size)

    @cached_property
    def scale(self) -> ColorScale:
        """One for all rows, to the largest of those that are computed."""
        session, view = self.screen.session, self.state.view
        found = [row for head in self.heads if (row := self.row(head)) is not None]
        if view.scores or view.difference:
            few = [CellBlock(row.values[None], row.visible[None]) for row in found[:32]]
            return themed(session.scale(view, few), self.state.theme, session.colormap)
        high = max((row.largest for row in found), default=0.0) or 1.0
        usual = session.scale(replace(view, own=False), [])
        scale = replace(usual, high=high, low=high * LOG_RANGE * (view.steps == "log"))
        return themed(scale, self.state.theme, session.colormap)

    def row(self, head: int) -> TokenRow | None:
        """The token in a head, if it is computed."""
        state = self.state
        return self.screen.session.token_row(head, state.view, state.token, state.direction)

    def mean(self, heads: list[int]) -> TokenRow | None:
        """The mean over heads, if all are computed."""
        rows = [self.row(head) for head in heads]
        known = [row for row in rows if row is not None]
        if len(known) < len(rows):
            return None
        visible = np.any([row.visible for row in known], axis=0)
        seen = np.sum([row.visible for row in known], axis=0)
        total = np.sum([np.where(row.visible, row.values, 0) for row in known], axis=0)
        return TokenRow((total / np.maximum(seen, 1)).astype(np.float32), visible)

    @property
    def text(self) -> ShadedTokens:
        """The tokens, each on the colour of the chosen head's row."""
        row = self.row(self.state.head)
        units = self.units[1]
        if row is None:
            nothing = np.zeros(len(units), dtype=np.float32)
            row = TokenRow(nothing, nothing > 0)
        return ShadedTokens(units, row.values, row.visible, self.scale, self.state.other_token)


def lay_out_lens(screen: Screen, state: State) -> LaidOutLens:
    """The lens of the state's token."""
    session, size = screen.session, screen.size
    heads = lens_heads(session, state)
    if state.head not in heads:
        state = replace(state, head=heads[0])
    return LaidOutLens(
        screen=screen,
        state=state,
        heads=heads,
        layers=lens_layers(session, state, size),
        axis=lens_axis(session, state, size),
        columns=lens_columns(session, size),
    )


def lens_body(lens: LaidOutLens) -> Body:
    """A line for each head, below them the layers' means, then the text."""
    state, size = lens.state, lens.screen.size
    heads = Below(tuple(_head_line(lens, head) for head in lens.shown))
    lines: list[Box] = [_header(lens), Sized(heads, height=lens_lines(lens.screen.session, state, size))]
    if lens.layers:
        lines.append(Words("─" * size.width, style="dim"))
        lines += [_layer_line(lens, heads) for heads in lens.layers]
    text = text_pane(lens.text, size.width, text_lines(size))
    return Body(said_of(state, lens), Below((*lines, text)), lens_status(lens))


def lens_status(lens: LaidOutLens) -> Words:
    """The chosen head and the pair under its cursor, with their number."""
    state, session = lens.state, lens.screen.session
    pattern = session.ranking.patterns.get(state.head, "")
    words = told_apart(lens.units[0], state.token), told_apart(lens.units[1], state.other_token)
    pair = " → ".join(words if state.direction == "to" else words[::-1])
    row = lens.row(state.head)
    number = "…" if row is None else _number(lens, row, state.other_token)
    unread = sum(lens.row(head) is None for head in lens.heads)
    waiting = f"; {unread} heads to come" if unread else ""
    return Words(f" head {session.names[state.head]}{f': {pattern}' if pattern else ''}; {pair} {number}{waiting}")


def said_of(state: State, lens: LaidOutLens) -> str:
    """What the lens shows, in words."""
    token, place = lens.units[0].labels[state.token], lens.units[0].starts[state.token]
    to = f"what “{token}” ({place}) attends to"
    return to if state.direction == "to" else f"what attends to “{token}” ({place})"


def clicked_in_lens(screen: Screen, state: State, x: int, y: int) -> tuple[State, bool]:
    """The state with the cursor on what was clicked, and whether that was the chosen head's name."""
    lens, state = lay_out_lens(screen, state), replace(state, message="")
    body = screen.size.height - 3 - text_lines(screen.size)
    if y >= body:
        token = token_at(lens.text, screen.size.width, text_lines(screen.size), x, y - body)
        return (state if token is None else on_other(state, token)), False
    if not 1 <= y <= len(lens.shown):
        return state, False
    head, cell = lens.shown[y - 1], (x - lens.columns.before) // lens.cell
    on_name = x < lens.columns.before and head == state.head
    state = replace(state, head=head)
    inside = x >= lens.columns.before and cell < lens.axis.cells
    return (on_other(state, lens.axis.unit_of(cell)) if inside else state), on_name


def _header(lens: LaidOutLens) -> Box:
    """Over the cursor's column its token, and over the numbers what they are of."""
    state, columns = lens.state, lens.columns
    room = columns.strip
    before = lens.axis.cell_of(state.other_token) * lens.cell
    label = lens.units[1].labels[state.other_token]
    width = min(cell_len(label), max(1, room - 2))
    name = Words(label, width, "bold")
    mark = [Words("", before), Words("▾ ", style="bold"), name]
    if before + 2 + width > room:
        mark = [Words("", max(0, before - width - 1)), name, Words(" ▾", style="bold")]
    what = "strongest" if state.second is None else "sorted by this"
    return Beside((Words("", columns.before), Sized(Beside((*mark,)), room), Words(f" {what}", columns.number, "dim")))


def _head_line(lens: LaidOutLens, head: int) -> Box:
    session, state, columns = lens.screen.session, lens.state, lens.columns
    here = head == state.head
    mark = ("▸" if here else " ") + ("•" if head in state.marked else " ")
    measured = session.ranking.numbers.get(state.view.order or "", {}).get(head)
    pattern = session.ranking.patterns.get(head, "") if measured is None else f"{state.view.order} {measured:.2f}"
    style = "reverse bold" if here else ""
    name = Words(mark + session.names[head], columns.name, style)
    does = (Words(pattern, columns.pattern - 1, style), Words(" ", style=style)) if columns.pattern else ()
    return Beside((name, *does, *_strip(lens, lens.row(head), here)))


def _layer_line(lens: LaidOutLens, heads: list[int]) -> Box:
    maps, _ = lens.screen.session.heads[heads[0]]
    start = Words(f"  layer {maps.layer}, mean", lens.columns.before, "dim")
    return Beside((start, *_strip(lens, lens.mean(heads), False)))


def _strip(lens: LaidOutLens, of: TokenRow | None, here: bool) -> tuple[Box, ...]:
    """A row of numbers as cells, and its strongest token, or the second token, with its number."""
    columns, axis = lens.columns, lens.axis
    if of is None:
        return (Words("…", columns.strip, "dim"),)
    block = CellBlock(of.values[None, axis.span], of.visible[None, axis.span])
    cursor = (0, axis.cell_of(lens.state.other_token)) if here else None
    cells = Cells(pool(block, 1, axis.cells, mean=False), lens.scale, lens.cell, cursor=cursor)
    place = of.strongest if lens.state.second is None else lens.state.second
    number = f"{_number(lens, of, place):>6}"
    room = max(1, columns.number - len(number) - 2)
    rest = Words("", columns.strip - axis.cells * lens.cell)
    return cells, rest, Words(f" {number} "), Words(told_apart(lens.units[1], place), room)


def _number(lens: LaidOutLens, row: TokenRow, place: int) -> str:
    if not row.visible[place]:
        return "masked"
    return quantity_text(lens.screen.session.quantity(lens.state.view), float(row.values[place]))
