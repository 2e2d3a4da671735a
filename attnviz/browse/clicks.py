"""Answers the mouse: clicks on buttons, heads, cells and tokens, and describes what is under the pointer."""

from dataclasses import replace

import numpy as np

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import tiles
from attnviz.browse.session.state import State
from attnviz.browse.view.hints import hint_at, hints
from attnviz.browse.view.legends import quantity_text
from attnviz.browse.view.lens import click_in_lens, lay_out_lens
from attnviz.browse.view.open_head import cell_at_position, click_in_head


def click_result(screen: Screen, state: State, x: int, y: int, is_double: bool) -> tuple[str, State]:
    """Returns the key that a click stands for, "" for none, and the state after the click.

    A click closes an open help. Without a prompt, or with the copy prompt, a click on the last line stands for the key
    of the hint there, if any; every other click closes an open prompt. A click on the title changes nothing. A click
    below it moves the cursor or chooses a head. It stands for Enter, which opens the head, if it is on the chosen head
    of the overview or its name in the lens, or a double click on a head of the overview or anywhere in the lens.
    """
    if state.help:
        return "", replace(state, help=0)
    if y == screen.size.height - 1 and state.prompt in (None, "copy"):
        column = x - (len(" copy:") if state.prompt else 0)  # the name of the prompt stands before its hints
        hint = hint_at(hints(state, screen.size.width), column)
        return ("" if hint is None else hint.key), state
    if state.prompt is not None:
        return "", replace(state, prompt=None, prompt_text="")
    return _body_click_result(screen, state, x, y - 1, is_double=is_double) if y else ("", state)


def _body_click_result(screen: Screen, state: State, x: int, y: int, is_double: bool) -> tuple[str, State]:
    """Returns the key that a click between title and status stands for, and the state after the click."""
    if state.has_open_head:
        return "", click_in_head(screen, state, x, y)
    if state.lens:
        clicked_state, is_on_name = click_in_lens(screen, state, x, y)
        return ("enter" if is_on_name or is_double else ""), clicked_state
    head = tiles(screen.session, state, screen.size).head_at(state.top, x, y)
    if head is None:
        return "", state
    opens_head = is_double or head == state.head
    return ("enter" if opens_head else ""), replace(state, head=head, message="")


def description_at(screen: Screen, state: State, x: int, y: int) -> str:
    """Returns a description of what is at a position of the screen.

    In the overview it describes the head with its pattern; in an open head or the lens, the cell with its tokens and
    its number.

    Returns:
        One line; "" if there is no head and no cell.
    """
    session = screen.session
    if not y:
        return ""
    if state.has_open_head:
        return _cell_description(screen, state, cell_at_position(screen, state, x, y - 1))
    if state.lens:
        lens = lay_out_lens(screen, state)
        # 0 at the first head, below title and header, and 0 at the first cell, after name and pattern
        line, column = y - 2, x - lens.pane.columns.label_width
        cell = column // lens.pane.cell_width
        is_on_cell = column >= 0 and cell < lens.pane.axis.cells
        if not is_on_cell or not 0 <= line < len(lens.shown_heads):
            return ""
        unit_across = lens.pane.axis.unit_of(cell)
        pair = (state.token, unit_across) if state.direction == "to" else (unit_across, state.token)
        return _cell_description(screen, state, (lens.shown_heads[line], *pair))
    head = tiles(session, state, screen.size).head_at(state.top, x, y - 1)
    if head is None:
        return ""
    description = session.ranking.description(head)
    return f"{session.title(head)}: {description}".rstrip(": ")  # a description may be empty


def _cell_description(screen: Screen, state: State, cell: tuple[int, int, int] | None) -> str:
    """Returns the head, the tokens and the number of a cell as a text, with "masked" as the number of a masked cell."""
    if cell is None:
        return ""
    session, (head, query, key) = screen.session, cell
    view = session.view_of(head, state.view)
    queries, keys = session.units(head, view)
    spans = slice(query, query + 1), slice(key, key + 1)
    block = session.cells(head, view, *spans, height=1, width=1)
    number = quantity_text(session.quantity(view), float(np.ravel(block.values)[0]))
    value = number if block.visible.all() else "masked"
    first_query, first_key = queries.starts[query], keys.starts[key]
    return f"{session.title(head)}: {queries.labels[query]} ({first_query}) → {keys.labels[key]} ({first_key}) {value}"
