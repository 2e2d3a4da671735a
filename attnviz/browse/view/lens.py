"""Composes the token lens: one token's exact row in every head, the means of layers, and the text."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen, on_other
from attnviz.browse.moves.layout import text_lines
from attnviz.browse.moves.lens_layout import LensPane, lens_heads, place_lens
from attnviz.browse.session.blocks import CellBlock, pool
from attnviz.browse.session.rows import TokenRow
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Below, Beside, Body, Box, Cells, Sized, Words
from attnviz.browse.view.legends import quantity_text
from attnviz.browse.view.text_pane import ShadedTokens, text_pane, token_at, unique_label
from attnviz.report.picture.colors import LOG_RANGE, ColorScale
from attnviz.report.picture.panels import Quantity
from attnviz.text.units import Units


@dataclass(frozen=True, eq=False)
class LaidOutLens:
    """The lens with its layout and numbers.

    Attributes:
        screen: the recording and the terminal.
        state: the state, with the lens's token and cursor.
        heads: the listed heads, in their order.
        rows: by head, the token's row, as far as computed.
        units: the units of the lens's token, and those of the columns.
        quantity: the quantity of the numbers.
        pane: the layout.
    """

    screen: Screen
    state: State
    heads: list[int]
    rows: dict[int, TokenRow]
    units: tuple[Units, Units]
    quantity: Quantity
    pane: LensPane

    @property
    def shown(self) -> list[int]:
        """The heads on the screen."""
        return self.heads[self.state.top : self.state.top + self.pane.lines]

    @cached_property
    def scale(self) -> ColorScale:
        """The colour scale of all rows, up to the largest value that is computed."""
        session, view = self.screen.session, self.state.view
        found = list(self.rows.values())
        if view.scores or view.difference:
            few = [CellBlock(row.values[None], row.visible[None]) for row in found[:32]]
            return session.scale(view, few, self.state.theme)
        high = max((row.largest for row in found), default=0.0) or 1.0
        usual = session.scale(replace(view, own_scale=False), [], self.state.theme)
        return replace(usual, high=high, low=high * LOG_RANGE * (view.steps == "log"))

    def row(self, head: int) -> TokenRow | None:
        """Returns the token's row in a head; ``None`` if it is not computed yet."""
        return self.rows.get(head)

    def mean(self, heads: list[int]) -> TokenRow | None:
        """Returns the mean row of some heads, over visible cells; ``None`` if not all are computed yet."""
        rows = [self.row(head) for head in heads]
        computed = [row for row in rows if row is not None]
        if len(computed) < len(rows):
            return None
        visible = np.any([row.visible for row in computed], axis=0)
        counts = np.sum([row.visible for row in computed], axis=0)
        total = np.sum([np.where(row.visible, row.values, 0) for row in computed], axis=0)
        return TokenRow((total / np.maximum(counts, 1)).astype(np.float32), visible)

    @property
    def text(self) -> ShadedTokens:
        """The tokens, shaded by the chosen head's row."""
        row = self.row(self.state.head)
        units = self.units[1]
        if row is None:
            nothing = np.zeros(len(units), dtype=np.float32)
            row = TokenRow(nothing, nothing > 0)
        return ShadedTokens(units, row.values, row.visible, self.scale, self.state.other_token)


def lay_out_lens(screen: Screen, state: State) -> LaidOutLens:
    """Returns the lens of the state's token, with its layout and numbers."""
    session = screen.session
    heads = lens_heads(session, state)
    if state.head not in heads:
        state = replace(state, head=heads[0])
    found = {head: session.token_rows.find(head, state.view, state.token, state.direction) for head in heads}
    queries, keys = session.units(state.head, state.view)
    units = (queries, keys) if state.direction == "to" else (keys, queries)
    layers, names = session.ranking.by_layer(sorted(heads)), session.names[: session.recorded]
    return LaidOutLens(
        screen=screen,
        state=state,
        heads=heads,
        rows={head: row for head, row in found.items() if row is not None},
        units=units,
        quantity=session.quantity(state.view),
        pane=place_lens(layers, names, len(units[1]), state, screen.size),
    )


def lens_body(screen: Screen, state: State) -> Body:
    """Composes the lens: a line per head, the means of layers, then the text."""
    lens, size = lay_out_lens(screen, state), screen.size
    state = lens.state
    heads = Below(tuple(_head_line(lens, head) for head in lens.shown))
    lines: list[Box] = [_header(lens), Sized(heads, height=lens.pane.lines)]
    if lens.pane.layers:
        lines.append(Words("─" * size.width, style="dim"))
        lines += [_layer_line(lens, heads) for heads in lens.pane.layers]
    title, status = lens_title(state, lens), lens_status(lens)
    text = text_pane(lens.text, size.width, text_lines(size))
    return Body(title, Below((*lines, text)), status)


def lens_status(lens: LaidOutLens) -> Words:
    """Composes the status: the chosen head, and the pair under the cursor with its number."""
    state, session = lens.state, lens.screen.session
    pattern = session.ranking.pattern(state.head)
    words = _named(lens, 0, state.token), _named(lens, 1, state.other_token)
    pair = " → ".join(words if state.direction == "to" else words[::-1])
    row = lens.row(state.head)
    number = "…" if row is None else _number(lens, row, state.other_token)
    missing = len(lens.heads) - len(lens.rows)
    waiting = f"; {missing} heads to come" if missing else ""
    return Words(f" head {session.names[state.head]}{f': {pattern}' if pattern else ''}; {pair} {number}{waiting}")


def lens_title(state: State, lens: LaidOutLens) -> str:
    """Returns what the lens shows, in words."""
    token, place = lens.units[0].labels[state.token], lens.units[0].starts[state.token]
    to = f"what “{token}” ({place}) attends to"
    return to if state.direction == "to" else f"what attends to “{token}” ({place})"


def clicked_in_lens(screen: Screen, state: State, x: int, y: int) -> tuple[State, bool]:
    """Returns the state with the cursor where the click was, and True if that was the chosen head's name.

    Args:
        screen: the recording and the terminal.
        state: the state before the click.
        x: the column of the screen.
        y: the line below the title.
    """
    lens, state = lay_out_lens(screen, state), replace(state, message="")
    body = screen.size.height - 3 - text_lines(screen.size)
    if y >= body:
        token = token_at(lens.text, screen.size.width, text_lines(screen.size), x, y - body)
        return (state if token is None else on_other(state, token)), False
    if not 1 <= y <= len(lens.shown):
        return state, False
    head, cell = lens.shown[y - 1], (x - lens.pane.columns.before) // lens.pane.cell
    on_name = x < lens.pane.columns.before and head == state.head
    state = replace(state, head=head)
    inside = x >= lens.pane.columns.before and cell < lens.pane.axis.cells
    return (on_other(state, lens.pane.axis.unit_of(cell)) if inside else state), on_name


def _header(lens: LaidOutLens) -> Box:
    """Composes the line above the rows: the cursor's token over its column, and a title over the numbers."""
    state, columns = lens.state, lens.pane.columns
    strip = columns.strip
    before = lens.pane.axis.cell_of(state.other_token) * lens.pane.cell
    label = lens.units[1].labels[state.other_token]
    width = min(cell_len(label), max(1, strip - 2))
    name = Words(label, width, "bold")
    mark = [Words("", before), Words("▾ ", style="bold"), name]
    if before + 2 + width > strip:
        mark = [Words("", max(0, before - width - 1)), name, Words(" ▾", style="bold")]
    what = "strongest" if state.second is None else "sorted by this"
    return Beside((Words("", columns.before), Sized(Beside((*mark,)), strip), Words(f" {what}", columns.number, "dim")))


def _head_line(lens: LaidOutLens, head: int) -> Box:
    session, state, columns = lens.screen.session, lens.state, lens.pane.columns
    here = head == state.head
    mark = ("▸" if here else " ") + ("•" if head in state.marked else " ")
    measured = session.ranking.number(head, state.view.order)
    pattern = session.ranking.pattern(head) if measured is None else f"{state.view.order} {measured:.2f}"
    style = "reverse bold" if here else ""
    name = Words(mark + session.names[head], columns.name, style)
    does = (Words(pattern, columns.pattern - 1, style), Words(" ", style=style)) if columns.pattern else ()
    return Beside((name, *does, *_strip(lens, lens.row(head), here)))


def _layer_line(lens: LaidOutLens, heads: list[int]) -> Box:
    maps, _ = lens.screen.session.heads[heads[0]]
    start = Words(f"  layer {maps.layer}, mean", lens.pane.columns.before, "dim")
    return Beside((start, *_strip(lens, lens.mean(heads), False)))


def _strip(lens: LaidOutLens, of: TokenRow | None, here: bool) -> tuple[Box, ...]:
    """Composes a row of cells, and its strongest token, or the token that sorts the lens, with its number."""
    columns, axis = lens.pane.columns, lens.pane.axis
    if of is None:
        return (Words("…", columns.strip, "dim"),)
    block = CellBlock(of.values[None, axis.span], of.visible[None, axis.span])
    cursor = (0, axis.cell_of(lens.state.other_token)) if here else None
    cells = Cells(pool(block, 1, axis.cells, mean=False), lens.scale, lens.pane.cell, cursor=cursor)
    place = of.strongest if lens.state.second is None else lens.state.second
    number = f"{_number(lens, of, place):>6}"
    width = max(1, columns.number - len(number) - 2)
    rest = Words("", columns.strip - axis.cells * lens.pane.cell)
    return cells, rest, Words(f" {number} "), Words(_named(lens, 1, place), width)


def _named(lens: LaidOutLens, axis: int, place: int) -> str:
    """Returns a token of the lens's axis, 0, or of the other, 1; its number too if another token has the same text."""
    return unique_label(lens.units[axis], place)


def _number(lens: LaidOutLens, row: TokenRow, place: int) -> str:
    if not row.visible[place]:
        return "masked"
    return quantity_text(lens.quantity, float(row.values[place]))
