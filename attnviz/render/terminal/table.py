"""Draws a table in a terminal: columns of numbers, with a bar beside each number that has one."""

from rich.cells import cell_len, set_cell_size

from attnviz.render.terminal.bars import blocks
from attnviz.render.terminal.lines import Line, Span, cut, right, widest
from attnviz.report.picture.colors import SEQUENTIAL, colormap
from attnviz.report.picture.look import Look
from attnviz.report.picture.report import Summary

BAR_COLUMNS = 4  # columns of a bar beside a number
BAR_COLOR = 140  # index in the colormap: a green that stands out on dark and on light backgrounds


def summary_lines(summary: Summary, look: Look) -> list[Line]:
    """The lines of a table, with a bar beside each number that has one; lines are cut at the look's width."""
    columns = [
        _table_column(place, summary, side == "<", look)
        for place, side in enumerate(summary.align or ">" * len(summary.header))
    ]
    widths = [sum(cell_len(span.text) for span in column[0]) for column in columns]
    gap = "  " if sum(widths) + 2 * len(widths) - 2 <= look.width else " "
    return [cut(_joined(list(cells), gap), look.width) for cells in zip(*columns, strict=True)]


def _table_column(place: int, summary: Summary, left: bool, look: Look) -> list[Line]:
    """The cells of one column, header first, all of the same width."""
    header, texts = summary.header[place], [row[place] for row in summary.rows]
    bars = [row[place] for row in summary.bars] or [None] * len(texts)
    beside = BAR_COLUMNS + 1 if any(length is not None for length in bars) else 0
    width = max(widest(texts), cell_len(header) - beside)
    head = set_cell_size(header, width + beside) if left or beside else right(header, width)
    numbers = [Span(set_cell_size(text, width) if left else right(text, width)) for text in texts]
    return [
        [Span(head, style="bold")],
        *(
            [number, Span(" "), _bar(length, look)] if beside else [number]
            for number, length in zip(numbers, bars, strict=True)
        ),
    ]


def _bar(length: float | None, look: Look) -> Span:
    """A bar of `BAR_COLUMNS` columns, in eighths of a column, or in whole columns for ASCII."""
    eighths = round(min(max(length or 0.0, 0.0), 1.0) * BAR_COLUMNS * 8)
    drawn = "#" * round(eighths / 8) if look.ascii else blocks(eighths)
    color = tuple(colormap(SEQUENTIAL)[BAR_COLOR].tolist()) if look.colors else None
    return Span(drawn.ljust(BAR_COLUMNS), ink=color)


def _joined(cells: list[Line], gap: str) -> Line:
    line: Line = []
    for cell in cells:
        line += [Span(gap), *cell] if line else cell
    return line
