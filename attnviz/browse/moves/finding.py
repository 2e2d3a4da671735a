"""Finds tokens, heads by their names, and metrics to sort by; filters heads."""

from collections.abc import Iterable
from dataclasses import replace

from attnviz.base.errors import AttnvizError
from attnviz.browse.moves.cursor import Screen, settle, sort_by
from attnviz.browse.moves.lens_layout import lens_heads
from attnviz.browse.session.state import Prompt, State

LAYER_ORDER = "layer"  # typed to sort heads by layer again


def find(screen: Screen, state: State, sought: str, step: int = 1) -> State:
    """Returns the state with the cursor on the next token that contains a text, on the axis of the prompt.

    In the overview the text may also be a head's name or a metric to sort by; a token opens the lens.

    Args:
        screen: the recording and the terminal.
        state: the state.
        sought: the text.
        step: 1 for the next token, -1 for the previous one.
    """
    axis: Prompt = state.prompt if state.prompt in ("query", "key") else state.sought_axis
    state = replace(state, prompt=None, typed="", message="")
    if state.opened or state.lens or axis == "key":
        return settle(screen, find_token(screen, state, sought, axis, step))
    return _find_among_heads(screen, state, sought.strip())


def find_token(screen: Screen, state: State, sought: str, axis: Prompt, step: int = 1) -> State:
    """Returns the state with the query or the key on the next token that contains a text; exact matches come first.

    Args:
        screen: the recording and the terminal.
        state: the state.
        sought: the text.
        axis: ``query`` or ``key``; a query that is not found is searched among the keys, if they differ.
        step: 1 for the next token, -1 for the previous one.
    """
    if not sought:
        return state
    queries, keys = (units.labels for units in screen.session.units(state.head, state.view))
    hits = _hits(keys if axis == "key" else queries, sought)
    if axis == "query" and not hits and queries != keys and (state.opened or state.lens):
        return find_token(screen, state, sought, "key", step)
    here = state.key if axis == "key" else state.query
    if not hits:
        return replace(state, message=f"no {axis} with “{sought}”")
    again = state.sought == sought and state.sought_axis == axis and here in hits
    place = hits[(hits.index(here) + step) % len(hits)] if again else hits[0]
    count = f"1 {axis}" if len(hits) == 1 else f"{axis} {hits.index(place) + 1} of {len(hits)}"
    found = f"“{sought}”: {count}" + ("; n finds the next" if hits[1:] else "")
    state = replace(state, sought=sought, sought_axis=axis, message=found)
    state = replace(state, key=place) if axis == "key" else replace(state, query=place)
    on_other = state.lens and not state.opened and (axis == "key") == (state.direction == "to")
    if not on_other:
        return state
    state = replace(state, second=place, top=0)
    return replace(state, head=lens_heads(screen.session, state)[0])


def is_token(screen: Screen, state: State, sought: str) -> bool:
    """True if a query has this text, ignoring case and spaces around it.

    Args:
        screen: the recording and the terminal.
        state: the state, with the head whose queries are searched.
        sought: the text.
    """
    labels = screen.session.units(state.head, state.view)[0].labels
    return any(label.strip().casefold() == sought.casefold() for label in labels)


def matching_metrics(typed: str, metrics: Iterable[str]) -> list[str]:
    """Returns the metrics whose names begin with a text, those that name a pattern first, and ``layer``."""
    from attnviz.metrics.patterns import SHARP

    names = dict.fromkeys([*SHARP, *metrics, LAYER_ORDER])
    return [name for name in names if name.startswith(typed.strip().casefold().removeprefix("-"))]


def _hits(labels: tuple[str, ...], sought: str) -> list[int]:
    """Returns the labels that contain a text: exact matches first, then those that begin with it, as in the page."""
    folded = sought.casefold()
    found = [(place, label.casefold().strip()) for place, label in enumerate(labels) if folded in label.casefold()]
    exact = folded.strip()
    return [place for place, label in sorted(found, key=lambda hit: (hit[1] != exact, not hit[1].startswith(exact)))]


def _find_among_heads(screen: Screen, state: State, sought: str) -> State:
    names = screen.session.names[: screen.session.recorded]
    if sought in names:
        return settle(screen, replace(state, head=names.index(sought)))
    metrics = screen.session.ranking.names
    matches = matching_metrics(sought, metrics)
    named = sought.removeprefix("-")
    is_metric = named in metrics or named == LAYER_ORDER
    if sought and (is_metric or (len(matches) == 1 and not is_token(screen, state, sought))):
        return _sort_by_name(screen, state, named if is_metric else matches[0], sought.startswith("-"))
    found = find_token(screen, state, sought, "query")
    if found.sought_axis == "query" and found.sought == sought and found is not state:
        return settle(screen, replace(found, lens=True, direction="to", second=None, top=0, column=0))
    message = f"no head, metric or token “{sought}”; try {names[0]} to {names[-1]}, previous, sink or layer"
    return replace(state, message=message if sought else "")


def _sort_by_name(screen: Screen, state: State, name: str, ascending: bool) -> State:
    if name == LAYER_ORDER:
        return sort_by(screen, state, None)
    return sort_by(screen, state, name, ascending)


def filter_heads(screen: Screen, state: State, words: str) -> State:
    """Returns the state with heads filtered by words; if they are not a filter, the old heads and a message.

    Args:
        screen: the recording and the terminal.
        state: the state.
        words: words that must all hold for a listed head, as `head_filter` reads them.
    """
    state, words = replace(state, prompt=None, typed="", message=""), " ".join(words.split())
    try:
        screen.session.ranking.refuse_filter(words)
    except AttnvizError as error:
        return replace(state, message=str(error))
    return on_listed(screen, replace(state, view=replace(state.view, filter=words), top=0))


def on_listed(screen: Screen, state: State) -> State:
    """Returns the state on a listed head: the chosen one, or the first if the filter hides it."""
    listed = screen.session.ranking.order(state.view)
    gone = state.head not in listed and state.head < screen.session.recorded
    return settle(screen, replace(state, head=listed[0]) if gone and not state.opened else state)
