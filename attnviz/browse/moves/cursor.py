"""Moves the cursor and opens heads: functions from a state to the next valid state."""

from dataclasses import dataclass, replace

from attnviz.browse.moves.layout import open_map_levels, tiles
from attnviz.browse.moves.lens_layout import lens_heads, open_lens_pane
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View


@dataclass(frozen=True)
class Screen:
    """The session that is shown, and the terminal that it is shown on.

    Attributes:
        session: the recording, and the numbers computed from it.
        size: the size of the terminal.
        colors: the number of colours of the terminal, 0 for none.
    """

    session: Session
    size: Size
    colors: int


def settle(screen: Screen, state: State) -> State:
    """Returns the nearest state that can be drawn, with the cursor inside the map and on the screen.

    In the overview and the lens its head is listed and on the screen; in an open head its zoom level exists.
    """
    session = screen.session
    if state.lens and not state.has_open_head:
        return _settle_lens(screen, state)
    if not state.has_open_head:
        state = _with_chosen_head_listed(session, state)
        grid = tiles(session, state, screen.size)
        row, _ = grid.position(state.head)
        # scroll no further than the head's row needs, and leave no free rows at the end
        top = min(max(state.top, row - grid.shown_row_count + 1), row, max(0, len(grid.rows) - grid.shown_row_count))
        return _with_cursor_in_map(session, replace(state, top=top))
    state = _with_cursor_in_map(session, state)
    row_count, column_count = (len(units) for units in session.units(state.head, state.view))
    zoom_levels = open_map_levels(session, state, screen.size, screen.colors)
    zoom = min(state.zoom, len(zoom_levels) - 1)
    return replace(
        state,
        zoom=zoom,
        row=_scroll_start(state.row, state.query, zoom_levels[zoom].rows, row_count),
        column=_scroll_start(state.column, state.key, zoom_levels[zoom].columns, column_count),
    )


def _settle_lens(screen: Screen, state: State) -> State:
    """Returns the nearest state of the lens that can be drawn: its head is listed, and head and cursor on the screen.

    A head that is not listed is replaced by the first listed one.
    """
    session = screen.session
    listed_heads = lens_heads(session, state)
    head = state.head if state.head in listed_heads else listed_heads[0]
    state = _with_cursor_in_map(session, replace(state, head=head))
    pane, line = open_lens_pane(session, state, screen.size), listed_heads.index(head)
    # scroll no further than the head's line needs, and leave no free lines at the end
    top = min(max(state.top, line - pane.lines + 1), line, max(0, len(listed_heads) - pane.lines))
    queries, keys = session.units(head, state.view)
    unit_count = len(keys if state.direction == "to" else queries)
    column = 0
    if not pane.axis.pooled:
        column = _scroll_start(state.column, state.other_token, pane.axis.cells, unit_count)
    return replace(state, top=max(0, top), column=column)


def _with_chosen_head_listed(session: Session, state: State) -> State:
    """Returns the state unchanged if its head is listed, otherwise with the first listed head."""
    listed_heads = session.ranking.order(state.view)
    return state if state.head in listed_heads else replace(state, head=listed_heads[0])


def _with_cursor_in_map(session: Session, state: State) -> State:
    """Returns the state with the cursor moved to the nearest cell of the head's map."""
    rows, columns = (len(units) for units in session.units(state.head, state.view))
    return replace(state, query=min(max(state.query, 0), rows - 1), key=min(max(state.key, 0), columns - 1))


def first_state(screen: Screen) -> State:
    """Returns the first state: the overview, or an open head if part of the recording's only head is selected.

    On a terminal that is too small it is the overview, whose cursor is not checked.
    """
    session = screen.session
    state = State(view=View(words=session.begins_joined), theme=session.theme)
    opens_only_head = len(session.heads) == 1 and session.selected_spans(0, state.view) is not None
    if not screen.size.is_large_enough:
        return state
    return settle(screen, open_head(screen, state) if opens_only_head else state)


def open_head(screen: Screen, state: State) -> State:
    """Returns the state with its head open, at the closest zoom at which all selected queries and keys fit the screen.

    Without a selection, or if the selection fits no closer zoom, it shows the whole map. A cursor outside of the
    selection goes to the selection's first cell. The lens and the heads beside are closed.
    """
    state = replace(state, has_open_head=True, lens=False, heads_beside=(), zoom=0, row=0, column=0)
    spans = screen.session.selected_spans(state.head, state.view)
    if spans is None:
        return state
    rows, columns = (span.stop - span.start for span in spans)
    zoom_levels = open_map_levels(screen.session, state, screen.size, screen.colors)
    zoom = max(
        index
        for index, level in enumerate(zoom_levels)
        if index == 0 or (level.rows >= rows and level.columns >= columns)
    )
    is_inside = all(span.start <= unit < span.stop for span, unit in zip(spans, (state.query, state.key), strict=True))
    query, key = (state.query, state.key) if is_inside else (spans[0].start, spans[1].start)
    row = spans[0].start - (zoom_levels[zoom].rows - rows) // 2  # so that the selection is in the middle
    return replace(
        state,
        zoom=zoom,
        row=row,
        column=spans[1].start - (zoom_levels[zoom].columns - columns) // 2,
        query=query,
        key=key,
    )


def ranked_keys(screen: Screen, state: State) -> list[int]:
    """Returns the visible keys of the cursor's query in descending order of value, or of absolute change."""
    view = screen.session.view_of(state.head, state.view)
    return screen.session.row(state.head, view, state.query).strongest_keys(view)


def with_other_token(state: State, unit: int) -> State:
    """Returns the state with the lens's cursor on a unit: on a key, or on a query if the direction is ``from``."""
    return replace(state, key=unit) if state.direction == "to" else replace(state, query=unit)


def _scroll_start(start: int, cursor: int, shown_count: int, count: int) -> int:
    """Returns the first unit on the screen, as near to ``start`` as possible with the cursor among those shown."""
    start_near_cursor = min(max(start, cursor - shown_count + 1), cursor)
    return min(max(start_near_cursor, 0), count - shown_count)


def sort_by(screen: Screen, state: State, order: str | None, ascending: bool = False) -> State:
    """Returns the state with heads sorted by a metric; if it is measured and no head is open, chooses the first
    head.
    """
    return with_first_ranked_head(screen, replace(state, view=replace(state.view, order=order, ascending=ascending)))


def with_first_ranked_head(screen: Screen, state: State) -> State:
    """Returns the state with the first head chosen if heads are sorted by a measured metric and none is open.

    Otherwise returns the state unchanged.
    """
    if not screen.session.ranking.is_sorted(state.view) or state.has_open_head:
        return state
    return settle(screen, replace(state, head=screen.session.ranking.order(state.view)[0], top=0))
