"""Holds the table of keys: what each key does, and its entry in the help, the palette and the hints."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

from attnviz.browse.moves.cursor import (
    Screen,
    enter,
    go_to_end,
    go_to_next_strongest,
    leave,
    move,
    next_head,
    open_lens,
    page,
    settle,
    zoom,
)
from attnviz.browse.moves.finding import find
from attnviz.browse.moves.place import go_in_history, with_history
from attnviz.browse.moves.showing import (
    combine_marked,
    mark,
    next_theme,
    open_side_by_side,
    sort,
    subtract,
    toggle,
    toggle_tokens,
    toggle_why,
)
from attnviz.browse.moves.steps import NEXT, PREVIOUS, play, step
from attnviz.browse.session.state import Prompt, State
from attnviz.maps.heads import head_name

Place = Literal["heads", "head", "lens", "marked"]
STEP_KEYS = (NEXT, PREVIOUS, "P")
ARROWS = ("up", "down", "left", "right")


class Binding(NamedTuple):
    """Keys that share one function, which returns the state after a press of one of them."""

    keys: tuple[str, ...]  # textual's names
    label: str  # the keys as the list of keys writes them
    description: str  # what the keys do, in a few words
    press: Callable[[Screen, State, str], State]
    actions: tuple[str, ...] | None = None  # names for the palette, one per key; None: the description for the first

    @property
    def palette_entries(self) -> tuple[tuple[str, str], ...]:
        """The entries of the palette: names, and textual's names of the keys that they press."""
        return tuple(zip((self.description,) if self.actions is None else self.actions, self.keys, strict=False))


def press(screen: Screen, state: State, key: str) -> State:
    """Returns the state after a key press, which its binding answers; the same state if it is not bound.

    An answer clears the message, stops playing, and adds the old place to the history if the place changes. Keys other
    than `STEP_KEYS` end the steps. A terminal that is too small answers no key.
    """
    binding = BY_KEY.get(key)
    if binding is None or not screen.size.is_large_enough:
        return state
    old_state = replace(state, message="", playing=False)
    new_state = settle(screen, binding.press(screen, old_state, key))
    is_step = key in STEP_KEYS
    return with_history(old_state, new_state if is_step else replace(new_state, steps=False))


def _open_prompt(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the prompt of a key open."""
    if key == "s":
        name_in_file = screen.session.names[state.head].replace(" ", "-").replace("−", "minus").replace(",", "")
        suggestion = f"head-{name_in_file}.svg" if state.has_open_head else "heads.svg"
        return replace(state, prompt="save", prompt_text=suggestion)
    prompts: dict[str, Prompt] = {"slash": "query", "backslash": "key", "f": "filter", "y": "copy"}
    return replace(state, prompt=prompts[key], prompt_text=state.view.filter if key == "f" else "")


def _name_head(screen: Screen, state: State, key: str) -> State:
    """Returns the state with the prompt for the head's name open, which suggests the present name, if any."""
    session = screen.session
    if state.head >= session.recorded_count:
        return replace(state, message="several heads together have no name; Esc goes back to one")
    if not session.names_file:
        return replace(state, message="names are kept in a file; start browse with --names heads.txt")
    maps, number = session.heads[state.head]
    name = session.ranking.given_names.get(head_name(maps, number), "")
    return replace(state, prompt="name", prompt_text=name)


def _find_again(screen: Screen, state: State, key: str) -> State:
    """Returns the state on the next match of the last search, or for ``N`` on the previous one."""
    if not state.search_text or not (state.has_open_head or state.lens):
        return replace(state, message="nothing to find again; / finds a query, \\ a key")
    return find(screen, state, state.search_text, -1 if key == "N" else 1)


def _leave_state(screen: Screen, state: State, key: str) -> State:
    """Returns the state unchanged: the application answers this key."""
    return state


# fmt: off
BINDINGS = (
    Binding((*ARROWS, *(f"shift+{arrow}" for arrow in ARROWS)), "arrows", "move; ten cells with Shift", move, ()),
    Binding(("pageup", "pagedown"), "PgUp PgDn", "a screenful up or down", page, ()),
    Binding(("home", "end"), "Home End", "go to the first or last", go_to_end, ()),
    Binding(("enter",), "Enter", "open the head; zoom in", enter, ("open the head",)),
    Binding(("escape", "backspace"), "Esc", "zoom out, then back", leave,
            ("go back: from the zoom, the head, the lens",)),
    Binding(("b", "B", "ctrl+o"), "b B", "previous place, next place", go_in_history, ("previous place", "next place")),
    Binding(("tab", "shift+tab", "right_square_bracket", "left_square_bracket"), "Tab ] [", "next head, previous head",
            next_head, ("next head", "previous head")),
    Binding(("a",), "a", "show the query in all heads", open_lens, ("show the token in all heads",)),
    Binding(("space",), "Space", "mark the head", mark),
    Binding(("m", "M", "R"), "m M R", "mean, max, rollout of marks", combine_marked,
            ("mean of the marked heads", "maximum of the marked heads", "rollout of the marked heads")),
    Binding(("plus", "minus", "0"), "+ - 0", "zoom in, out, whole map", zoom,
            ("zoom in", "zoom out", "show the whole map")),
    Binding(("equals_sign",), "=", "marked heads side by side", open_side_by_side),
    Binding(("g",), "g", "go to the next strongest key", go_to_next_strongest,
            ("go to the query's next strongest key",)),
    Binding((NEXT, PREVIOUS), ". ,", "next, previous written token", step,
            ("what the next written token looked at", "what the previous written token looked at")),
    Binding(("P",), "P", "play token by token", play),
    Binding(("v",), "v", "show scores or weights", toggle),
    Binding(("l",), "l", "colours: sqrt, linear, log", toggle, ("colour steps: square root, linear, log",)),
    Binding(("c",), "c", "colour scale: shared or own", toggle, ("one colour scale, or one per head",)),
    Binding(("h",), "h", "theme: terminal, light, dark", next_theme, ("theme: the terminal's colours, light, dark",)),
    Binding(("p",), "p", "pool by maximum or mean", toggle, ("pool cells by maximum or mean",)),
    Binding(("w",), "w", "join tokens into words", toggle_tokens),
    Binding(("t",), "t", "hide special tokens", toggle_tokens),
    Binding(("d",), "d", "difference of heads or runs", subtract,
            ("difference of two marked heads, or to the other recording",)),
    Binding(("o", "O", "r"), "o O r", "sort by a metric, or reverse", sort,
            ("sort by the next metric; in the lens, by the weight on this token", "sort by the previous metric",
             "reverse the order; in the lens, show who looks at the token")),
    Binding(("slash",), "/", "find a query, head or metric", _open_prompt),
    Binding(("backslash",), "\\", "find a key", _open_prompt),
    Binding(("f",), "f", "filter heads: sink>0.5", _open_prompt, ("filter heads",)),
    Binding(("x",), "x", "why this weight: q·k", toggle_why, ("why this weight: q, k and q·k by feature",)),
    Binding(("y",), "y", "copy cells, command, place", _open_prompt,
            ("copy the cell, row, table, command or place",)),
    Binding(("n", "N"), "n N", "find the next or previous", _find_again, ("find the next", "find the previous")),
    Binding(("s",), "s", "save as SVG, PNG, PDF", _open_prompt, ("save the screen as a picture",)),
    Binding(("colon", "ctrl+p"), ":", "list all actions", _leave_state, ()),
    Binding(("e",), "e", "name the head", _name_head),
    Binding(("question_mark", "f1"), "?", "show these keys", _leave_state, ("show all keys",)),
    Binding(("q",), "q", "quit", _leave_state, ()),
)
# The hints in the last line of the screen, in each mode; where space is short, the last ones are left out first.
HINTS: dict[Place, tuple[tuple[str, str], ...]] = {
    "heads": (
        ("enter", "open"), ("slash", "find"), ("o", "sort"), ("f", "filter"), ("space", "mark"), ("a", "in all heads"),
        ("y", "copy"), ("s", "save"), ("colon", "actions"),
    ),
    "head": (
        ("plus", "zoom"), ("slash", "find"), ("a", "in all heads"), ("g", "strongest"), ("tab", "next head"),
        ("space", "mark"), ("x", "why"), ("y", "copy"), ("s", "save"), ("colon", "actions"), ("escape", "back"),
    ),
    "lens": (
        ("enter", "open"), ("o", "sort by this token"), ("r", "who looks at it"), ("slash", "find"), ("space", "mark"),
        ("f", "filter"), ("y", "copy"), ("colon", "actions"), ("escape", "back"),
    ),
    "marked": (
        ("equals_sign", "side by side"), ("d", "difference"), ("m", "mean"), ("M", "maximum"), ("R", "rollout"),
        ("space", "mark"), ("escape", "back"),
    ),
}
# fmt: on
BY_KEY = {key: binding for binding in BINDINGS for key in binding.keys}
ACTIONS = tuple(action for binding in BINDINGS for action in binding.palette_entries)
