"""The table of keys, and what each does to the state of the inspector."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError
from attnviz.browse.cursor import Screen, first_ranked, open_head, settle, sort_by, strongest_keys
from attnviz.browse.finding import find
from attnviz.browse.history import go_back, go_forward, remembered
from attnviz.browse.layout import ANSI_COLORS, Tiles, help_pages, levels, map_of, tiles
from attnviz.browse.lens import on_other
from attnviz.browse.lens_layout import lens_axis, lens_heads, lens_lines
from attnviz.browse.session import Together
from attnviz.browse.state import Prompt, State
from attnviz.browse.themes import NAMES
from attnviz.maps.heads import tokens_of
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
        more = key in MORE_HELP and state.help < help_pages(screen.size, len(BINDINGS))
        return replace(state, help=state.help + 1 if more else 0)
    binding = BY_KEY.get(key)
    if binding is None or not screen.size.enough:
        return state
    before = replace(state, message="")
    return remembered(before, settle(screen, binding.press(screen, before, key)))


def _move(screen: Screen, state: State, key: str) -> State:
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
    """To another head, or to another token of its row."""
    listed = lens_heads(screen.session, state)
    place = min(max(listed.index(state.head) + down, 0), len(listed) - 1) if state.head in listed else 0
    axis = lens_axis(screen.session, state, screen.size)
    return on_other(replace(state, head=listed[place]), axis.moved(state.other_token, across))


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
    if state.lens and not state.opened:
        return _move_in_lens(screen, state, sign * lens_lines(screen.session, state, screen.size), 0)
    if not state.opened:
        grid = tiles(screen.session, state, screen.size)
        return _move_head(grid, state, sign * grid.shown, 0)
    shown = map_of(screen.session, state, screen.size, screen.colors).queries
    return replace(state, query=state.query + sign * (shown.stop - shown.start))


def _end(screen: Screen, state: State, key: str) -> State:
    if state.opened:
        return replace(state, key=0 if key == "home" else len(screen.session.units(state.head, state.view)[1]) - 1)
    order = lens_heads(screen.session, state) if state.lens else screen.session.ranking.order(state.view)
    return replace(state, head=order[0 if key == "home" else -1])


def _enter(screen: Screen, state: State, key: str) -> State:
    return _zoom(screen, state, "+") if state.opened else open_head(screen, state)


def _back(screen: Screen, state: State, key: str) -> State:
    """Out of the zoom, of what stands beside, of the head, of the lens; at last the marks and the filter are left."""
    if state.opened and (state.zoom or state.why or state.beside):
        return replace(state, zoom=0, why=False, beside=() if not state.zoom and not state.why else state.beside)
    if state.opened:
        sources = screen.session.made_of(state.head)[1]
        return replace(state, opened=False, head=sources[0], top=0)
    if state.lens:
        return replace(state, lens=False, second=None, top=0)
    return replace(state, marked=(), view=state.view if state.marked else replace(state.view, filter=""))


def _next_head(screen: Screen, state: State, key: str) -> State:
    """Another head with the cursor on the same tokens where it has them."""
    session = screen.session
    order = lens_heads(session, state) if state.lens and not state.opened else session.ranking.order(state.view)
    step = -1 if key in ("shift+tab", "left_square_bracket") else 1
    here = order.index(state.head) if state.head in order else -step if step > 0 else 0
    return replace(state, head=order[(here + step) % len(order)], beside=())


def _zoom(screen: Screen, state: State, key: str) -> State:
    step = {"minus": -1, "0": 0}.get(key, 1)
    if key == "equals_sign" and len(state.marked) > 1:
        return _side_by_side(screen, state)
    if state.lens and not state.opened:
        return replace(state, message="the rows are as wide as the screen; Enter opens the head, where + zooms")
    if not state.opened:
        return replace(state, enlarged=0 if not step else min(max(state.enlarged + step, -8), 8))
    every = levels(screen.session, state, screen.size, screen.colors)
    zoom = 0 if not step else min(max(state.zoom + step, 0), len(every) - 1)
    message = "this is the closest" if step == 1 and zoom == state.zoom else ""
    row, column = state.query - every[zoom].rows // 2, state.key - every[zoom].columns // 2
    return replace(state, zoom=zoom, row=row, column=column, message=message)


def _strongest(screen: Screen, state: State, key: str) -> State:
    """The cursor on the next strongest key of its query, or on the strongest."""
    if state.lens and not state.opened:
        row = screen.session.token_row(state.head, state.view, state.token, state.direction)
        return state if row is None else on_other(state, row.strongest)
    if not state.opened:
        return replace(state, message="Enter opens a head; g goes to its strongest keys there")
    order = strongest_keys(screen, state)
    if not order:
        return replace(state, message="this query sees no key")
    again = state.strongest == (state.query, state.key)
    place = order.index(state.key) + 1 if again else int(order[0] == state.key)
    chosen = order[place % len(order)]
    return replace(state, key=chosen, strongest=(state.query, chosen))


def _toggle(screen: Screen, state: State, key: str) -> State:
    view = state.view
    if key == "v" and state.opened and state.head >= screen.session.recorded:
        return replace(state, message="several heads together have no score; Esc goes back to one")
    if key == "v" and tokens_of(screen.session.heads[state.head][0]).block != (1, 1):
        return replace(state, message="these maps were pooled when they were captured, and a block has no score")
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
    if not state.opened and not state.lens:
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
    side = state.direction == "to"
    second = None if state.second is None else new[side].unit_of(int(old[side].starts[state.second]))
    same = all(len(before) == len(after) for before, after in zip(old, new, strict=True))
    kept = "every token is special" if all(old[1].tokens.special) else "no token is special"
    nothing = "no token is part of a longer word" if key == "w" else kept
    return replace(state, view=view, query=query, key=place, second=second, message=nothing if same else "")


def _difference(screen: Screen, state: State, key: str) -> State:
    """Of two marked heads the second minus the first, else the other recording minus this one."""
    if len(state.marked) == 2 or (state.marked and screen.session.other is None):
        return _together(screen, state, key)
    if screen.session.other is None:
        return replace(state, message="nothing to differ from: Space marks two heads, browse A --with B opens two runs")
    return replace(state, view=replace(state.view, difference=not state.view.difference, scores=False))


def _mark(screen: Screen, state: State, key: str) -> State:
    """The chosen head marked, or no longer; the next one chosen where heads are listed."""
    if state.head >= screen.session.recorded:
        return replace(state, message="this is made of several heads; Esc goes back to one")
    if state.head in state.marked:
        return replace(state, marked=tuple(head for head in state.marked if head != state.head))
    return replace(state, marked=(*state.marked, state.head))


def _side_by_side(screen: Screen, state: State) -> State:
    marked = state.marked
    if refused := _refused(screen, state, 2, MAX_SIDE_BY_SIDE, "stand side by side"):
        return replace(state, message=refused)
    state = open_head(screen, replace(state, head=marked[0]))
    return replace(state, beside=marked[1:], marked=())


def _together(screen: Screen, state: State, key: str) -> State:
    """One map of the marked heads, or of all that are listed: their difference, mean, maximum or rollout."""
    how = TOGETHER[key]
    if how != "difference" and not state.marked:
        state = replace(state, marked=tuple(screen.session.ranking.order(state.view)))
    most = 2 if how == "difference" else len(screen.session.heads)
    if refused := _refused(screen, state, 2, most, "make a difference" if how == "difference" else f"make a {how}"):
        return replace(state, message=refused)
    try:
        made = screen.session.combine(state.marked, how)
    except AttnvizError as error:
        return replace(state, message=str(error))
    return replace(open_head(screen, replace(state, head=made)), marked=())


def _refused(screen: Screen, state: State, least: int, most: int, what: str) -> str:
    """Why the marked heads cannot be shown together; empty where they can."""
    count, alike = len(state.marked), set(screen.session.alike(state.marked[0])) if state.marked else set()
    if not least <= count <= most:
        works = f"{least}" if least == most else f"{least} to {most}"
        return f"{works} marked heads {what}, and {count} are marked: Space marks one"
    return "" if set(state.marked) <= alike else "these heads are not over the same tokens"


def _sort(screen: Screen, state: State, key: str) -> State:
    """By the next metric, the order of layers among them, or the other way round; the lens by the weight on a token."""
    if state.lens and not state.opened:
        if key == "r":
            return _turn(state)
        state = replace(state, second=None if state.second == state.other_token else state.other_token, top=0)
        return replace(state, head=lens_heads(screen.session, state)[0]) if state.second is not None else state
    if key == "r":
        if state.view.order is None:
            return replace(state, message="layers are in order; o sorts by a metric")
        state = replace(state, view=replace(state.view, ascending=not state.view.ascending))
        return _told_order(state) if state.opened else first_ranked(screen, state)
    names: list[str | None] = [None, *screen.session.ranking.names]
    step = -1 if key == "O" else 1
    state = sort_by(screen, state, names[(names.index(state.view.order) + step) % len(names)])
    return _told_order(state) if state.opened else state


def _told_order(state: State) -> State:
    """In a head the order is that of Tab."""
    order = "in the order of layers"
    if state.view.order is not None:
        order = f"by {state.view.order}, the {'least' if state.view.ascending else 'most'} first"
    return replace(state, message=f"Tab goes through heads {order}")


def _turn(state: State) -> State:
    """From what a token attends to, to what attends to it, and back."""
    return replace(
        state,
        direction="from" if state.direction == "to" else "to",
        query=state.key,
        key=state.query,
        second=None,
        column=0,
    )


def _lens(screen: Screen, state: State, key: str) -> State:
    """The cursor's query in all heads at once."""
    if state.lens and not state.opened:
        return replace(state, message="this is the token in all heads; / finds another, Enter opens the head")
    sources = screen.session.made_of(state.head)[1]
    return replace(
        state, head=sources[0], opened=False, lens=True, direction="to", second=None, top=0, column=0, beside=()
    )


def _why(screen: Screen, state: State, key: str) -> State:
    if not state.opened:
        return replace(state, message="Enter opens a head; x tells there why a weight is what it is")
    return replace(state, why=not state.why)


def _theme(screen: Screen, state: State, key: str) -> State:
    """The terminal's own colours, then light ones, then dark ones."""
    if screen.colors <= ANSI_COLORS:
        return replace(state, message="this terminal has few colours; its own are used")
    theme = NAMES[(NAMES.index(state.theme) + 1) % len(NAMES)]
    told = "the terminal's own colours" if theme == "terminal" else f"{theme} colours"
    return replace(state, theme=theme, message=told)


def _history(screen: Screen, state: State, key: str) -> State:
    return go_forward(state) if key == "B" else go_back(state)


def _ask(screen: Screen, state: State, key: str) -> State:
    if key == "s":
        name = screen.session.names[state.head].replace(" ", "-").replace("−", "minus").replace(",", "")
        typed = f"head-{name}.svg" if state.opened else "heads.svg"
        return replace(state, prompt="save", typed=typed, offered=True)
    if key == "f":
        return replace(state, prompt="filter", typed=state.view.filter, offered=bool(state.view.filter))
    prompts: dict[str, Prompt] = {"slash": "query", "backslash": "key", "y": "copy"}
    return replace(state, prompt=prompts[key], typed="", offered=False)


def _again(screen: Screen, state: State, key: str) -> State:
    if not state.sought or not (state.opened or state.lens):
        return replace(state, message="/ finds a query, \\ a key")
    return find(screen, state, state.sought, -1 if key == "N" else 1)


def _help(screen: Screen, state: State, key: str) -> State:
    return replace(state, help=1)


def _quit(screen: Screen, state: State, key: str) -> State:
    return state


TOGETHER: dict[str, Together] = {"d": "difference", "m": "mean", "M": "max", "R": "rollout"}
MORE_HELP = ("question_mark", "down", "pagedown", "space")
MAX_SIDE_BY_SIDE = 6  # heads
ARROWS = ("up", "down", "left", "right")
BINDINGS = (
    Binding((*ARROWS, *(f"shift+{arrow}" for arrow in ARROWS)), "arrows", "move; with Shift by ten", _move),
    Binding(("pageup", "pagedown"), "PgUp PgDn", "a screenful up or down", _page),
    Binding(("home", "end"), "Home End", "the first or the last", _end),
    Binding(("enter",), "Enter", "open the head; zoom in", _enter),
    Binding(("escape", "backspace"), "Esc", "zoom out, then back", _back),
    Binding(("b", "B", "ctrl+o"), "b B", "place before; forward again", _history),
    Binding(
        ("tab", "shift+tab", "right_square_bracket", "left_square_bracket"),
        "Tab ] [",
        "next head, previous head",
        _next_head,
    ),
    Binding(("a",), "a", "the query in all heads", _lens),
    Binding(("space",), "Space", "mark the head", _mark),
    Binding(("m", "M", "R"), "m M R", "marked: mean, max, rollout", _together),
    Binding(("plus", "minus", "0"), "+ - 0", "zoom in, out, all", _zoom),
    Binding(("equals_sign",), "=", "marked heads side by side", _zoom),
    Binding(("g",), "g", "the next strongest key", _strongest),
    Binding(("v",), "v", "scores or weights", _toggle),
    Binding(("l",), "l", "colours: sqrt, linear, log", _toggle),
    Binding(("c",), "c", "colour scale: shared, own", _toggle),
    Binding(("h",), "h", "theme: own, light, dark", _theme),
    Binding(("p",), "p", "pooled: maximum or mean", _toggle),
    Binding(("w",), "w", "join tokens into words", _toggle_tokens),
    Binding(("t",), "t", "hide special tokens", _toggle_tokens),
    Binding(("d",), "d", "difference: marked, or runs", _difference),
    Binding(("o", "O", "r"), "o O r", "sort by metrics; reverse", _sort),
    Binding(("slash",), "/", "find a query, head, order", _ask),
    Binding(("backslash",), "\\", "find a key", _ask),
    Binding(("f",), "f", "filter: previous>0.5", _ask),
    Binding(("x",), "x", "why this weight: q·k", _why),
    Binding(("y",), "y", "copy cells, command, place", _ask),
    Binding(("n", "N"), "n N", "find the next, the previous", _again),
    Binding(("s",), "s", "save: SVG, PNG, PDF", _ask),
    Binding(("colon", "ctrl+p"), ":", "all actions by their names", _help),
    Binding(("question_mark", "f1"), "?", "these keys", _help),
    Binding(("q",), "q", "quit", _quit),
)
BY_KEY = {key: binding for binding in BINDINGS for key in binding.keys}
