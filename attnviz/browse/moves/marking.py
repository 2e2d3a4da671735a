"""Answers the keys that mark heads and show marked heads side by side or as one map."""

from dataclasses import replace

from attnviz.base.errors import AttnvizError
from attnviz.browse.moves.cursor import Screen, open_head
from attnviz.browse.session.heads import Together
from attnviz.browse.session.state import State

MAX_SIDE_BY_SIDE = 6  # heads
TOGETHER: dict[str, Together] = {"d": "difference", "m": "mean", "M": "max", "R": "rollout"}


def mark(screen: Screen, state: State, key: str) -> State:
    """Marks the chosen head, or removes its mark."""
    if state.head >= screen.session.recorded:
        return replace(state, message="several heads together cannot be marked; Esc goes back to one")
    if state.head in state.marked:
        return replace(state, marked=tuple(head for head in state.marked if head != state.head))
    return replace(state, marked=(*state.marked, state.head))


def side_by_side(screen: Screen, state: State) -> State:
    """Opens the marked heads side by side."""
    marked = state.marked
    if refusal := _refusal(screen, state, 2, MAX_SIDE_BY_SIDE, "see them side by side"):
        return replace(state, message=refusal)
    state = open_head(screen, replace(state, head=marked[0]))
    return replace(state, beside=marked[1:], marked=())


def combine_marked(screen: Screen, state: State, key: str) -> State:
    """Opens one map of the marked heads, or of all listed ones: their difference, mean, maximum or rollout."""
    how = TOGETHER[key]
    if how != "difference" and not state.marked:
        state = replace(state, marked=tuple(screen.session.ranking.order(state.view)))
    most = 2 if how == "difference" else len(screen.session.heads)
    if refusal := _refusal(screen, state, 2, most, f"see their {how}"):
        return replace(state, message=refusal)
    try:
        combined = screen.session.combine(state.marked, how)
    except AttnvizError as error:
        return replace(state, message=str(error))
    return replace(open_head(screen, replace(state, head=combined)), marked=())


def _refusal(screen: Screen, state: State, least: int, most: int, what: str) -> str:
    """Returns the reason why the marked heads cannot be shown together, or ""."""
    count, alike = len(state.marked), set(screen.session.alike(state.marked[0])) if state.marked else set()
    if not least <= count <= most:
        needed = f"{least}" if least == most else f"{least} to {most}"
        return f"to {what}, mark {needed} heads with Space; {count} marked now"
    return "" if set(state.marked) <= alike else "these heads have different tokens; mark heads over the same ones"


def subtract(screen: Screen, state: State, key: str) -> State:
    """Opens the second of two marked heads minus the first; without marks, shows the other recording minus this one."""
    if len(state.marked) == 2 or (state.marked and screen.session.other is None):
        return combine_marked(screen, state, key)
    if screen.session.other is None:
        return replace(state, message="nothing to subtract; mark two heads with Space, or open two runs: A --with B")
    return replace(state, view=replace(state.view, difference=not state.view.difference, scores=False))
