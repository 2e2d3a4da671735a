"""Keeps the history of places; a place is the open head, the lens with its token, or the overview with its filter."""

from dataclasses import replace

from attnviz.browse.session.state import State

MAX_PLACES = 100  # in the history


def with_history(old_state: State, new_state: State) -> State:
    """Returns ``new_state``; if it is at a new place, with ``old_state`` added to its past and with an empty future.

    After a move back or forward in the history, returns ``new_state`` unchanged.
    """
    has_moved_in_history = (old_state.past, old_state.future) != (new_state.past, new_state.future)
    if has_moved_in_history or _place(old_state) == _place(new_state):
        return new_state
    return replace(new_state, past=(_without_history(old_state), *old_state.past[: MAX_PLACES - 1]), future=())


def go_back(state: State) -> State:
    """Returns the state at the previous place, in the current theme; the same state with a message if there is none."""
    if not state.past:
        return replace(state, message="this is the first place")
    return replace(
        state.past[0], theme=state.theme, past=state.past[1:], future=(_without_history(state), *state.future)
    )


def go_forward(state: State) -> State:
    """Returns the state at the place from which the user last went back, in the current theme.

    If there is none, returns the same state with a message.
    """
    if not state.future:
        return replace(state, message="this is the last place")
    return replace(
        state.future[0], theme=state.theme, past=(_without_history(state), *state.past), future=state.future[1:]
    )


def _place(state: State) -> tuple[object, ...]:
    """Returns values that are equal for two states at the same place; a move of the cursor in a map keeps the place."""
    if state.lens and not state.has_open_head:
        return "lens", state.direction, state.token
    return (state.head, state.heads_beside) if state.has_open_head else ("heads", state.view.filter)


def _without_history(state: State) -> State:
    """Returns the state as the history keeps it: without its own history, prompt, message and help."""
    return replace(state, past=(), future=(), prompt=None, prompt_text="", message="", help=0)
