"""Composes the last line: hints for keys, which are buttons too, or the prompt."""

from dataclasses import dataclass
from functools import cache

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.finding import matching_metrics
from attnviz.browse.moves.keys import BINDINGS, Place
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Beside, Box, Words


@dataclass(frozen=True)
class Hint:
    """A key in the last line, a button for the mouse.

    Attributes:
        key: textual's name of the key.
        shown: the key as it is written.
        does: what the key does, in a word or two.
    """

    key: str
    shown: str
    does: str

    @property
    def width(self) -> int:
        """The columns of the hint, spaces included."""
        return len(self.shown) + len(self.does) + 3


PROMPTS = {"query": "find query", "key": "find key", "filter": "filter", "save": "save as", "copy": "copy"}
WRITTEN = {
    "enter": "Enter",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "slash": "/",
    "backslash": "\\",
    "space": "Space",
    "equals_sign": "=",
    "plus": "+",
    "minus": "-",
    "question_mark": "?",
    "colon": ":",
}


def key_label(key: str) -> str:
    """Returns a key as the last line and the palette write it."""
    return WRITTEN.get(key, key)


def _hint(key: str, does: str) -> Hint:
    return Hint(key, key_label(key), does)


HELP, QUIT, BACK = _hint("question_mark", "keys"), _hint("q", "quit"), _hint("escape", "back")
COPY_HINTS = (
    *(_hint("c", "cell"), _hint("r", "row"), _hint("t", "table")),
    *(_hint("l", "command line"), _hint("p", "place"), BACK),
)


@cache
def hints_of(place: Place) -> tuple[Hint, ...]:
    """Returns the hints of a place, by rank."""
    ranked = [
        (hint.rank, _hint(hint.key or binding.keys[0], hint.does))
        for binding in BINDINGS
        for hint in binding.hints
        if hint.place == place
    ]
    return tuple(hint for _, hint in sorted(ranked, key=lambda pair: pair[0]))


def hints(state: State, width: int) -> tuple[Hint, ...]:
    """Returns the hints that fit the width; help and quit are always among them."""
    if state.prompt == "copy":
        return COPY_HINTS
    marked = len(state.marked) > 1 and not state.beside
    fitting = list(hints_of("marked" if marked else "head" if state.opened else "lens" if state.lens else "heads"))
    last = (HELP, QUIT)
    while fitting and sum(hint.width for hint in (*fitting, *last)) > width:
        fitting.pop(-2 if fitting[-1] == BACK and len(fitting) > 1 else -1)
    return (*fitting, *last)


def hint_at(shown: tuple[Hint, ...], column: int) -> Hint | None:
    """Returns the button under a column of the line; ``None`` if there is none."""
    for hint in shown:
        if 0 < column + 1 <= hint.width:
            return hint
        column -= hint.width
    return None


def last_line(screen: Screen, state: State) -> Box:
    """Returns the last line: hints, or the prompt with suggestions."""
    if state.prompt is None:
        return Beside(tuple(_hint_words(hints(state, screen.size.width))))
    if state.prompt == "copy":
        return Beside((Words(" copy:", style="bold"), *_hint_words(COPY_HINTS)))
    name = PROMPTS[state.prompt]
    free = screen.size.width - len(name) - 5
    typed = state.typed if cell_len(state.typed) <= free else "…" + state.typed[-free + 1 :]
    line = Words(f" {name}: ", style="bold"), Words(typed, style="reverse" if state.offered else "")
    return Beside((*line, Words(" ", style="reverse"), _offered(screen, state)))


def _hint_words(shown: tuple[Hint, ...]) -> list[Words]:
    """Returns the words of each hint, as wide as its button."""
    return [Words(f" {hint.shown} {hint.does} ", style="dim") for hint in shown]


def _offered(screen: Screen, state: State) -> Words:
    """Returns suggestions for the prompt."""
    free = screen.size.width - cell_len(state.typed) - len(PROMPTS[state.prompt or "query"]) - 4
    if state.prompt == "filter":
        text = "" if state.typed else "  such as previous>0.5 layer:3-5 -uniform; empty shows all heads"
    elif state.prompt != "query" or state.opened or state.lens:
        text = ""
    else:
        names = matching_metrics(state.typed, screen.session.ranking.names)
        text = "" if state.typed else f"  token, head ({screen.session.names[0]}) or metric: "
        text += ("  " if state.typed and names else "") + " ".join(names)
    return Words(text, max(0, min(cell_len(text), free)), "dim")
