"""Composes the inspector's screen: title, body, status and hints.

Bodies that the first screen does not show are imported when they are shown.
"""

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.keys import BINDINGS
from attnviz.browse.moves.layout import FIXED_LINES, help_columns, help_pages
from attnviz.browse.session.state import MIN_SCREEN_SIZE, State
from attnviz.browse.view.boxes import Below, Beside, Body, Box, ScreenView, Sized, Words, Wrapped
from attnviz.browse.view.hints import last_line
from attnviz.browse.view.overview import overview_body
from attnviz.report.words.captions import model_name, text_title


def compose(screen: Screen, state: State) -> ScreenView:
    """Composes the whole screen."""
    if not screen.size.enough:
        refusal = f"attnviz browse needs {MIN_SCREEN_SIZE[0]} x {MIN_SCREEN_SIZE[1]}; q quits"
        boxes: tuple[Box, ...] = (Words(refusal),)
    elif state.help:
        boxes = _help_lines(screen, state.help)
    else:
        boxes = _framed(screen, state, _body(screen, state))
    return ScreenView(boxes, screen.size, screen.colors, state.theme)


def _body(screen: Screen, state: State) -> Body:
    """Composes what is open: a head, one token in all heads, or the overview."""
    if state.opened:
        from attnviz.browse.view.open_head import head_body

        return head_body(screen, state)
    if state.lens:
        from attnviz.browse.view.lens import lens_body

        return lens_body(screen, state)
    return overview_body(screen, state)


def _framed(screen: Screen, state: State, body: Body) -> tuple[Box, ...]:
    """Composes title, body, status and hints; a message replaces the status, and the hints too if it is long."""
    size, message = screen.size, state.message
    status: Box = Words(f" {message}", style="bold") if message else body.status
    ends: tuple[Box, ...] = (status, last_line(screen, state))
    if message and state.prompt is None and cell_len(message) > size.width - 1:
        ends = (Sized(Wrapped(message, size.width - 2, "bold"), height=2),)
    return _title(screen, state, body.title), Sized(body.box, height=size.height - FIXED_LINES), *ends


def _title(screen: Screen, state: State, what: str) -> Box:
    """Composes the title line: what is shown and its toggles, and at the right the model and the text."""
    recording = screen.session.recording
    left = f" {what}  {described(screen, state)} "
    right = f" {model_name(recording)}: {text_title(recording)} " if recording.text else f" {model_name(recording)} "
    free = screen.size.width - cell_len(left)
    width = min(free, cell_len(right)) if free > 12 else 0
    gap = Words(" " * max(0, free - width), style="reverse")
    return Beside((Words(left, style="reverse bold"), gap, Words(right if width else "", width, "reverse")))


def described(screen: Screen, state: State) -> str:
    """Returns the toggles in words."""
    view = state.view
    named = "weights" if "weight" in screen.session.weights.name else "contributions"
    if state.opened:
        view = screen.session.view_of(state.head, view)
    parts = [f"change of {named}" if view.difference else "scores" if view.scores else named]
    parts += [
        view.steps if view.steps != "sqrt" and not view.scores and not view.difference else "",
        "own scale" if view.own_scale else "",
        "mean" if view.mean else "",
    ]
    parts += [screen.session.by if view.words else "", "" if view.special else "no special"]
    if view.filter and not state.opened:
        parts.append(view.filter + ("" if screen.session.ranking.knows(view.filter) else " …"))
    if view.order and not state.opened:
        ready = screen.session.ranking.is_sorted(view)
        parts.append(f"by {view.order}{' ascending' if view.ascending else ''}" + ("" if ready else " …"))
    return " · ".join(part for part in parts if part)


def _help_lines(screen: Screen, page: int) -> tuple[Box, ...]:
    """Composes one screen of the help, in as many columns as fit."""
    lines, across = max(1, screen.size.height - 2), help_columns(screen.size)
    pages = help_pages(screen.size, len(BINDINGS))
    first = (min(page, pages) - 1) * lines * across
    shown = BINDINGS[first : first + lines * across]
    more = " keys; ? shows more, any other key returns" if page < pages else " keys; any key returns"
    width = screen.size.width // across - 11
    columns = [
        Below(
            tuple(
                Beside((Words(f" {binding.shown:>9} ", style="bold"), Words(f" {binding.does}", width)))
                for binding in shown[start : start + lines]
            )
        )
        for start in range(0, len(shown), lines)
    ]
    return Words(more, style="dim"), Words(""), Beside((*columns,))
