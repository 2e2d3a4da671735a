"""Keeps the history of places: a place is what is open, and for which token."""

from dataclasses import replace

from attnviz.browse.session.state import State

MAX_PLACES = 100


def with_history(before: State, after: State) -> State:
    """Returns the state after a move, with the place before it in its history if the place changed."""
    if _place(before) == _place(after) or (before.past, before.future) != (after.past, after.future):
        return after
    return replace(after, past=(_alone(before), *before.past[: MAX_PLACES - 1]), future=())


def go_back(state: State) -> State:
    """Returns the previous place; the same state with a message if there is none."""
    if not state.past:
        return replace(state, message="this is the first place")
    return replace(state.past[0], theme=state.theme, past=state.past[1:], future=(_alone(state), *state.future))


def go_forward(state: State) -> State:
    """Returns the next place after one was gone back; the same state with a message if there is none."""
    if not state.future:
        return replace(state, message="this is the last place")
    return replace(state.future[0], theme=state.theme, past=(_alone(state), *state.past), future=state.future[1:])


def _place(state: State) -> tuple[object, ...]:
    """Returns the identity of a state's place: the lens's token is part of it, the cursor in a map is not."""
    if state.lens and not state.opened:
        return "lens", state.direction, state.token
    return (state.head, state.beside) if state.opened else ("heads", state.view.filter)


def _alone(state: State) -> State:
    return replace(state, past=(), future=(), prompt=None, typed="", message="", help=0)
