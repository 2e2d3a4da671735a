"""Answers the keys that change how heads are shown: toggles, colours and the order of heads."""

from dataclasses import replace

from attnviz.browse.moves.cursor import Screen, sort_by, with_first_ranked_head
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.moves.lens_layout import lens_heads
from attnviz.browse.moves.moving import turn_lens
from attnviz.browse.session.state import THEMES, State
from attnviz.maps.heads import maps_over_tokens
from attnviz.report.picture.colors import Steps

COLOR_STEPS: tuple[Steps, ...] = ("sqrt", "linear", "log")


def toggle(screen: Screen, state: State, key: str) -> State:
    """Returns the state with one toggle of the view changed; with only a message if it does not apply.

    Keys are ``v`` (scores, which ends the difference), ``l`` (steps of the colours), ``p`` (pooling) and ``c`` (colour
    scale).
    """
    view = state.view
    if key == "v" and state.has_open_head and state.head >= screen.session.recorded_count:
        return replace(state, message="several heads together have no score; Esc goes back to one")
    if key == "v" and maps_over_tokens(screen.session.heads[state.head][0]).block != (1, 1):
        return replace(state, message="these maps were captured in blocks of tokens, and a block has no score")
    if key == "v" and view.words:
        return replace(state, message="only tokens have scores; press w for tokens")
    if key == "l" and (view.scores or view.difference):
        return replace(state, message=f"colour steps apply to weights only; press {'d' if view.difference else 'v'}")
    new_view = {
        "v": lambda: replace(view, scores=not view.scores, difference=False),
        "l": lambda: replace(view, steps=COLOR_STEPS[(COLOR_STEPS.index(view.steps) + 1) % len(COLOR_STEPS)]),
        "p": lambda: replace(view, mean=not view.mean),
        "c": lambda: replace(view, own_scale=not view.own_scale),
    }[key]()
    return replace(state, view=new_view)


def toggle_tokens(screen: Screen, state: State, key: str) -> State:
    """Returns the state with words joined or special tokens hidden, or the reverse; the cursor stays on its tokens.

    A message says if the tokens stay the same. Only adds a message if no head and no lens is open, if the map is too
    long, or for ``w`` if scores are shown, which words do not have.
    """
    session, old_units = screen.session, screen.session.units(state.head, state.view)
    if not state.has_open_head and not state.lens:
        return replace(state, message="w joins words and t hides special tokens in an open head; Enter opens one")
    if not session.can_join(state.head):
        return replace(state, message="this map is too long to join words or hide special tokens")
    view = state.view
    if key == "w" and view.scores:
        return replace(state, message="only tokens have scores; press v for weights, then w")
    view = replace(view, words=not view.words) if key == "w" else replace(view, special=not view.special)
    new_units = session.units(state.head, view)

    def new_unit(axis: int, unit: int) -> int:
        """Returns the index in ``new_units`` of the first token of an old unit; axis 0 has queries, axis 1 keys."""
        return new_units[axis].unit_of(int(old_units[axis].starts[unit]))

    sort_token = state.sort_token
    if sort_token is not None:
        axis = 1 if state.direction == "to" else 0  # the lens sorts by a token of the axis across
        sort_token = new_unit(axis, sort_token)
    is_unchanged = all(len(old) == len(new) for old, new in zip(old_units, new_units, strict=True))
    special_message = "every token is special" if all(old_units[1].tokens.special) else "no token is special"
    reason = "no token is part of a longer word" if key == "w" else special_message
    return replace(
        state,
        view=view,
        query=new_unit(0, state.query),
        key=new_unit(1, state.key),
        sort_token=sort_token,
        message=reason if is_unchanged else "",
    )


def toggle_why(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the features that explain the cursor's weight shown, or hidden again.

    If no head is open, only adds a message.
    """
    if not state.has_open_head:
        return replace(state, message="x explains a weight of an open head; Enter opens one")
    return replace(state, why=not state.why)


def next_theme(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the next theme: the terminal's own colours, light, dark.

    If the terminal has too few colours, only adds a message.
    """
    if screen.colors <= ANSI_COLORS:
        return replace(state, message="themes need more than 16 colours, which this terminal lacks")
    theme = THEMES[(THEMES.index(state.theme) + 1) % len(THEMES)]
    message = "the terminal's own colours" if theme == "terminal" else f"{theme} colours"
    return replace(state, theme=theme, message=message)


def sort(screen: Screen, state: State, key: str) -> State:
    """Returns the state with heads sorted by the next or the previous metric, or in reverse.

    The order of layers comes before the first metric and after the last. With an open head a message names the order;
    otherwise the first head is chosen, once the metric is measured. The order of layers cannot be reversed: ``r`` only
    adds a message. In the lens, ``o`` and ``O`` sort heads by their weight on the cursor's token, or end that order if
    it is in use; ``r`` turns the lens.
    """
    if state.lens and not state.has_open_head:
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
