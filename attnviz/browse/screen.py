"""The inspector's screen, decided: the title, what is open, the status and the keys.

What the first screen does not show is imported when it is shown.
"""

from dataclasses import replace

from rich.cells import cell_len

from attnviz.browse.boxes import Below, Beside, Body, Box, ScreenView, Sized, Words, Wrapped
from attnviz.browse.cursor import Screen
from attnviz.browse.hints import COPY_HINTS, Hint, hints
from attnviz.browse.keys import BINDINGS
from attnviz.browse.layout import FIXED_LINES, help_columns, help_pages
from attnviz.browse.overview import overview_body
from attnviz.browse.state import MIN_SCREEN_SIZE, State
from attnviz.report.captions import model_name, text_title

PROMPTS = {"query": "find query", "key": "find key", "filter": "filter", "save": "save as", "copy": "copy"}


def compose(screen: Screen, state: State) -> ScreenView:
    """All that is on the screen, from the recording, the state and the size of the terminal."""
    if not screen.size.enough:
        boxes: tuple[Box, ...] = (Words(f"attnviz browse needs {MIN_SCREEN_SIZE[0]} x {MIN_SCREEN_SIZE[1]}; q quits"),)
    elif state.help:
        boxes = _help_lines(screen, state.help)
    elif state.lens and not state.opened:
        from attnviz.browse.lens import lay_out_lens, lens_body

        lens = lay_out_lens(screen, state)
        boxes = _framed(screen, lens.state, lens_body(lens))
    elif state.opened:
        from attnviz.browse.open_head import head_body

        boxes = _framed(screen, state, head_body(screen, state))
    else:
        boxes = _framed(screen, state, overview_body(screen, state))
    return ScreenView(boxes, screen.size, screen.colors, state.theme)


def _framed(screen: Screen, state: State, body: Body) -> tuple[Box, ...]:
    """The body between the title and the last two lines: the status, or a message that may take both."""
    size, said = screen.size, state.message
    status: Box = Words(f" {said}", style="bold") if said else body.status
    ends: tuple[Box, ...] = (status, _hints(screen, state))
    if said and state.prompt is None and cell_len(said) > size.width - 1:
        ends = (Sized(Wrapped(said, size.width - 2, "bold"), height=2),)
    return _title(screen, state, body.title), Sized(body.box, height=size.height - FIXED_LINES), *ends


def _title(screen: Screen, state: State, what: str) -> Box:
    """What is shown and how, and at the right of what."""
    recording = screen.session.recording
    left = f" {what}  {described(screen, state)} "
    right = f" {model_name(recording)}: {text_title(recording)} " if recording.text else f" {model_name(recording)} "
    room = screen.size.width - cell_len(left)
    width = min(room, cell_len(right)) if room > 12 else 0
    gap = Words(" " * max(0, room - width), style="reverse")
    return Beside((Words(left, style="reverse bold"), gap, Words(right if width else "", width, "reverse")))


def described(screen: Screen, state: State) -> str:
    """The toggles in words."""
    view = state.view
    weights = screen.session.quantity(replace(view, scores=False, difference=False)).name
    named = "weights" if "weight" in weights else "contributions"
    if state.opened:
        view = screen.session.view_of(state.head, view)
    parts = [f"change of {named}" if view.difference else "scores" if view.scores else named]
    parts += [
        view.steps if view.steps != "sqrt" and not view.scores and not view.difference else "",
        "own scale" if view.own else "",
        "mean" if view.mean else "",
    ]
    parts += ["words" if view.words else "", "" if view.special else "no special"]
    if view.filter and not state.opened:
        parts.append(view.filter + ("" if screen.session.ranking.knows(view.filter) else " …"))
    if view.order and not state.opened:
        ready = view.order in screen.session.ranking.numbers
        parts.append(f"by {view.order}{' ascending' if view.ascending else ''}" + ("" if ready else " …"))
    return " · ".join(part for part in parts if part)


def _hints(screen: Screen, state: State) -> Box:
    if state.prompt == "copy":
        return Beside((Words(" copy:", style="bold"), *_hint_words(COPY_HINTS)))
    if state.prompt is not None:
        asked = PROMPTS[state.prompt]
        room = screen.size.width - len(asked) - 5
        typed = state.typed if cell_len(state.typed) <= room else "…" + state.typed[-room + 1 :]
        line = Words(f" {asked}: ", style="bold"), Words(typed, style="reverse" if state.offered else "")
        return Beside((*line, Words(" ", style="reverse"), _offered(screen, state)))
    return Beside((*_hint_words(hints(state, screen.size.width)),))


def _hint_words(shown: tuple[Hint, ...]) -> list[Words]:
    """Each key and what it does: buttons for the mouse."""
    return [Words(f" {hint.shown} {hint.does} ", style="dim") for hint in shown]


def _offered(screen: Screen, state: State) -> Words:
    """What may be typed."""
    from attnviz.browse.finding import metrics_meant

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


def _help_lines(screen: Screen, page: int) -> tuple[Box, ...]:
    """The keys, in as many columns as are legible, a screen of them."""
    room, across = max(1, screen.size.height - 2), help_columns(screen.size)
    pages = help_pages(screen.size, len(BINDINGS))
    first = (min(page, pages) - 1) * room * across
    shown = BINDINGS[first : first + room * across]
    more = " keys; ? shows more, any other key returns" if page < pages else " keys; any key returns"
    width = screen.size.width // across - 11
    columns = [
        Below(
            tuple(
                Beside((Words(f" {binding.shown:>9} ", style="bold"), Words(f" {binding.does}", width)))
                for binding in shown[start : start + room]
            )
        )
        for start in range(0, len(shown), room)
    ]
    return Words(more, style="dim"), Words(""), Beside((*columns,))
