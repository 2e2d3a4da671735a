"""The last line: which keys do what here, as buttons, or what is being typed."""

from dataclasses import dataclass
from functools import cache

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.finding import metrics_meant
from attnviz.browse.moves.keys import BINDINGS, Place
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Beside, Box, Words


@dataclass(frozen=True)
class Hint:
    """A key of the last line.

    Attributes:
        key: as textual names it.
        shown: as it is written.
        does: in a word or two.
    """

    key: str
    shown: str
    does: str

    @property
    def width(self) -> int:
        """Columns that it takes."""
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


def written(key: str) -> str:
    """A key as the last line and the palette write it."""
    return WRITTEN.get(key, key)


def _hint(key: str, does: str) -> Hint:
    return Hint(key, written(key), does)


HELP, QUIT, BACK = _hint("question_mark", "keys"), _hint("q", "quits"), _hint("escape", "back")
COPY_HINTS = (
    *(_hint("c", "cell"), _hint("r", "row"), _hint("t", "table")),
    *(_hint("l", "command line"), _hint("p", "place"), BACK),
)


@cache
def hints_of(place: Place) -> tuple[Hint, ...]:
    """The hints that the keys have for a place, in their order."""
    ranked = [
        (hint.rank, _hint(hint.key or binding.keys[0], hint.does))
        for binding in BINDINGS
        for hint in binding.hints
        if hint.place == place
    ]
    return tuple(hint for _, hint in sorted(ranked, key=lambda pair: pair[0]))


def hints(state: State, width: int) -> tuple[Hint, ...]:
    """Those for which there is room, the help and how to leave always among them."""
    if state.prompt == "copy":
        return COPY_HINTS
    marked = len(state.marked) > 1 and not state.beside
    kept = list(hints_of("marked" if marked else "head" if state.opened else "lens" if state.lens else "heads"))
    last = (HELP, QUIT)
    while kept and sum(hint.width for hint in (*kept, *last)) > width:
        kept.pop(-2 if kept[-1] == BACK and len(kept) > 1 else -1)
    return (*kept, *last)


def hint_at(shown: tuple[Hint, ...], column: int) -> Hint | None:
    """The button under a column of the line."""
    for hint in shown:
        if 0 < column + 1 <= hint.width:
            return hint
        column -= hint.width
    return None


def last_line(screen: Screen, state: State) -> Box:
    """The keys, or what is being typed and what may be."""
    if state.prompt is None:
        return Beside(tuple(_hint_words(hints(state, screen.size.width))))
    if state.prompt == "copy":
        return Beside((Words(" copy:", style="bold"), *_hint_words(COPY_HINTS)))
    asked = PROMPTS[state.prompt]
    room = screen.size.width - len(asked) - 5
    typed = state.typed if cell_len(state.typed) <= room else "…" + state.typed[-room + 1 :]
    line = Words(f" {asked}: ", style="bold"), Words(typed, style="reverse" if state.offered else "")
    return Beside((*line, Words(" ", style="reverse"), _offered(screen, state)))


def _hint_words(shown: tuple[Hint, ...]) -> list[Words]:
    """Each key and what it does: buttons for the mouse."""
    return [Words(f" {hint.shown} {hint.does} ", style="dim") for hint in shown]


def _offered(screen: Screen, state: State) -> Words:
    """What may be typed."""
    room = screen.size.width - cell_len(state.typed) - len(PROMPTS[state.prompt or "query"]) - 4
    if state.prompt == "filter":
        text = "" if state.typed else "  previous>0.5 layer:3-5   sink<.2 -uniform   nothing: all"
    elif state.prompt != "query" or state.opened or state.lens:
        text = ""
    else:
        names = metrics_meant(state.typed, screen.session.ranking.names)
        text = "" if state.typed else f"  a token; {screen.session.names[0]}; or what to sort by: "
        text += ("  " if state.typed and names else "") + " ".join(names)
    return Words(text, max(0, min(cell_len(text), room)), "dim")
