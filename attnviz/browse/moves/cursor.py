"""Moves of the cursor and of what is open, each from one state to a valid next one, and the screen they depend on."""

from dataclasses import dataclass, replace

from attnviz.browse.moves.layout import levels, tiles
from attnviz.browse.moves.lens_layout import lens_heads, lens_pane
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View


@dataclass(frozen=True)
class Screen:
    """What a key's answer depends on beside the state: the recording, the terminal, and its colours."""

    session: Session
    size: Size
    colors: int


def settle(screen: Screen, state: State) -> State:
    """The state with its cursor on the map, and scrolled so that the cursor is on the screen."""
    session = screen.session
    if state.lens and not state.opened:
        return settle_lens(screen, state)
    if not state.opened:
        state = _listed(session, state)
        grid = tiles(session, state, screen.size)
        row, _ = grid.place(state.head)
        top = min(max(state.top, row - grid.shown + 1), row, max(0, len(grid.rows) - grid.shown))
        return _on_tokens(session, replace(state, top=top))
    state = _on_tokens(session, state)
    rows, columns = (len(units) for units in session.units(state.head, state.view))
    query, key = state.query, state.key
    every = levels(session, state, screen.size, screen.colors)
    zoom = min(state.zoom, len(every) - 1)
    return replace(
        state,
        zoom=zoom,
        row=_scrolled(state.row, query, every[zoom].rows, rows),
        column=_scrolled(state.column, key, every[zoom].columns, columns),
    )


def settle_lens(screen: Screen, state: State) -> State:
    """The same of the lens: its head listed, and both cursors on the screen."""
    session = screen.session
    listed = lens_heads(session, state)
    head = state.head if state.head in listed else listed[0]
    state = _on_tokens(session, replace(state, head=head))
    pane, place = lens_pane(session, state, screen.size), listed.index(head)
    rows, axis = pane.lines, pane.axis
    top = min(max(state.top, place - rows + 1), place, max(0, len(listed) - rows))
    count = len(session.units(head, state.view)[state.direction == "to"])
    column = 0 if axis.pooled else _scrolled(state.column, state.other_token, axis.cells, count)
    return replace(state, top=max(0, top), column=column)


def _listed(session: Session, state: State) -> State:
    """On a recorded head that the filter leaves."""
    listed = session.ranking.order(state.view)
    return state if state.head in listed else replace(state, head=listed[0])


def _on_tokens(session: Session, state: State) -> State:
    rows, columns = (len(units) for units in session.units(state.head, state.view))
    return replace(state, query=min(max(state.query, 0), rows - 1), key=min(max(state.key, 0), columns - 1))


def first_state(screen: Screen) -> State:
    """The overview; where a part of one head was selected, that."""
    session = screen.session
    state = State(view=View(words=session.begins_joined), theme=session.theme)
    alone = len(session.heads) == 1 and session.selected(0, state.view) is not None
    return settle(screen, open_head(screen, state) if alone else state) if screen.size.enough else state


def open_head(screen: Screen, state: State) -> State:
    """The state with its head open: whole, or as close as shows the queries and keys that were selected."""
    state = replace(state, opened=True, lens=False, beside=(), zoom=0, row=0, column=0)
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
    view = screen.session.view_of(state.head, state.view)
    return screen.session.row(state.head, view, state.query).strongest(view)


def on_other(state: State, place: int) -> State:
    """The state with the lens's cursor on a token of the other axis."""
    return replace(state, key=place) if state.direction == "to" else replace(state, query=place)


def _scrolled(start: int, cursor: int, shown: int, count: int) -> int:
    """The first of ``shown`` units with the cursor among them, moved no further than that takes."""
    start = min(max(start, cursor - shown + 1), cursor)
    return min(max(start, 0), count - shown)


def sort_by(screen: Screen, state: State, order: str | None, ascending: bool = False) -> State:
    """The state with heads sorted by a metric, or as recorded, and the cursor on the first."""
    return first_ranked(screen, replace(state, view=replace(state.view, order=order, ascending=ascending)))


def first_ranked(screen: Screen, state: State) -> State:
    """The state with the cursor on the first head, where heads are sorted by what is measured."""
    if not screen.session.ranking.is_sorted(state.view) or state.opened:
        return state
    return settle(screen, replace(state, head=screen.session.ranking.order(state.view)[0], top=0))
