"""Answers the mouse: clicks on buttons, heads, cells and tokens, and a description of what is under it."""

from dataclasses import replace

import numpy as np

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import tiles
from attnviz.browse.session.state import State
from attnviz.browse.view.hints import hint_at, hints
from attnviz.browse.view.legends import quantity_text
from attnviz.browse.view.lens import clicked_in_lens, lay_out_lens
from attnviz.browse.view.open_head import cell_under, clicked_in_head


def clicked(screen: Screen, state: State, x: int, y: int, again: bool) -> tuple[str, State]:
    """Returns the key that a click stands for, "" for none, and the state with the cursor where the click was.

    Args:
        screen: the recording and the terminal.
        state: the state before the click.
        x: the column of the screen, from 0.
        y: the line of the screen, from 0.
        again: True for the second click of a double click.
    """
    if state.help:
        return "", replace(state, help=0)
    if y == screen.size.height - 1 and state.prompt in (None, "copy"):
        column = x - (len(" copy:") if state.prompt else 0)
        hint = hint_at(hints(state, screen.size.width), column)
        return ("" if hint is None else hint.key), state
    if state.prompt is not None:
        return "", replace(state, prompt=None, typed="")
    return _clicked_in_body(screen, state, x, y - 1, again) if y else ("", state)


def _clicked_in_body(screen: Screen, state: State, x: int, y: int, again: bool) -> tuple[str, State]:
    if state.opened:
        return "", clicked_in_head(screen, state, x, y)
    if state.lens:
        moved, on_name = clicked_in_lens(screen, state, x, y)
        return ("enter" if on_name or again else ""), moved
    head = tiles(screen.session, state, screen.size).head_at(state.top, x, y)
    if head is None:
        return "", state
    opens = again or head == state.head
    return ("enter" if opens else ""), replace(state, head=head, message="")


def described_under(screen: Screen, state: State, x: int, y: int) -> str:
    """Returns a description of what is under the mouse: a head with its pattern, or a pair of tokens with its number.

    Args:
        screen: the recording and the terminal.
        state: the state.
        x: the column of the screen, from 0.
        y: the line of the screen, from 0.

    Returns:
        One line; "" if nothing is there.
    """
    session = screen.session
    if not y:
        return ""
    if state.opened:
        return _described_cell(screen, state, cell_under(screen, state, x, y - 1))
    if state.lens:
        lens = lay_out_lens(screen, state)
        place = (x - lens.pane.columns.before) // lens.pane.cell
        if not 2 <= y <= 1 + len(lens.shown) or not 0 <= place < lens.pane.axis.cells or x < lens.pane.columns.before:
            return ""
        other = lens.pane.axis.unit_of(place)
        pair = (state.token, other) if state.direction == "to" else (other, state.token)
        return _described_cell(screen, state, (lens.shown[y - 2], *pair))
    head = tiles(session, state, screen.size).head_at(state.top, x, y - 1)
    if head is None:
        return ""
    return f"head {session.names[head]}: {session.ranking.pattern(head)}".rstrip(": ")


def _described_cell(screen: Screen, state: State, cell: tuple[int, int, int] | None) -> str:
    if cell is None:
        return ""
    session, (head, query, key) = screen.session, cell
    view = session.view_of(head, state.view)
    queries, keys = session.units(head, view)
    one = slice(query, query + 1), slice(key, key + 1)
    shown = session.cells(head, view, *one, 1, 1)
    number = quantity_text(session.quantity(view), float(np.ravel(shown.values)[0]))
    name = session.names[head]
    value = number if shown.visible.all() else "masked"
    return f"head {name}: {queries.labels[query]} ({query}) → {keys.labels[key]} ({key}) {value}"
