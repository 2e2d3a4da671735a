"""Answers most keys, by functions from a state to the next valid one: moves, opens, zooms, combines, toggles, sorts."""

from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.layout import (
    ANSI_COLORS,
    lens_heads,
    open_lens_pane,
    open_map_levels,
    open_map_pane,
    tiles,
)
from attnviz.browse.session.session import Combination, Session
from attnviz.browse.session.state import THEMES, Size, State, View
from attnviz.report.picture.colors import Steps
from attnviz.report.words.choices import FACTS

FAR = 10**9  # cells, further than any map reaches
SHIFT_STEP = 10  # cells that an arrow with Shift moves
MAX_SIDE_BY_SIDE = 6  # heads
COMBINATION_OF_KEY: dict[str, Combination] = {"d": "difference", "m": "mean", "M": "max", "R": "rollout"}
COLOR_STEPS: tuple[Steps, ...] = ("sqrt", "linear", "log")
MAX_TILE_ZOOM = 8  # steps from the usual size of tiles, larger or smaller


@dataclass(frozen=True)
class Screen:
    """The session that is shown, and the size and the number of colours of the terminal that it is shown on."""

    session: Session
    size: Size
    colors: int  # 0 for none


def settle(screen: Screen, state: State) -> State:
    """Returns the nearest state that can be drawn, with the cursor inside the map and on the screen.

    In the overview and the lens its head is listed and on the screen; in an open head its zoom level exists.
    """
    session = screen.session
    if state.shows_lens:
        listed_heads = lens_heads(session, state)
        head = state.head if state.head in listed_heads else listed_heads[0]
        state = _with_cursor_in_map(session, replace(state, head=head))
        pane, units = open_lens_pane(session, state, screen.size), session.units(head, state.view)
        unit_count = len(units[1 if state.direction == "to" else 0])
        return replace(
            state,
            top=_scroll_start(state.top, listed_heads.index(head), pane.queries.cells, len(listed_heads)),
            column=_scroll_start(state.column, state.other_token, pane.keys.stop - pane.keys.start, unit_count),
        )
    if not state.has_open_head:
        listed_heads = session.ranking.order(state.view)
        state = state if state.head in listed_heads else replace(state, head=listed_heads[0])
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


def _with_cursor_in_map(session: Session, state: State) -> State:
    """Returns the state with the cursor moved to the nearest cell of the head's map."""
    rows, columns = (len(units) for units in session.units(state.head, state.view))
    return replace(state, query=min(max(state.query, 0), rows - 1), key=min(max(state.key, 0), columns - 1))


def first_state(screen: Screen) -> State:
    """Returns the first state: the overview, or an open head if part of the recording's only head is selected."""
    session = screen.session
    view = View(words=session.begins_joined)
    state = State(view=view, theme=session.theme, query=max(0, session.asked(0, view)))
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


def at_strongest_key(screen: Screen, state: State) -> State:
    """Returns the state with the cursor at the strongest key of its query, if it sees any."""
    keys = ranked_keys(screen, state)
    return replace(state, key=keys[0]) if keys else state


def ranked_keys(screen: Screen, state: State) -> list[int]:
    """Returns the visible keys of the cursor's query in descending order of value, or of absolute change."""
    view = screen.session.view_of(state.head, state.view)
    return screen.session.row(state.head, view, state.query).shown(view).strongest_units


def _scroll_start(start: int, cursor: int, shown_count: int, count: int) -> int:
    """Returns the first unit on the screen, as near to ``start`` as possible with the cursor among those shown."""
    start_near_cursor = min(max(start, cursor - shown_count + 1), cursor)
    return min(max(start_near_cursor, 0), count - shown_count)


def sort_by(screen: Screen, state: State, order: str | None, ascending: bool = False) -> State:
    """Returns the state with heads sorted by a metric, and if it is measured the first head chosen, if none is open."""
    return with_first_ranked_head(screen, replace(state, view=replace(state.view, order=order, ascending=ascending)))


def with_first_ranked_head(screen: Screen, state: State) -> State:
    """Returns the state with the first head chosen if heads are sorted by a measured metric and none is open."""
    if not screen.session.ranking.is_sorted(state.view) or state.has_open_head:
        return state
    return settle(screen, replace(state, head=screen.session.ranking.order(state.view)[0], top=0))


def move(screen: Screen, state: State, key: str) -> State:
    """Returns the state after an arrow, a page or an end key: on another cell, which may lie off the map, or head.

    Home and End go to the first and the last key of an open map, else to the first and the last head.
    """
    session, size = screen.session, screen.size
    step = SHIFT_STEP if key.startswith("shift+") else 1
    ways = {
        "up": (-step, 0),
        "down": (step, 0),
        "left": (0, -step),
        "right": (0, step),
        "home": (0, -FAR),
        "end": (0, FAR),
    }
    if state.shows_lens:
        heads, pane = lens_heads(session, state), open_lens_pane(session, state, size)
        ways |= {"pageup": (-pane.queries.cells, 0), "pagedown": (pane.queries.cells, 0)}
        ways |= {"home": (-FAR, 0), "end": (FAR, 0)}
        rows_down, columns_right = ways[key.removeprefix("shift+")]
        line = min(max(heads.index(state.head) + rows_down, 0), len(heads) - 1) if state.head in heads else 0
        return replace(state, head=heads[line]).with_other_token(
            pane.keys.shifted_unit(state.other_token, columns_right)
        )
    if not state.has_open_head:
        grid = tiles(session, state, size)
        ways |= {"pageup": (-grid.shown_row_count, 0), "pagedown": (grid.shown_row_count, 0)}
        rows_down, columns_right = ways[key.removeprefix("shift+")]
        if columns_right:
            order = [head for row in grid.rows for head in row]
            return replace(state, head=order[min(max(order.index(state.head) + columns_right, 0), len(order) - 1)])
        row, column = grid.position(state.head)
        row_heads = grid.rows[min(max(row + rows_down, 0), len(grid.rows) - 1)]
        return replace(state, head=row_heads[min(column, len(row_heads) - 1)])
    pane = open_map_pane(session, state, size, screen.colors)
    ways |= {"pageup": (-pane.queries.cells, 0), "pagedown": (pane.queries.cells, 0)}
    rows_down, columns_right = ways[key.removeprefix("shift+")]
    query, unit = pane.queries.shifted_unit(state.query, rows_down), pane.keys.shifted_unit(state.key, columns_right)
    return replace(state, query=query, key=unit)


def enter(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the chosen head open; if a head is open already, zoomed in to single cells, or further.

    Where no key was chosen, as it is in the lens, the cursor is at the strongest key of its query.
    """
    if state.has_open_head:
        return zoom(screen, state, key)
    opened = open_head(screen, state)
    is_chosen = state.lens or screen.session.selected_spans(state.head, state.view) is not None
    return opened if is_chosen else at_strongest_key(screen, opened)


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
    """Returns the state with the next or the previous listed head chosen, and with the heads beside it closed."""
    session = screen.session
    order = lens_heads(session, state) if state.shows_lens else session.ranking.order(state.view)
    step = -1 if key in ("shift+tab", "left_square_bracket") else 1
    unlisted_position = -1 if step > 0 else 0  # from which a step leads to the first or the last head
    position = order.index(state.head) if state.head in order else unlisted_position
    return replace(state, head=order[(position + step) % len(order)], heads_beside=())


def zoom(screen: Screen, state: State, key: str) -> State:
    """Returns the state zoomed in, zoomed out or with the whole map; in the overview with tiles of another size.

    Enter zooms in at once to where each token has a cell.
    """
    step = {"minus": -1, "0": 0}.get(key, 1)
    if state.shows_lens:
        return replace(state, message="rows cannot be zoomed; Enter opens the head, where + zooms in")
    if not state.has_open_head:
        tile_zoom = min(max(state.tile_zoom + step, -MAX_TILE_ZOOM), MAX_TILE_ZOOM)
        return replace(state, tile_zoom=tile_zoom if step else 0)
    levels = open_map_levels(screen.session, state, screen.size, screen.colors)
    pooled_count = sum(level.rows > level.capacity[0] or level.columns > level.capacity[1] for level in levels)
    new_zoom = max(pooled_count, state.zoom + 1) if key == "enter" else state.zoom + step if step else 0
    new_zoom = min(max(new_zoom, 0), len(levels) - 1)
    message = "this is the closest zoom" if step == 1 and new_zoom == state.zoom else ""
    # the cursor is in the middle of the screen
    row, column = state.query - levels[new_zoom].rows // 2, state.key - levels[new_zoom].columns // 2
    return replace(state, zoom=new_zoom, row=row, column=column, message=message)


def go_to_next_strongest(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the cursor on the strongest key of its query; pressed again, on the next strongest.

    If the cursor is on the strongest key already, the first press goes to the second; after the weakest comes the
    strongest. In the lens, goes to the strongest token of the chosen head's row.
    """
    if state.shows_lens:
        row = screen.session.token_rows.find(state.head, state.view, state.token, state.direction)
        return state if row is None else state.with_other_token(row.strongest_unit)
    order = ranked_keys(screen, state)
    if not order:
        return replace(state, message="this query sees no key")
    is_repeated = state.strongest_cell == (state.query, state.key)
    first_rank = 1 if state.key == order[0] else 0  # the first press always moves the cursor
    rank = order.index(state.key) + 1 if is_repeated else first_rank
    chosen_key = order[rank % len(order)]
    return replace(state, key=chosen_key, strongest_cell=(state.query, chosen_key))


def open_lens(screen: Screen, state: State) -> State:
    """Returns the state with the lens open, which shows the cursor's query in all heads, and an open head closed."""
    if state.shows_lens:
        return replace(state, message="all heads show this token already; / finds another, Enter opens the head")
    _, sources = screen.session.combination_of(state.head)
    state = state if state.has_open_head else at_strongest_key(screen, state)
    state = replace(state, head=sources[0], has_open_head=False, heads_beside=())
    return replace(state, lens=True, direction="to", sort_token=None, top=0, column=0)


def turn_lens(state: State) -> State:
    """Returns the state with the lens turned: from the keys of a token to the queries that attend to it, or back."""
    return replace(
        state,
        direction="from" if state.direction == "to" else "to",
        query=state.key,  # the lens keeps its token, which is now on the other axis
        key=state.query,
        sort_token=None,
        column=0,
    )


def mark(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the chosen head marked, or without its mark if it has one."""
    if state.head >= screen.session.recorded_count:
        return replace(state, message="several heads together cannot be marked; Esc goes back to one")
    if state.head in state.marked_heads:
        return replace(state, marked_heads=tuple(head for head in state.marked_heads if head != state.head))
    return replace(state, marked_heads=(*state.marked_heads, state.head))


def together(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the marked heads opened together; the difference is that of two recordings, if there are.

    Without two marked heads, the key of side by side zooms in.
    """
    is_pair = len(state.heads_to_combine) == 2 and not state.heads_beside
    if key == "equals_sign" and (len(state.heads_to_combine) < 2 or state.heads_beside):
        return zoom(screen, state, key)
    if key == "d" and screen.session.other is not None and not is_pair:
        return replace(state, view=replace(state.view, difference=not state.view.difference, scores=False))
    return open_together(screen, state, COMBINATION_OF_KEY.get(key))


def open_together(screen: Screen, state: State, combination: Combination | None = None) -> State:
    """Returns the state with the marked heads open side by side, or with the one map open that they make together.

    The marks are removed. Heads that are side by side are combined; without marks, all listed heads are.
    """
    session = screen.session
    heads = state.heads_to_combine or tuple(session.ranking.order(state.view))
    purpose = f"see the {combination} of heads" if combination else "see heads side by side"
    max_heads = 2 if combination == "difference" else len(session.heads) if combination else MAX_SIDE_BY_SIDE
    message, head = "", heads[0]
    if not 2 <= len(heads) <= max_heads:
        allowed_count = "2" if max_heads == 2 else f"2 to {max_heads}"
        message = f"to {purpose}, mark {allowed_count} with Space; marked now: {len(heads)}"
    elif not set(heads) <= set(session.heads_over_same_tokens(heads[0])):
        message = "these heads have different tokens; mark heads over the same tokens"
    elif combination is not None:
        try:
            head = session.combine(heads, combination)
        except AttnvizError as error:
            message = str(error)
    if message:
        return replace(state, message=message)
    opened = replace(open_head(screen, replace(state, head=head)), marked_heads=())
    return opened if combination else replace(opened, heads_beside=heads[1:])


def toggle(screen: Screen, state: State, key: str) -> State:
    """Returns the state with one toggle of the view changed; the cursor stays on its tokens."""
    session, view = screen.session, state.view
    changes: dict[str, dict[str, object]] = {
        "v": {"scores": not view.scores, "difference": False, "words": False},  # a word has no score
        "l": {"steps": COLOR_STEPS[(COLOR_STEPS.index(view.steps) + 1) % len(COLOR_STEPS)]},
        "p": {"mean": not view.mean},
        "c": {"own_scale": not view.own_scale},
        "w": {"words": not view.words, "scores": False},
        "t": {"special": not view.special},
    }
    if key == "t" and not state.has_open_head and not state.lens:
        if session.left_out is None:
            return replace(state, message=FACTS["one head"])
        changes["t"] = {"all_keys": not view.all_keys}
    new_view = replace(view, **changes[key])  # type: ignore[arg-type]
    old_units, new_units = (session.units(state.head, shown_view) for shown_view in (view, new_view))

    def new_unit(axis: int, unit: int) -> int:
        """Returns the index in ``new_units`` of the first token of an old unit; axis 0 has queries, axis 1 keys."""
        return new_units[axis].unit_of(int(old_units[axis].starts[unit]))

    sort_token = state.sort_token
    if sort_token is not None:
        sort_token = new_unit(1 if state.direction == "to" else 0, sort_token)  # of the axis across
    query, key_unit = new_unit(0, state.query), new_unit(1, state.key)
    return replace(state, view=new_view, query=query, key=key_unit, sort_token=sort_token)


def toggle_why(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the features that explain the cursor's weight shown, or hidden again."""
    return replace(state, why=not state.why)


def next_theme(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the next theme: the terminal's own colours, light, dark."""
    if screen.colors <= ANSI_COLORS:
        return replace(state, message="themes need more than 16 colours, which this terminal lacks")
    theme = THEMES[(THEMES.index(state.theme) + 1) % len(THEMES)]
    message = "the terminal's own colours" if theme == "terminal" else f"{theme} colours"
    return replace(state, theme=theme, message=message)


def sort(screen: Screen, state: State, key: str) -> State:
    """Returns the state with heads sorted by the next or the previous metric, or in reverse.

    The order of layers comes before the first metric and after the last. With an open head a message names the order;
    otherwise the first head is chosen, once the metric is measured. In the lens, ``o`` and ``O`` sort heads by their
    weight on the cursor's token, or end that order if it is in use; ``r`` turns the lens.
    """
    if state.shows_lens:
        if key == "r":
            return turn_lens(state)
        if state.sort_token == state.other_token:
            return replace(state, sort_token=None, top=0)
        state = replace(state, sort_token=state.other_token, top=0)
        return replace(state, head=lens_heads(screen.session, state)[0])
    if key == "r":
        if state.view.order is None:
            return replace(state, message="heads are in the order of layers; o sorts them by a metric")
        state = replace(state, view=replace(state.view, ascending=not state.view.ascending))
        return _with_order_message(state) if state.has_open_head else with_first_ranked_head(screen, state)
    names: list[str | None] = [None, *screen.session.ranking.names]
    step = -1 if key == "O" else 1
    state = sort_by(screen, state, names[(names.index(state.view.order) + step) % len(names)])
    return _with_order_message(state) if state.has_open_head else state


def _with_order_message(state: State) -> State:
    """Returns the state with a message about the order in which Tab opens heads."""
    order = "in the order of layers"
    if state.view.order is not None:
        order = f"by {state.view.order}, the {'smallest' if state.view.ascending else 'largest'} first"
    return replace(state, message=f"Tab opens heads {order}")
