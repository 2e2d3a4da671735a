"""Composes the token lens: the exact row of one token in every head, the means of layers, and the text."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen, with_other_token
from attnviz.browse.moves.layout import FIXED_LINES, text_lines
from attnviz.browse.moves.lens_layout import LensPane, lens_heads, lens_pane
from attnviz.browse.session.blocks import CellBlock, pool
from attnviz.browse.session.rows import TokenRow
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Body, Box, BoxColumn, BoxRow, Cells, FixedBox, StyledText
from attnviz.browse.view.legends import quantity_text
from attnviz.browse.view.text_pane import ShadedTokens, shades_caption, text_pane, token_at, unique_label
from attnviz.report.picture.colors import LOG_RANGE, ColorScale
from attnviz.report.picture.panels import PERCENT, Quantity
from attnviz.text.units import Units

MAX_SCALED_ROWS = 32  # rows of scores or changes whose values set the colours


@dataclass(frozen=True, eq=False)
class LaidOutLens:
    """The lens with its layout and numbers.

    Attributes:
        screen: the session, and the terminal's size and colours.
        state: the state, with the lens's token and cursor.
        heads: the listed heads, in their order.
        rows: the token's row in each head for which it is computed.
        units: the units of the axis of the lens's token, and of the axis across.
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
    def shown_heads(self) -> list[int]:
        """The heads on the screen."""
        return self.heads[self.state.top : self.state.top + self.pane.lines]

    @cached_property
    def scale(self) -> ColorScale:
        """The colour scale of the computed rows: for weights, up to the largest one, or to 1 if there is none.

        It begins at 0, or with logarithmic steps at `LOG_RANGE` times the largest weight. For scores and changes it is
        chosen from the first `MAX_SCALED_ROWS` rows.
        """
        session, view = self.screen.session, self.state.view
        computed_rows = list(self.rows.values())
        if view.scores or view.difference:
            blocks = [CellBlock(row.values[None], row.visible[None]) for row in computed_rows[:MAX_SCALED_ROWS]]
            return session.scale(view, blocks, self.state.theme)
        high = max((row.largest_value for row in computed_rows), default=0.0) or 1.0
        scale = session.scale(replace(view, own_scale=False), [], self.state.theme)
        low = high * LOG_RANGE if view.steps == "log" else 0.0
        return replace(scale, high=high, low=low)

    def row(self, head: int) -> TokenRow | None:
        """Returns the token's row in a head; ``None`` if it is not computed yet."""
        return self.rows.get(head)

    def mean(self, heads: list[int]) -> TokenRow | None:
        """Returns the mean row of some heads; ``None`` if any of their rows is not computed yet.

        Each cell is the mean over the heads that see it; a cell that no head sees is masked.
        """
        rows = [self.row(head) for head in heads]
        computed_rows = [row for row in rows if row is not None]
        if len(computed_rows) < len(rows):
            return None
        visible = np.any([row.visible for row in computed_rows], axis=0)
        counts = np.sum([row.visible for row in computed_rows], axis=0)
        total = np.sum([np.where(row.visible, row.values, 0) for row in computed_rows], axis=0)
        return TokenRow((total / np.maximum(counts, 1)).astype(np.float32), visible)

    @property
    def text(self) -> ShadedTokens:
        """The tokens of the row, shaded by their numbers in the chosen head; all masked until its row is computed."""
        row = self.row(self.state.head)
        units = self.units[1]
        if row is None:
            zeros = np.zeros(len(units), dtype=np.float32)
            row = TokenRow(zeros, zeros > 0)
        caption = shades_caption(
            f"{lens_title(self.state, self)} in {self.screen.session.title(self.state.head)}",
            self.quantity,
            self.scale,
        )
        tokens = ShadedTokens(units, row.values, row.visible, self.scale, self.state.other_token, caption)
        if self.state.direction == "from":  # the row belongs to a key, not to a query
            return tokens
        are_shares = self.quantity is PERCENT
        return replace(tokens, queries=self.units[0], query=self.state.token, are_shares=are_shares)


def lay_out_lens(screen: Screen, state: State) -> LaidOutLens:
    """Returns the token lens (the row of one token in every listed head) with its layout and numbers.

    If the list lacks the chosen head, the list's first head is chosen.
    """
    session = screen.session
    heads = lens_heads(session, state)
    lens_state = state if state.head in heads else replace(state, head=heads[0])
    rows = {head: session.token_rows.find(head, state.view, state.token, state.direction) for head in heads}
    queries, keys = session.units(lens_state.head, state.view)
    units = (queries, keys) if state.direction == "to" else (keys, queries)
    layers, names = session.ranking.by_call(sorted(heads)), session.names[: session.recorded_count]
    return LaidOutLens(
        screen=screen,
        state=lens_state,
        heads=heads,
        rows={head: row for head, row in rows.items() if row is not None},
        units=units,
        quantity=session.quantity(state.view),
        pane=lens_pane(layers, names, len(units[1]), lens_state, screen.size),
    )


def lens_body(screen: Screen, state: State) -> Body:
    """Composes the token lens: a line for each head that fits, means of layers if there is space, the shaded text."""
    lens, size = lay_out_lens(screen, state), screen.size
    head_lines = BoxColumn(tuple(_head_line(lens, head) for head in lens.shown_heads))
    lines: list[Box] = [_header(lens), FixedBox(head_lines, height=lens.pane.lines)]
    if lens.pane.layers:
        lines.append(StyledText(_means_heading(lens), style="dim"))
        lines += [_layer_line(lens, heads) for heads in lens.pane.layers]
    title, status = lens_title(lens.state, lens), _lens_status(lens)
    text = text_pane(lens.text, size, text_lines(size))
    return Body(title, BoxColumn((*lines, text)), status)


def _lens_status(lens: LaidOutLens) -> StyledText:
    """Composes the status: the chosen head, the pair under the cursor with its number, and the count of missing rows.

    The number is an ellipsis until the chosen head's row is computed.
    """
    state, session = lens.state, lens.screen.session
    pattern = session.ranking.description(state.head)
    labels = _token_label(lens, 0, state.token), _token_label(lens, 1, state.other_token)
    pair = " → ".join(labels if state.direction == "to" else labels[::-1])
    row = lens.row(state.head)
    number = "…" if row is None else _number_text(lens, row, state.other_token)
    missing_count = len(lens.heads) - len(lens.rows)
    progress = f"; {missing_count} head{'s' if missing_count > 1 else ''} to come" if missing_count else ""
    head_text = f"{session.title(state.head)}{f': {pattern}' if pattern else ''}"
    return StyledText(f" {head_text}; {pair} {number}{progress}")


def lens_title(state: State, lens: LaidOutLens) -> str:
    """Returns the title of the lens: what its token attends to, or with direction ``from`` what attends to it.

    The token is followed by its number, that of the first token if it is a group of tokens.
    """
    label, first_token = lens.units[0].labels[state.token], lens.units[0].starts[state.token]
    if state.direction == "to":
        return f"what “{label}” ({first_token}) attends to"
    return f"what attends to “{label}” ({first_token})"


def click_in_lens(screen: Screen, state: State, x: int, y: int) -> tuple[State, bool]:
    """Returns the state after a click in the lens, and True if it was on the name of the head already chosen.

    A click on a name chooses the head, on a cell also its token, on the text a token; every click clears the message.
    """
    lens, next_state = lay_out_lens(screen, state), replace(state, message="")
    first_text_line = screen.size.height - FIXED_LINES - text_lines(screen.size)
    if y >= first_text_line:
        token = token_at(lens.text, screen.size, text_lines(screen.size), x, y - first_text_line)
        return (next_state if token is None else with_other_token(next_state, token)), False
    if not 1 <= y <= len(lens.shown_heads):  # line 0 is the header
        return next_state, False
    head, column = lens.shown_heads[y - 1], x - lens.pane.columns.label_width
    next_state = replace(next_state, head=head)
    if column < 0:
        return next_state, head == state.head
    cell = column // lens.pane.cell_width
    is_on_cell = cell < lens.pane.axis.cells
    return (with_other_token(next_state, lens.pane.axis.unit_of(cell)) if is_on_cell else next_state), False


def _header(lens: LaidOutLens) -> Box:
    """Composes the line above the rows: a mark and the cursor's token over its cell, and a title over the numbers."""
    state, columns = lens.state, lens.pane.columns
    cell_columns = columns.strip
    cursor_column = lens.pane.axis.cell_of(state.other_token) * lens.pane.cell_width
    label = lens.units[1].labels[state.other_token]
    width = min(cell_len(label), max(1, cell_columns - 2))
    name = StyledText(label, width, "bold")
    if cursor_column + 2 + width <= cell_columns:
        mark_and_name = [StyledText("", cursor_column), StyledText("▾ ", style="bold"), name]
    else:
        mark_and_name = [StyledText("", max(0, cursor_column - width - 1)), name, StyledText(" ▾", style="bold")]
    numbers_title = "strongest" if state.sort_token is None else "sorted by this"
    return BoxRow(
        (
            StyledText("", columns.label_width),
            FixedBox(BoxRow((*mark_and_name,)), cell_columns),
            StyledText(f" {numbers_title}", columns.number, "dim"),
        )
    )


def _head_line(lens: LaidOutLens, head: int) -> Box:
    """Composes the line of a head: marks, name, the number that sorts heads or else the pattern, and its row of
    cells.
    """
    session, state, columns = lens.screen.session, lens.state, lens.pane.columns
    is_chosen = head == state.head
    mark = ("▸" if is_chosen else " ") + ("•" if head in state.marked_heads else " ")
    number = session.ranking.number(head, state.view.order)
    description = session.ranking.description(head) if number is None else f"{state.view.order} {number:.2f}"
    style = "reverse bold" if is_chosen else ""
    name = StyledText(mark + session.names[head], columns.name, style)
    description_boxes: tuple[Box, ...] = ()
    if columns.pattern:
        description_boxes = StyledText(description, columns.pattern - 1, style), StyledText(" ", style=style)
    return BoxRow((name, *description_boxes, *_row_boxes(lens, lens.row(head), is_chosen)))


def _means_heading(lens: LaidOutLens) -> str:
    """Returns the rule above the means of layers, which counts the layers if not all are shown."""
    layer_count = len(lens.screen.session.ranking.by_call(sorted(lens.heads)))
    layers_on_screen = len(lens.pane.layers)
    words = f"── means of {layers_on_screen} of {layer_count} layers " if layers_on_screen < layer_count else ""
    return words + "─" * (lens.screen.size.width - len(words))


def _layer_line(lens: LaidOutLens, heads: list[int]) -> Box:
    """Composes the line with the mean row of one layer's heads."""
    maps, _ = lens.screen.session.heads[heads[0]]
    start = StyledText(f"  layer {maps.layer}, mean", lens.pane.columns.label_width, "dim")
    return BoxRow((start, *_row_boxes(lens, lens.mean(heads), is_chosen=False)))


def _row_boxes(lens: LaidOutLens, row: TokenRow | None, is_chosen: bool) -> tuple[Box, ...]:
    """Composes a row of cells, then a token with its number: the token that sorts the lens, else the strongest."""
    columns, axis = lens.pane.columns, lens.pane.axis
    if row is None:
        return (StyledText("…", columns.strip, "dim"),)
    block = CellBlock(row.values[None, axis.span], row.visible[None, axis.span])
    cursor = (0, axis.cell_of(lens.state.other_token)) if is_chosen else None
    cells = Cells(pool(block, 1, axis.cells, mean=False), lens.scale, lens.pane.cell_width, cursor=cursor)
    unit = row.strongest_unit if lens.state.sort_token is None else lens.state.sort_token
    number = f"{_number_text(lens, row, unit):>6}"
    width = max(1, columns.number - len(number) - 2)  # without the spaces around the number
    padding = StyledText("", columns.strip - axis.cells * lens.pane.cell_width)
    return cells, padding, StyledText(f" {number} "), StyledText(_token_label(lens, 1, unit), width)


def _token_label(lens: LaidOutLens, axis: int, unit: int) -> str:
    """Returns the label of a unit of ``lens.units[axis]``, with its number if another unit has the same label."""
    return unique_label(lens.units[axis], unit)


def _number_text(lens: LaidOutLens, row: TokenRow, unit: int) -> str:
    """Returns the number of a unit in a row as text; ``masked`` if the unit is masked there."""
    if not row.visible[unit]:
        return "masked"
    return quantity_text(lens.quantity, float(row.values[unit]))
