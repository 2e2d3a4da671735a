"""Answers the keys that move the cursor, zoom, open a head or the lens, and go back."""

from dataclasses import replace

from attnviz.browse.moves.cursor import Screen, open_head, ranked_keys, with_other_token
from attnviz.browse.moves.layout import Tiles, open_map_levels, open_map_pane, tiles
from attnviz.browse.moves.lens_layout import lens_heads, open_lens_pane
from attnviz.browse.moves.marking import open_side_by_side
from attnviz.browse.session.state import State

SHIFT_STEP = 10  # cells that an arrow with Shift moves
MAX_TILE_ZOOM = 8  # steps from the usual size of tiles, larger or smaller


def move(screen: Screen, state: State, key: str) -> State:
    """Returns the state after an arrow: on another cell of a map, another head of the overview, or in the lens.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: ``up``, ``down``, ``left`` or ``right``; with ``shift+`` before it, ten cells.
    """
    down, right = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}[key.removeprefix("shift+")]
    step = SHIFT_STEP if key.startswith("shift+") else 1
    if state.lens and not state.has_open_head:
        return _move_in_lens(screen, state, down * step, right * step)
    if not state.has_open_head:
        return _move_head(tiles(screen.session, state, screen.size), state, down * step, right * step)
    pane = open_map_pane(screen.session, state, screen.size, screen.colors)
    return replace(
        state,
        query=pane.queries.shifted_unit(state.query, down * step),
        key=pane.keys.shifted_unit(state.key, right * step),
    )


def _move_in_lens(screen: Screen, state: State, down: int, right: int) -> State:
    """Returns the state with the cursor on another head of the lens, or on another token of its row."""
    listed = lens_heads(screen.session, state)
    line = min(max(listed.index(state.head) + down, 0), len(listed) - 1) if state.head in listed else 0
    axis = open_lens_pane(screen.session, state, screen.size).axis
    return with_other_token(replace(state, head=listed[line]), axis.shifted_unit(state.other_token, right))


def _move_head(grid: Tiles, state: State, down: int, right: int) -> State:
    """Returns the state with another head chosen.

    Sideways, heads follow each other across rows; up and down, the tile in the same column is chosen, or the last.
    """
    if right:
        order = [head for row in grid.rows for head in row]
        return replace(state, head=order[min(max(order.index(state.head) + right, 0), len(order) - 1)])
    row, column = grid.position(state.head)
    heads = grid.rows[min(max(row + down, 0), len(grid.rows) - 1)]
    return replace(state, head=heads[min(column, len(heads) - 1)])


def page(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the cursor a screenful up or down.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: ``pageup`` or ``pagedown``.
    """
    sign = -1 if key == "pageup" else 1
    if state.lens and not state.has_open_head:
        return _move_in_lens(screen, state, sign * open_lens_pane(screen.session, state, screen.size).lines, 0)
    if not state.has_open_head:
        grid = tiles(screen.session, state, screen.size)
        return _move_head(grid, state, sign * grid.shown_rows, 0)
    query_axis = open_map_pane(screen.session, state, screen.size, screen.colors).queries
    return replace(state, query=state.query + sign * (query_axis.stop - query_axis.start))


def go_to_end(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the cursor on the first or last key of an open map, or the first or last head chosen.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: ``home`` or ``end``.
    """
    if state.has_open_head:
        return replace(state, key=0 if key == "home" else len(screen.session.units(state.head, state.view)[1]) - 1)
    order = lens_heads(screen.session, state) if state.lens else screen.session.ranking.order(state.view)
    return replace(state, head=order[0 if key == "home" else -1])


def enter(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the chosen head open; if a head is open already, zoomed in by one step.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: the key of the binding; unused.
    """
    return zoom(screen, state, "+") if state.has_open_head else open_head(screen, state)


def leave(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the innermost view closed, or reset if nothing is open.

    The order is: zoom and explanation, heads beside the open one, the open head, the lens, marks, the filter.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: the key of the binding; unused.
    """
    if state.has_open_head and (state.zoom or state.why or state.heads_beside):
        keeps_heads = state.zoom or state.why
        return replace(state, zoom=0, why=False, heads_beside=state.heads_beside if keeps_heads else ())
    if state.has_open_head:
        sources = screen.session.combination_of(state.head)[1]
        return replace(state, has_open_head=False, head=sources[0], top=0)
    if state.lens:
        return replace(state, lens=False, sort_token=None, top=0)
    return replace(state, marked_heads=(), view=state.view if state.marked_heads else replace(state.view, filter=""))


def next_head(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the next or the previous listed head chosen; after the last comes the first.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: ``shift+tab`` or ``[`` for the previous head, otherwise the next.
    """
    session = screen.session
    order = lens_heads(session, state) if state.lens and not state.has_open_head else session.ranking.order(state.view)
    step = -1 if key in ("shift+tab", "left_square_bracket") else 1
    unlisted_position = -1 if step > 0 else 0  # from which a step leads to the first or the last head
    position = order.index(state.head) if state.head in order else unlisted_position
    return replace(state, head=order[(position + step) % len(order)], heads_beside=())


def zoom(screen: Screen, state: State, key: str) -> State:
    """Returns the state zoomed in, zoomed out or with the whole map; ``=`` opens several marked heads side by side.

    With fewer than two heads to combine, ``=`` zooms in. A message says if the map is at its closest zoom. The overview
    changes the size of its tiles, which ``0`` resets. In the lens a message says that rows cannot be zoomed.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: ``plus``, ``minus``, ``0`` (the whole map) or ``equals_sign``.
    """
    step = {"minus": -1, "0": 0}.get(key, 1)
    if key == "equals_sign" and len(state.heads_to_combine) > 1:
        return open_side_by_side(screen, state)
    if state.lens and not state.has_open_head:
        return replace(state, message="rows cannot be zoomed; Enter opens the head, where + zooms in")
    if not state.has_open_head:
        return replace(
            state, tile_zoom=0 if not step else min(max(state.tile_zoom + step, -MAX_TILE_ZOOM), MAX_TILE_ZOOM)
        )
    zoom_levels = open_map_levels(screen.session, state, screen.size, screen.colors)
    zoom = 0 if not step else min(max(state.zoom + step, 0), len(zoom_levels) - 1)
    message = "this is the closest zoom" if step == 1 and zoom == state.zoom else ""
    row, column = state.query - zoom_levels[zoom].rows // 2, state.key - zoom_levels[zoom].columns // 2
    return replace(state, zoom=zoom, row=row, column=column, message=message)


def go_to_next_strongest(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the cursor on the strongest key of its query; pressed again, on the next strongest.

    If the cursor is on the strongest key already, the first press goes to the second. In the lens, goes to the
    strongest token of the chosen head's row; if this is not computed yet, returns the state unchanged. In the overview,
    and if no key is visible, only adds a message.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: the key of the binding; unused.
    """
    if state.lens and not state.has_open_head:
        row = screen.session.token_rows.find(state.head, state.view, state.token, state.direction)
        return state if row is None else with_other_token(state, row.strongest_unit)
    if not state.has_open_head:
        return replace(state, message="g goes to the strongest key of an open head; Enter opens one")
    order = ranked_keys(screen, state)
    if not order:
        return replace(state, message="this query sees no key")
    is_repeated = state.strongest_cell == (state.query, state.key)
    first_rank = 1 if state.key == order[0] else 0  # the first press always moves the cursor
    rank = order.index(state.key) + 1 if is_repeated else first_rank
    chosen_key = order[rank % len(order)]
    return replace(state, key=chosen_key, strongest_cell=(state.query, chosen_key))


def open_lens(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the lens open, which shows the cursor's query in all heads.

    Instead of a combination its first head is chosen. If the lens is open already, only adds a message.

    Args:
        screen: the session, and the terminal's size and colours.
        state: the state before the key.
        key: the key of the binding; unused.
    """
    if state.lens and not state.has_open_head:
        return replace(state, message="all heads show this token already; / finds another, Enter opens the head")
    sources = screen.session.combination_of(state.head)[1]
    return replace(
        state,
        head=sources[0],
        has_open_head=False,
        lens=True,
        direction="to",
        sort_token=None,
        top=0,
        column=0,
        heads_beside=(),
    )


def turn_lens(state: State) -> State:
    """Returns the state with the lens turned: from the keys that a token attends to, to the queries that attend to it.

    Turned again, it shows keys again.
    """
    return replace(
        state,
        direction="from" if state.direction == "to" else "to",
        query=state.key,  # the lens keeps its token, which is now on the other axis
        key=state.query,
        sort_token=None,
        column=0,
    )
