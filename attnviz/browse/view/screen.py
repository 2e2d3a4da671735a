"""Decides what each part of the screen shows: title, map, the pane at its side, the text below, and the status.

Modules that the first screen does not need are imported when their part is shown.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
from rich.cells import cell_len

from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.layout import FIXED_LINES, Tiles, has_two_panes, listed_lines, map_lines, side_width, tiles
from attnviz.browse.session.blocks import CellBlock, TokenRow
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import MIN_SCREEN_SIZE, State
from attnviz.browse.view.cells import Cells, cell_lines, legend, preview_status, quantity_text
from attnviz.browse.view.graphics import PictureArea
from attnviz.browse.view.parts import Drawing, Hit, Listed, Parts, below, beside, short_name, words
from attnviz.browse.view.text import ShadedTokens, text_pane, unique_label
from attnviz.render.terminal.lines import Line, Span, wrap
from attnviz.report.picture.colors import DIVERGING, ColorScale
from attnviz.report.picture.structure import Phrase, quoted
from attnviz.report.words.captions import model_name, text_title

MIN_PATTERN_WIDTH = 9  # columns; with fewer a pattern is left out, since nobody could read it
LEGEND_COLUMNS = 12
MAX_LISTED_KEYS = 6  # of the chosen head
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
        numbers = Drawing(side.numbers[: height - list_height - 1])
        upper = below(list_space, numbers, side.keys, side.minimap)
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
    """Returns a message in at most two lines; a click on a phrase with an address leads there."""
    addresses = [phrase.address for phrase in phrases for _ in phrase.text] or [""] * len(message)
    lines: list[Line] = []
    addresses_of_columns: list[list[str]] = []
    start = 0
    for text in wrap(message, max(1, width - 2))[:2]:
        start = message.index(text, start)
        addresses_of_line = addresses[start : start + len(text)]
        line: Line = [Span(" ")]
        for address, run in groupby(zip(addresses_of_line, text, strict=True), key=itemgetter(0)):
            line.append(
                words("".join(character for _, character in run), style=f"bold{' underline' if address else ''}")
            )
        lines.append(line)
        columns = [[address] * cell_len(character) for address, character in zip(addresses_of_line, text, strict=True)]
        addresses_of_columns.append(["", *chain(*columns)])

    def hit(x: int, y: int) -> Hit | None:
        address = addresses_of_columns[y][x] if x < len(addresses_of_columns[y]) else ""
        return Hit({}, address=address) if address else None

    return Drawing(lines, hit)


def _title_line(screen: Screen, state: State, title: Line) -> Line:
    """Returns the title line: the title and the choices of the view, and at the right the model and the text."""
    session = screen.session
    view, has_units = session.view_of(state.head, state.view), state.has_open_head or state.lens
    plurals = {"contribution": "contributions", "implicit": "implicit attention"}
    weights_name = plurals.get(session.heads[0][0].quantity, "weights")
    toggles = [f"change of {weights_name}" if view.difference else "scores" if view.scores else weights_name]
    toggles += [view.steps] if view.steps != "sqrt" and not view.scores and not view.difference else []
    toggles += ["own scale"] if view.own_scale else []
    toggles += ["mean"] if view.mean else []
    toggles += [f"{session.unit_name} (w)" if has_units else session.unit_name] if view.words else []
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


def overview_parts(screen: Screen, state: State) -> Parts:
    """Returns the parts of the overview: a tile for each head, and a shaded text if there is space.

    Adds the thumbnails on the screen that are still previews to the session's unfinished blocks. The title counts the
    listed heads, all heads if some are hidden, and marked heads, and says what signs before heads mean.
    """
    session, grid = screen.session, tiles(screen.session, state, screen.size)
    session.unfinished_blocks += session.thumbnails.unfinished_blocks(
        grid.on_screen(state.top), state.view, grid.pixels
    )
    # one colour scale for all thumbnails that are computed, whether they are on the screen or not
    thumbnails = [session.thumbnails.find(head, state.view, grid.pixels) for head in range(session.recorded_count)]
    blocks = [thumbnail for thumbnail in thumbnails if thumbnail is not None]
    leaves_out = session.left_out is not None and not state.view.all_keys  # the largest weights, so that others show
    scale = session.scale(replace(state.view, own_scale=False), blocks, state.theme, fits=leaves_out)
    shown_rows = grid.rows[state.top : state.top + grid.shown_row_count]
    lines = [
        line
        for heads in shown_rows
        for line in beside(*((Drawing(_tile(screen, state, head, grid, scale)), grid.width) for head in heads)).lines
    ]

    def hit(x: int, y: int) -> Hit | None:
        row, column = y // grid.height, x // grid.width
        if row >= len(shown_rows) or column >= len(shown_rows[row]):
            return None
        head = shown_rows[row][column]
        return Hit({"head": head}, opens=head == state.head)

    text = text_pane(_standing_text(screen, state), screen, grid.text_lines) if grid.text_lines else Drawing([])
    listed_count = len(session.ranking.order(state.view))
    total = "" if listed_count == session.recorded_count else f" of {session.recorded_count}"
    marked_text = f", {len(state.marked_heads)} marked" if state.marked_heads else ""
    title = f"{listed_count}{total} head{'s' if session.recorded_count > 1 else ''}{marked_text}"
    if session.added_frames:
        title += f", + −: {session.added_frames[0].measures[0].meaning}, up to {_largest_effect(session):.2g}"
    return Parts([words(title)], Drawing(lines, hit), text, _status(screen, state, grid, scale))


def _standing_text(screen: Screen, state: State) -> ShadedTokens:
    """Returns the keys shaded by the row that stands for the chosen head; the caption lists the strongest that fit."""
    session = screen.session
    row, asked = session.standing_row(state.head, state.view), session.asked(state.head, state.view)
    queries, keys = session.units(state.head, state.view)
    scale = session.scale(state.view, [TokenRow.stacked([row])], state.theme, fits=True)
    quantity, subject = session.quantity(state.view), "mean of all queries"
    if asked >= 0:
        subject = f"what {unique_label(queries, asked)} looks at"
    description = f"{subject} in head {session.names[state.head]}"
    tokens = ShadedTokens(keys, row, quantity, scale, row.strongest_unit, description)
    for key in row.strongest_units[:MAX_LISTED_KEYS]:
        key_text = f"{unique_label(keys, key)} {quantity_text(quantity, float(row.values[key]))}"
        longer = replace(tokens, more=f"{tokens.more}, {key_text}" if tokens.more else f": {key_text}")
        if cell_len(longer.caption) > screen.size.width:
            break
        tokens = longer
    return tokens if asked < 0 else replace(tokens, queries=queries, query=asked)


def _tile(screen: Screen, state: State, head: int, grid: Tiles, scale: ColorScale) -> list[Line]:
    """Returns a tile: the head's effect, name, sort number and pattern above its thumbnail, or above an ellipsis."""
    session, is_chosen = screen.session, head == state.head
    effect = _effect_spans(screen, state, head)
    width = grid.columns - (2 if effect else 0)  # an effect has two columns
    marks = ("▸" if is_chosen else "") + ("•" if head in state.marked_heads else "")
    order, number_text = state.view.order, ""
    number = session.ranking.number(head, order)
    if number is not None:
        spec = "+.4f" if order in [frame.names[0] for frame in session.added_frames] else ".2f"
        number_text = " —" if np.isnan(number) else f" {number:{spec}}"
    name = short_name(session.names[head], width - len(marks) - len(number_text)) + number_text
    pattern = session.ranking.description(head)
    name += f" {pattern}" if pattern and width >= cell_len(name) + MIN_PATTERN_WIDTH else ""
    title: Line = [*effect, words(marks + name, width, "reverse bold" if is_chosen else "")]
    block, character = session.thumbnails.find(head, state.view, grid.pixels), screen.size.character
    if block is None:
        lines: list[Line] = [[words("…", grid.width, "dim")]]
    else:
        tile_scale = session.scale(state.view, [block], state.theme) if state.view.own_scale else scale
        if character is None:  # stretched to the tile
            rows, columns = (np.arange(grid.columns) * count // grid.columns for count in block.values.shape)
            block = CellBlock(block.values[np.ix_(rows, columns)], block.visible[np.ix_(rows, columns)])
            cells = Cells(block, tile_scale, rows_a_line=2)
        else:
            cells = Cells(block, tile_scale, area=PictureArea(grid.height - 1, grid.columns, character))
        lines = cell_lines(cells, screen.colors)
    return [title, *lines, *([] for _ in range(grid.height - 1 - len(lines)))]


def _effect_spans(screen: Screen, state: State, head: int) -> Line:
    """Returns a cell, two columns wide, whose colour and sign show the head's effect; empty without effects."""
    session = screen.session
    if not session.added_frames or head >= session.recorded_count:
        return []
    numbers, largest = session.ranking.frame.column(session.added_frames[0].names[0]), _largest_effect(session)
    value, is_measured = numbers[head], not np.isnan(numbers[head])
    sign = "+ " if value > 0 else "- "
    block = CellBlock(np.array([[value]], dtype=np.float64), np.array([[is_measured]]))
    scale = session.themed_scale(ColorScale(-largest, largest, colormap=DIVERGING, signed=True), state.theme)
    cells = Cells(block, scale, cell_width=2, texts=((sign if is_measured else "  ",),))
    return cell_lines(cells, screen.colors)[0]


def _largest_effect(session: Session) -> float:
    """Returns the largest absolute effect of a head; 1 if no head has one, or all are 0."""
    numbers = session.ranking.frame.column(session.added_frames[0].names[0])
    return max(np.abs(numbers[~np.isnan(numbers)]).tolist(), default=1.0) or 1.0


def _status(screen: Screen, state: State, grid: Tiles, scale: ColorScale) -> Line:
    """Returns the status: the progress of previews, as much of the chosen head as fits, and the legend."""
    session = screen.session
    progress = preview_status(session.unfinished_blocks)
    last_spans: Line = [words("one scale per head")]
    if not state.view.own_scale:
        last_spans = legend(session.quantity(state.view), scale, LEGEND_COLUMNS, screen.colors)
    free_columns = screen.size.width - sum(cell_len(span.text) for span in last_spans)
    maps, _ = session.heads[state.head]
    tile_row, _ = grid.position(state.head)
    parts = [
        session.ranking.description(state.head),
        "cross-attention" if maps.kind == "cross" else "",
        f"{len(maps.query_tokens)} x {len(maps.key_tokens)} tokens",
        f"row {tile_row + 1} of {len(grid.rows)}" if len(grid.rows) > grid.shown_row_count else "",
    ]
    parts = [part for part in parts if part]
    name = f" {session.title(state.head)}"
    separators = 4  # characters: a colon, and three spaces
    while parts and len(progress.text) + len(name) + len("; ".join(parts)) + separators > free_columns:
        parts.pop()
    return [progress, words(f"{name}{': ' if parts else ''}{'; '.join(parts)}  "), *last_spans]
