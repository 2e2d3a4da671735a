"""Draws a table in a terminal: columns of text and numbers, with bars beside some numbers, in eighths of a column."""

import math

from rich.cells import cell_len, set_cell_size

from attnviz.render.terminal.lines import Line, Span, cut, right_aligned, widest_label
from attnviz.report.picture.colors import SEQUENTIAL, colormap
from attnviz.report.picture.look import Look
from attnviz.report.picture.report import Summary

EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
BAR_COLUMNS = 4  # columns of a bar beside a number
BAR_COLOR = 140  # index in the colormap: a green that stands out on dark and on light backgrounds


def summary_lines(summary: Summary, look: Look) -> list[Line]:
    """Returns the lines of a table, with a bar beside each number that has one, cut at the look's width."""
    columns = [
        _table_column(column, summary, alignment == "<", look)
        for column, alignment in enumerate(summary.align or ">" * len(summary.header))
    ]
    widths = [sum(cell_len(span.text) for span in column[0]) for column in columns]
    gap = Span("  " if sum(widths) + 2 * len(widths) - 2 <= look.width else " ")
    lines = []
    for first_cell, *other_cells in zip(*columns, strict=True):
        line = list(first_cell)
        for cell in other_cells:
            line += [gap, *cell]
        lines.append(cut(line, look.width))
    return lines


def _table_column(column: int, summary: Summary, is_left_aligned: bool, look: Look) -> list[Line]:
    """Returns the cells of one column of a table, all of the same width: the header, then texts with any bars."""
    header, texts = summary.header[column], [row[column] for row in summary.rows]
    bars = [row[column] for row in summary.bars] or [None] * len(texts)
    has_negative = any(length is not None and round(2 * BAR_COLUMNS * length) < 0 for length in bars)
    bar_width = BAR_COLUMNS * (1 + has_negative) + 1 if any(length is not None for length in bars) else 0
    width = max(widest_label(texts), cell_len(header) - bar_width)
    title = set_cell_size(header, width + bar_width) if is_left_aligned or bar_width else right_aligned(header, width)
    spans = [Span(set_cell_size(text, width) if is_left_aligned else right_aligned(text, width)) for text in texts]
    return [
        [Span(title, style="bold")],
        *(
            [span, Span(" "), *_bar_spans(length, has_negative, look)] if bar_width else [span]
            for span, length in zip(spans, bars, strict=True)
        ),
    ]


def _bar_spans(length: float | None, has_negative: bool, look: Look) -> list[Span]:
    columns = min(max(length or 0.0, -1.0), 1.0) * BAR_COLUMNS
    to_right, to_left = max(columns, 0.0), max(-columns, 0.0)
    color = tuple(colormap(SEQUENTIAL)[BAR_COLOR].tolist()) if look.colors else None
    right_bar = "#" * round(to_right) if look.ascii else blocks(round(8 * to_right))
    positive_bar = Span(right_bar.ljust(BAR_COLUMNS), ink=color)
    if not has_negative:
        return [positive_bar]
    full_blocks, half_blocks = divmod(round(2 * to_left), 2)
    left_bar = "#" * round(to_left) if look.ascii else "▐" * half_blocks + "█" * full_blocks
    return [Span(left_bar.rjust(BAR_COLUMNS), ink=color), positive_bar]


def bar(value: float, full_value: float, width: int) -> str:
    """Returns a bar of blocks, padded with blanks to ``width`` columns.

    It is all blanks if the value is not finite or ``full_value`` is not above 0.
    """
    if not math.isfinite(value) or not full_value > 0:
        return " " * width
    return blocks(min(8 * width, round(8 * width * abs(value) / full_value))).ljust(width)


def blocks(eighths: int) -> str:
    """Returns a bar that is ``eighths`` eighths of a column long."""
    full_blocks, remainder = divmod(eighths, 8)
    return "█" * full_blocks + EIGHTHS[remainder]
