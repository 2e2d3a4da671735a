"""Draws an open head, or several side by side: maps with labels, the cursor's numbers or why they are so, a minimap."""

from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import wrap

import numpy as np
from rich.cells import cell_len

from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.layout import (
    NUMBER_CELL,
    MapPane,
    listed_lines,
    map_lines,
    open_map_pane,
    side_width,
    text_lines,
)
from attnviz.browse.session.blocks import CellBlock, QueryRow, TokenRow, pool
from attnviz.browse.session.session import pools_by_mean
from attnviz.browse.session.state import State
from attnviz.browse.view.cells import Cells, cell_lines, legend, preview_status, quantity_text
from attnviz.browse.view.graphics import PictureArea
from attnviz.browse.view.parts import Drawing, Hit, Listed, Parts, Side, short_name, words
from attnviz.browse.view.text import ShadedTokens, seconds_above, text_pane, unique_label
from attnviz.maps.grouped import Units
from attnviz.render.terminal.lines import Line, Span, bar
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import PERCENT, Panel

BAR_WIDTH, FEATURE_BAR_WIDTH = 6, 4  # columns of a bar beside a key, and beside a feature
MINIMAP_LINES = 8
MIN_LISTED_KEYS = 4  # if a minimap leaves fewer lines for keys, it is left out
LEGEND_NUMBER_COLUMNS, MIN_LEGEND_COLUMNS = 16, 4  # columns of the legend's two numbers, and of its strip of colours
NAME_COLUMNS = 22  # columns before a term or a sum, as wide as the columns feature, q and k together
LINES_OF_SUMS = 5  # lines of an explanation that list no feature: title, heading, other features, sum, score
MAX_ROUNDING = 1e-3  # a score further than this from the sum of terms has a bias or a cap
NO_FACTORS = "This recording holds weights, but no queries and keys; record it with --set dense=false to keep them."
COMBINED_HEAD = "This map combines several heads; Esc goes back to one."
_NUMBER_COLUMNS = 4  # columns of the number in a large cell, with a blank one after a short number


@dataclass(frozen=True, eq=False)
class OpenHead:
    """An open head, or several heads side by side, with the layout and the numbers of the cursor's query."""

    screen: Screen
    state: State  # without the toggles that do not apply to the head
    queries: Units
    keys: Units
    pane: MapPane
    whole_pane: MapPane  # at the first zoom level, which shows all of the map
    row: QueryRow  # of the cursor's query
    shown: TokenRow  # what is shown of it

    @property
    def heads(self) -> tuple[int, ...]:
        """The open head, then the heads beside it."""
        return self.state.head, *self.state.heads_beside

    @cached_property
    def panels(self) -> list[Panel]:
        """A panel of each open head's cells on the screen, all with one colour scale."""
        pane, session, view = self.pane, self.screen.session, self.state.view
        spans = pane.queries.span, pane.keys.span
        panels = [session.panel(head, view, *spans, pane.queries.cells, pane.keys.cells) for head in self.heads]
        low, high = min(panel.scale.low for panel in panels), max(panel.scale.high for panel in panels)
        scale = session.themed_scale(replace(panels[0].scale, low=low, high=high), self.state.theme)
        return [replace(panel, scale=scale) for panel in panels]

    @property
    def panel(self) -> Panel:
        """The cells of the open head."""
        return self.panels[0]

    @property
    def scale(self) -> ColorScale:
        """The colour scale of all maps."""
        return self.panel.scale

    @property
    def is_scrolled(self) -> bool:
        """True if a part of the map is not on the screen."""
        axes = (self.pane.queries, self.queries), (self.pane.keys, self.keys)
        return any(axis.stop - axis.start < len(units) for axis, units in axes)

    @property
    def cursor(self) -> tuple[tuple[Units, int], tuple[Units, int]]:
        """The axis and the unit of the cursor's query, and those of its key."""
        return (self.queries, self.state.query), (self.keys, self.state.key)


def lay_out(screen: Screen, state: State) -> OpenHead:
    """Returns the open head with its layout and the numbers of the cursor's query, or of the last one before it."""
    session, size = screen.session, screen.size
    view = session.view_of(state.head, state.view)
    head_state = replace(state, view=view)
    queries, keys = session.units(state.head, view)
    row = session.row(state.head, view, min(state.query, len(queries) - 1))
    return OpenHead(
        screen=screen,
        state=head_state,
        queries=queries,
        keys=keys,
        row=row,
        shown=row.shown(view),
        pane=open_map_pane(session, head_state, size, screen.colors),
        whole_pane=open_map_pane(session, replace(head_state, zoom=0, row=0, column=0), size, screen.colors),
    )


def head_parts(screen: Screen, state: State) -> Parts:
    """Returns the parts of the screen of an open head; its title has the names of heads, and the pattern of one."""
    head, session = lay_out(screen, state), screen.session
    quantity = head.panel.quantity
    title = session.title(state.head)
    if state.heads_beside:
        title = "heads " + ", ".join(session.names[index] for index in head.heads)
    elif pattern := session.ranking.description(state.head):
        title += f": {pattern}"
    # the keys, shaded by the cursor's row
    view, scale = head.state.view, head.scale
    if head.keys.tokens.image_indices and quantity is PERCENT:  # so many patches that no weight is far from 0
        scale = session.scale(view, [TokenRow.stacked([head.shown])], state.theme, fits=True)
    query = f"“{head.queries.labels[state.query]}” ({head.queries.starts[state.query]})"
    description = f"{quantity.name} of {query} in {session.title(state.head)}"
    tokens = ShadedTokens(
        head.keys, head.shown, quantity, scale, state.key, description, "key", head.queries, state.query
    )
    # the part of the map that is on the screen, and how many units a cell stands for
    pane, parts = head.pane, list[str]()
    block_shape = session.heads[state.head][0].pooled_source.block
    if head.is_scrolled:
        axes = ("queries", pane.queries, head.queries), ("keys", pane.keys, head.keys)
        parts.append(", ".join(f"{name} {axis.start}–{axis.stop - 1} of {len(units)}" for name, axis, units in axes))
    if pane.queries.pooled or pane.keys.pooled:
        sides = (-(-(axis.stop - axis.start) // axis.cells) for axis in (pane.queries, pane.keys))  # rounded up
        unit = session.unit_name if view.words else "tokens" if block_shape == (1, 1) else "blocks"
        parts.append("a cell is up to {} x {} {} (+ zooms in, Enter to single ones)".format(*sides, unit))
    if not parts and block_shape != (1, 1):
        parts.append("every cell is a block of {} x {} tokens, as captured".format(*block_shape))
    status = f" {'; '.join(parts) or 'every cell is one query (row) and one key (column)'}"
    main, side, text = map_part(head), side_part(head), text_pane(tokens, screen, text_lines(screen.size))
    spans = pane.queries.span, pane.keys.span
    previews = [block for block in session.unfinished_blocks if (block.queries, block.keys) == spans]
    return Parts([words(title)], main, text, [preview_status(previews), words(status)], side)


def map_part(head: OpenHead) -> Drawing:
    """Returns the maps side by side, with the labels of rows at their left and those of keys above."""
    pane, state = head.pane, head.state
    form, character = pane.form, head.screen.size.character
    cursor_row, cursor_column = pane.queries.cell_of(state.query), pane.keys.cell_of(state.key)
    lines: list[Line] = []
    for row in range(0, pane.queries.cells, form.rows_a_line):
        has_cursor = row <= cursor_row < row + form.rows_a_line
        query = state.query if has_cursor else pane.queries.unit_of(row)
        label = head.queries.labels[query]
        numbered_label = f"{label} {head.queries.starts[query]}"  # with its number if rows are pooled and it has space
        if pane.queries.pooled and not has_cursor and cell_len(numbered_label) <= pane.label_width:
            label = numbered_label
        span = words(label, pane.label_width, "reverse" if has_cursor else "dim", right=True)
        lines.append([span, words("▸" if has_cursor else " ")])
    for index, panel in enumerate(head.panels):
        cells = Cells(CellBlock(panel.values, panel.visible), panel.scale, cursor=(cursor_row, cursor_column))
        if form.cell_width == 1 and character is not None:
            area = PictureArea(len(lines), pane.map_width, character, (form.rows_a_line, form.cells_a_column))
            cells = cells._replace(area=area)
        else:
            texts = _cell_numbers(panel) if form.cell_width >= NUMBER_CELL else None
            cells = cells._replace(cell_width=form.cell_width, rows_a_line=form.rows_a_line, texts=texts)
        for line, spans in zip(lines, cell_lines(cells, head.screen.colors), strict=True):
            line += [*([words(" ")] if index else []), *spans]

    def hit(x: int, y: int) -> Hit | None:
        cell, map_index = pane.cell_at(x, y), pane.map_at(x)
        if cell is None or map_index >= len(head.heads):
            return None
        return Hit({"query": cell[0], "key": cell[1]}, cell=(head.heads[map_index], *cell))

    return Drawing([*_header(head, cursor_column), *lines], hit)


def _cell_numbers(panel: Panel) -> tuple[tuple[str, ...], ...]:
    """Returns the text of every cell in four columns, ``(rows, columns)``: its number, or a dot if it is masked."""

    def text(value: float, is_visible: bool) -> str:
        if not is_visible:
            return "  · "
        number = panel.cell(value)
        if len(number) > _NUMBER_COLUMNS:  # with fewer decimals, then cut
            number = f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
        is_short = len(number) < _NUMBER_COLUMNS
        return f"{number:>{_NUMBER_COLUMNS - 1}} " if is_short else number[:_NUMBER_COLUMNS]

    rows = zip(panel.values.tolist(), panel.visible.tolist(), strict=True)
    return tuple(tuple(map(text, values, visible)) for values, visible in rows)


def _header(head: OpenHead, cursor_column: int) -> list[Line]:
    """Returns the lines above the maps: the cursor's key, or the names of several heads; then the labels of keys."""
    pane, form = head.pane, head.pane.form
    margin, mark_column = words("", pane.label_width + 1), pane.column_of(cursor_column)
    if head.state.heads_beside:
        first_line: Line = []
        for index, head_index in enumerate(head.heads):
            name = short_name(head.screen.session.names[head_index], max(mark_column, pane.map_width - mark_column - 2))
            text = " " * mark_column + "▾" + (f" {name}" if mark_column + 2 < pane.map_width else "")
            if cell_len(name) < mark_column:
                text = f"{name}{' ' * (mark_column - cell_len(name))}▾"
            first_line += [*([words(" ", style="bold")] if index else []), words(text, pane.map_width, "bold")]
    else:
        seconds = seconds_above(head.keys, pane.map_width, pane.keys.span, head.state.key)
        label, width = head.keys.labels[head.state.key], pane.width - pane.label_width - 1
        first_line = seconds or marked_label(label, mark_column, width, min(cell_len(label), width - 2))
    lines = [[margin, *first_line]]
    depth = 1 if form.cell_width >= NUMBER_CELL else form.header_lines - 1
    for line in range(depth):
        spans: Line = [margin]
        for index, panel in enumerate(head.panels):
            spans += [words(" ", style="dim")] if index else []
            for label in panel.columns.labels:
                if form.cell_width >= NUMBER_CELL:
                    spans += [words(label, form.cell_width - 1, "dim", right=True), words(" ", style="dim")]
                else:  # the characters of the label below each other, blank lines first
                    characters = list(label[:depth]) if len(label) <= depth else [*label[: depth - 1], "…"]
                    blank_lines = depth - len(characters)
                    spans.append(words("" if line < blank_lines else characters[line - blank_lines], 2, "dim"))
        lines.append(spans)
    return lines


def marked_label(label: str, mark_column: int, width: int, label_columns: int) -> list[Span]:
    """Returns a mark over a column with a label at its right, or at its left if it fits only there."""
    if mark_column + 2 + label_columns <= width:
        return [words("", mark_column), words("▾ ", style="bold"), words(label, label_columns, "bold")]
    gap = max(0, mark_column - label_columns - 1)
    return [words("", gap), words(label, label_columns, "bold"), words(" ▾", style="bold")]


def side_part(head: OpenHead) -> Side:
    """Returns the pane beside the map: heads, numbers at the cursor with the strongest keys, minimap and legend.

    Instead of the numbers it may explain the weight. A minimap is shown if it leaves lines for some keys.
    """
    session, state, width, size = head.screen.session, head.state, side_width(head.screen.size), head.screen.size
    order = session.ranking.order(state.view)
    head_rows = list[tuple[Line, dict[str, object]]]()
    for index in order if listed_lines(size) else ():
        mark = "▸" if index in head.heads else "•" if index in state.marked_heads else " "
        number = session.ranking.number(index, state.view.order)
        number_text = "" if number is None else f" {number:.2f}"
        name = short_name(session.names[index], width - len(mark) - len(number_text))
        text = f"{mark}{name}{number_text} {session.ranking.description(index)}"
        head_rows.append(
            ([words(text, width, "bold" if index in head.heads else "")], {"head": index, "heads_beside": ()})
        )
    heads = Listed(head_rows, order.index(state.head) if state.head in order else None)
    quantity = head.panel.quantity
    strip_columns = max(MIN_LEGEND_COLUMNS, width - LEGEND_NUMBER_COLUMNS)
    legend_line = [words(" "), *legend(quantity, head.scale, strip_columns, head.screen.colors)]
    free_lines = map_lines(size) - 1 - listed_lines(size)
    if state.why:
        return Side(heads, why_lines(head, free_lines), Drawing([]), Drawing([]), legend_line)

    numbers, strongest_keys = head.shown.values, head.shown.strongest_units
    query, key = (f"{units.starts[unit]} {units.labels[unit]}" for units, unit in head.cursor)
    lines: list[Line] = [[words(f" query {query}", width, "bold")], [words(f" key {key}", width, "bold")]]
    if state.heads_beside:
        before = " strongest keys of "
        heading = before + short_name(session.names[state.head], width - len(before))
        for head_index in head.heads:
            row, text = session.row(head_index, state.view, state.query), "masked"
            if row.visible[state.key]:
                text = quantity_text(quantity, float(row.shown(state.view).values[state.key]))
            lines.append([words(f" {short_name(session.names[head_index], width - len(text) - 2):>6} {text}")])
    else:
        heading = " strongest keys" if strongest_keys else " every key is masked"
        lines += [[words(text)] for text in _number_texts(head)]
    lines += [[], [words(heading, width, "dim")]]
    lengths = np.abs(numbers[strongest_keys])
    full_bar = 1.0 if quantity is PERCENT else float(lengths[np.isfinite(lengths)].max(initial=0)) or 1.0
    has_space = free_lines - len(lines) - MINIMAP_LINES - 1 >= min(MIN_LISTED_KEYS, len(strongest_keys))
    minimap = _minimap(head) if head.is_scrolled and has_space else Drawing([])
    listed_keys = strongest_keys[: max(0, free_lines - len(lines) - len(minimap.lines))]
    key_lines: list[Line] = []
    for listed_key in listed_keys:
        key_number, has_cursor = f"{quantity_text(quantity, float(numbers[listed_key])):>6}", listed_key == state.key
        style = "bold" if has_cursor else ""
        label_columns = width - BAR_WIDTH - len(key_number) - 2  # without the cursor's mark and a space
        key_lines.append(
            [
                words(f"{'▸' if has_cursor else ' '}{key_number} ", style=style),
                Span(bar(float(numbers[listed_key]), full_bar, BAR_WIDTH), style="" if has_cursor else "dim"),
                words(f" {unique_label(head.keys, listed_key)}", label_columns, style),
            ]
        )
    keys = Drawing(key_lines, lambda x, y: Hit({"key": listed_keys[y]}))
    return Side(heads, lines, keys, minimap, legend_line)


def _number_texts(head: OpenHead) -> list[str]:
    """Returns a line with the weight at the cursor, or a remark if the cell is masked; and a line with the score."""
    row, key, quantity = head.row, head.state.key, head.screen.session.weight_quantity
    if quantity is PERCENT:
        weight_text = f" weight {row.weights[key]:.2%}"
        weight_text += "" if row.change is None else f" {row.change[key]:+.2%}"
    else:
        weight_text = f" {quantity.name.split(' ')[0]} {row.weights[key]:.4f}"
    if not np.isnan(row.scores[key]):
        score_text = f" score  {row.scores[key]:.4f}"
    elif head.state.view.words:
        score_text = " only tokens have scores"
    else:
        has_scores = head.state.head < head.screen.session.recorded_count and not quantity.centred
        score_text = " score  NaN" if has_scores else ""
    return [weight_text if row.visible[key] else " masked: cannot be seen", score_text]


def _minimap(head: OpenHead) -> Drawing:
    """Returns a small picture of the whole map, darkened where it is not on the screen; a click goes there."""
    rows, columns = (slice(0, len(units)) for units in (head.queries, head.keys))
    max_cells = MINIMAP_LINES * 2, side_width(head.screen.size) - 2  # a line has two rows of cells
    # as many cells as the map has before it is zoomed, since these are often in the cache
    cell_counts = map(max, (head.whole_pane.queries.cells, head.whole_pane.keys.cells), max_cells)
    large_block = head.screen.session.cells(head.state.head, head.state.view, rows, columns, *cell_counts)
    block = pool(large_block, *max_cells, mean=pools_by_mean(head.state.view))
    height, width = block.values.shape
    overlaps = []  # of the cells with the part that is on the screen, for each axis
    axes = zip((head.pane.queries, head.pane.keys), (height, width), (len(head.queries), len(head.keys)), strict=True)
    for axis, cell_count, unit_count in axes:
        starts = np.arange(cell_count) * unit_count // cell_count
        stops = np.append(starts[1:], unit_count)
        overlaps.append((stops > axis.start) & (starts < axis.stop))
    are_on_screen = overlaps[0][:, None] & overlaps[1][None, :]
    cells = Cells(block, head.scale, rows_a_line=2, bright_cells=are_on_screen)

    def hit(x: int, y: int) -> Hit | None:
        if not 0 < x <= width:
            return None
        return Hit({"query": 2 * y * len(head.queries) // height, "key": (x - 1) * len(head.keys) // width})

    return Drawing([[words(" "), *line] for line in cell_lines(cells, head.screen.colors)], hit)


def why_lines(head: OpenHead, count: int) -> list[Line]:
    """Returns lines that explain a score: q, k and q·k of the features with the largest terms, the rest, and the sum.

    If the recording holds no queries and keys, or the head is a combination, a remark stands in place of the features.
    """
    session, state, width = head.screen.session, head.state, side_width(head.screen.size)
    maps, head_number = session.heads[state.head]
    query_label, key_label = (units.labels[unit] for units, unit in head.cursor)
    lines: list[Line] = [[words(f" why “{query_label}” → “{key_label}”", style="bold")]]
    factors = maps.cell_factors()
    if factors is None:
        reason = COMBINED_HEAD if state.head >= session.recorded_count else NO_FACTORS
        return [*lines, *([words(f" {line}")] for line in wrap(reason, width - 2, break_on_hyphens=False))]
    head_index = maps.head_indices((head_number,))[0]
    query, key = (int(units.starts[unit]) for units, unit in head.cursor)
    # only one row of each is read: the arrays may lie in a file
    q = np.asarray(factors.queries[head_index, slice(query, query + 1)], dtype=np.float64)[0]
    k = np.asarray(factors.keys[factors.key_heads[head_index], slice(key, key + 1)], dtype=np.float64)[0]
    terms = q * k * factors.scale
    order = np.argsort(-np.abs(terms), kind="stable")
    listed_count = max(1, count - LINES_OF_SUMS)
    listed_features, other_features = order[:listed_count], order[listed_count:]
    full_bar = float(np.abs(terms).max(initial=0))
    lines.append([words(" feature      q      k   term", style="dim")])
    for feature in listed_features.tolist():
        numbers = f" {feature:>7} {q[feature]:>6.2f} {k[feature]:>6.2f} {terms[feature]:>6.2f} "
        lines.append([words(numbers), Span(bar(float(terms[feature]), full_bar, FEATURE_BAR_WIDTH), style="dim")])
    if len(other_features):
        name = f" {len(other_features)} more".ljust(NAME_COLUMNS)
        lines.append([words(f"{name} {terms[other_features].sum():>6.2f}")])
    total, score = terms.sum(), float(head.row.scores[state.key])
    lines.append([words(" q·k · scale".ljust(NAME_COLUMNS) + f" {total:>6.2f}", style="bold")])
    if abs(score - total) > MAX_ROUNDING:
        lines.append([words(" with bias or cap".ljust(NAME_COLUMNS) + f" {score:>6.2f}")])
    return lines
