"""Moves of the cursor and of what is open, each from one state to a valid next one, and the screen they depend on."""

from dataclasses import dataclass, replace

import numpy as np

from attnviz.browse.layout import levels, tiles
from attnviz.browse.session import Session
from attnviz.browse.state import Size, State


@dataclass(frozen=True)
class Screen:
    """What a key's answer depends on beside the state: the recording, the terminal, and its colours."""

    session: Session
    size: Size
    colors: int


def settle(screen: Screen, state: State) -> State:
    """The state with its cursor on the map, and scrolled so that the cursor is on the screen."""
    session = screen.session
    if not state.opened:
        grid = tiles(session, state, screen.size)
        row, _ = grid.place(state.head)
        top = min(max(state.top, row - grid.shown + 1), row, max(0, len(grid.rows) - grid.shown))
        return replace(state, top=top)
    rows, columns = (len(units) for units in session.units(state.head, state.view))
    query, key = min(max(state.query, 0), rows - 1), min(max(state.key, 0), columns - 1)
    every = levels(session, state, screen.size, screen.colors)
    zoom = min(state.zoom, len(every) - 1)
    return replace(
        state,
        query=query,
        key=key,
        zoom=zoom,
        row=_scrolled(state.row, query, every[zoom].rows, rows),
        column=_scrolled(state.column, key, every[zoom].columns, columns),
    )


def first_state(screen: Screen) -> State:
    """The overview; where a part of one head was selected, that."""
    session, state = screen.session, State()
    alone = len(session.heads) == 1 and session.selected(0, state.view) is not None
    return settle(screen, open_head(screen, state) if alone else state) if screen.size.enough else state


def open_head(screen: Screen, state: State) -> State:
    """The state with its head open: whole, or as close as shows the queries and keys that were selected."""
    state = replace(state, opened=True, zoom=0, row=0, column=0)
    spans = screen.session.selected(state.head, state.view)
    if spans is None:
        return state
    rows, columns = (span.stop - span.start for span in spans)
    every = levels(screen.session, state, screen.size, screen.colors)
    zoom = max(
        place for place, level in enumerate(every) if not place or (level.rows >= rows and level.columns >= columns)
    )
    inside = all(span.start <= at < span.stop for span, at in zip(spans, (state.query, state.key), strict=True))
    query, key = (state.query, state.key) if inside else (spans[0].start, spans[1].start)
    row = spans[0].start - (every[zoom].rows - rows) // 2
    return replace(
        state, zoom=zoom, row=row, column=spans[1].start - (every[zoom].columns - columns) // 2, query=query, key=key
    )


def strongest_keys(screen: Screen, state: State) -> list[int]:
    """The keys of the cursor's query, by what is shown: the largest value, or the largest change, first."""
    row = screen.session.row(state.head, state.view, state.query)
    shown = row.shown(state.view)
    values = np.where(row.visible, np.abs(shown) if state.view.difference else shown, -np.inf)
    order = np.argsort(-values, kind="stable")
    places: list[int] = order[row.visible[order]].tolist()
    return places


def _scrolled(start: int, cursor: int, shown: int, count: int) -> int:
    """The first of ``shown`` units with the cursor among them, moved no further than that takes."""
    start = min(max(start, cursor - shown + 1), cursor)
    return min(max(start, 0), count - shown)


def find(screen: Screen, state: State, sought: str, step: int = 1) -> State:
    """The state with the cursor on the next token that has ``sought`` in it, or among heads on that of the name."""
    state = replace(state, prompt=None, typed="", message="")
    if not state.opened:
        return _find_head(screen, state, sought)
    labels = screen.session.units(state.head, state.view)[1].labels
    count = len(labels)
    order = [(state.key + step * offset) % count for offset in range(1, count + 1)]
    hits = [place for place in order if sought.casefold() in labels[place].casefold()]
    if not hits or not sought:
        return replace(state, message=f"no key with “{sought}”" if sought else "")
    found = f"“{sought}”: {len(hits)} key{'s' if len(hits) > 1 else ''}" + ("; n finds the next" if hits[1:] else "")
    return settle(screen, replace(state, key=hits[0], sought=sought, message=found))


def sort_by(screen: Screen, state: State, order: str | None) -> State:
    """The state with heads sorted by a metric, or as recorded, and the cursor on the first."""
    return first_ranked(screen, replace(state, view=replace(state.view, order=order, ascending=False)))


def first_ranked(screen: Screen, state: State) -> State:
    """The state with the cursor on the first head, where heads are sorted by what is measured."""
    if not screen.session.ranking.is_sorted(state.view) or state.opened:
        return state
    return settle(screen, replace(state, head=screen.session.ranking.order(state.view)[0], top=0))


def metrics_meant(typed: str) -> list[str]:
    """The metrics whose names begin with what is typed, those that name a pattern first."""
    from attnviz.metrics.metrics import METRICS
    from attnviz.metrics.patterns import SHARP

    names = dict.fromkeys([*SHARP, *METRICS])
    return [name for name in names if name.startswith(typed.strip().casefold())]


def _find_head(screen: Screen, state: State, sought: str) -> State:
    from attnviz.metrics.metrics import METRICS

    names = screen.session.names
    wanted = sought.strip()
    if wanted in names:
        return settle(screen, replace(state, head=names.index(wanted)))
    meant = metrics_meant(wanted)
    if wanted in METRICS or len(meant) == 1:
        return sort_by(screen, state, wanted if wanted in METRICS else meant[0])
    message = f"no head or metric “{sought}”; {names[0]} to {names[-1]}, previous, sink, … work; tokens are in a head"
    return replace(state, message=message if wanted else "")
