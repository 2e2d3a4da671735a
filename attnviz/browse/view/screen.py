"""Decides what each part of the screen shows: title, map, the pane at its side, the text below, and the status.

Modules that the first screen does not need are imported when their part is shown.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
from rich.cells import cell_len

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import FIXED_LINES, has_two_panes, listed_lines, map_lines, side_width
from attnviz.browse.session.state import MIN_SCREEN_SIZE, State
from attnviz.browse.view.cells import quantity_text
from attnviz.browse.view.overview import overview_parts
from attnviz.browse.view.parts import Drawing, Hit, Listed, Parts, below, beside, words
from attnviz.render.terminal.lines import Line, Span, wrap
from attnviz.report.picture.structure import Phrase, quoted
from attnviz.report.words.captions import model_name, text_title

MAX_BLANK_COLUMNS = 12  # free columns of the title line that stay blank: nobody could read a name cut to them


def draw(screen: Screen, state: State) -> Parts:
    """Returns the parts of the screen for a state: of an open head, of one token in all heads, or of all heads."""
    if state.has_open_head:
        from attnviz.browse.view.head import head_parts

        parts = head_parts(screen, state)
    elif state.lens:
        from attnviz.browse.view.lens import lens_parts

        parts = lens_parts(screen, state)
    else:
        parts = overview_parts(screen, state)
    return replace(parts, title=_title_line(screen, state, parts.title))


def whole(screen: Screen, state: State) -> tuple[Drawing, Listed]:
    """Returns all lines of the screen, and the list of heads that is drawn over its blank lines at the top left.

    The last line is blank, for the hints, unless a long message needs it; the first sentence leaves them.
    """
    size = screen.size
    if not size.is_large_enough:
        refusal = f"attnviz browse needs {MIN_SCREEN_SIZE[0]} x {MIN_SCREEN_SIZE[1]} characters; q quits"
        return Drawing([[words(refusal)]]), Listed()
    parts = draw(screen, state)
    main, side, status = parts.main, parts.side, Drawing([parts.status])
    is_sentence = state.message == "".join(phrase.text for phrase in screen.session.phrases)
    if state.message:
        status = _message(state.message, screen.session.phrases if is_sentence else (), size.width)
    if side is not None:
        width, height, list_height = side_width(size), map_lines(size), listed_lines(size)
        blank_lines: list[Line] = [[] for _ in range(height)]
        list_space = Drawing([*blank_lines[: list_height - 1], [words("─" * width)]] if list_height else [])
        upper = below(list_space, Drawing(side.numbers), side.keys, side.minimap)
        beside_map = below(upper, Drawing(blank_lines[len(upper.lines) + 1 :]), Drawing([side.legend]))
        columns = [
            (beside_map, width),
            (Drawing([[words("│")] for _ in range(height)]), 1),
            (main, size.width - width - 1),
        ]
        main = beside(*(columns if has_two_panes(size) else reversed(columns)))
    title, text = Drawing([parts.title]), parts.text
    free_lines = size.height - FIXED_LINES - len(main.lines) - len(text.lines)
    if is_sentence and len(status.lines) > 1:
        text, status = Drawing(text.lines[:-1], text.hit), below(status, Drawing([[]]))
    free_space, hint_space = (Drawing([[] for _ in range(count)]) for count in (free_lines, 2 - len(status.lines)))
    heads = Listed() if side is None or not listed_lines(size) else side.heads
    return below(title, main, free_space, text, status, hint_space), heads


def _message(message: str, phrases: Sequence[Phrase], width: int) -> Drawing:
    """Returns a message in at most two lines; a click on a phrase with a place leads there."""
    places = [phrase.place for phrase in phrases for _ in phrase.text] or [""] * len(message)
    lines: list[Line] = []
    places_of_columns: list[list[str]] = []
    start = 0
    for text in wrap(message, max(1, width - 2))[:2]:
        start = message.index(text, start)
        places_of_line = places[start : start + len(text)]
        line: Line = [Span(" ")]
        for place, run in groupby(zip(places_of_line, text, strict=True), key=itemgetter(0)):
            line.append(words("".join(character for _, character in run), style=f"bold{' underline' if place else ''}"))
        lines.append(line)
        columns = [[place] * cell_len(character) for place, character in zip(places_of_line, text, strict=True)]
        places_of_columns.append(["", *chain(*columns)])

    def hit(x: int, y: int) -> Hit | None:
        place = places_of_columns[y][x] if x < len(places_of_columns[y]) else ""
        return Hit({}, place=place) if place else None

    return Drawing(lines, hit)


def _title_line(screen: Screen, state: State, title: Line) -> Line:
    """Returns the title line: the title and the choices of the view, and at the right the model and the text."""
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
    left_out = session.left_out
    if left_out is not None and not view.all_keys and not state.has_open_head and not state.lens:
        names = left_out.names if left_out.special else quoted(left_out.labels[0])
        toggles.append(f"without {names}, {left_out.share:.0%} (t)")
    recording = session.recording
    text = f" {''.join(span.text for span in title)}  {' · '.join(toggles)} "
    source = f" {model_name(recording)}: {text_title(recording)} " if recording.text else f" {model_name(recording)} "
    free_columns = screen.size.width - cell_len(text)
    width = min(free_columns, cell_len(source)) if free_columns > MAX_BLANK_COLUMNS else 0
    return [
        words(text, style="reverse bold"),
        words(" " * max(0, free_columns - width), style="reverse"),
        words(source if width else "", width, "reverse"),
    ]


def described(screen: Screen, state: State, hit: Hit | None) -> str:
    """Returns a description of the head or the cell under the pointer in one line; "" if there is none."""
    session = screen.session
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
