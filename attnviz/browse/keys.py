"""The table of keys, and what each does to the state of the inspector."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from attnviz.browse.cursor import Screen, find, first_ranked, open_head, settle, sort_by, strongest_keys
from attnviz.browse.layout import Tiles, levels, map_of, tiles
from attnviz.browse.state import State
from attnviz.report.colors import Steps

SHIFT_STEP = 10  # cells, with shift
COLOR_STEPS: tuple[Steps, ...] = ("sqrt", "linear", "log")
WORD_SCORES = "a word has no score; v shows weights, w tokens"


@dataclass(frozen=True)
class Binding:
    """Keys that do the same, what it is, and how.

    Attributes:
        keys: as textual names them.
        shown: as the help shows them.
        does: in a few words.
        press: the next state.
    """

    keys: tuple[str, ...]
    shown: str
    does: str
    press: Callable[[Screen, State, str], State]


def press(screen: Screen, state: State, key: str) -> State:
    """The state after a key; the same one where the key means nothing."""
    if state.help:
        return replace(state, help=False)
    binding = BY_KEY.get(key)
    if binding is None or not screen.size.enough:
        return state
    return settle(screen, binding.press(screen, replace(state, message=""), key))


def _move(screen: Screen, state: State, key: str) -> State:
    down, across = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}[key.removeprefix("shift+")]
    leap = SHIFT_STEP if key.startswith("shift+") else 1
    if not state.opened:
        return _move_head(tiles(screen.session, state, screen.size), state, down * leap, across * leap)
    shown = map_of(screen.session, state, screen.size, screen.colors)
    return replace(
        state,
        query=shown.queries.moved(state.query, down * leap),
        key=shown.keys.moved(state.key, across * leap),
    )


def _move_head(grid: Tiles, state: State, down: int, across: int) -> State:
    """Sideways through all heads in turn; up and down to the nearest tile of another row."""
    if across:
        order = [head for row in grid.rows for head in row]
        return replace(state, head=order[min(max(order.index(state.head) + across, 0), len(order) - 1)])
    row, column = grid.place(state.head)
    heads = grid.rows[min(max(row + down, 0), len(grid.rows) - 1)]
    return replace(state, head=heads[min(column, len(heads) - 1)])


def _page(screen: Screen, state: State, key: str) -> State:
    sign = -1 if key == "pageup" else 1
    if not state.opened:
        grid = tiles(screen.session, state, screen.size)
        return _move_head(grid, state, sign * grid.shown, 0)
    shown = map_of(screen.session, state, screen.size, screen.colors).queries
    return replace(state, query=state.query + sign * (shown.stop - shown.start))


def _end(screen: Screen, state: State, key: str) -> State:
    if state.opened:
        return replace(state, key=0 if key == "home" else len(screen.session.units(state.head, state.view)[1]) - 1)
    order = screen.session.ranking.order(state.view)
    return replace(state, head=order[0 if key == "home" else -1])


def _enter(screen: Screen, state: State, key: str) -> State:
    return _zoom(screen, state, "+") if state.opened else open_head(screen, state)


def _back(screen: Screen, state: State, key: str) -> State:
    if not state.opened:
        return state
    return replace(state, zoom=0) if state.zoom else replace(state, opened=False)


def _next_head(screen: Screen, state: State, key: str) -> State:
    """Another head with the cursor on the same tokens where it has them."""
    order = screen.session.ranking.order(state.view)
    step = -1 if key in ("shift+tab", "left_square_bracket") else 1
    return replace(state, head=order[(order.index(state.head) + step) % len(order)])


def _zoom(screen: Screen, state: State, key: str) -> State:
    step = {"minus": -1, "0": 0}.get(key, 1)
    if not state.opened:
        return replace(state, enlarged=0 if not step else min(max(state.enlarged + step, -8), 8))
    every = levels(screen.session, state, screen.size, screen.colors)
    zoom = 0 if not step else min(max(state.zoom + step, 0), len(every) - 1)
    message = "this is the closest" if step == 1 and zoom == state.zoom else ""
    row, column = state.query - every[zoom].rows // 2, state.key - every[zoom].columns // 2
    return replace(state, zoom=zoom, row=row, column=column, message=message)


def _strongest(screen: Screen, state: State, key: str) -> State:
    """The cursor on the next strongest key of its query, or on the strongest."""
    if not state.opened:
        return replace(state, message="Enter opens a head; g goes to its strongest keys there")
    order = strongest_keys(screen, state)
    if not order:
        return replace(state, message="this query sees no key")
    place = order.index(state.key) + 1 if state.key in order else 0
    return replace(state, key=order[place % len(order)])


def _toggle(screen: Screen, state: State, key: str) -> State:
    view = state.view
    if key == "v" and view.words:
        return replace(state, message=WORD_SCORES)
    if key == "l" and (view.scores or view.difference):
        return replace(state, message="steps of the colours are for weights; v shows them")
    toggled = {
        "v": lambda: replace(view, scores=not view.scores, difference=False),
        "l": lambda: replace(view, steps=COLOR_STEPS[(COLOR_STEPS.index(view.steps) + 1) % len(COLOR_STEPS)]),
        "p": lambda: replace(view, mean=not view.mean),
        "c": lambda: replace(view, own=not view.own),
    }[key]()
    return replace(state, view=toggled)


def _toggle_tokens(screen: Screen, state: State, key: str) -> State:
    """Words or special tokens on or off, the cursor staying on its tokens."""
    session, old = screen.session, screen.session.units(state.head, state.view)
    if not state.opened:
        return replace(state, message="Enter opens a head; words and special tokens are joined and hidden there")
    if not session.joins(state.head):
        return replace(state, message="words and special tokens: not for maps of this length")
    view = state.view
    if key == "w" and view.scores:
        return replace(state, message=WORD_SCORES)
    view = replace(view, words=not view.words) if key == "w" else replace(view, special=not view.special)
    new = session.units(state.head, view)
    query, place = (
        after.unit_of(int(before.starts[cursor]))
        for before, after, cursor in zip(old, new, (state.query, state.key), strict=True)
    )
    same = all(len(before) == len(after) for before, after in zip(old, new, strict=True))
    kept = "every token is special" if all(old[1].tokens.special) else "no token is special"
    nothing = "no token is part of a longer word" if key == "w" else kept
    return replace(state, view=view, query=query, key=place, message=nothing if same else "")


def _toggle_difference(screen: Screen, state: State, key: str) -> State:
    if screen.session.other is None:
        return replace(state, message="nothing to differ from; attnviz browse A --with B opens two")
    return replace(state, view=replace(state.view, difference=not state.view.difference, scores=False))


def _sort(screen: Screen, state: State, key: str) -> State:
    """By the next metric, the order of layers among them, or the other way round."""
    from attnviz.metrics.metrics import METRICS

    if key == "r":
        if state.view.order is None:
            return replace(state, message="layers are in order; o sorts by a metric")
        return first_ranked(screen, replace(state, view=replace(state.view, ascending=not state.view.ascending)))
    names: list[str | None] = [None, *METRICS]
    step = -1 if key == "O" else 1
    return sort_by(screen, state, names[(names.index(state.view.order) + step) % len(names)])


def _ask(screen: Screen, state: State, key: str) -> State:
    if key == "s":
        name = screen.session.names[state.head].replace(" ", "-")
        return replace(state, prompt="save", typed=f"head-{name}.svg" if state.opened else "heads.svg")
    return replace(state, prompt="find", typed="")


def _again(screen: Screen, state: State, key: str) -> State:
    if not state.sought or not state.opened:
        return replace(state, message="/ finds a token")
    return find(screen, state, state.sought, -1 if key == "N" else 1)


def _help(screen: Screen, state: State, key: str) -> State:
    return replace(state, help=True)


def _quit(screen: Screen, state: State, key: str) -> State:
    return state


ARROWS = ("up", "down", "left", "right")
BINDINGS = (
    Binding((*ARROWS, *(f"shift+{arrow}" for arrow in ARROWS)), "arrows", "move; with Shift ten at a time", _move),
    Binding(("pageup", "pagedown"), "PgUp PgDn", "a screenful up or down", _page),
    Binding(("home", "end"), "Home End", "the first or the last", _end),
    Binding(("enter",), "Enter", "open the head; in a head, zoom in", _enter),
    Binding(("escape", "backspace"), "Esc", "zoom out, then back to all heads", _back),
    Binding(
        ("tab", "shift+tab", "right_square_bracket", "left_square_bracket"),
        "Tab ] [",
        "next head, previous head",
        _next_head,
    ),
    Binding(("plus", "equals_sign", "minus", "0"), "+ - 0", "zoom in, out, all", _zoom),
    Binding(("g",), "g", "go to the query's next strongest key", _strongest),
    Binding(("v",), "v", "scores or weights", _toggle),
    Binding(("l",), "l", "steps of the colours: square root, linear, log", _toggle),
    Binding(("c",), "c", "one colour scale, or one a head", _toggle),
    Binding(("p",), "p", "pooled cells: maximum or mean", _toggle),
    Binding(("w",), "w", "join tokens into words", _toggle_tokens),
    Binding(("t",), "t", "hide special tokens", _toggle_tokens),
    Binding(("d",), "d", "difference to the other recording", _toggle_difference),
    Binding(("o", "O", "r"), "o O r", "sort by next, previous metric; reverse", _sort),
    Binding(("slash",), "/", "find a token; among heads: 4.11, or sort by sink", _ask),
    Binding(("n", "N"), "n N", "find the next, the previous", _again),
    Binding(("s",), "s", "save what is seen: SVG, PNG, PDF", _ask),
    Binding(("question_mark", "f1"), "?", "these keys", _help),
    Binding(("q",), "q", "quit", _quit),
)
BY_KEY = {key: binding for binding in BINDINGS for key in binding.keys}
