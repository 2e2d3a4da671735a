"""Composes the last line of the screen: hints for keys, which are also buttons, or the prompt."""

from dataclasses import dataclass
from functools import cache

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.finding import matching_metrics
from attnviz.browse.moves.keys import BINDINGS, Place
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import Box, BoxRow, StyledText


@dataclass(frozen=True)
class Hint:
    """A key in the last line, a button for the mouse.

    Attributes:
        key: textual's name of the key.
        label: the key as the screen writes it.
        description: what the key does, in a word or two.
    """

    key: str
    label: str
    description: str

    @property
    def width(self) -> int:
        """The width of the hint in columns, spaces included."""
        return len(self.label) + len(self.description) + 3


PROMPTS = {
    "query": "find query",
    "key": "find key",
    "filter": "filter",
    "save": "save as",
    "copy": "copy",
    "name": "name of the head",
}
KEY_LABELS = {
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
    return KEY_LABELS.get(key, key)


def _hint(key: str, description: str) -> Hint:
    """Returns the hint for a key, labelled as the last line writes it."""
    return Hint(key, key_label(key), description)


HELP, QUIT, BACK = _hint("question_mark", "keys"), _hint("q", "quit"), _hint("escape", "back")
COPY_HINTS = (
    *(_hint("c", "cell"), _hint("r", "row"), _hint("t", "table")),
    *(_hint("l", "command line"), _hint("p", "place"), BACK),
)


@cache
def hints_of(place: Place) -> tuple[Hint, ...]:
    """Returns all hints of a mode of the inspector (``heads``, ``head``, ``lens`` or ``marked``), by rank."""
    ranked = [
        (hint.rank, _hint(hint.key or binding.keys[0], hint.description))
        for binding in BINDINGS
        for hint in binding.hints
        if hint.place == place
    ]
    return tuple(hint for _, hint in sorted(ranked, key=lambda pair: pair[0]))


def hints(state: State, width: int) -> tuple[Hint, ...]:
    """Returns the hints for the state that fit ``width`` columns; those for help and quit are always among them.

    The hint for going back stays longer than the others.
    While the prompt to copy is open, they are its keys, all of them.
    """
    if state.prompt == "copy":
        return COPY_HINTS
    has_several_marked = len(state.heads_to_combine) > 1 and not state.heads_beside
    if has_several_marked:
        place: Place = "marked"
    elif state.has_open_head:
        place = "head"
    else:
        place = "lens" if state.lens else "heads"
    fitting_hints = list(hints_of(place))
    always_shown = (HELP, QUIT)
    while fitting_hints and sum(hint.width for hint in (*fitting_hints, *always_shown)) > width:
        keeps_last = fitting_hints[-1] == BACK and len(fitting_hints) > 1
        fitting_hints.pop(-2 if keeps_last else -1)
    return (*fitting_hints, *always_shown)


def hint_at(line_hints: tuple[Hint, ...], column: int) -> Hint | None:
    """Returns the hint under a column of the line; ``None`` if none is there."""
    for hint in line_hints:
        if 0 <= column < hint.width:
            return hint
        column -= hint.width
    return None


def last_line(screen: Screen, state: State) -> Box:
    """Composes the last line: hints, or an open prompt with suggestions and its text; of a long text only the end."""
    if state.prompt is None:
        return BoxRow(tuple(_hint_texts(hints(state, screen.size.width))))
    if state.prompt == "copy":
        return BoxRow((StyledText(" copy:", style="bold"), *_hint_texts(COPY_HINTS)))
    finds_all = state.prompt == "query" and not state.has_open_head and not state.lens  # heads and metrics too
    name = "find" if finds_all else PROMPTS[state.prompt]
    free_columns = screen.size.width - len(name) - 5
    typed_text = state.prompt_text
    if cell_len(typed_text) > free_columns:
        typed_text = "…" + typed_text[-free_columns + 1 :]
    line = StyledText(f" {name}: ", style="bold"), StyledText(typed_text, style="reverse" if state.suggested else "")
    return BoxRow((*line, StyledText(" ", style="reverse"), _suggestions(screen, state)))


def _hint_texts(line_hints: tuple[Hint, ...]) -> list[StyledText]:
    """Returns the text of each hint, as wide as its button."""
    return [StyledText(f" {hint.label} {hint.description} ", style="dim") for hint in line_hints]


def _suggestions(screen: Screen, state: State) -> StyledText:
    """Returns the suggestions after the typed text, cut to the free columns.

    They are an example of a filter, or in the overview the metrics that begin with the text; "" for other prompts.
    """
    free_columns = screen.size.width - cell_len(state.prompt_text) - len(PROMPTS[state.prompt or "query"]) - 4
    if state.prompt == "filter":
        text = "" if state.prompt_text else "  such as previous>0.5 layer:3-5 -uniform; empty shows all heads"
    elif state.prompt != "query" or state.has_open_head or state.lens:
        text = ""
    else:
        names = matching_metrics(state.prompt_text, screen.session.ranking.names)
        text = "" if state.prompt_text else f"  token, head ({screen.session.names[0]}) or metric: "
        text += ("  " if state.prompt_text and names else "") + " ".join(names)
    return StyledText(text, max(0, min(cell_len(text), free_columns)), "dim")
