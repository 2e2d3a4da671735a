"""Composes the inspector's screen: title, body, status and hints.

Modules that the first screen does not need are imported when their body is shown.
"""

from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.keys import BINDINGS
from attnviz.browse.moves.layout import FIXED_LINES, help_columns, help_pages
from attnviz.browse.session.state import MIN_SCREEN_SIZE, State
from attnviz.browse.view.boxes import Body, Box, BoxColumn, BoxRow, FixedBox, ScreenView, StyledText, WrappedText
from attnviz.browse.view.hints import last_line
from attnviz.browse.view.overview import overview_body
from attnviz.report.words.captions import model_name, text_title

MAX_BLANK_COLUMNS = 12  # free columns of the title line that stay blank: nobody could read a name cut to them
KEY_COLUMNS = 11  # columns of a key in the help, with a space at each side


def compose(screen: Screen, state: State) -> ScreenView:
    """Composes the whole screen: a head, the lens, the overview or the help; a refusal if the terminal is too small."""
    if not screen.size.is_large_enough:
        refusal = f"attnviz browse needs {MIN_SCREEN_SIZE[0]} x {MIN_SCREEN_SIZE[1]} characters; q quits"
        boxes: tuple[Box, ...] = (StyledText(refusal),)
    elif state.help:
        boxes = _help_lines(screen, state.help)
    else:
        boxes = _with_frame(screen, state, _body(screen, state))
    return ScreenView(boxes, screen.size, screen.colors, state.theme)


def _body(screen: Screen, state: State) -> Body:
    """Composes the body of the screen: an open head, the lens, or else the overview."""
    if state.has_open_head:
        from attnviz.browse.view.open_head import head_body

        return head_body(screen, state)
    if state.lens:
        from attnviz.browse.view.lens import lens_body

        return lens_body(screen, state)
    return overview_body(screen, state)


def _with_frame(screen: Screen, state: State, body: Body) -> tuple[Box, ...]:
    """Composes title, body, status and hints; a message replaces the status, and a long one the hints as well."""
    size, message = screen.size, state.message
    status: Box = StyledText(f" {message}", style="bold") if message else body.status
    last_lines: tuple[Box, ...] = (status, last_line(screen, state))
    if message and state.prompt is None and cell_len(message) > size.width - 1:
        last_lines = (FixedBox(WrappedText(message, size.width - 2, "bold"), height=2),)
    return _title(screen, state, body.title), FixedBox(body.box, height=size.height - FIXED_LINES), *last_lines


def _title(screen: Screen, state: State, body_title: str) -> Box:
    """Composes the title line: at the left the body's title and the toggles, at the right the model and the text."""
    recording = screen.session.recording
    title = f" {body_title}  {_toggles_text(screen, state)} "
    source = f" {model_name(recording)}: {text_title(recording)} " if recording.text else f" {model_name(recording)} "
    free_columns = screen.size.width - cell_len(title)
    width = min(free_columns, cell_len(source)) if free_columns > MAX_BLANK_COLUMNS else 0
    gap = StyledText(" " * max(0, free_columns - width), style="reverse")
    source_box = StyledText(source if width else "", width, "reverse")
    return BoxRow((StyledText(title, style="reverse bold"), gap, source_box))


def _toggles_text(screen: Screen, state: State) -> str:
    """Returns the toggles of the view in words: the quantity, then each toggle that is not at its default.

    A filter or an order whose numbers are not measured yet is followed by an ellipsis.
    """
    view = state.view
    weights_name = "weights" if "weight" in screen.session.weight_quantity.name else "contributions"
    if state.has_open_head:
        view = screen.session.view_of(state.head, view)
    shown_name = "scores" if view.scores else weights_name
    parts = [f"change of {weights_name}" if view.difference else shown_name]
    parts += [
        view.steps if view.steps != "sqrt" and not view.scores and not view.difference else "",
        "own scale" if view.own_scale else "",
        "mean" if view.mean else "",
    ]
    parts += [screen.session.unit_name if view.words else "", "" if view.special else "no special"]
    if view.filter and not state.has_open_head:
        parts.append(view.filter + ("" if screen.session.ranking.can_filter(view.filter) else " …"))
    if view.order and not state.has_open_head:
        is_sorted = screen.session.ranking.is_sorted(view)
        parts.append(f"by {view.order}{' ascending' if view.ascending else ''}" + ("" if is_sorted else " …"))
    return " · ".join(part for part in parts if part)


def _help_lines(screen: Screen, page: int) -> tuple[Box, ...]:
    """Composes one page of the help under a title, in as many columns as fit the screen."""
    lines, columns_across = max(1, screen.size.height - 2), help_columns(screen.size)  # below a title and a blank line
    pages = help_pages(screen.size, len(BINDINGS))
    start_of_page = (min(page, pages) - 1) * lines * columns_across
    bindings = BINDINGS[start_of_page : start_of_page + lines * columns_across]
    title = " keys; ? shows more, any other key returns" if page < pages else " keys; any key returns"
    width = screen.size.width // columns_across - KEY_COLUMNS
    boxes = [
        BoxRow((StyledText(f" {binding.label:>9} ", style="bold"), StyledText(f" {binding.description}", width)))
        for binding in bindings
    ]
    columns = [BoxColumn(tuple(boxes[start : start + lines])) for start in range(0, len(boxes), lines)]
    return StyledText(title, style="dim"), StyledText(""), BoxRow((*columns,))
