"""Draws the inspector's screen: title, body, status and hints, with the areas that answer the mouse.

Modules that the first screen does not need are imported when their body is shown.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.finding import matching_metrics
from attnviz.browse.moves.keys import HINTS, Place
from attnviz.browse.moves.layout import ANSI_COLORS, FIXED_LINES
from attnviz.browse.session.state import MIN_SCREEN_SIZE, State
from attnviz.browse.view.cells import quantity_text
from attnviz.browse.view.overview import overview_body
from attnviz.browse.view.parts import (
    Hit,
    ScreenPart,
    ascii_line,
    below,
    beside,
    line_part,
    padded_line,
    sized,
    themed_line,
    words,
)
from attnviz.render.terminal.lines import Line, Span, wrap
from attnviz.report.words.captions import model_name, text_title

MAX_BLANK_COLUMNS = 12  # free columns of the title line that stay blank: nobody could read a name cut to them
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
PROMPTS = {"key": "find key", "filter": "filter", "save": "save as", "name": "name of the head"}
FILTER_EXAMPLE = " such as sink>0.5 layer:3-5 -uniform; empty shows all heads"


class Hint(NamedTuple):
    """A key in the last line, a button for the mouse, and what it does in a word or two."""

    key: str  # textual's name
    description: str

    @property
    def text(self) -> str:
        """The key and its description as the last line writes them."""
        return f" {key_label(self.key)} {self.description} "


HELP, QUIT, BACK = Hint("question_mark", "keys"), Hint("q", "quit"), Hint("escape", "back")
COPY_HINTS = (
    *(Hint("c", "cell"), Hint("r", "row"), Hint("t", "table")),
    *(Hint("l", "command line"), Hint("p", "place"), BACK),
)


def draw_screen(screen: Screen, state: State, ascii: bool = False) -> list[Line]:
    """Returns the lines of the screen for a state, each exactly as wide as the terminal."""
    return drawn_lines(compose(screen, state), screen, state, ascii)


def drawn_lines(part: ScreenPart, screen: Screen, state: State, ascii: bool) -> list[Line]:
    """Returns the lines of a composed screen, each exactly as wide as the terminal, in ASCII or in the theme."""
    lines = [padded_line(line, screen.size.width) for line in part.lines]
    if ascii:
        return [ascii_line(line) for line in lines]
    return lines if screen.colors <= ANSI_COLORS else [themed_line(line, state.theme) for line in lines]


def compose(screen: Screen, state: State) -> ScreenPart:
    """Returns the whole screen: a head, the lens or the overview; a refusal if the terminal is too small.

    A message replaces the status, and a long one the hints as well.
    """
    size, message = screen.size, state.message
    if not size.is_large_enough:
        refusal = f"attnviz browse needs {MIN_SCREEN_SIZE[0]} x {MIN_SCREEN_SIZE[1]} characters; q quits"
        return sized(line_part(words(refusal)), size.height)
    if state.has_open_head:
        from attnviz.browse.view.head import head_body

        body_title, body, status = head_body(screen, state)
    elif state.lens:
        from attnviz.browse.view.lens import lens_body

        body_title, body, status = lens_body(screen, state)
    else:
        body_title, body, status = overview_body(screen, state)
    if suggestions := prompt_suggestions(screen, state):
        status = [words(suggestions, style="dim")]
    if message:
        status = [words(f" {message}", style="bold")]

    label = " copy:" if state.prompt == "copy" else ""
    buttons = [
        (line_part(words(hint.text, style="dim"), hit=Hit({}, hint.key), width=len(hint.text)), len(hint.text))
        for hint in hints(state, size.width)
    ]
    last_lines = below(line_part(*status), beside((line_part(words(label, style="bold")), len(label)), *buttons))
    if message and state.prompt is None and cell_len(message) > size.width - 1:
        last_lines = ScreenPart([[words(f" {line}", style="bold")] for line in wrap(message, size.width - 2)])
    body_part = sized(below(_title(screen, state, body_title), body), size.height - FIXED_LINES + 1)
    return below(body_part, sized(last_lines, FIXED_LINES - 1))


def _title(screen: Screen, state: State, body_title: str) -> ScreenPart:
    """Returns the title line: at the left the body's title and the toggles, at the right the model and the text."""
    session, view = screen.session, state.view
    weights_name = "weights" if "weight" in session.weight_quantity.name else "contributions"
    if state.has_open_head:
        view = session.view_of(state.head, view)
    toggles = [f"change of {weights_name}" if view.difference else "scores" if view.scores else weights_name]
    toggles += [view.steps] if view.steps != "sqrt" and not view.scores and not view.difference else []
    toggles += ["own scale"] if view.own_scale else []
    toggles += ["mean"] if view.mean else []
    toggles += [session.unit_name] if view.words else []
    toggles += [] if view.special else ["no special"]
    if view.filter and not state.has_open_head:
        toggles.append(view.filter + ("" if session.ranking.can_filter(view.filter) else " …"))
    if view.order and not state.has_open_head:
        ending = "" if session.ranking.is_sorted(view) else " …"
        toggles.append(f"by {view.order}{' ascending' if view.ascending else ''}{ending}")
    recording = session.recording
    title = f" {body_title}  {' · '.join(toggles)} "
    source = f" {model_name(recording)}: {text_title(recording)} " if recording.text else f" {model_name(recording)} "
    free_columns = screen.size.width - cell_len(title)
    width = min(free_columns, cell_len(source)) if free_columns > MAX_BLANK_COLUMNS else 0
    return line_part(
        words(title, style="reverse bold"),
        words(" " * max(0, free_columns - width), style="reverse"),
        words(source if width else "", width, "reverse"),
    )


def key_label(key: str) -> str:
    """Returns a key as the last line and the palette write it."""
    return KEY_LABELS.get(key, key)


def hints(state: State, width: int) -> tuple[Hint, ...]:
    """Returns the hints for the state that fit ``width`` columns, and always those for the keys and the end.

    The last hints are left out first; the hint for going back is left out after all others. While the prompt to
    copy is open, returns all of its keys instead.
    """
    if state.prompt == "copy":
        return COPY_HINTS
    place: Place = "head" if state.has_open_head else "lens" if state.lens else "heads"
    if len(state.heads_to_combine) > 1 and not state.heads_beside:
        place = "marked"
    fitting_hints = [Hint(*hint) for hint in HINTS[place]]
    while fitting_hints and sum(len(hint.text) for hint in (*fitting_hints, HELP, QUIT)) > width:
        keeps_last = fitting_hints[-1] == BACK and len(fitting_hints) > 1
        fitting_hints.pop(-2 if keeps_last else -1)
    return (*fitting_hints, HELP, QUIT)


def prompt_label(state: State) -> str:
    """Returns the name of the open prompt; in the overview one prompt finds heads and metrics, too."""
    if state.prompt == "query":
        return "find query" if state.has_open_head or state.lens else "find"
    return PROMPTS[state.prompt or "save"]


def prompt_suggestions(screen: Screen, state: State) -> str:
    """Returns an example of a filter until a text is typed, or in the overview the metrics that begin with the text."""
    if state.prompt == "filter" and not state.prompt_text:
        return FILTER_EXAMPLE
    if state.prompt != "query" or state.has_open_head or state.lens:
        return ""
    metrics = " ".join(matching_metrics(state.prompt_text, screen.session.ranking.names))
    if not state.prompt_text:
        return f" token, head ({screen.session.names[0]}) or metric: {metrics}"
    return f" {metrics}" if metrics else ""


def clicked(part: ScreenPart, state: State, x: int, y: int, is_double: bool) -> tuple[str, State]:
    """Returns the key that a click on a screen stands for, "" for none, and the state after the click.

    It stands for Enter, which opens the head, if it is double and on a head that is not open.
    """
    hit = part.hit(x, y)
    is_on_hints = y == len(part.lines) - 1
    if state.prompt is not None and not (is_on_hints and state.prompt == "copy"):
        return "", replace(state, prompt=None, prompt_text="")
    if is_on_hints or not y:
        return "" if hit is None else hit.key, state
    changed_state = replace(state, message="", **({} if hit is None else hit.changes))
    opens_head = hit is not None and is_double and not state.has_open_head
    return "enter" if opens_head else "" if hit is None else hit.key, changed_state


def described(screen: Screen, state: State, part: ScreenPart, x: int, y: int) -> str:
    """Returns a description of the head or the cell under the pointer in one line; "" if there is none."""
    hit, session = part.hit(x, y), screen.session
    if hit is None or (hit.cell is None and (state.has_open_head or state.lens or "head" not in hit.changes)):
        return ""
    if hit.cell is None:
        head = hit.changes["head"]
        return f"{session.title(head)}: {session.ranking.description(head)}".rstrip(": ")  # which may be empty
    head, query, key = hit.cell
    view = session.view_of(head, state.view)
    queries, keys = session.units(head, view)
    block = session.cells(head, view, slice(query, query + 1), slice(key, key + 1), height=1, width=1)
    number = quantity_text(session.quantity(view), float(np.ravel(block.values)[0]))
    value = number if block.visible.all() else "masked"
    first_query, first_key = queries.starts[query], keys.starts[key]
    return f"{session.title(head)}: {queries.labels[query]} ({first_query}) → {keys.labels[key]} ({first_key}) {value}"


def description_line(description: str, screen: Screen, state: State) -> Line:
    """Returns a description as a line of the screen."""
    return themed_line(padded_line([Span(f" {description}")], screen.size.width), state.theme)
