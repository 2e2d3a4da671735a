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
class _Hint:
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


def _hint(key: str, description: str) -> _Hint:
    """Returns the hint for a key, labelled as the last line writes it."""
    return _Hint(key, key_label(key), description)


HELP, QUIT, BACK = _hint("question_mark", "keys"), _hint("q", "quit"), _hint("escape", "back")
COPY_HINTS = (
    *(_hint("c", "cell"), _hint("r", "row"), _hint("t", "table")),
    *(_hint("l", "command line"), _hint("p", "place"), BACK),
)


@cache
def _hints_of(place: Place) -> tuple[_Hint, ...]:
    """Returns all hints of a mode of the inspector (``heads``, ``head``, ``lens`` or ``marked``), lowest rank first.

    A hint that names no key of its own has the first key of its binding.
    """
    keys_and_hints = [(binding.keys[0], hint) for binding in BINDINGS for hint in binding.hints]
    hints_of_mode = [(key, hint) for key, hint in keys_and_hints if hint.place == place]
    hints_of_mode.sort(key=lambda pair: pair[1].rank)
    return tuple(_hint(hint.key or key, hint.description) for key, hint in hints_of_mode)


def hints(state: State, width: int) -> tuple[_Hint, ...]:
    """Returns the hints for the state that fit ``width`` columns, and always those for help and quit.

    The last hints are left out first; the hint for going back is left out after all others. While the prompt to
    copy is open, returns all of its keys instead.
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
    fitting_hints = list(_hints_of(place))
    always_shown = (HELP, QUIT)
    while fitting_hints and sum(hint.width for hint in (*fitting_hints, *always_shown)) > width:
        keeps_last = fitting_hints[-1] == BACK and len(fitting_hints) > 1
        fitting_hints.pop(-2 if keeps_last else -1)
    return (*fitting_hints, *always_shown)


def hint_at(line_hints: tuple[_Hint, ...], column: int) -> _Hint | None:
    """Returns the hint under a column of the line; ``None`` if none is there."""
    for hint in line_hints:
        if 0 <= column < hint.width:
            return hint
        column -= hint.width
    return None


def last_line(screen: Screen, state: State) -> Box:
    """Composes the last line: the hints; in the copy prompt its keys; in any other prompt the text and suggestions.

    Of a text longer than the line only the end is shown.
    """
    if state.prompt is None:
        return BoxRow(tuple(_hint_texts(hints(state, screen.size.width))))
    if state.prompt == "copy":
        return BoxRow((StyledText(" copy:", style="bold"), *_hint_texts(COPY_HINTS)))
    finds_all = state.prompt == "query" and not state.has_open_head and not state.lens  # heads and metrics too
    name = "find" if finds_all else PROMPTS[state.prompt]
    free_columns = screen.size.width - len(name) - 5  # two spaces, a colon, the cursor and a blank column
    typed_text = state.prompt_text
    if cell_len(typed_text) > free_columns:
        typed_text = "…" + typed_text[-free_columns + 1 :]
    line = (
        StyledText(f" {name}: ", style="bold"),
        StyledText(typed_text, style="reverse" if state.text_is_suggestion else ""),
    )
    return BoxRow((*line, StyledText(" ", style="reverse"), _suggestions(screen, state)))


def _hint_texts(line_hints: tuple[_Hint, ...]) -> list[StyledText]:
    """Returns the text of each hint, as wide as its button."""
    return [StyledText(f" {hint.label} {hint.description} ", style="dim") for hint in line_hints]


def _suggestions(screen: Screen, state: State) -> StyledText:
    """Composes the suggestions after the typed text, cut to the free columns."""
    name = PROMPTS[state.prompt or "query"]
    free_columns = screen.size.width - cell_len(state.prompt_text) - len(name) - 4  # two spaces, a colon, the cursor
    text = _suggestion_text(screen, state)
    return StyledText(text, max(0, min(cell_len(text), free_columns)), "dim")


def _suggestion_text(screen: Screen, state: State) -> str:
    """Returns an example of a filter until a text is typed, or in the overview the metrics that begin with the text."""
    if state.prompt == "filter":
        return "" if state.prompt_text else "  such as sink>0.5 layer:3-5 -uniform; empty shows all heads"
    if state.prompt != "query" or state.has_open_head or state.lens:
        return ""
    metrics = " ".join(matching_metrics(state.prompt_text, screen.session.ranking.names))
    if not state.prompt_text:
        return f"  token, head ({screen.session.names[0]}) or metric: {metrics}"
    return f"  {metrics}" if metrics else ""
