"""Draws many heads in a terminal as thumbnails with titles, the heads of each layer side by side."""

import math
from collections.abc import Iterator
from itertools import groupby

from rich.cells import cell_len

from attnviz.render.terminal.cells import CellGrid, block_cells, half_cells
from attnviz.render.terminal.lines import Line, Span, fit
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel

MIN_THUMBNAIL_COLUMNS, MAX_THUMBNAIL_COLUMNS = 8, 24  # columns of a thumbnail
GRID = CellGrid(cell=1, has_numbers=False, rows_a_line=2, header="", label_columns=0)


def thumbnail_cells(look: Look) -> int:
    """Returns the largest number of rows or columns of a thumbnail: a third of the terminal's width, within limits."""
    return min(max((look.width + 1) // 3 - 1, MIN_THUMBNAIL_COLUMNS), MAX_THUMBNAIL_COLUMNS)


def thumbnails(panels: list[Panel], look: Look, fills_rows: bool = False) -> Iterator[Line]:
    """Yields the lines of thumbnails, those of each group side by side in as few bands as the width allows."""
    max_width = max(max(_cells_width(panel), cell_len(panel.title)) for panel in panels)
    max_across = max(1, (look.width + 1) // (max_width + 1))
    names_repeat = len({panel.title for panel in panels}) < len(panels)
    for name, group in groupby(panels, lambda panel: "" if fills_rows else panel.group):
        members = list(group)
        if names_repeat and name:
            yield [Span(fit(name, look.width).rstrip(), style="bold")]
        bands = math.ceil(len(members) / max_across)
        across = math.ceil(len(members) / bands)  # about as many in each band
        for start in range(0, len(members), across):
            yield from _thumbnail_band(members[start : start + across], look, max_width if fills_rows else 0)


def _cells_width(panel: Panel) -> int:
    return max(len(panel.columns.labels), MIN_THUMBNAIL_COLUMNS)


def _thumbnail_band(panels: list[Panel], look: Look, min_width: int) -> Iterator[Line]:
    has_half_blocks = look.colors > 0 and not look.ascii
    draw_row, rows_a_line = (half_cells, 2) if has_half_blocks else (block_cells, 1)
    widths = [max(_cells_width(panel), min_width) for panel in panels]
    titles: Line = []
    for panel, width in zip(panels, widths, strict=True):
        titles += [Span(fit(panel.title, width), style="bold"), Span(" ")]
    yield titles[:-1]
    for row in range(0, max(len(panel.values) for panel in panels), rows_a_line):
        line: Line = []
        for panel, width in zip(panels, widths, strict=True):
            cells = list(draw_row(panel, row, GRID, look)) if row < len(panel.values) else []
            line += [*cells, Span(" " * (width + 1 - sum(cell_len(span.text) for span in cells)))]
        yield line[:-1]
    yield []
