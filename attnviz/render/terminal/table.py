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
    signed = any(length is not None and round(2 * BAR_COLUMNS * length) < 0 for length in bars)
    beside = BAR_COLUMNS * (1 + signed) + 1 if any(length is not None for length in bars) else 0
    width = max(widest(texts), cell_len(header) - beside)
    head = set_cell_size(header, width + beside) if left or beside else right(header, width)
    numbers = [Span(set_cell_size(text, width) if left else right(text, width)) for text in texts]
    return [
        [Span(head, style="bold")],
        *(
            [number, Span(" "), *_bar(length, signed, look)] if beside else [number]
            for number, length in zip(numbers, bars, strict=True)
        ),
    ]


def _bar(length: float | None, signed: bool, look: Look) -> list[Span]:
    """A bar of `BAR_COLUMNS` columns; where a column has signs, negative bars point left from its middle.

    Bars are drawn in eighths of a column, to the left in halves, for which there are signs, or in whole ones for ASCII.
    """
    size = min(max(length or 0.0, -1.0), 1.0) * BAR_COLUMNS
    to_right, to_left = max(size, 0.0), max(-size, 0.0)
    color = tuple(colormap(SEQUENTIAL)[BAR_COLOR].tolist()) if look.colors else None
    positive = Span(
        ("#" * round(to_right) if look.ascii else blocks(round(8 * to_right))).ljust(BAR_COLUMNS), ink=color
    )
    if not signed:
        return [positive]
    negative = "#" * round(to_left) if look.ascii else "▐" * (round(2 * to_left) % 2) + "█" * (round(2 * to_left) // 2)
    return [Span(negative.rjust(BAR_COLUMNS), ink=color), positive]


def _joined(cells: list[Line], gap: str) -> Line:
    line: Line = []
    for cell in cells:
        line += [Span(gap), *cell] if line else cell
    return line
