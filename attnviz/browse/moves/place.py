"""Writes and reads addresses of places, the same as those of the page: ``#head=3.4&query=it``."""

from dataclasses import replace

from attnviz.base.errors import AttnvizError, option
from attnviz.browse.moves.cursor import Screen, first_state, open_head, settle
from attnviz.browse.moves.marking import MAX_SIDE_BY_SIDE, TOGETHER
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State
from attnviz.report.picture.colors import Steps
from attnviz.text.units import Units

EXAMPLE = "head=3.4&query=it"
HEAD_WORDS, TOKEN_WORDS = ("head", "heads", "together"), ("query", "key")
LIST_WORDS, LOOK_WORDS = ("view", "filter", "sort", "direction"), ("scale", "limits", "pool", "side", "zoom")
SCALES: dict[str, Steps] = {"linear": "linear", "sqrt": "sqrt", "log": "log"}
READABLE = ",:@>-_.!~*'()"  # characters that an address need not escape
LISTS = ("maps", "numbers", "lens")


def start_state(screen: Screen) -> State:
    """Returns the first state: the place that the user names, else the selected part, else the overview.

    Raises:
        AttnvizError: if there is no such place.
    """
    state = first_state(screen)
    return read_place(screen, state, screen.session.at) if screen.session.at and screen.size.enough else state


def written_place(screen: Screen, state: State) -> str:
    """Returns the address of a state."""
    from urllib.parse import quote

    session, view = screen.session, state.view
    parts = _head_parts(session, state)
    if state.opened or state.lens:
        axes = ("query", "key") if state.opened or state.second is not None else (_token_axis(state),)
        units = dict(zip(TOKEN_WORDS, session.units(state.head, view), strict=True))
        places = {"query": state.query, "key": state.key}
        parts += [(axis, written_token(units[axis], places[axis])) for axis in axes]
    if state.lens and not state.opened and state.direction == "from":
        parts.append(("direction", "from"))
    if view.steps != "sqrt":
        parts.append(("scale", view.steps))
    if view.own_scale:
        parts.append(("limits", "head"))
    return "#" + "&".join(f"{name}={quote(value, safe=READABLE).replace('%20', '+')}" for name, value in parts)


def written_token(units: Units, place: int) -> str:
    """Returns a token's text if no other token has it, else its number."""
    label = units.labels[place]
    alone = units.labels.count(label) == 1 and not label.isdigit() and label
    return label if alone else str(int(units.starts[place]))


def read_place(screen: Screen, state: State, written: str) -> State:
    """Returns the state that an address names.

    Args:
        screen: the recording and the terminal.
        state: the state for everything that the address does not name.
        written: the address, or the link of a page that ends with it.

    Raises:
        AttnvizError: if the address has an unknown word, or names a head or a token that is not there.
    """
    from urllib.parse import parse_qsl

    words = dict(parse_qsl(written.rpartition("#")[2], keep_blank_values=True))
    known = (*HEAD_WORDS, *TOKEN_WORDS, *LIST_WORDS, *LOOK_WORDS)
    if not words or any(word not in known for word in words):
        raise AttnvizError(f"{option('at')} {written!r} is not a place; use {EXAMPLE!r} or the end of a page's link")
    session = screen.session
    state = _with_look(screen, state, words)
    state, opens = _with_heads(screen, state, words)
    tokens = {axis: _token(session, state, axis, words[axis]) for axis in TOKEN_WORDS if axis in words}
    state = replace(state, query=tokens.get("query", state.query), key=tokens.get("key", state.key))
    if opens:
        opened = open_head(screen, state)
        return settle(screen, replace(opened, query=state.query, key=state.key, beside=state.beside))
    if tokens:
        turned = words.get("direction") == "from" or "query" not in tokens
        other = (state.query if turned else state.key) if len(tokens) > 1 else None
        return settle(screen, replace(state, lens=True, direction="from" if turned else "to", second=other))
    return settle(screen, state)


def _head_parts(session: Session, state: State) -> list[tuple[str, str]]:
    how, sources = session.combination_of(state.head)
    names = [session.names[head] for head in (*sources, *state.beside)]
    if state.opened and len(names) > 1:
        return [("heads", ",".join(names)), ("together", how or "side")]
    if state.opened:
        return [("head", names[0])]
    view, parts = state.view, []
    if view.filter:
        parts.append(("filter", view.filter))
    if view.order:
        parts.append(("sort", f"{'-' if view.ascending else ''}{view.order}"))
    return parts


def _token_axis(state: State) -> str:
    return "query" if state.direction == "to" else "key"


def _with_look(screen: Screen, state: State, words: dict[str, str]) -> State:
    from attnviz.metrics.head_filter import find_name

    view, sort = state.view, words.get("sort", "")
    if sort:
        view = replace(
            view, order=find_name(sort.removeprefix("-"), screen.session.ranking.names), ascending=sort.startswith("-")
        )
    if "filter" in words:
        screen.session.ranking.refuse_filter(words["filter"])
        view = replace(view, filter=words["filter"])
    if "scale" in words:
        view = replace(view, steps=SCALES.get(words["scale"], view.steps))
    return replace(state, view=replace(view, own_scale=words.get("limits") == "head", mean=words.get("pool") == "mean"))


def _with_heads(screen: Screen, state: State, words: dict[str, str]) -> tuple[State, bool]:
    """Returns the state with the heads that an address names, and True if a head is to be open."""
    session = screen.session
    names = [name.partition("~")[0] for word in ("head", "heads") for name in words.get(word, "").split(",") if name]
    if missing := [name for name in names if name not in session.names]:
        first, last = session.names[0], session.names[session.recorded - 1]
        raise AttnvizError(f"{option('at')}: no head {missing[0]!r}; choose {first} to {last}")
    heads = tuple(session.names.index(name) for name in names)
    if not heads:
        return state, session.recorded == 1
    how = words.get("together", "side")
    if len(heads) > 1 and how in TOGETHER.values():
        return replace(state, head=session.combine(heads, how)), True  # type: ignore[arg-type]
    return replace(state, head=heads[0], beside=heads[1:MAX_SIDE_BY_SIDE]), True


def _token(session: Session, state: State, axis: str, written: str) -> int:
    from attnviz.report.maps.arcs_and_text import find_query

    units = session.units(state.head, state.view)[axis == "key"]
    place, _ = find_query(units.tokens, written)
    return units.unit_of(place)
