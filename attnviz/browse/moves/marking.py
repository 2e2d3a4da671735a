"""Answers the keys that mark heads and show marked heads side by side or as one map."""

from dataclasses import replace

from attnviz.base.errors import AttnvizError
from attnviz.browse.moves.cursor import Screen, open_head
from attnviz.browse.session.heads import Combination
from attnviz.browse.session.state import State

MAX_SIDE_BY_SIDE = 6  # heads
COMBINATION_OF_KEY: dict[str, Combination] = {"d": "difference", "m": "mean", "M": "max", "R": "rollout"}


def mark(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the chosen head marked, or without its mark if it has one.

    Args:
        screen: the recording and the terminal.
        state: the state before the key.
        key: the key of the binding; not read.
    """
    if state.head >= screen.session.recorded:
        return replace(state, message="several heads together cannot be marked; Esc goes back to one")
    if state.head in state.marked_heads:
        return replace(state, marked_heads=tuple(head for head in state.marked_heads if head != state.head))
    return replace(state, marked_heads=(*state.marked_heads, state.head))


def side_by_side(screen: Screen, state: State) -> State:
    """Returns the state with the marked heads open side by side; with a message if they cannot be."""
    heads = state.marked_heads
    if refusal := _refusal(screen, state, 2, MAX_SIDE_BY_SIDE, "see them side by side"):
        return replace(state, message=refusal)
    state = open_head(screen, replace(state, head=heads[0]))
    return replace(state, heads_beside=heads[1:], marked_heads=())


def combine_marked(screen: Screen, state: State, key: str) -> State:
    """Returns the state with one map open that combines the marked heads; with a message if they cannot be combined.

    A key of ``COMBINATION_OF_KEY`` chooses how. Without marks, all listed heads are combined, but never subtracted.

    Args:
        screen: the recording and the terminal.
        state: the state before the key.
        key: ``d`` (difference), ``m`` (mean), ``M`` (maximum) or ``R`` (rollout).
    """
    combination = COMBINATION_OF_KEY[key]
    if combination != "difference" and not state.marked_heads:
        state = replace(state, marked_heads=tuple(screen.session.ranking.order(state.view)))
    max_heads = 2 if combination == "difference" else len(screen.session.heads)
    if refusal := _refusal(screen, state, 2, max_heads, f"see their {combination}"):
        return replace(state, message=refusal)
    try:
        combined_head = screen.session.combine(state.marked_heads, combination)
    except AttnvizError as error:
        return replace(state, message=str(error))
    return replace(open_head(screen, replace(state, head=combined_head)), marked_heads=())


def _refusal(screen: Screen, state: State, min_heads: int, max_heads: int, purpose: str) -> str:
    """Returns the reason why the marked heads cannot be shown together; "" if they can."""
    count, same_tokens = (
        len(state.marked_heads),
        set(screen.session.heads_over_same_tokens(state.marked_heads[0])) if state.marked_heads else set(),
    )
    if not min_heads <= count <= max_heads:
        allowed_count = f"{min_heads}" if min_heads == max_heads else f"{min_heads} to {max_heads}"
        return f"to {purpose}, mark {allowed_count} heads with Space; {count} marked now"
    return (
        ""
        if set(state.marked_heads) <= same_tokens
        else "these heads have different tokens; mark heads over the same ones"
    )


def subtract(screen: Screen, state: State, key: str) -> State:
    """Returns the state that shows a difference: the second of two marked heads minus the first.

    Without marks, switches the difference to the other recording on or off.

    Args:
        screen: the recording and the terminal.
        state: the state before the key.
        key: ``d``.
    """
    if len(state.marked_heads) == 2 or (state.marked_heads and screen.session.other is None):
        return combine_marked(screen, state, key)
    if screen.session.other is None:
        return replace(state, message="nothing to subtract; mark two heads with Space, or open two runs: A --with B")
    return replace(state, view=replace(state.view, difference=not state.view.difference, scores=False))
