"""Keeps the history of visited states, and writes and reads addresses as the page has them: ``#head=3.4&query=it``."""

from dataclasses import replace

from attnviz.base.errors import AttnvizError, option, or_list
from attnviz.browse.actions.cursor import (
    COMBINATION_OF_KEY,
    MAX_SIDE_BY_SIDE,
    Screen,
    at_strongest_key,
    first_state,
    open_head,
    settle,
)
from attnviz.browse.session.state import State
from attnviz.maps.grouped import Units
from attnviz.report.picture.colors import Steps
from attnviz.report.words.choices import CHOICES
from attnviz.text.named_groups import TURNS
from attnviz.text.places import find_place, place_name

EXAMPLE_ADDRESS = "head=3.4&query=it"
HEAD_NAMES, TOKEN_NAMES = ("head", "heads", "together"), ("query", "key")
# What else an address of the page names; what has no meaning here is passed over.
PAGE_NAMES = ("filter", "sort", "number", "seconds", "zoom", *(choice.address or choice.name for choice in CHOICES))
SCALES: dict[str, Steps] = {"linear": "linear", "sqrt": "sqrt", "log": "log"}
UNESCAPED = ",:@>-_.!~*'()"  # characters that an address need not escape
MAX_VISITED = 100  # states in the history


def with_history(old_state: State, new_state: State) -> State:
    """Returns ``new_state``; if it shows something else, with ``old_state`` added to its past and an empty future."""
    has_moved_in_history = (old_state.past, old_state.future) != (new_state.past, new_state.future)
    if has_moved_in_history or _shown(old_state) == _shown(new_state):
        return new_state
    return replace(new_state, past=(_without_history(old_state), *old_state.past[: MAX_VISITED - 1]), future=())


def go_in_history(screen: Screen, state: State, key: str) -> State:
    """Returns the previously visited state, or for ``B`` the one from which the user last went back."""
    here, theme = _without_history(state), state.theme
    if key == "B" and state.future:
        return replace(state.future[0], theme=theme, past=(here, *state.past), future=state.future[1:])
    if key != "B" and state.past:
        return replace(state.past[0], theme=theme, past=state.past[1:], future=(here, *state.future))
    return replace(state, message=f"this is the {'last' if key == 'B' else 'first'} place")


def _shown(state: State) -> tuple[object, ...]:
    """Returns values that are equal for states that show the same heads or token, wherever the cursor is."""
    if state.shows_lens:
        return "lens", state.direction, state.token
    return (state.head, state.heads_beside) if state.has_open_head else ("heads", state.view.filter)


def _without_history(state: State) -> State:
    """Returns the state as the history keeps it: without its own history and message."""
    return replace(state, past=(), future=(), message="")


def start_state(screen: Screen) -> State:
    """Returns the state at the session's address; the `first_state` if it has none, or the terminal is too small."""
    state = first_state(screen)
    address = screen.session.address
    return state_at(screen, state, address) if address and screen.size.is_large_enough else state


def address_of(screen: Screen, state: State) -> str:
    """Returns the address of a state, from ``#`` on.

    It names the open heads, or else the filter and the order; the cursor's query and key in an open head, or in a lens
    that a token sorts; the token alone in another lens; the lens's direction if it is ``from``; and the colour scale
    and its limits if they are not the usual ones. Of the overview as it is at first, it names the maps.
    """
    from urllib.parse import quote

    session, view, parts = screen.session, state.view, list[tuple[str, str]]()
    combination, sources = session.combination_of(state.head)
    names = [session.names[head] for head in (*sources, *state.heads_beside)]
    if state.has_open_head and len(names) > 1:
        parts += [("heads", ",".join(names)), ("together", combination or "side")]
    elif state.has_open_head:
        parts.append(("head", names[0]))
    else:
        parts += [("filter", view.filter)] if view.filter else []
        parts += [("sort", f"{'-' if view.ascending else ''}{view.order}")] if view.order else []
    if state.has_open_head or state.lens:
        names_both_tokens = state.has_open_head or state.sort_token is not None
        for axis, units, unit in zip(
            TOKEN_NAMES, session.units(state.head, view), (state.query, state.key), strict=True
        ):
            if names_both_tokens or axis != state.other_axis:
                first, label = int(units.starts[unit]), units.labels[unit]
                name = place_name(units.tokens, first) if units.sizes[unit] == 1 else f"@{first}"
                parts.append((axis, label if _is_unit(units, label) and units.labels.count(label) == 1 else name))
        parts += [("by", session.unit_name)] if view.words else []
    if state.shows_lens and state.direction == "from":
        parts.append(("direction", "from"))
    if view.steps != "sqrt":
        parts.append(("scale", view.steps))
    if view.own_scale:
        parts.append(("limits", "head"))
    parts = parts or [("view", "maps")]
    return "#" + "&".join(f"{name}={quote(value, safe=UNESCAPED).replace('%20', '+')}" for name, value in parts)


def state_at(screen: Screen, state: State, address: str) -> State:
    """Returns the state that an address names.

    If the address names heads, or the recording has only one, a head opens. Else if it names tokens, the lens opens, in
    the direction ``from`` if the address says so or names no query. If it names both a query and a key, the lens sorts
    heads by the weight between them. Without heads and tokens, the overview is shown.
    """
    from urllib.parse import parse_qsl

    values = dict(parse_qsl(address.rpartition("#")[2], keep_blank_values=True))
    names = (*HEAD_NAMES, *TOKEN_NAMES, *PAGE_NAMES)
    if not values or any(name not in names for name in values):
        raise AttnvizError(
            f"{option('at')} {address!r} is not a place; use {EXAMPLE_ADDRESS!r} or the end of a page's link"
        )
    session = screen.session

    from attnviz.metrics.measure import find_metric_name

    view, sort = state.view, values.get("sort", "")
    if sort:
        view = replace(
            view,
            order=find_metric_name(sort.removeprefix("-"), screen.session.ranking.names),
            ascending=sort.startswith("-"),
        )
    if "filter" in values:
        screen.session.ranking.refuse_filter(values["filter"])
        view = replace(view, filter=values["filter"])
    if "scale" in values:
        view = replace(view, steps=SCALES.get(values["scale"], view.steps))
    if "by" in values:
        view = replace(view, words=values["by"] == session.unit_name)
    if "special" in values:
        view = replace(view, special=values["special"] != "hidden")
    if "scores" in values:
        view = replace(view, scores=values["scores"] == "shown" and not view.words)
    state = replace(
        state, view=replace(view, own_scale=values.get("limits") == "head", mean=values.get("pool") == "mean")
    )
    state, opens_head = _with_heads(screen, state, values)
    joined = replace(state.view, words=True)
    named = [(axis, number, values[axis]) for number, axis in enumerate(TOKEN_NAMES) if axis in values]
    units_of_axes = session.units(state.head, joined)
    has_turn = session.unit_name == TURNS and any(_is_unit(units_of_axes[number], name) for _, number, name in named)
    if "by" not in values and has_turn:
        state = replace(state, view=joined)
    tokens = {}
    for axis, number, name in named:
        units = session.units(state.head, state.view)[number]
        is_unit = _is_unit(units, name)
        tokens[axis] = units.labels.index(name) if is_unit else units.unit_of(find_place(units.tokens, name, axis)[0])
    state = replace(state, query=tokens.get("query", state.query), key=tokens.get("key", state.key))
    if opens_head:
        open_state = open_head(screen, state)
        open_state = replace(open_state, query=state.query, key=state.key, heads_beside=state.heads_beside)
        return settle(screen, open_state if "key" in tokens else at_strongest_key(screen, open_state))
    if tokens:
        is_turned = values.get("direction") == "from" or "query" not in tokens
        lens_state = replace(state, lens=True, direction="from" if is_turned else "to")
        sort_token = lens_state.other_token if len(tokens) > 1 else None
        return settle(screen, replace(lens_state, sort_token=sort_token))
    return settle(screen, state)


def _is_unit(units: Units, name: str) -> bool:
    """True if a name is that of a unit, such as a turn of a chat, and of no token."""
    return name in units.labels and name not in units.tokens.labels


def _with_heads(screen: Screen, state: State, values: dict[str, str]) -> tuple[State, bool]:
    """Returns the state with the heads that an address names, and True if a head is to be opened."""
    session = screen.session
    values_of_heads = [*values.get("head", "").split(","), *values.get("heads", "").split(",")]
    # a page may write the index of a head in its list after ~
    names = [value.partition("~")[0] for value in values_of_heads if value]
    called_by_name = {name: session.heads_called(name) for name in names}
    if several := next((name for name, called in called_by_name.items() if len(called) > 1), None):
        choice = or_list(session.names[head] for head in called_by_name[several])
        raise AttnvizError(f"{option('at')}: {several!r} could be {len(called_by_name[several])} heads; write {choice}")
    if unknown_names := [name for name, called in called_by_name.items() if not called]:
        first, last = session.names[0], session.names[session.recorded_count - 1]
        raise AttnvizError(f"{option('at')}: no head {unknown_names[0]!r}; choose {first} to {last}")
    heads = tuple(called_by_name[name][0] for name in names)
    if not heads:
        return state, session.recorded_count == 1
    combination = values.get("together", "side")
    if len(heads) > 1 and combination in COMBINATION_OF_KEY.values():
        return replace(state, head=session.combine(heads, combination)), True  # type: ignore[arg-type]
    return replace(state, head=heads[0], heads_beside=heads[1:MAX_SIDE_BY_SIDE]), True
