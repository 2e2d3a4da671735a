"""Draws an open head: beside its map the list of heads, the cursor's numbers or why they are so, and the minimap.

The cursor's row stands below as text.
"""

from dataclasses import replace
from textwrap import wrap

import numpy as np

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import has_two_panes, listed_lines, map_lines, side_width, text_lines
from attnviz.browse.session.blocks import CellBlock, pool
from attnviz.browse.session.session import pools_by_mean
from attnviz.browse.session.state import State
from attnviz.browse.view.cells import Cells, cell_lines, legend, preview_status, quantity_text
from attnviz.browse.view.map import OpenHead, lay_out, map_part
from attnviz.browse.view.media import text_pane
from attnviz.browse.view.parts import ClickArea, Hit, ScreenPart, below, beside, line_part, short_name, sized, words
from attnviz.browse.view.tokens import ShadedTokens, shades_caption, unique_label
from attnviz.maps.heads import maps_over_tokens
from attnviz.render.terminal.lines import Line, Span, bar
from attnviz.report.picture.panels import PERCENT
from attnviz.text.units import Units

BAR_WIDTH, FEATURE_BAR_WIDTH = 6, 4  # columns of a bar beside a key, and beside a feature
MINIMAP_LINES = 8
MIN_LISTED_KEYS = 4  # if a minimap leaves fewer lines for keys, it is left out
LEGEND_NUMBER_COLUMNS, MIN_LEGEND_COLUMNS = 16, 4  # columns of the legend's two numbers, and of its strip of colours
NAME_COLUMNS = 22  # columns before a term or a sum, as wide as the columns feature, q and k together
LINES_OF_SUMS = 5  # lines of an explanation that list no feature: title, heading, other features, sum, score
MAX_ROUNDING = 1e-3  # a score further than this from the sum of terms has a bias or a cap
NO_FACTORS = "This recording holds weights, but no queries and keys; record it with --set dense=false to keep them."
COMBINED_HEAD = "This map combines several heads; Esc goes back to one."


def head_body(screen: Screen, state: State) -> tuple[str, ScreenPart, Line]:
    """Returns title, body and status of an open head: map, side pane and text; a wide screen has the side at the left.

    The title has the names of the open heads; a single head is followed by its pattern.
    """
    head, size, session = lay_out(screen, state), screen.size, screen.session
    height, side = map_lines(size), side_width(size)
    map_pane, side_pane = sized(map_part(head), height), side_part(head)
    edge = ScreenPart([[words("│", style="dim")]] * height)
    if has_two_panes(size):
        panes = beside((side_pane, side), (edge, 1), (map_pane, size.width - side - 1))
    else:
        panes = beside((map_pane, head.pane.width), (edge, 1), (side_pane, side))
    text = sized(text_pane(_row_text(head), screen, text_lines(size)), text_lines(size))
    title = session.title(state.head)
    if state.heads_beside:
        title = "heads " + ", ".join(session.names[index] for index in head.heads)
    elif pattern := session.ranking.description(state.head):
        title += f": {pattern}"
    spans = head.pane.queries.span, head.pane.keys.span
    previews = [block for block in session.unfinished_blocks if (block.queries, block.keys) == spans]
    return title, below(panes, text), [preview_status(previews), words(_part_status(head))]


def _row_text(head: OpenHead) -> ShadedTokens:
    """Returns the keys, shaded by the cursor's row."""
    session, view, values = head.screen.session, head.state.view, head.row.numbers(head.state.view)
    quantity, scale = head.panel.quantity, head.scale
    if head.keys.tokens.image_indices and quantity is PERCENT:  # so many patches that no weight is far from 0
        block = CellBlock(values[None], head.row.visible[None])
        scale = session.scale(replace(view, own_scale=True), [block], head.state.theme)
    description = f"{quantity.name} of {head.query} in {session.title(head.state.head)}"
    return ShadedTokens(
        units=head.keys,
        values=values,
        visible=head.row.visible,
        scale=scale,
        cursor=head.state.key,
        caption=shades_caption(description, quantity, scale),
        axis="key",
        queries=head.queries,
        query=head.state.query,
        are_shares=quantity is PERCENT,
    )


def _part_status(head: OpenHead) -> str:
    """Returns a sentence on the part of the map that is on the screen, and on how many units a cell stands for."""
    pane, parts, session = head.pane, list[str](), head.screen.session
    block = maps_over_tokens(session.heads[head.state.head][0]).block
    if head.is_scrolled:
        axes = ("queries", pane.queries, head.queries), ("keys", pane.keys, head.keys)
        parts.append(", ".join(f"{name} {axis.start}–{axis.stop - 1} of {len(units)}" for name, axis, units in axes))
    if pane.queries.pooled or pane.keys.pooled:
        sides = (-(-(axis.stop - axis.start) // axis.cells) for axis in (pane.queries, pane.keys))  # rounded up
        token_unit = "tokens" if block == (1, 1) else "blocks"
        unit = session.unit_name if head.state.view.words else token_unit
        parts.append("a cell is up to {} x {} {} (+ zooms in)".format(*sides, unit))
    if not parts and block != (1, 1):
        parts.append("every cell is a block of {} x {} tokens, as captured".format(*block))
    return f" {'; '.join(parts) or 'every cell is one query (row) and one key (column)'}"


def side_part(head: OpenHead) -> ScreenPart:
    """Returns the side pane: the heads, the numbers at the cursor or the explanation of its weight, and the legend."""
    heads, width = _heads_part(head), side_width(head.screen.size)
    count = map_lines(head.screen.size) - 1 - len(heads.lines)
    middle = ScreenPart(why_lines(head, count)) if head.state.why else _cursor_part(head, count)
    strip_columns = max(MIN_LEGEND_COLUMNS, width - LEGEND_NUMBER_COLUMNS)
    legend_line = legend(head.panel.quantity, head.scale, strip_columns, head.screen.colors)
    return below(heads, sized(middle, count), line_part(words(" "), *legend_line))


def _heads_part(open_head: OpenHead) -> ScreenPart:
    """Returns the list of heads around the open one, each with mark, name, sort number and pattern, and a rule."""
    lines, width = listed_lines(open_head.screen.size), side_width(open_head.screen.size)
    if not lines:
        return ScreenPart([])
    session, state = open_head.screen.session, open_head.state
    heads, parts = session.ranking.order(state.view), list[ScreenPart]()
    position = heads.index(state.head) if state.head in heads else 0
    first = min(max(0, position - (lines - 1) // 2), max(0, len(heads) - (lines - 1)))
    for head in heads[first : first + lines - 1]:
        is_open, number = head in open_head.heads, session.ranking.number(head, state.view.order)
        mark = "▸" if is_open else "•" if head in state.marked_heads else " "
        number_text = "" if number is None else f" {number:.2f}"
        name = short_name(session.names[head], width - len(mark) - len(number_text))
        text = f"{mark}{name}{number_text} {session.ranking.description(head)}"
        span = words(text, width, "reverse bold" if is_open else "")
        parts.append(line_part(span, hit=Hit({"head": head, "heads_beside": ()}), width=width))
    return below(sized(below(*parts), lines - 1), line_part(words("─" * width, style="dim")))


def _cursor_part(head: OpenHead, count: int) -> ScreenPart:
    """Returns the cursor's numbers, its query's strongest keys, and the minimap if it leaves lines for some keys."""
    state, width, session = head.state, side_width(head.screen.size), head.screen.session
    quantity, numbers = head.panel.quantity, head.row.numbers(state.view)
    minimap = _minimap(head) if head.is_scrolled else ScreenPart([])
    if state.heads_beside:
        before = " strongest keys of "
        texts, heading = list[str](), before + short_name(session.names[state.head], width - len(before))
        for head_index in head.heads:
            row, text = session.row(head_index, state.view, state.query), "masked"
            if row.visible[state.key]:
                text = quantity_text(quantity, float(row.numbers(state.view)[state.key]))
            texts.append(f" {short_name(session.names[head_index], width - len(text) - 2):>6} {text}")
    else:
        texts, heading = _number_texts(head), " strongest keys"
    query, key = (f"{units.starts[unit]} {units.labels[unit]}" for units, unit in _units_at_cursor(head))
    lines: list[Line] = [
        [words(f" query {query}", width, "bold")],
        [words(f" key {key}", width, "bold")],
        *([words(text)] for text in texts),
        [],
        [words(heading, width, "dim")],
    ]
    parts = [ScreenPart(lines)]
    minimap_lines = MINIMAP_LINES + 1 if minimap.lines else 0  # with a blank line above it
    max_keys = max(count - len(lines) - minimap_lines, min(MIN_LISTED_KEYS, count))
    keys = head.strongest_keys[: max(0, max_keys)]
    lengths = np.abs(numbers[keys])
    full_bar = 1.0 if quantity is PERCENT else float(lengths[np.isfinite(lengths)].max(initial=0)) or 1.0
    for listed_key in keys:
        number, has_cursor = f"{quantity_text(quantity, float(numbers[listed_key])):>6}", listed_key == state.key
        style = "bold" if has_cursor else ""
        label_columns = width - BAR_WIDTH - len(number) - 2  # without the cursor's mark and a space
        spans = (
            words(f"{'▸' if has_cursor else ' '}{number} ", style=style),
            Span(bar(float(numbers[listed_key]), full_bar, BAR_WIDTH), style="" if has_cursor else "dim"),
            words(f" {unique_label(head.keys, listed_key)}", label_columns, style),
        )
        parts.append(line_part(*spans, hit=Hit({"key": listed_key}), width=width))
    if not head.strongest_keys:
        parts.append(line_part(words(" every key is masked", style="dim")))
    listed = below(*parts)
    free_lines = count - len(listed.lines)
    return listed if len(minimap.lines) >= free_lines else below(sized(listed, count - len(minimap.lines)), minimap)


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
        score_text = "" if head.state.head >= head.screen.session.recorded_count else " score  NaN"
    return [weight_text if row.visible[key] else " masked: cannot be seen", score_text]


def _minimap(head: OpenHead) -> ScreenPart:
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
    lines: list[Line] = [[words(" "), *line] for line in cell_lines(cells, head.screen.colors)]

    def hit(x: int, y: int) -> Hit:
        return Hit({"query": 2 * y * len(head.queries) // height, "key": x * len(head.keys) // width})

    return ScreenPart(lines, [ClickArea(1, 0, width, len(lines), hit)])


def why_lines(head: OpenHead, count: int) -> list[Line]:
    """Returns lines that explain a score: q, k and q·k of the features with the largest terms, the rest, and the sum.

    If the recording holds no queries and keys, or the head is a combination, a remark stands in place of the features.
    """
    session, state, width = head.screen.session, head.state, side_width(head.screen.size)
    maps, head_number = session.heads[state.head]
    query_label, key_label = (units.labels[unit] for units, unit in _units_at_cursor(head))
    lines: list[Line] = [[words(f" why “{query_label}” → “{key_label}”", style="bold")]]
    factors = maps.cell_factors()
    if factors is None:
        reason = COMBINED_HEAD if state.head >= session.recorded_count else NO_FACTORS
        return [*lines, *([words(f" {line}")] for line in wrap(reason, width - 2, break_on_hyphens=False))]
    head_index = maps.head_indices((head_number,))[0]
    query, key = (int(units.starts[unit]) for units, unit in _units_at_cursor(head))
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


def _units_at_cursor(head: OpenHead) -> tuple[tuple[Units, int], tuple[Units, int]]:
    return (head.queries, head.state.query), (head.keys, head.state.key)
