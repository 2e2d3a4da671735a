"""Moves the cursor and opens heads: each function returns a valid next state."""

from dataclasses import dataclass, replace

from attnviz.browse.moves.layout import levels, tiles
from attnviz.browse.moves.lens_layout import lens_heads, lens_pane
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View


@dataclass(frozen=True)
class Screen:
    """The screen that a state is drawn on.

    Attributes:
        session: the recording, and what was computed from it.
        size: the size of the terminal.
        colors: the number of colours of the terminal, 0 for none.
    """

    session: Session
    size: Size
    colors: int


def settle(screen: Screen, state: State) -> State:
    """Returns the state with its cursor inside the map, scrolled so that the cursor is on the screen."""
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
    """Returns the state of the lens with a listed head, scrolled so that head and token are on the screen."""
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
    """Returns the state on a listed head: the chosen one, or the first."""
    listed = session.ranking.order(state.view)
    return state if state.head in listed else replace(state, head=listed[0])


def _on_tokens(session: Session, state: State) -> State:
    rows, columns = (len(units) for units in session.units(state.head, state.view))
    return replace(state, query=min(max(state.query, 0), rows - 1), key=min(max(state.key, 0), columns - 1))


def first_state(screen: Screen) -> State:
    """Returns the first state: the overview, or the open head if a part of a single head is selected."""
    session = screen.session
    state = State(view=View(words=session.begins_joined), theme=session.theme)
    alone = len(session.heads) == 1 and session.selected(0, state.view) is not None
    return settle(screen, open_head(screen, state) if alone else state) if screen.size.enough else state


def open_head(screen: Screen, state: State) -> State:
    """Returns the state with its head open, zoomed in as far as all selected queries and keys stay on the screen."""
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
    """Returns the visible keys of the cursor's query, the largest value or the largest absolute change first."""
    view = screen.session.view_of(state.head, state.view)
    return screen.session.row(state.head, view, state.query).strongest(view)


def on_other(state: State, place: int) -> State:
    """Returns the state with the lens's cursor on a token of the other axis."""
    return replace(state, key=place) if state.direction == "to" else replace(state, query=place)


def _scrolled(start: int, cursor: int, shown: int, count: int) -> int:
    """Returns the first of ``shown`` units on the screen, scrolled as little as keeps the cursor among them."""
    start = min(max(start, cursor - shown + 1), cursor)
    return min(max(start, 0), count - shown)


def sort_by(screen: Screen, state: State, order: str | None, ascending: bool = False) -> State:
    """Returns the state with heads sorted by a metric and the cursor on the first.

    Args:
        screen: the recording and the terminal.
        state: the state.
        order: the metric; ``None`` for the order of layers.
        ascending: sort the smallest number first.
    """
    return first_ranked(screen, replace(state, view=replace(state.view, order=order, ascending=ascending)))


def first_ranked(screen: Screen, state: State) -> State:
    """Returns the state with the cursor on the first head, if heads are sorted by a metric that is measured."""
    if not screen.session.ranking.is_sorted(state.view) or state.opened:
        return state
    return settle(screen, replace(state, head=screen.session.ranking.order(state.view)[0], top=0))
