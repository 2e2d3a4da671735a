"""Draws maps in a terminal: the geometry of their cells, labels and titles, thumbnails, and the legend of colours."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

import numpy as np
from rich.cells import cell_len, set_cell_size

from attnviz.base.arrays import Float64Array
from attnviz.render.terminal.lines import Line, Span, cut, fit, right_aligned, to_ascii, widest_label
from attnviz.report.picture.colors import ColorScale, Rgb, ink_on
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Axis, Panel, Quantity, position_label

# Lengths are in columns of the terminal.
PANEL_GAP = 3
ROW_LABEL_COLUMNS = 12  # reserved for query labels, and for a space, when a map is pooled
MIN_LABEL_LIMIT = 6  # that query labels may have in a narrow terminal
MAX_CELL_WIDTH = 24
MIN_CUT_WIDTH = 5  # narrowest cell under a cut label: four letters and a gap
MIN_NUMBER_WIDTH = 3
MIN_THUMBNAIL_COLUMNS = 8
MAX_HEADER_LINES = 10  # lines of key labels written downwards
LINES_AROUND_MAPS = 9  # lines of a screen for title, legend, caption and remarks
HEADER_COSTS = {"across": 1.0, "cut": 2.2, "down": 3.0}  # weight of a line: more for labels that are harder to read
LEGEND_COLUMNS = 24  # of the colour scale
MIN_TICKED_WIDTH = 40  # of the narrowest terminal whose legend has numbers between its ends
SPARE_COLUMNS = 4  # of a legend that stay free if its colour scale can be shorter
MIN_NAME_COLUMNS = 6  # after the scale, above which a legend names its quantity
LEGEND_TICKS = 3  # approximate number of ticks where the steps of the scale are not linear
SHADES, ASCII_SHADES = " ░▒▓█", " :-=+*#%@"  # zero is the paper, as in colours
SIGNS, ASCII_SIGNS = "▼▽ △▲", "=- +#"  # for changes: less, about the same, more
MASKED = "·"  # a masked cell, in colours and in shades; ``.`` in ASCII
SECONDS_COLUMNS = 10  # from one second that is written to the next, at least
ROUND_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


@dataclass(frozen=True)
class CellGrid:
    """The geometry of panels: the size and content of cells, and the direction of labels."""

    cell: int = 2  # columns of the terminal per cell
    has_numbers: bool = False  # True if cells show their numbers
    rows_a_line: int = 1  # 2 if half blocks show two queries on each line, else 1
    # the style of key labels: ``across``, ``cut`` to their cells, ``down`` a letter a line, or ``ticks``, which are
    # positions instead of tokens
    header: str = "down"
    label_columns: int = 0  # columns of the query labels
    across: int = 1  # the number of panels side by side


def map_bands(panels: list[Panel], grid: CellGrid, look: Look) -> Iterator[Line]:
    """Yields the lines of the panels, side by side in bands; a panel that is too wide continues in further bands."""
    columns_a_part = max(1, (look.width - grid.label_columns - 1) // grid.cell)
    parts = []
    for panel in panels:
        axis, count = panel.columns, len(panel.columns.labels)
        for start in range(0, count, columns_a_part):
            stop = min(start + columns_a_part, count)
            edges, heading = axis.edges[start : stop + 1], panel.heading
            if count > columns_a_part:
                first, last = (position_label(edge, axis.seconds) for edge in (edges[0], edges[-1]))
                heading = replace(heading, limits=f"{heading.limits}, keys {first}:{last}")
            part = replace(
                panel,
                heading=heading,
                values=panel.values[:, start:stop],
                visible=panel.visible[:, start:stop],
                columns=Axis(axis.name, axis.labels[start:stop], edges, seconds=axis.seconds),
            )
            parts.append(part)
    for start in range(0, len(parts), grid.across):
        yield from _band_lines(parts[start : start + grid.across], grid, look)
        yield []


def thumbnails(panels: list[Panel], look: Look, fills_rows: bool = False) -> Iterator[Line]:
    """Yields the lines of thumbnails, those of each group side by side in as few bands as the width allows."""
    grid = CellGrid(cell=1, rows_a_line=_finest_rows(look))
    cells = {id(panel): max(len(panel.columns.labels), MIN_THUMBNAIL_COLUMNS) for panel in panels}
    widest = max(max(cells[id(panel)], cell_len(panel.title)) for panel in panels)
    max_across = max(1, (look.width + 1) // (widest + 1))
    names_repeat = len({panel.title for panel in panels}) < len(panels)
    for name, group in groupby(panels, lambda panel: "" if fills_rows else panel.group):
        members = list(group)
        if names_repeat and name:
            yield [Span(fit(name, look.width).rstrip(), style="bold")]
        bands = math.ceil(len(members) / max_across)
        across = math.ceil(len(members) / bands)  # about as many in each band
        for start in range(0, len(members), across):
            band = members[start : start + across]
            widths = [widest if fills_rows else cells[id(panel)] for panel in band]
            titles = [Span(fit(panel.title, width), style="bold") for panel, width in zip(band, widths, strict=True)]
            yield [span for title in titles for span in (title, Span(" "))][:-1]
            for row in range(0, max(len(panel.values) for panel in band), grid.rows_a_line):
                line: Line = []
                for panel, width in zip(band, widths, strict=True):
                    spans = list(_row_spans(panel, row, grid, look)) if row < len(panel.values) else []
                    line += [*spans, Span(" " * (width + 1 - sum(cell_len(span.text) for span in spans)))]
                yield line[:-1]
            yield []


def choose_grid(
    panels: list[Panel], side_by_side: int | None, look: Look, *, needs_numbers: bool, may_have_numbers: bool = True
) -> CellGrid:
    """Returns the best geometry in which the panels fit the width, with numbers if possible.

    If none fits, returns the last one tried; panels then continue in further bands.
    """
    columns = max(len(panel.columns.labels) for panel in panels)
    grids = _possible_grids(panels, look, needs_numbers, may_have_numbers)

    def is_too_tall(grid: CellGrid) -> bool:
        """True if the panels, with the lines around them, do not fit the screen; False if its height is unknown."""
        return look.height is not None and _line_count(grid, panels) > look.height - LINES_AROUND_MAPS

    for count in (side_by_side or 1, 1):
        fitting_grids = [
            replace(grid, across=_panels_across(grid, panels, side_by_side, look.width))
            for grid in grids
            if grid.label_columns + 1 + count * (columns * grid.cell + PANEL_GAP) - PANEL_GAP <= look.width
        ]
        if grids_with_numbers := [grid for grid in fitting_grids if grid.has_numbers]:
            # Those that fit the screen first, then short and readable ones, then wide cells.
            return min(
                grids_with_numbers,
                key=lambda grid: (
                    is_too_tall(grid),
                    _line_count(grid, panels) * HEADER_COSTS[grid.header],
                    -grid.cell,
                ),
            )
        if fitting_grids:
            return fitting_grids[0] if may_have_numbers else min(fitting_grids, key=is_too_tall)
    return grids[-1]


def _possible_grids(panels: list[Panel], look: Look, needs_numbers: bool, may_have_numbers: bool) -> list[CellGrid]:
    """Returns possible geometries: first those with numbers, then blocks of two columns and of one."""
    # Query labels are as wide as the widest, but at most about a quarter of the width.
    pooled_keys = max((len(panel.columns.labels) for panel in panels if panel.columns.pooled), default=0)
    columns_beside = max(look.width - pooled_keys - 1, ROW_LABEL_COLUMNS - 1) if pooled_keys else look.width
    widest_row = max(widest_label(panel.rows.labels) for panel in panels)
    grid = CellGrid(label_columns=min(widest_row, max(MIN_LABEL_LIMIT, look.width // 4), columns_beside))
    finest_grid = replace(grid, cell=1, rows_a_line=_finest_rows(look))
    is_pooled = any(panel.pooled for panel in panels)
    if not may_have_numbers:  # blocks with key labels, unless they are pooled, before those with positions
        headers = ["ticks"] if is_pooled else ["down", "ticks"]
        return [replace(blocks, header=header) for blocks in (grid, finest_grid) for header in headers]
    number_width = MIN_NUMBER_WIDTH
    for panel in panels:
        visible_values = panel.values[panel.visible]
        extremes = (visible_values.min(), visible_values.max()) if visible_values.size else (0.0,)
        number_width = max(number_width, *(len(panel.cell(float(value))) for value in extremes))
    key_width = max(widest_label(panel.columns.labels) for panel in panels)
    widest_cell = max(min(max(number_width, key_width) + 1, MAX_CELL_WIDTH), number_width + 1)
    numbered_grids = []
    for cell in range(number_width + 1, widest_cell + 1):
        header = "cut" if cell >= MIN_CUT_WIDTH else "down"
        if cell > key_width:
            header = "across"
        numbered_grids.append(replace(grid, cell=cell, has_numbers=True, header=header))
    if number_width + 1 >= MIN_CUT_WIDTH and key_width > number_width:
        numbered_grids.append(replace(grid, cell=number_width + 1, has_numbers=True))
    if needs_numbers:
        return numbered_grids
    if look.colors and not any(panel.scale.signed for panel in panels):
        numbered_grids.append(replace(grid, cell=number_width, has_numbers=True))
    header_of_blocks = "ticks" if is_pooled and not any(panel.columns.marks for panel in panels) else "down"
    finest_header = header_of_blocks if key_width <= MAX_HEADER_LINES or panels[0].columns.marks else "ticks"
    return [
        *([] if is_pooled else numbered_grids),
        replace(grid, header=header_of_blocks),
        replace(finest_grid, header=finest_header),
    ]


def _finest_rows(look: Look) -> int:
    """Returns the rows on a line of the smallest cells: 2, as half blocks, if there are colours to draw them."""
    return 2 if look.colors and not look.ascii else 1


def _line_count(grid: CellGrid, panels: list[Panel]) -> int:
    """Returns the number of lines of all panels: rows, key labels, a title and an empty line for each band."""
    rows = math.ceil(max(len(panel.rows.labels) for panel in panels) / grid.rows_a_line)
    header = max(len(_letters_down(label)) for label in panels[0].columns.labels) if grid.header == "down" else 1
    return math.ceil(len(panels) / grid.across) * (rows + 2 + header)


def _panels_across(grid: CellGrid, panels: list[Panel], side_by_side: int | None, width: int) -> int:
    """Returns the number of panels side by side: ``side_by_side`` if so many fit, else 1."""
    widest_panel = max(_panel_width(panel, grid) for panel in panels)
    fitting_count = max(1, (width - grid.label_columns - 1 + PANEL_GAP) // (widest_panel + PANEL_GAP))
    if side_by_side is not None:
        return side_by_side if fitting_count >= side_by_side else 1
    bands = math.ceil(len(panels) / fitting_count)
    return math.ceil(len(panels) / bands)


def _panel_width(panel: Panel, grid: CellGrid) -> int:
    return max(len(panel.columns.labels) * grid.cell, *map(cell_len, panel.heading.lines))


def _band_lines(panels: list[Panel], grid: CellGrid, look: Look) -> list[Line]:
    """Returns the lines of panels side by side, aligned at their last line; only the leftmost has query labels."""
    space = look.width - grid.label_columns - 1
    widths = [min(_panel_width(panel, grid), space) for panel in panels]
    blocks = []
    for index, (panel, width) in enumerate(zip(panels, widths, strict=True)):
        cells = len(panel.columns.labels) * grid.cell
        padding, margin = Span(" " * (width - cells)), Span("" if index else " " * (grid.label_columns + 1))
        titles = [panel.title] if cell_len(panel.title) <= width else panel.heading.lines
        block = [[margin, Span(fit(title, width), style="bold")] for title in titles]
        block += [[margin, Span(text), padding] for text in _header_lines(panel.columns, grid, cells)]
        for start in range(0, len(panel.rows.labels), grid.rows_a_line):
            text = next(filter(None, panel.rows.labels[start : start + grid.rows_a_line]), "")
            label = Span("" if index else f"{right_aligned(text, grid.label_columns)} ")
            block.append([label, *_row_spans(panel, start, grid, look), padding])
        blocks.append(block)
    widths[0] += grid.label_columns + 1
    lines: list[Line] = [[] for _ in range(max(map(len, blocks)))]
    for index, (block, width) in enumerate(zip(blocks, widths, strict=True)):
        blank_lines: list[Line] = [[Span(" " * width)]] * (len(lines) - len(block))  # beside titles of two lines
        for line, part in zip(lines, [*blank_lines, *block], strict=True):
            line += [Span(" " * PANEL_GAP), *part] if index else part
    return lines


def _header_lines(columns: Axis, grid: CellGrid, width: int) -> list[str]:
    """Returns the lines above the cells of a panel: key labels or positions, as the geometry's ``header`` asks."""
    if grid.header in ("across", "cut"):
        return ["".join(f"{right_aligned(label, grid.cell - 1)} " for label in columns.labels)]
    if grid.header == "ticks" and columns.seconds is not None:
        first_second, seconds_of_frame = columns.seconds
        frames = np.interp(np.arange(width + 1) / grid.cell, np.arange(len(columns.edges)), columns.edges)
        return [seconds_text(first_second + frames * seconds_of_frame).ljust(width)]
    if grid.header == "ticks":  # as many positions above their cells as do not touch
        line = ""
        for index, edge in enumerate(columns.edges[:-1]):
            column = index * grid.cell
            if column >= cell_len(line) + (2 if line else 0) and column + len(str(edge)) <= width:
                line = line.ljust(column) + str(edge)
        return [line.ljust(width)]
    stacks = [_letters_down(label) for label in columns.labels]
    height = max(len(stack) for stack in stacks)
    indent = max(0, (grid.cell - 1) // 2) if grid.has_numbers else 0
    padded_stacks = [[""] * (height - len(stack)) + stack for stack in stacks]
    return [
        "".join(set_cell_size(" " * indent + stack[row], grid.cell) for stack in padded_stacks) for row in range(height)
    ]


def _letters_down(label: str) -> list[str]:
    """Returns the lines of a label that is written downwards: a character, with its combining marks, on each line."""
    lines: list[str] = []
    for character in label:
        if lines and cell_len(lines[-1] + character) == cell_len(lines[-1]):  # no wider: a combining mark
            lines[-1] += character
        else:
            lines.append(character)
    return lines if len(lines) <= MAX_HEADER_LINES else [*lines[: MAX_HEADER_LINES - 1], "…"]


def seconds_text(edges: Float64Array, covered_columns: range = range(0)) -> str:
    """Returns a line with round seconds, each at its column; labels without space are left out."""
    columns = len(edges) - 1
    seconds_per_column = (edges[-1] - edges[0]) / columns
    min_step = SECONDS_COLUMNS * seconds_per_column
    step = next((seconds for seconds in ROUND_SECONDS if seconds >= min_step), ROUND_SECONDS[-1])
    text = ""
    for second in np.arange(np.ceil(edges[0] / step) * step, edges[-1], step).tolist():
        column = int((second - edges[0]) / seconds_per_column + 1e-6)  # a second on an edge stays in its column
        label = f"{second:g}s"
        is_covered = bool(covered_columns) and covered_columns.start - len(label) <= column <= covered_columns.stop
        if column + len(label) <= columns and not is_covered:
            text = text.ljust(column) + label
    return text


def _row_spans(panel: Panel, row: int, grid: CellGrid, look: Look) -> Iterator[Span]:
    """Yields the spans of one row of a map, or of two as halves of blocks.

    A cell is its number on the colour of its value, or a blank on the colour. In ASCII or without colours, blocks are
    one span of characters of shades. A masked cell is a dot, as are two that share a block.
    """
    if grid.rows_a_line == 2:
        for upper, lower in zip(_row_colors(panel, row), _row_colors(panel, row + 1), strict=True):
            is_masked = upper is None and lower is None
            yield Span(MASKED, style="dim") if is_masked else half_block(upper, lower)
        return
    levels, visible = panel.levels[row], panel.visible[row].tolist()
    if not grid.has_numbers and (not look.colors or look.ascii):
        characters = shades(levels, panel.scale, _shade_characters(panel.scale, look))
        shown_characters = (shade if seen else MASKED for shade, seen in zip(characters, visible, strict=True))
        yield Span("".join(character * grid.cell for character in shown_characters))
        return
    papers = panel.scale.rgb(levels)
    inks = ink_on(papers).tolist() if grid.has_numbers else []
    for column, paper in enumerate(papers.tolist()):
        if not grid.has_numbers:
            blank, dot = Span(" " * grid.cell, paper=tuple(paper)), Span(MASKED.ljust(grid.cell), style="dim")
            yield blank if visible[column] else dot
            continue
        text = panel.cell(float(panel.values[row, column])) if visible[column] else MASKED
        if len(text) < grid.cell:
            text = f"{text:>{grid.cell - 1}} "
        yield Span(text, tuple(inks[column]), tuple(paper)) if visible[column] else Span(text, style="dim")


def _row_colors(panel: Panel, row: int) -> list[Rgb | None]:
    """Returns the colour of each cell of a row; ``None`` for masked cells, and for a row below the last one."""
    if row >= len(panel.values):
        return [None] * panel.values.shape[1]
    colors = panel.scale.rgb(panel.levels[row]).tolist()
    return [tuple(color) if is_visible else None for color, is_visible in zip(colors, panel.visible[row], strict=True)]


@lru_cache(maxsize=65_536)
def half_block(upper_color: Rgb | None, lower_color: Rgb | None) -> Span:
    """Returns a span of one column that shows two pixels, one above the other; ``None`` leaves a pixel uncoloured."""
    if upper_color is None:
        return Span(" ") if lower_color is None else Span("▄", ink=lower_color)
    return Span("▀", ink=upper_color, paper=lower_color)


def shades(values: np.ndarray, scale: ColorScale, ramp: str) -> list[str]:
    """Returns a character of the ramp for each value: the last for the largest value of the scale, ``?`` for NaN."""
    fraction = scale.fraction(values)
    steps = np.rint(np.nan_to_num(fraction) * (len(ramp) - 1)).astype(int)
    return ["?" if np.isnan(position) else ramp[step] for position, step in zip(fraction, steps, strict=True)]


def _shade_characters(scale: ColorScale, look: Look) -> str:
    """Returns the characters that stand for colours: shades, or signs of change if zero is in the middle."""
    if scale.signed:
        return ASCII_SIGNS if look.ascii else SIGNS
    return ASCII_SHADES if look.ascii else SHADES


def legend(quantity: Quantity, scale: ColorScale, look: Look) -> Line:
    """Returns the legend of a scale as one line: colours with their numbers, and the quantity's name if it fits."""
    has_no_ticks = scale.steps == "linear" or look.width < MIN_TICKED_WIDTH
    ticks = quantity.ticks(scale, 1 if has_no_ticks else LEGEND_TICKS)
    texts = [to_ascii(text) if look.ascii else text for _, text in ticks]
    free_columns = look.width - len(quantity.name) - SPARE_COLUMNS - sum(len(text) + 2 for text in texts)
    columns = max(2 * len(ticks), min(LEGEND_COLUMNS, free_columns))
    tick_columns = np.rint(scale.fraction([value for value, _ in ticks]) * columns).astype(int).tolist()
    line = [Span(f"{texts[0]} ")]
    for start, stop, text in zip(tick_columns, tick_columns[1:], texts[1:], strict=False):
        values = scale.value((np.arange(start, stop) + 0.5) / columns)
        if look.colors and not look.ascii:
            line += [Span(" ", paper=tuple(paper)) for paper in scale.rgb(values).tolist()]
        else:
            line.append(Span("".join(shades(values, scale, _shade_characters(scale, look)))))
        line.append(Span(f" {text} "))
    columns_left = look.width - sum(len(span.text) for span in line)
    name = fit(f" {quantity.name}", columns_left).rstrip() if columns_left > MIN_NAME_COLUMNS else ""
    return cut([*line, Span(name)], look.width)
