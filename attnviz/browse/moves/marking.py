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

    A combination of heads cannot be marked: only adds a message.
    """
    if state.head >= screen.session.recorded_count:
        return replace(state, message="several heads together cannot be marked; Esc goes back to one")
    if state.head in state.marked_heads:
        return replace(state, marked_heads=tuple(head for head in state.marked_heads if head != state.head))
    return replace(state, marked_heads=(*state.marked_heads, state.head))


def open_side_by_side(screen: Screen, state: State) -> State:
    """Returns the state with the marked heads open side by side and their marks removed.

    If one head is marked, the chosen head is the second. If the heads cannot be shown together, only adds a message.
    """
    heads = state.heads_to_combine
    purpose = "see heads side by side"
    if refusal := _refusal(screen, heads, min_heads=2, max_heads=MAX_SIDE_BY_SIDE, purpose=purpose):
        return replace(state, message=refusal)
    state = open_head(screen, replace(state, head=heads[0]))
    return replace(state, heads_beside=heads[1:], marked_heads=())


def combine_marked(screen: Screen, state: State, key: str) -> State:
    """Returns the state with one map open that combines the marked heads, and with their marks removed.

    If one head is marked, the chosen head is the second. Without marks, the mean, maximum or rollout is that of all
    listed heads. If the heads cannot be combined, only adds a message.
    """
    combination = COMBINATION_OF_KEY[key]
    heads = state.heads_to_combine
    if combination != "difference" and not heads:
        heads = tuple(screen.session.ranking.order(state.view))
    max_heads = 2 if combination == "difference" else len(screen.session.heads)
    if refusal := _refusal(screen, heads, min_heads=2, max_heads=max_heads, purpose=f"see the {combination} of heads"):
        return replace(state, message=refusal)
    try:
        combined_head = screen.session.combine(heads, combination)
    except AttnvizError as error:
        return replace(state, message=str(error))
    return replace(open_head(screen, replace(state, head=combined_head)), marked_heads=())


def _refusal(screen: Screen, heads: tuple[int, ...], min_heads: int, max_heads: int, purpose: str) -> str:
    """Returns the reason why these heads cannot be shown together; "" if they can."""
    if not min_heads <= len(heads) <= max_heads:
        allowed_count = f"{min_heads}" if min_heads == max_heads else f"{min_heads} to {max_heads}"
        return f"to {purpose}, mark {allowed_count} with Space; marked now: {len(heads)}"
    if not set(heads) <= set(screen.session.heads_over_same_tokens(heads[0])):
        return "these heads have different tokens; mark heads over the same tokens"
    return ""


def subtract(screen: Screen, state: State, key: str) -> State:
    """Returns the state that shows a difference, or hides it again.

    If two heads are marked, shows the second minus the first; if one is, the chosen head is the second. Otherwise shows
    or hides the other recording minus this one, and hides scores. Without another recording, only adds a message.
    """
    has_two_heads = len(state.heads_to_combine) == 2
    if has_two_heads or (state.marked_heads and screen.session.other is None):
        return combine_marked(screen, state, key)  # it refuses any number of heads but two
    if screen.session.other is None:
        return replace(state, message="nothing to subtract; mark two heads with Space, or open two runs: A --with B")
    return replace(state, view=replace(state.view, difference=not state.view.difference, scores=False))
