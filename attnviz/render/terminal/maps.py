"""Lays out maps in a terminal: how many are side by side, the width of cells, and the labels of rows and columns."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from rich.cells import cell_len, set_cell_size

from attnviz.render.terminal.cells import CellGrid, block_cells, half_cells, number_cells
from attnviz.render.terminal.lines import Line, Span, fit, right_aligned, widest_label
from attnviz.render.terminal.over_sound import seconds_text
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import NOTE, Axis, Panel, position_label

PANEL_GAP_COLUMNS = 3  # columns between panels
ROW_LABEL_COLUMNS = 12  # columns reserved for query labels, and for a space, when a map is pooled
MAX_HEADER_LINES = 10  # lines of key labels written downwards
MAX_CELL_WIDTH = 24
MIN_CUT_WIDTH = 5  # narrowest cell under a cut label: four letters and a gap
MIN_NUMBER_WIDTH = 3
MIN_LABEL_LIMIT = 6  # columns that query labels may have in a narrow terminal
LINES_AROUND_MAPS = 9  # lines of a screen for title, legend, caption and remarks
HEADER_COSTS = {
    "across": 1.0,
    "cut": 2.2,
    "down": 3.0,
}  # weight of a line, greater for key labels that are harder to read


def map_bands(panels: list[Panel], grid: CellGrid, look: Look) -> Iterator[Line]:
    """Yields the lines of the panels, side by side in bands; a panel that is too wide continues in further bands."""
    parts = [part for panel in panels for part in _fitting_parts(panel, grid, look.width)]
    for start in range(0, len(parts), grid.across):
        yield from _band_lines(parts[start : start + grid.across], grid, look)
        yield []


def choose_grid(
    panels: list[Panel], side_by_side: int | None, look: Look, *, needs_numbers: bool, may_have_numbers: bool = True
) -> CellGrid:
    """Returns the best geometry in which the panels fit the width, with numbers if possible.

    If none fits, returns the last one tried; panels then continue in further bands.
    """
    columns = max(len(panel.columns.labels) for panel in panels)
    grids = _possible_grids(panels, look, needs_numbers, may_have_numbers)
    for count in (side_by_side or 1, 1):
        fitting_grids = [
            replace(grid, across=_panels_across(grid, panels, side_by_side, look.width))
            for grid in grids
            if grid.label_columns + 1 + count * (columns * grid.cell + PANEL_GAP_COLUMNS) - PANEL_GAP_COLUMNS
            <= look.width
        ]
        grids_with_numbers = [grid for grid in fitting_grids if grid.has_numbers]
        if grids_with_numbers:
            # Those that fit the screen first, then short and readable ones, then wide cells.
            return min(
                grids_with_numbers,
                key=lambda grid: (
                    _is_too_tall(grid, panels, look),
                    _line_count(grid, panels) * HEADER_COSTS[grid.header],
                    -grid.cell,
                ),
            )
        if fitting_grids and may_have_numbers:
            return fitting_grids[0]
        if fitting_grids:
            return min(fitting_grids, key=lambda grid: _is_too_tall(grid, panels, look))
    return grids[-1]


def _possible_grids(panels: list[Panel], look: Look, needs_numbers: bool, may_have_numbers: bool) -> list[CellGrid]:
    """Returns possible geometries: first those with numbers, then blocks of two columns and of one."""
    grid = CellGrid(
        2, has_numbers=False, rows_a_line=1, header="down", label_columns=_label_columns(panels, look.width)
    )
    finest_grid = replace(grid, cell=1, rows_a_line=2 if look.colors and not look.ascii else 1)
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


def _label_columns(panels: list[Panel], width: int) -> int:
    """Returns the columns for query labels: the width of the widest, but at most about a quarter of ``width``."""
    widest = max(widest_label(panel.rows.labels) for panel in panels)
    blocks = max((len(panel.columns.labels) for panel in panels if panel.columns.pooled), default=0)
    columns_beside_blocks = max(width - blocks - 1, ROW_LABEL_COLUMNS - 1) if blocks else width
    return min(widest, max(MIN_LABEL_LIMIT, width // 4), columns_beside_blocks)


def _is_too_tall(grid: CellGrid, panels: list[Panel], look: Look) -> bool:
    """True if the panels, with the lines around them, do not fit the screen; False if its height is unknown."""
    return look.height is not None and _line_count(grid, panels) > look.height - LINES_AROUND_MAPS


def _line_count(grid: CellGrid, panels: list[Panel]) -> int:
    """Returns the number of lines of all panels: rows, key labels, a title and an empty line for each band."""
    rows = math.ceil(max(len(panel.rows.labels) for panel in panels) / grid.rows_a_line)
    header_height = max(len(_letters_down(label, MAX_HEADER_LINES)) for label in panels[0].columns.labels)
    bands = math.ceil(len(panels) / grid.across)
    return bands * (rows + 2 + (header_height if grid.header == "down" else 1))


def _panels_across(grid: CellGrid, panels: list[Panel], side_by_side: int | None, width: int) -> int:
    """Returns the number of panels side by side: ``side_by_side`` if so many fit, else 1."""
    count, widest_panel = len(panels), max(_panel_width(panel, grid) for panel in panels)
    fitting_count = max(1, (width - grid.label_columns - 1 + PANEL_GAP_COLUMNS) // (widest_panel + PANEL_GAP_COLUMNS))
    if side_by_side is not None:
        return side_by_side if fitting_count >= side_by_side else 1
    bands = math.ceil(count / fitting_count)
    return math.ceil(count / bands)


def _band_lines(panels: list[Panel], grid: CellGrid, look: Look) -> list[Line]:
    """Returns the lines of panels side by side, aligned at their last line; only the leftmost has query labels."""
    space = look.width - grid.label_columns - 1
    widths = [min(_panel_width(panel, grid), space) for panel in panels]
    blocks = [
        _panel_lines(panel, grid, look, width, has_labels=index == 0)
        for index, (panel, width) in enumerate(zip(panels, widths, strict=True))
    ]
    height = max(len(block) for block in blocks)
    widths[0] += grid.label_columns + 1
    lines: list[Line] = []
    for row in range(height):
        line: Line = []
        for index, (block, width) in enumerate(zip(blocks, widths, strict=True)):
            missing_lines = height - len(block)  # lines of a title that only other panels have
            part = block[row - missing_lines] if row >= missing_lines else [Span(" " * width)]
            line += [Span(" " * PANEL_GAP_COLUMNS), *part] if index else part
        lines.append(line)
    return lines


def _panel_width(panel: Panel, grid: CellGrid) -> int:
    return max(len(panel.columns.labels) * grid.cell, *map(cell_len, panel.title.split(NOTE)))


def _panel_lines(panel: Panel, grid: CellGrid, look: Look, width: int, has_labels: bool) -> list[Line]:
    cells = len(panel.columns.labels) * grid.cell
    padding = Span(" " * (width - cells))
    margin = Span(" " * (grid.label_columns + 1)) if has_labels else Span("")
    titles = [panel.title] if cell_len(panel.title) <= width else panel.title.split(NOTE)
    lines = [[margin, Span(fit(title, width), style="bold")] for title in titles]
    lines += [[margin, Span(text), padding] for text in _header_lines(panel.columns, grid, cells)]
    draw_row = half_cells if grid.rows_a_line == 2 else block_cells
    if grid.has_numbers:
        draw_row = number_cells
    for start in range(0, len(panel.rows.labels), grid.rows_a_line):
        text = next(filter(None, panel.rows.labels[start : start + grid.rows_a_line]), "")
        label = Span(f"{right_aligned(text, grid.label_columns)} " if has_labels else "")
        lines.append([label, *draw_row(panel, start, grid, look), padding])
    return lines


def _header_lines(columns: Axis, grid: CellGrid, width: int) -> list[str]:
    """Returns the lines above the cells of a panel: key labels or positions, as the geometry's ``header`` asks."""
    if grid.header in ("across", "cut"):
        return ["".join(f"{right_aligned(label, grid.cell - 1)} " for label in columns.labels)]
    if grid.header == "ticks":
        return [_position_line(columns, grid.cell, width)]
    stacks = [_letters_down(label, MAX_HEADER_LINES) for label in columns.labels]
    height = max(len(stack) for stack in stacks)
    indent = max(0, (grid.cell - 1) // 2) if grid.has_numbers else 0
    padded_stacks = [[""] * (height - len(stack)) + stack for stack in stacks]
    return [
        "".join(set_cell_size(" " * indent + stack[row], grid.cell) for stack in padded_stacks) for row in range(height)
    ]


def _position_line(columns: Axis, cell: int, width: int) -> str:
    """Returns a line with as many positions of keys above their cells as do not touch; for a sound, seconds."""
    if columns.seconds is not None:
        first_second, seconds_of_frame = columns.seconds
        frames = np.interp(np.arange(width + 1) / cell, np.arange(len(columns.edges)), columns.edges)
        return seconds_text(first_second + frames * seconds_of_frame).ljust(width)
    line = ""
    for index, edge in enumerate(columns.edges[:-1]):
        if index * cell >= cell_len(line) + (2 if line else 0) and index * cell + len(str(edge)) <= width:
            line = line.ljust(index * cell) + str(edge)
    return line.ljust(width)


def _fitting_parts(panel: Panel, grid: CellGrid, width: int) -> Iterator[Panel]:
    """Yields the panel if it fits the width, else its parts, whose titles name positions or seconds of their keys."""
    columns_a_part = max(1, (width - grid.label_columns - 1) // grid.cell)
    count = len(panel.columns.labels)
    for start in range(0, count, columns_a_part):
        stop = min(start + columns_a_part, count)
        edges = panel.columns.edges[start : stop + 1]
        columns = Axis(panel.columns.name, panel.columns.labels[start:stop], edges, seconds=panel.columns.seconds)
        first, last = (position_label(edge, columns.seconds) for edge in (edges[0], edges[-1]))
        title = panel.title if count <= columns_a_part else f"{panel.title}, keys {first}:{last}"
        yield replace(
            panel,
            title=title,
            values=panel.values[:, start:stop],
            visible=panel.visible[:, start:stop],
            columns=columns,
        )


def _letters_down(label: str, height: int) -> list[str]:
    """Returns the lines of a label that is written downwards: a character, with its combining marks, on each line."""
    lines: list[str] = []
    for character in label:
        if lines and cell_len(lines[-1] + character) == cell_len(lines[-1]):  # no wider: a combining mark
            lines[-1] += character
        else:
            lines.append(character)
    return lines if len(lines) <= height else [*lines[: height - 1], "…"]
