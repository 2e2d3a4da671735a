"""Answers the keys that change what heads show: marks and combinations of heads, toggles, colours and order."""

from dataclasses import replace

from attnviz.base.errors import AttnvizError
from attnviz.browse.moves.cursor import Screen, open_head, sort_by, turn_lens, with_first_ranked_head, zoom
from attnviz.browse.moves.layout import ANSI_COLORS, lens_heads
from attnviz.browse.session.heads import Combination
from attnviz.browse.session.state import THEMES, State
from attnviz.report.picture.colors import Steps
from attnviz.report.words.choices import FACTS

MAX_SIDE_BY_SIDE = 6  # heads
COMBINATION_OF_KEY: dict[str, Combination] = {"d": "difference", "m": "mean", "M": "max", "R": "rollout"}
COLOR_STEPS: tuple[Steps, ...] = ("sqrt", "linear", "log")


def mark(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the chosen head marked, or without its mark if it has one."""
    if state.head >= screen.session.recorded_count:
        return replace(state, message="several heads together cannot be marked; Esc goes back to one")
    if state.head in state.marked_heads:
        return replace(state, marked_heads=tuple(head for head in state.marked_heads if head != state.head))
    return replace(state, marked_heads=(*state.marked_heads, state.head))


def together(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the marked heads open side by side, or with the one map open that they make together.

    The marks are removed. Without marks, the mean, maximum or rollout is that of all listed heads, and the difference
    is that of two recordings; without two heads, the key of side by side zooms in.
    """
    session, heads = screen.session, state.heads_to_combine
    has_runs = session.other is not None
    if key == "equals_sign" and len(heads) < 2:
        return zoom(screen, state, key)
    if key == "d" and has_runs and len(heads) != 2:
        return replace(state, view=replace(state.view, difference=not state.view.difference, scores=False))
    combination = COMBINATION_OF_KEY.get(key)
    if not heads:
        heads = tuple(session.ranking.order(state.view))
    purpose = f"see the {combination} of heads" if combination else "see heads side by side"
    max_heads = 2 if key == "d" else len(session.heads) if combination else MAX_SIDE_BY_SIDE
    message, head = "", heads[0]
    if not 2 <= len(heads) <= max_heads:
        allowed_count = "2" if max_heads == 2 else f"2 to {max_heads}"
        message = f"to {purpose}, mark {allowed_count} with Space; marked now: {len(heads)}"
    elif not set(heads) <= set(session.heads_over_same_tokens(heads[0])):
        message = "these heads have different tokens; mark heads over the same tokens"
    elif combination is not None:
        try:
            head = session.combine(heads, combination)
        except AttnvizError as error:
            message = str(error)
    if message:
        return replace(state, message=message)
    opened = replace(open_head(screen, replace(state, head=head)), marked_heads=())
    return opened if combination else replace(opened, heads_beside=heads[1:])


def toggle(screen: Screen, state: State, key: str) -> State:
    """Returns the state with one toggle of the view changed; the cursor stays on its tokens."""
    session, view = screen.session, state.view
    changes: dict[str, dict[str, object]] = {
        "v": {"scores": not view.scores, "difference": False, "words": False},  # a word has no score
        "l": {"steps": COLOR_STEPS[(COLOR_STEPS.index(view.steps) + 1) % len(COLOR_STEPS)]},
        "p": {"mean": not view.mean},
        "c": {"own_scale": not view.own_scale},
        "w": {"words": not view.words, "scores": False},
        "t": {"special": not view.special},
    }
    if key == "t" and not state.has_open_head and not state.lens:
        if session.left_out is None:
            return replace(state, message=FACTS["one head"])
        changes["t"] = {"all_keys": not view.all_keys}
    new_view = replace(view, **changes[key])  # type: ignore[arg-type]
    old_units, new_units = (session.units(state.head, shown_view) for shown_view in (view, new_view))

    def new_unit(axis: int, unit: int) -> int:
        """Returns the index in ``new_units`` of the first token of an old unit; axis 0 has queries, axis 1 keys."""
        return new_units[axis].unit_of(int(old_units[axis].starts[unit]))

    sort_token = state.sort_token
    if sort_token is not None:
        sort_token = new_unit(1 if state.direction == "to" else 0, sort_token)  # of the axis across
    query, key_unit = new_unit(0, state.query), new_unit(1, state.key)
    return replace(state, view=new_view, query=query, key=key_unit, sort_token=sort_token)


def toggle_why(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the features that explain the cursor's weight shown, or hidden again."""
    return replace(state, why=not state.why)


def next_theme(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the next theme: the terminal's own colours, light, dark."""
    if screen.colors <= ANSI_COLORS:
        return replace(state, message="themes need more than 16 colours, which this terminal lacks")
    theme = THEMES[(THEMES.index(state.theme) + 1) % len(THEMES)]
    message = "the terminal's own colours" if theme == "terminal" else f"{theme} colours"
    return replace(state, theme=theme, message=message)


def sort(screen: Screen, state: State, key: str) -> State:
    """Returns the state with heads sorted by the next or the previous metric, or in reverse.

    The order of layers comes before the first metric and after the last. With an open head a message names the order;
    otherwise the first head is chosen, once the metric is measured. In the lens, ``o`` and ``O`` sort heads by their
    weight on the cursor's token, or end that order if it is in use; ``r`` turns the lens.
    """
    if state.shows_lens:
        if key == "r":
            return turn_lens(state)
        if state.sort_token == state.other_token:
            return replace(state, sort_token=None, top=0)
        state = replace(state, sort_token=state.other_token, top=0)
        return replace(state, head=lens_heads(screen.session, state)[0])
    if key == "r":
        if state.view.order is None:
            return replace(state, message="heads are in the order of layers; o sorts them by a metric")
        state = replace(state, view=replace(state.view, ascending=not state.view.ascending))
        return _with_order_message(state) if state.has_open_head else with_first_ranked_head(screen, state)
    names: list[str | None] = [None, *screen.session.ranking.names]
    step = -1 if key == "O" else 1
    state = sort_by(screen, state, names[(names.index(state.view.order) + step) % len(names)])
    return _with_order_message(state) if state.has_open_head else state


def _with_order_message(state: State) -> State:
    """Returns the state with a message about the order in which Tab opens heads."""
    order = "in the order of layers"
    if state.view.order is not None:
        order = f"by {state.view.order}, the {'smallest' if state.view.ascending else 'largest'} first"
    return replace(state, message=f"Tab opens heads {order}")
