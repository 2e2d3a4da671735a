"""The inspector's screen, decided: the title, what is open, the status and the keys.

What the first screen does not show is imported when it is shown.
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
    """All that is on the screen, from the recording, the state and the size of the terminal."""
    if not screen.size.enough:
        wanted = f"attnviz browse needs {MIN_SCREEN_SIZE[0]} x {MIN_SCREEN_SIZE[1]}; q quits"
        boxes: tuple[Box, ...] = (Words(wanted),)
    elif state.help:
        boxes = _help_lines(screen, state.help)
    else:
        boxes = _framed(screen, state, _body(screen, state))
    return ScreenView(boxes, screen.size, screen.colors, state.theme)


def _body(screen: Screen, state: State) -> Body:
    """What is open: a head, one token in all heads, or all heads."""
    if state.opened:
        from attnviz.browse.view.open_head import head_body

        return head_body(screen, state)
    if state.lens:
        from attnviz.browse.view.lens import lens_body

        return lens_body(screen, state)
    return overview_body(screen, state)


def _framed(screen: Screen, state: State, body: Body) -> tuple[Box, ...]:
    """The body between the title and the last two lines: the status, or a message that may take both."""
    size, said = screen.size, state.message
    status: Box = Words(f" {said}", style="bold") if said else body.status
    ends: tuple[Box, ...] = (status, last_line(screen, state))
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
    named = "weights" if "weight" in screen.session.weights.name else "contributions"
    if state.opened:
        view = screen.session.view_of(state.head, view)
    parts = [f"change of {named}" if view.difference else "scores" if view.scores else named]
    parts += [
        view.steps if view.steps != "sqrt" and not view.scores and not view.difference else "",
        "own scale" if view.own else "",
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
