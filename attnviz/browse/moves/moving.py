"""Answers the keys that move: the cursor, the zoom, into a head or the lens and back."""

from dataclasses import replace

from attnviz.browse.moves.cursor import Screen, on_other, open_head, strongest_keys
from attnviz.browse.moves.layout import Tiles, levels, map_of, tiles
from attnviz.browse.moves.lens_layout import lens_heads, lens_pane
from attnviz.browse.moves.marking import side_by_side
from attnviz.browse.session.state import State

SHIFT_STEP = 10  # cells that an arrow with Shift moves


def move(screen: Screen, state: State, key: str) -> State:
    """Moves the cursor: to another cell, another head, or another token of the lens."""
    down, across = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}[key.removeprefix("shift+")]
    leap = SHIFT_STEP if key.startswith("shift+") else 1
    if state.lens and not state.opened:
        return _move_in_lens(screen, state, down * leap, across * leap)
    if not state.opened:
        return _move_head(tiles(screen.session, state, screen.size), state, down * leap, across * leap)
    shown = map_of(screen.session, state, screen.size, screen.colors)
    return replace(
        state,
        query=shown.queries.moved(state.query, down * leap),
        key=shown.keys.moved(state.key, across * leap),
    )


def _move_in_lens(screen: Screen, state: State, down: int, across: int) -> State:
    """Moves to another head of the lens, or to another token of its row."""
    listed = lens_heads(screen.session, state)
    place = min(max(listed.index(state.head) + down, 0), len(listed) - 1) if state.head in listed else 0
    axis = lens_pane(screen.session, state, screen.size).axis
    return on_other(replace(state, head=listed[place]), axis.moved(state.other_token, across))


def _move_head(grid: Tiles, state: State, down: int, across: int) -> State:
    """Moves sideways through all heads in turn, or up and down to the nearest tile of another row."""
    if across:
        order = [head for row in grid.rows for head in row]
        return replace(state, head=order[min(max(order.index(state.head) + across, 0), len(order) - 1)])
    row, column = grid.place(state.head)
    heads = grid.rows[min(max(row + down, 0), len(grid.rows) - 1)]
    return replace(state, head=heads[min(column, len(heads) - 1)])


def page(screen: Screen, state: State, key: str) -> State:
    """Moves by a screenful."""
    sign = -1 if key == "pageup" else 1
    if state.lens and not state.opened:
        return _move_in_lens(screen, state, sign * lens_pane(screen.session, state, screen.size).lines, 0)
    if not state.opened:
        grid = tiles(screen.session, state, screen.size)
        return _move_head(grid, state, sign * grid.shown, 0)
    shown = map_of(screen.session, state, screen.size, screen.colors).queries
    return replace(state, query=state.query + sign * (shown.stop - shown.start))


def go_to_end(screen: Screen, state: State, key: str) -> State:
    """Moves to the first or the last key of the map, or head of the list."""
    if state.opened:
        return replace(state, key=0 if key == "home" else len(screen.session.units(state.head, state.view)[1]) - 1)
    order = lens_heads(screen.session, state) if state.lens else screen.session.ranking.order(state.view)
    return replace(state, head=order[0 if key == "home" else -1])


def enter(screen: Screen, state: State, key: str) -> State:
    """Opens the chosen head; zooms in if it is open."""
    return zoom(screen, state, "+") if state.opened else open_head(screen, state)


def leave(screen: Screen, state: State, key: str) -> State:
    """Leaves the innermost of these: zoom and reasons, heads beside, the open head, the lens, marks, the filter."""
    if state.opened and (state.zoom or state.why or state.beside):
        return replace(state, zoom=0, why=False, beside=() if not state.zoom and not state.why else state.beside)
    if state.opened:
        sources = screen.session.combination_of(state.head)[1]
        return replace(state, opened=False, head=sources[0], top=0)
    if state.lens:
        return replace(state, lens=False, second=None, top=0)
    return replace(state, marked=(), view=state.view if state.marked else replace(state.view, filter=""))


def next_head(screen: Screen, state: State, key: str) -> State:
    """Moves to the next or the previous head; the cursor stays on its tokens if the head has them."""
    session = screen.session
    order = lens_heads(session, state) if state.lens and not state.opened else session.ranking.order(state.view)
    step = -1 if key in ("shift+tab", "left_square_bracket") else 1
    here = order.index(state.head) if state.head in order else -step if step > 0 else 0
    return replace(state, head=order[(here + step) % len(order)], beside=())


def zoom(screen: Screen, state: State, key: str) -> State:
    """Zooms in or out, or shows the whole map; ``=`` opens several marked heads side by side."""
    step = {"minus": -1, "0": 0}.get(key, 1)
    if key == "equals_sign" and len(state.marked) > 1:
        return side_by_side(screen, state)
    if state.lens and not state.opened:
        return replace(state, message="rows cannot be zoomed; Enter opens the head, where + zooms in")
    if not state.opened:
        return replace(state, enlarged=0 if not step else min(max(state.enlarged + step, -8), 8))
    every = levels(screen.session, state, screen.size, screen.colors)
    zoom = 0 if not step else min(max(state.zoom + step, 0), len(every) - 1)
    message = "this is the closest zoom" if step == 1 and zoom == state.zoom else ""
    row, column = state.query - every[zoom].rows // 2, state.key - every[zoom].columns // 2
    return replace(state, zoom=zoom, row=row, column=column, message=message)


def next_strongest(screen: Screen, state: State, key: str) -> State:
    """Moves to the strongest key of the cursor's query, then to the next strongest."""
    if state.lens and not state.opened:
        row = screen.session.token_rows.find(state.head, state.view, state.token, state.direction)
        return state if row is None else on_other(state, row.strongest)
    if not state.opened:
        return replace(state, message="g goes to the strongest key of an open head; Enter opens one")
    order = strongest_keys(screen, state)
    if not order:
        return replace(state, message="this query sees no key")
    again = state.strongest == (state.query, state.key)
    place = order.index(state.key) + 1 if again else int(order[0] == state.key)
    chosen = order[place % len(order)]
    return replace(state, key=chosen, strongest=(state.query, chosen))


def open_lens(screen: Screen, state: State, key: str) -> State:
    """Opens the lens: the cursor's query in all heads."""
    if state.lens and not state.opened:
        return replace(state, message="all heads show this token already; / finds another, Enter opens the head")
    sources = screen.session.combination_of(state.head)[1]
    return replace(
        state, head=sources[0], opened=False, lens=True, direction="to", second=None, top=0, column=0, beside=()
    )


def turn_lens(state: State) -> State:
    """Turns the lens from the keys that a token attends to, to the queries that attend to it, and back."""
    return replace(
        state,
        direction="from" if state.direction == "to" else "to",
        query=state.key,
        key=state.query,
        second=None,
        column=0,
    )
