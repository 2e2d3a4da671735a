"""Draws the token lens: the exact row of one token in every head, the means of layers, and the text."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from rich.cells import cell_len

from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.layout import FIXED_LINES, MapPane, lens_heads, open_lens_pane, text_lines
from attnviz.browse.session.blocks import CellBlock, TokenRow, pool
from attnviz.browse.session.state import State
from attnviz.browse.view.cells import Cells, cell_lines, quantity_text
from attnviz.browse.view.head import marked_label
from attnviz.browse.view.parts import Drawing, Hit, Parts, padded_line, short_name, words
from attnviz.browse.view.text import ShadedTokens, text_pane, unique_label
from attnviz.maps.grouped import Units
from attnviz.render.terminal.lines import Line
from attnviz.report.picture.colors import LOG_RANGE, ColorScale
from attnviz.report.picture.panels import Quantity

MAX_SCALED_ROWS = 32  # rows of scores or changes whose values set the colours


@dataclass(frozen=True, eq=False)
class LaidOutLens:
    """The lens with its layout and numbers."""

    screen: Screen
    state: State
    heads: list[int]  # those that are listed, in their order
    rows: dict[int, TokenRow]  # of the heads for which it is computed
    units: tuple[Units, Units]  # of the axis of the lens's token, and of the axis across
    quantity: Quantity
    pane: MapPane

    @property
    def shown_heads(self) -> list[int]:
        """The heads on the screen."""
        return self.heads[self.pane.queries.span]

    @property
    def title(self) -> str:
        """What the token attends to, or with direction ``from`` what attends to it; with the number of the token."""
        token = f"“{self.units[0].labels[self.state.token]}” ({self.units[0].starts[self.state.token]})"
        return f"what {token} attends to" if self.state.direction == "to" else f"what attends to {token}"

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

    @property
    def blank_row(self) -> TokenRow:
        """The row of a head for which it is not computed yet: all masked."""
        zeros = np.zeros(len(self.units[1]), dtype=np.float32)
        return TokenRow(zeros, zeros > 0)

    def mean(self, heads: list[int]) -> TokenRow | None:
        """Returns the mean row of some heads, over those that see each cell; ``None`` if any row is not computed yet.

        A cell that no head sees is masked.
        """
        rows = [self.rows[head] for head in heads if head in self.rows]
        if len(rows) < len(heads):
            return None
        return TokenRow.mean(TokenRow.stacked(rows), self.units[1].remainder)


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
    return LaidOutLens(
        screen=screen,
        state=lens_state,
        heads=heads,
        rows={head: row for head, row in rows.items() if row is not None},
        units=units,
        quantity=session.quantity(state.view),
        pane=open_lens_pane(session, lens_state, screen.size),
    )


def lens_parts(screen: Screen, state: State) -> Parts:
    """Returns the parts of the lens, a map whose rows are heads: with means of layers below, and the shaded text."""
    lens, size, session = lay_out_lens(screen, state), screen.size, screen.session
    pane, shown_heads, axis = lens.pane, lens.shown_heads, lens.pane.keys
    labels = [_head_label(lens, head) for head in shown_heads]
    for heads in pane.layers:
        maps, _ = session.heads[heads[0]]
        before, after = "  layer ", ", mean"
        call_name = f"{maps.part}:{maps.layer}" if maps.part else str(maps.layer)
        name = short_name(call_name, pane.label_width - len(before + after))
        labels.append([words(f"{before}{name}{after}", pane.label_width + 1, "dim")])
    rows = [lens.rows.get(head) for head in shown_heads] + [lens.mean(heads) for heads in pane.layers]
    all_cells = TokenRow.stacked([row or lens.blank_row for row in rows])
    cells = CellBlock(all_cells.values[:, axis.span], all_cells.visible[:, axis.span])
    cursor_column = axis.cell_of(lens.state.other_token)
    cursor = shown_heads.index(lens.state.head), cursor_column
    block = pool(cells, len(rows), axis.cells, mean=False)
    cell_rows = cell_lines(Cells(block, lens.scale, pane.form.cell_width, cursor=cursor), screen.colors)
    strip_columns, number_columns = pane.width - pane.label_width - 1, size.width - pane.width
    lines: list[Line] = []
    for label, row, spans in zip(labels, rows, cell_rows, strict=True):
        if row is None:
            lines.append([*label, words("…", strip_columns, "dim")])
            continue
        # then the token that sorts the heads, else the strongest
        unit = row.strongest_unit if lens.state.sort_token is None else lens.state.sort_token
        number = f" {_number_text(lens, row, unit):>6} "
        token = words(unique_label(lens.units[1], unit), max(1, number_columns - len(number)))
        lines.append(
            [*label, *spans, words("", strip_columns - axis.cells * pane.form.cell_width), words(number), token]
        )

    token_label = lens.units[1].labels[lens.state.other_token]
    label_columns = min(cell_len(token_label), max(1, strip_columns - 2))
    mark = marked_label(token_label, cursor_column * pane.form.cell_width, strip_columns, label_columns)
    numbers_title = " strongest" if lens.state.sort_token is None else " sorted by this"
    title = words(numbers_title, max(0, number_columns), "dim")
    header = [words("", pane.label_width + 1), *padded_line(mark, strip_columns), title]
    head_lines, mean_lines = lines[: len(shown_heads)], lines[len(shown_heads) :]
    if mean_lines:
        layer_count = len(session.ranking.by_call(sorted(lens.heads)))
        is_cut = len(mean_lines) < layer_count
        heading = f"── means of {len(mean_lines)} of {layer_count} layers " if is_cut else ""
        mean_lines.insert(0, [words(heading + "─" * (size.width - len(heading)), style="dim")])
    free_lines = size.height - FIXED_LINES - text_lines(size) - 1 - len(head_lines) - len(mean_lines)

    def hit(x: int, y: int) -> Hit | None:
        if not 0 < y <= len(shown_heads):
            return None
        head, cell = shown_heads[y - 1], pane.cell_at(x, y)
        if cell is None:
            return Hit({"head": head}, opens=x <= pane.label_width and head == lens.state.head)
        pair = (state.token, cell[1]) if state.direction == "to" else (cell[1], state.token)
        return Hit({"head": head, state.other_axis: cell[1]}, cell=(head, *pair))

    main = Drawing([header, *head_lines, *([] for _ in range(free_lines)), *mean_lines], hit)
    return Parts(
        [words(lens.title)], main, text_pane(_row_text(lens), screen, text_lines(size)), [words(_status(lens))]
    )


def _row_text(lens: LaidOutLens) -> ShadedTokens:
    """Returns the tokens of the row, shaded by their numbers in the chosen head; all masked until it is computed."""
    state, units = lens.state, lens.units[1]
    row = lens.rows.get(state.head) or lens.blank_row
    description = f"{lens.title} in {lens.screen.session.title(state.head)}"
    tokens = ShadedTokens(units, row, lens.quantity, lens.scale, state.other_token, description, axis=state.other_axis)
    # the row of a key is not one of a query
    return tokens if state.direction == "from" else replace(tokens, queries=lens.units[0], query=state.token)


def _status(lens: LaidOutLens) -> str:
    """Returns the chosen head, the pair under the cursor with its number, and how many rows are missing."""
    state, session = lens.state, lens.screen.session
    pattern, row = session.ranking.description(state.head), lens.rows.get(state.head)
    labels = unique_label(lens.units[0], state.token), unique_label(lens.units[1], state.other_token)
    pair = " → ".join(labels if state.direction == "to" else labels[::-1])
    number = "…" if row is None else _number_text(lens, row, state.other_token)
    missing_count = len(lens.heads) - len(lens.rows)
    progress = f"; {missing_count} head{'s' if missing_count > 1 else ''} to come" if missing_count else ""
    return f" {session.title(state.head)}{f': {pattern}' if pattern else ''}; {pair} {number}{progress}"


def _head_label(lens: LaidOutLens, head: int) -> Line:
    """Returns the marks of a head, its name, and its sort number or else its pattern."""
    session, state, pane, is_chosen = lens.screen.session, lens.state, lens.pane, head == lens.state.head
    mark = ("▸" if is_chosen else " ") + ("•" if head in state.marked_heads else " ")
    number = session.ranking.number(head, state.view.order)
    description = session.ranking.description(head) if number is None else f"{state.view.order} {number:.2f}"
    style, pattern_columns = "reverse bold" if is_chosen else "", pane.label_width + 1 - pane.name_width
    line: Line = [
        words(mark + short_name(session.names[head], pane.name_width - len(mark) - 1), pane.name_width, style)
    ]
    if pattern_columns:
        line += [words(description, pattern_columns - 1, style), words(" ", style=style)]
    return line


def _number_text(lens: LaidOutLens, row: TokenRow, unit: int) -> str:
    return quantity_text(lens.quantity, float(row.values[unit])) if row.visible[unit] else "masked"
