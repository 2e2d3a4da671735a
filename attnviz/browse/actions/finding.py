"""Finds tokens, heads and metrics by the text that the user types, and filters heads."""

from collections.abc import Iterable
from dataclasses import replace

from attnviz.base.errors import AttnvizError, or_list
from attnviz.browse.actions.cursor import MAX_SIDE_BY_SIDE, Screen, open_lens, open_together, settle, sort_by
from attnviz.browse.actions.layout import lens_heads
from attnviz.browse.session.state import SearchAxis, State
from attnviz.text.places import find_place

LAYER_ORDER = "layer"  # sorts heads by layer when it is typed instead of a metric


def find(screen: Screen, state: State, search_text: str, axis: SearchAxis = "query", step: int = 1) -> State:
    """Returns the state with the cursor on the next token of an axis that contains a text.

    In the overview a search of queries also finds heads and metrics, as below, opens several heads side by side, and
    opens the lens at a token. ``it>hungry`` finds a query and a key. If nothing matches, a message says so.
    """
    state, session = replace(state, message=""), screen.session
    if state.has_open_head or state.lens or axis == "key":
        found = _find_token(screen, state, search_text, axis, step) if search_text else state
        if found is None and axis == "query":
            found = _find_pair(screen, state, search_text)
        queries, keys = session.units(state.head, state.view)
        if found is None and axis == "query" and queries.labels != keys.labels:
            axis = "key"
            found = _find_token(screen, state, search_text, axis, step)
        return settle(screen, found or replace(state, message=f"no {axis} with “{search_text}”"))
    search_text = search_text.strip()
    names = session.names[: session.recorded_count]
    if called := session.heads_called(search_text):
        others = f"{len(called)} heads are called {search_text}: {or_list(names[head] for head in called)}"
        return settle(screen, replace(state, head=called[0], message=others if len(called) > 1 else ""))
    called_by_name = [session.heads_called(name) for name in search_text.replace(",", " ").split()]
    heads = tuple(dict.fromkeys(called[0] for called in called_by_name if len(called) == 1))
    if len(heads) > 1 and all(len(called) == 1 for called in called_by_name):
        marked = replace(state, marked_heads=heads, head=heads[-1])
        shown = open_together(screen, marked) if len(heads) <= MAX_SIDE_BY_SIDE else marked
        are_marked = "" if shown.has_open_head else f"{len(heads)} heads marked; "
        difference = "d shows their difference, " if len(heads) == 2 else ""
        return settle(screen, replace(shown, message=shown.message or f"{are_marked}{difference}m shows their mean"))
    metrics = screen.session.ranking.names
    matches = matching_metrics(search_text, metrics)
    metric = search_text.removeprefix("-")
    is_metric = metric in metrics or metric == LAYER_ORDER
    labels = screen.session.units(state.head, state.view)[0].labels
    is_token = any(label.strip().casefold() == search_text.casefold() for label in labels)
    if search_text and (is_metric or (len(matches) == 1 and not is_token)):
        name = metric if is_metric else matches[0]
        is_layer = name == LAYER_ORDER
        return sort_by(screen, state, None if is_layer else name, search_text.startswith("-") and not is_layer)
    token = _find_token(screen, state, search_text, "query") if search_text else None
    found = _find_pair(screen, state, search_text) if token is None else open_lens(screen, token)
    if found is not None:
        return settle(screen, found)
    message = f"no head, metric or token “{search_text}”; try {names[0]} to {names[-1]}, previous, sink or layer"
    return replace(state, message=message if search_text else "")


def _find_pair(screen: Screen, state: State, search_text: str) -> State | None:
    """Returns the state at a query and a key, typed as ``it>hungry``; ``None`` if no pair is so called."""
    query, _, key = (part.strip() for part in search_text.partition(">"))
    found = _find_token(screen, state, query, "query") if query and key else None
    if found is not None and not found.has_open_head:
        found = settle(screen, found if found.lens else open_lens(screen, found))
        rows = screen.session.token_rows  # by which the heads are sorted
        rows.compute(lens_heads(screen.session, found), found.view, found.token, found.direction)
    return None if found is None else _find_token(screen, found, key, "key")


def _find_token(screen: Screen, state: State, search_text: str, axis: SearchAxis, step: int = 1) -> State | None:
    """Returns the state with the query or the key on the first match of a text, or on the next of a repeated search.

    ``None`` if no token matches. In the lens, a match among the tokens of the columns also sorts the heads by their
    weight on it, and chooses the first head.
    """
    units = screen.session.units(state.head, state.view)[1 if axis == "key" else 0]
    try:
        named = [units.unit_of(find_place(units.tokens, search_text, "key")[0])]  # a search begins at the first one
    except AttnvizError:
        named = []
    folded_text = search_text.casefold()
    candidates = [
        (index, label.casefold().strip())
        for index, label in enumerate(units.labels)
        if folded_text in label.casefold() and index not in named
    ]
    exact_label = folded_text.strip()  # such labels come first, then those that begin with it
    candidates.sort(key=lambda candidate: (candidate[1] != exact_label, not candidate[1].startswith(exact_label)))
    matches = named + [index for index, _ in candidates]
    if not matches:
        return None
    cursor_unit = state.key if axis == "key" else state.query
    is_repeated = state.search_text == search_text and state.search_axis == axis and cursor_unit in matches
    match = matches[(matches.index(cursor_unit) + step) % len(matches)] if is_repeated else matches[0]
    has_more = len(matches) > 1
    position = f"{axis} {matches.index(match) + 1} of {len(matches)}; n finds the next" if has_more else f"1 {axis}"
    message = f"“{search_text}”: {position}"
    state = replace(state, search_text=search_text, search_axis=axis, message=message)
    state = replace(state, key=match) if axis == "key" else replace(state, query=match)
    if not state.shows_lens or axis != state.other_axis:
        return state
    state = replace(state, sort_token=match, top=0)
    return replace(state, head=lens_heads(screen.session, state)[0])


def find_again(screen: Screen, state: State, key: str) -> State:
    """Returns the state on the next match of the last search, or for ``N`` on the previous one."""
    if not state.search_text or not (state.has_open_head or state.lens):
        return replace(state, message="nothing to find again; / finds a query, \\ a key")
    return find(screen, state, state.search_text, state.search_axis, -1 if key == "N" else 1)


def matching_metrics(typed_text: str, metrics: Iterable[str]) -> list[str]:
    """Returns the metrics that begin with the typed text: those of patterns first, and ``layer`` last, if it matches.

    A leading ``-``, which reverses the order, does not count.
    """
    from attnviz.metrics.patterns import SHARE_PATTERNS

    names = dict.fromkeys([*SHARE_PATTERNS, *metrics, LAYER_ORDER])
    return [name for name in names if name.startswith(typed_text.strip().casefold().removeprefix("-"))]


def filter_heads(screen: Screen, state: State, filter_text: str) -> State:
    """Returns the state with heads filtered; if the text is no filter or matches no head, with a message instead."""
    state, filter_text = replace(state, message=""), " ".join(filter_text.split())
    try:
        screen.session.ranking.refuse_filter(filter_text)
    except AttnvizError as error:
        return replace(state, message=str(error))
    state = replace(state, view=replace(state.view, filter=filter_text), top=0)
    listed_heads = screen.session.ranking.order(state.view)
    is_hidden = state.head not in listed_heads and state.head < screen.session.recorded_count
    return settle(screen, replace(state, head=listed_heads[0]) if is_hidden and not state.has_open_head else state)
