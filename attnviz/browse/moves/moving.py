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
    """Returns the state after an arrow key: on another cell of an open map, another head, or another token of the lens.

    A query, key or token may lie off the map; heads stop at the first and the last.
    """
    directions = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    step = SHIFT_STEP if key.startswith("shift+") else 1
    rows_down, columns_right = (step * direction for direction in directions[key.removeprefix("shift+")])
    if state.lens and not state.has_open_head:
        return _move_in_lens(screen, state, rows_down, columns_right)
    if not state.has_open_head:
        return _move_head(tiles(screen.session, state, screen.size), state, rows_down, columns_right)
    pane = open_map_pane(screen.session, state, screen.size, screen.colors)
    return replace(
        state,
        query=pane.queries.shifted_unit(state.query, rows_down),
        key=pane.keys.shifted_unit(state.key, columns_right),
    )


def _move_in_lens(screen: Screen, state: State, rows_down: int, columns_right: int) -> State:
    """Returns the state with the cursor on another head of the lens, or on another token of its row."""
    heads = lens_heads(screen.session, state)
    line = min(max(heads.index(state.head) + rows_down, 0), len(heads) - 1) if state.head in heads else 0
    axis = open_lens_pane(screen.session, state, screen.size).axis
    return with_other_token(replace(state, head=heads[line]), axis.shifted_unit(state.other_token, columns_right))


def _move_head(grid: Tiles, state: State, rows_down: int, columns_right: int) -> State:
    """Returns the state with another head of the overview chosen."""
    if columns_right:
        order = [head for row in grid.rows for head in row]
        return replace(state, head=order[min(max(order.index(state.head) + columns_right, 0), len(order) - 1)])
    row, column = grid.position(state.head)
    heads = grid.rows[min(max(row + rows_down, 0), len(grid.rows) - 1)]
    return replace(state, head=heads[min(column, len(heads) - 1)])


def page(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the cursor a screenful up or down: on another query, or in overview and lens another head.

    The query may lie off the map; heads stop at the first and the last.
    """
    sign = -1 if key == "pageup" else 1
    if state.lens and not state.has_open_head:
        line_count = open_lens_pane(screen.session, state, screen.size).lines
        return _move_in_lens(screen, state, rows_down=sign * line_count, columns_right=0)
    if not state.has_open_head:
        grid = tiles(screen.session, state, screen.size)
        return _move_head(grid, state, rows_down=sign * grid.shown_row_count, columns_right=0)
    query_axis = open_map_pane(screen.session, state, screen.size, screen.colors).queries
    return replace(state, query=state.query + sign * (query_axis.stop - query_axis.start))


def go_to_end(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the cursor on the first or last key of an open map, or the first or last head chosen."""
    if state.has_open_head:
        _, key_units = screen.session.units(state.head, state.view)
        return replace(state, key=0 if key == "home" else len(key_units) - 1)
    order = lens_heads(screen.session, state) if state.lens else screen.session.ranking.order(state.view)
    return replace(state, head=order[0 if key == "home" else -1])


def enter(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the chosen head open; if a head is open already, zoomed in by one step."""
    return zoom(screen, state, "plus") if state.has_open_head else open_head(screen, state)


def leave(screen: Screen, state: State, key: str) -> State:
    """Returns the state with one thing closed or reset: the first that is in use, in the order below.

    The order is: zoom and explanation together, heads beside the open one, the open head, the lens, marks, the filter.
    After a combination of heads is closed, its first head is chosen. If nothing is in use, returns an equal state.
    """
    if state.has_open_head and (state.zoom or state.why):
        return replace(state, zoom=0, why=False)
    if state.has_open_head and state.heads_beside:
        return replace(state, heads_beside=())
    if state.has_open_head:
        _, sources = screen.session.combination_of(state.head)
        return replace(state, has_open_head=False, head=sources[0], top=0)
    if state.lens:
        return replace(state, lens=False, sort_token=None, top=0)
    if state.marked_heads:
        return replace(state, marked_heads=())
    return replace(state, view=replace(state.view, filter=""))


def next_head(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the next or the previous listed head chosen, and with the heads beside it closed.

    After the last head comes the first.
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
    """
    step = {"minus": -1, "0": 0}.get(key, 1)
    if key == "equals_sign" and len(state.heads_to_combine) > 1:
        return open_side_by_side(screen, state)
    if state.lens and not state.has_open_head:
        return replace(state, message="rows cannot be zoomed; Enter opens the head, where + zooms in")
    if not state.has_open_head:
        tile_zoom = min(max(state.tile_zoom + step, -MAX_TILE_ZOOM), MAX_TILE_ZOOM)
        return replace(state, tile_zoom=tile_zoom if step else 0)
    levels = open_map_levels(screen.session, state, screen.size, screen.colors)
    new_zoom = min(max(state.zoom + step, 0), len(levels) - 1) if step else 0
    message = "this is the closest zoom" if step == 1 and new_zoom == state.zoom else ""
    # the cursor is in the middle of the screen
    row, column = state.query - levels[new_zoom].rows // 2, state.key - levels[new_zoom].columns // 2
    return replace(state, zoom=new_zoom, row=row, column=column, message=message)


def go_to_next_strongest(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the cursor on the strongest key of its query; pressed again, on the next strongest.

    If the cursor is on the strongest key already, the first press goes to the second; after the weakest comes the
    strongest. In the lens, goes to the strongest token of the chosen head's row; if the row is not computed yet,
    returns the state unchanged. In the overview, and if no key is visible, only adds a message.
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

    An open head is closed; if it is a combination of heads, its first head is chosen. If the lens is on the screen
    already, only adds a message.
    """
    if state.lens and not state.has_open_head:
        return replace(state, message="all heads show this token already; / finds another, Enter opens the head")
    _, sources = screen.session.combination_of(state.head)
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

    A lens that shows queries is turned back to keys. The lens keeps its token, and no longer sorts heads by a token.
    """
    return replace(
        state,
        direction="from" if state.direction == "to" else "to",
        query=state.key,  # the lens keeps its token, which is now on the other axis
        key=state.query,
        sort_token=None,
        column=0,
    )
