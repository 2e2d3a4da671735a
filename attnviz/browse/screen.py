"""The inspector's screen as lines of spans: the title, the overview, the status and the keys.

What the first screen does not show is imported when it is shown.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len, set_cell_size

from attnviz.base.printable import printable
from attnviz.browse.blocks import CellBlock, RefinedBlock
from attnviz.browse.cursor import Screen
from attnviz.browse.hints import COPY_HINTS, Hint, hints
from attnviz.browse.layout import ANSI_COLORS, FIXED_LINES, Tiles, help_columns, help_pages, tiles
from attnviz.browse.pixels import legend, pixel_lines, shade_span
from attnviz.browse.session import Session
from attnviz.browse.state import MIN_SCREEN_SIZE, State
from attnviz.browse.themes import on_paper, themed
from attnviz.render.terminal.lines import ASCII_FOR, Line, Span, fit, wrap
from attnviz.report.captions import model_name, text_title
from attnviz.report.colors import DIVERGING, ColorScale

MIN_PATTERN_WIDTH = 9  # columns of a tile in which what the head does can be told
IN_ASCII = ASCII_FOR | str.maketrans("▸▾▴│└░▒▓█•●◆─→↑▏▎▍▌▋▊▉", ">v^|+-+#@*oO->^.::-=+#")
if TYPE_CHECKING:
    from attnviz.browse.opened import OpenHead

HALF_BLOCKS = frozenset("▀▄ ")  # of which most of a screen is made
PROMPTS = {"query": "find query", "key": "find key", "filter": "filter", "save": "save as", "copy": "copy"}


def draw_screen(screen: Screen, state: State, ascii: bool = False) -> list[Line]:
    """Every line of the terminal, each exactly as wide as it."""
    size = screen.size
    if not size.enough:
        lines = [[Span(f"attnviz browse needs {MIN_SCREEN_SIZE[0]} x {MIN_SCREEN_SIZE[1]}; q quits")]]
    elif state.help:
        lines = _help_lines(screen, state.help)
    elif state.opened:
        lines = _with_head(screen, state)
    elif state.lens:
        lines = _with_lens(screen, state)
    else:
        lines = _with_overview(screen, state)
    whole = [padded(line, size.width) for line in lines[: size.height]]
    whole += [padded([], size.width)] * (size.height - len(whole))
    if ascii:
        return [[_plain(span) for span in line] for line in whole]
    return whole if screen.colors <= ANSI_COLORS else [on_paper(line, state.theme) for line in whole]


def _with_head(screen: Screen, state: State) -> list[Line]:
    """The open head between the title and the status."""
    from attnviz.browse.open_head import draw_head
    from attnviz.browse.opened import lay_out

    head = lay_out(screen, state)
    body, status = draw_head(head), _message(state) or _head_status(head)
    return _framed(screen, state, body, status)


def _with_lens(screen: Screen, state: State) -> list[Line]:
    """One token in all heads, between the title and the status."""
    from attnviz.browse.lens import draw_lens, lay_out_lens, lens_status

    lens = lay_out_lens(screen, state)
    return _framed(screen, lens.state, draw_lens(lens), _message(state) or lens_status(lens))


def _with_overview(screen: Screen, state: State) -> list[Line]:
    """The thumbnails between the title and the status."""
    session, grid = screen.session, tiles(screen.session, state, screen.size)
    session.want_thumbnails(grid.on_screen(state.top), state.view, grid.pixels)
    scale = _overview_scale(session, state, grid)
    body = _draw_tiles(screen, state, grid, scale)
    return _framed(screen, state, body, _message(state) or _overview_status(screen, state, grid, scale))


def _framed(screen: Screen, state: State, body: list[Line], status: Line) -> list[Line]:
    room = screen.size.height - FIXED_LINES
    blank: list[Line] = [[] for _ in range(room - len(body))]
    said = state.message
    if said and state.prompt is None and cell_len(said) > screen.size.width - 1:  # it takes the line of the keys too
        ends = [[Span(f" {line}", style="bold")] for line in [*wrap(said, screen.size.width - 2), ""][:2]]
    else:
        ends = [status, _hints(screen, state)]
    return [_title(screen, state), *body[:room], *blank, *ends]


def _draw_tiles(screen: Screen, state: State, grid: Tiles, scale: ColorScale) -> list[Line]:
    """Rows of tiles from the first on the screen."""
    lines: list[Line] = []
    for row in grid.rows[state.top : state.top + grid.shown]:
        blocks = [_tile(screen, state, head, grid, scale) for head in row]
        lines += [[span for block in blocks for span in block[line]] for line in range(grid.height)]
    return lines


def _overview_scale(session: Session, state: State, grid: Tiles) -> ColorScale:
    """The colours of all thumbnails computed so far."""
    computed = [session.thumbnail(head, state.view, grid.pixels) for head in range(session.recorded)]
    cells = [each for each in computed if each is not None]
    return themed(session.scale(replace(state.view, own=False), cells), state.theme, session.colormap)


def padded(line: Iterable[Span], width: int) -> Line:
    """The line in exactly so many columns: filled, or cut where it is longer; it commands nothing."""
    kept: Line = []
    room = width
    for span in line:
        span = span if span.text.isprintable() else replace(span, text=printable(span.text))
        length = 1 if span.text in HALF_BLOCKS else cell_len(span.text)
        if length > room:
            kept.append(replace(span, text=set_cell_size(span.text, room)))
            return kept
        kept.append(span)
        room -= length
    return [*kept, Span(" " * room)] if room else kept


def _tile(screen: Screen, state: State, head: int, grid: Tiles, scale: ColorScale) -> list[Line]:
    """One head: its name, then its pixels, all of the tile's width."""
    chosen, cells = head == state.head, screen.session.thumbnail(head, state.view, grid.pixels)
    effect = _effect(screen, head)
    room = grid.columns - len(effect.text)
    name = screen.session.names[head] + _number(screen, state, head)
    pattern = screen.session.ranking.patterns.get(head, "")
    name += f" {pattern}" if pattern and room >= cell_len(name) + MIN_PATTERN_WIDTH else ""
    title = [
        effect,
        Span(
            fit(("▸" if chosen else "") + ("•" if head in state.marked else "") + name, room),
            style="reverse bold" if chosen else "",
        ),
        Span(" "),
    ]
    if cells is None:
        blank = [[Span(fit("…" if not line else "", grid.width), style="dim")] for line in range(grid.height - 1)]
        return [title, *blank]
    if state.view.own:
        scale = themed(screen.session.scale(state.view, [cells]), state.theme, screen.session.colormap)
    lines = [[*line, Span(" " * (grid.width - grid.columns))] for line in _thumbnail(screen, cells, grid, scale)]
    lines += [[Span(" " * grid.width)] for _ in range(grid.height - 1 - len(lines))]
    return [title, *lines[: grid.height - 1]]


def _thumbnail(screen: Screen, cells: CellBlock, grid: Tiles, scale: ColorScale) -> list[Line]:
    if screen.size.character is None:
        return pixel_lines(stretched(cells, grid.columns), scale, screen.colors)
    from attnviz.browse.graphics import PictureArea, picture_lines

    return picture_lines(cells, scale, PictureArea(grid.height - 1, grid.columns, screen.size.character))


def stretched(cells: CellBlock, pixels: int) -> CellBlock:
    """The cells repeated to ``pixels`` x ``pixels`` where there are fewer."""
    rows, columns = (np.arange(pixels) * count // pixels for count in cells.values.shape)
    return CellBlock(cells.values[np.ix_(rows, columns)], cells.visible[np.ix_(rows, columns)])


def _effect(screen: Screen, head: int) -> Span:
    """The colour of what is lost without a head, red for more; nothing where no effects were given."""
    if not screen.session.added or head >= screen.session.recorded:
        return Span("")
    numbers = screen.session.ranking.numbers[screen.session.added[0].names[0]]
    largest = max((abs(each) for each in numbers.values() if not np.isnan(each)), default=1.0) or 1.0
    known = not np.isnan(numbers[head])
    scale = ColorScale(-largest, largest, colormap=DIVERGING)
    mark = "  " if not known else "+ " if numbers[head] > 0 else "- "
    return shade_span(numbers[head], known, scale, screen.colors, mark)


def _number(screen: Screen, state: State, head: int) -> str:
    order, added = state.view.order or "", [each.names[0] for each in screen.session.added]
    numbers = screen.session.ranking.numbers.get(order)
    if numbers is None:
        return ""
    return " —" if np.isnan(numbers[head]) else f" {numbers[head]:{'+.4f' if order in added else '.2f'}}"


def _title(screen: Screen, state: State) -> Line:
    session = screen.session
    what = _titled(screen, state)
    left = f" {what}  {described(screen, state)} "
    recording = session.recording
    right = f" {model_name(recording)}: {text_title(recording)} " if recording.text else f" {model_name(recording)} "
    room = screen.size.width - cell_len(left)
    shown = fit(right, min(room, cell_len(right))) if room > 12 else ""
    gap = " " * max(0, room - cell_len(shown))
    return [Span(left, style="reverse bold"), Span(gap, style="reverse"), Span(shown, style="reverse")]


def _titled(screen: Screen, state: State) -> str:
    session = screen.session
    if state.opened and state.beside:
        return "heads " + ", ".join(session.names[head] for head in (state.head, *state.beside))
    if state.opened:
        pattern = session.ranking.patterns.get(state.head, "")
        made = state.head >= session.recorded
        return f"{'' if made else 'head '}{session.names[state.head]}{f': {pattern}' if pattern else ''}"
    if state.lens:
        from attnviz.browse.lens import lay_out_lens, said_of

        return said_of(state, lay_out_lens(screen, state))
    listed = len(session.ranking.order(state.view))
    of = "" if listed == session.recorded else f" of {session.recorded}"
    marked = f", {len(state.marked)} marked" if state.marked else ""
    return f"{listed}{of} head{'s' if session.recorded > 1 else ''}{marked}"


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


def _message(state: State) -> Line:
    return [Span(f" {state.message}", style="bold")] if state.message else []


def _head_status(head: "OpenHead") -> Line:
    from attnviz.browse.open_head import place_status

    spans = head.pane.queries.span, head.pane.keys.span
    on_map = [block for block in head.screen.session.wanted if (block.queries, block.keys) == spans]
    return [Span(preview(on_map), style="bold"), *place_status(head)]


def _overview_status(screen: Screen, state: State, grid: Tiles, scale: ColorScale) -> Line:
    before = preview(screen.session.wanted)
    bar = legend(screen.session.quantity(state.view), scale, screen.colors, 12)
    if state.view.own:
        bar = [Span("each its own scale")]
    room = screen.size.width - sum(cell_len(span.text) for span in bar)
    return [Span(before, style="bold"), Span(_head_summary(screen, state, grid, before, room)), *bar]


def _head_summary(screen: Screen, state: State, grid: Tiles, before: str, room: int) -> str:
    """The chosen head, what it does, its size and its row, as far as there is room."""
    session = screen.session
    maps, _ = session.heads[state.head]
    row, _ = grid.place(state.head)
    parts = [
        session.ranking.patterns.get(state.head, ""),
        "cross-attention" if maps.kind == "cross" else "",
        f"{len(maps.query_tokens)} x {len(maps.key_tokens)} tokens",
        f"row {row + 1} of {len(grid.rows)}" if len(grid.rows) > grid.shown else "",
    ]
    parts = [part for part in parts if part]
    name = f" head {session.names[state.head]}"
    while parts and len(before) + len(name) + len("; ".join(parts)) + 4 > room:
        parts.pop()
    return f"{name}{': ' if parts else ''}{'; '.join(parts)}  "


def preview(wanted: list[RefinedBlock]) -> str:
    """How much of what is wanted is still of a few queries; empty where all of it is whole."""
    if not wanted:
        return ""
    share = sum(block.share for block in wanted) / len(wanted)
    return f" preview: 1 query in {max(block.queries_a_row for block in wanted)}, {share:.0%} refined "


def _hints(screen: Screen, state: State) -> Line:
    if state.prompt == "copy":
        return [Span(" copy:", style="bold"), *_hint_spans(COPY_HINTS)]
    if state.prompt is not None:
        asked = PROMPTS[state.prompt]
        room = screen.size.width - len(asked) - 5
        typed = state.typed if cell_len(state.typed) <= room else "…" + state.typed[-room + 1 :]
        offered = _offered(screen, state)
        line = [Span(f" {asked}: ", style="bold"), Span(typed, style="reverse" if state.offered else "")]
        return [*line, Span(" ", style="reverse"), Span(offered, style="dim")]
    return _hint_spans(hints(state, screen.size.width))


def _hint_spans(shown: tuple[Hint, ...]) -> Line:
    """Each key and what it does: buttons for the mouse."""
    return [Span(f" {hint.shown} {hint.does} ", style="dim") for hint in shown]


def _offered(screen: Screen, state: State) -> str:
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
    return fit(text, max(0, min(cell_len(text), room))) if text else ""


def _help_lines(screen: Screen, page: int) -> list[Line]:
    """The keys, in as many columns as are legible, a screen of them."""
    from attnviz.browse.keys import BINDINGS

    room, across = max(1, screen.size.height - 2), help_columns(screen.size)
    pages = help_pages(screen.size, len(BINDINGS))
    first = (min(page, pages) - 1) * room * across
    shown = [(binding.shown, binding.does) for binding in BINDINGS][first : first + room * across]
    columns = [shown[start : start + room] for start in range(0, len(shown), room)]
    more = "? shows more, " if page < pages else ""
    lines: list[Line] = [
        [Span(f" keys; {more}any other key returns" if more else " keys; any key returns", style="dim")],
        [],
    ]
    width = screen.size.width // across
    for row in range(max(map(len, columns))):
        line: Line = []
        for shown_key, does in (column[row] for column in columns if row < len(column)):
            line += [Span(f" {shown_key:>9} ", style="bold"), Span(fit(f" {does}", width - 11))]
        lines.append(line)
    return lines


def _plain(span: Span) -> Span:
    """The span in ASCII, its columns kept."""
    text = span.text.translate(IN_ASCII)
    return replace(span, text="".join(c if c.isascii() else "?" * cell_len(c) for c in text))
