"""Draws a report as lines for a terminal: coloured numbers if they fit, otherwise blocks of colour; and tables."""

from dataclasses import replace
from typing import IO

from rich.cells import cell_len, set_cell_size

from attnviz.base.errors import AttnvizError
from attnviz.media.text import Text
from attnviz.render.terminal.lines import (
    Line,
    Span,
    blocks,
    cut,
    fit,
    print_lines,
    right_aligned,
    to_ascii,
    widest_label,
    wrap,
)
from attnviz.render.terminal.maps import (
    MIN_THUMBNAIL_COLUMNS,
    ROW_LABEL_COLUMNS,
    choose_grid,
    legend,
    map_bands,
    thumbnails,
)
from attnviz.render.terminal.media import shaded_texts
from attnviz.report.picture.colors import SEQUENTIAL, colormap, on_paper
from attnviz.report.picture.look import Look
from attnviz.report.picture.report import (
    DrawnReport,
    ExactNumbers,
    HeadCards,
    HeadList,
    Report,
    RouteGraph,
    Summary,
    SurveyedHeads,
)

MIN_MAP_CELLS = 8  # rows or columns of a map in a terminal of any width
MAX_MAP_CELLS = 120  # rows or columns; a larger map does not fit a screen
MAX_THUMBNAIL_COLUMNS = 24
BAR_COLUMNS = 4  # columns of a bar beside a number
BAR_COLOR = 200  # index in the colormap: ink that stands out on the terminal's background


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes a report as UTF-8 text with escape sequences for colours, or as plain ASCII."""
    print_lines(report_lines(report), report.look, file)


def max_cells(look: Look) -> int:
    """Returns the largest number of rows or columns of a map whose cells are one column of the terminal wide.

    It is within `MIN_MAP_CELLS` and `MAX_MAP_CELLS`.
    """
    return max(MIN_MAP_CELLS, min(look.width - ROW_LABEL_COLUMNS, MAX_MAP_CELLS))


def thumbnail_cells(look: Look) -> int:
    """Returns the largest number of rows or columns of a thumbnail: a third of the terminal's width, within limits."""
    return min(max((look.width + 1) // 3 - 1, MIN_THUMBNAIL_COLUMNS), MAX_THUMBNAIL_COLUMNS)


def fits_screen(report: Report) -> bool:
    """True if a report has fewer lines than the height of its look, so that a line is free for the prompt."""
    return len(report_lines(report)) < (report.look.height or 0)


def report_lines(report: Report) -> list[Line]:
    """Returns all lines of a report, none wider than the look's width."""
    look = report.look
    in_characters = to_ascii if look.ascii else str
    lines = [[Span(fit(in_characters(report.title), look.width).rstrip(), style="bold")], []]
    answer = report.answer.splitlines() if isinstance(report, DrawnReport | HeadList) else []
    for sentence in answer:
        lines += [[Span(line)] for line in wrap(in_characters(sentence), look.width)]
    lines += [[]] * bool(answer)
    match report:
        case HeadList(summary=summary) | ExactNumbers(summary=summary):
            lines += table_lines(summary, look)
        case HeadCards(sections=sections):
            for section in sections:
                title = fit(in_characters(section.title), look.width).rstrip()
                lines += [[Span(title, style="bold")], *table_lines(section, look)]
        case SurveyedHeads():
            raise AttnvizError("a terminal cannot draw points or cards of heads; use -o heads.png or .html")
        case _:
            panels = []
            for panel in report.panels:
                rows, columns = (
                    replace(axis, labels=tuple(map(in_characters, axis.mark_labels() if axis.marks else axis.labels)))
                    for axis in (panel.rows, panel.columns)
                )
                heading = panel.heading.with_words(in_characters)
                panels.append(replace(panel, heading=heading, rows=rows, columns=columns))
            match report.kind:
                case "text":
                    lines += shaded_texts(panels, look)
                    needs_legend = bool(look.colors) or _has_shades(report)
                case "thumbnails":
                    lines += thumbnails(panels, look, fills_rows=report.filled)
                    needs_legend = True
                case _:
                    has_numbers = report.kind != "maps" or report.numbers
                    is_table = report.kind == "tables"
                    grid = choose_grid(
                        panels, report.across, look, needs_numbers=is_table, may_have_numbers=has_numbers
                    )
                    lines += map_bands(panels, grid, look)
                    needs_legend = bool(look.colors) or not grid.has_numbers
            if needs_legend:
                scales = dict.fromkeys((panel.color_quantity, panel.scale) for panel in panels)
                lines += [*(legend(quantity, scale, look) for quantity, scale in scales), []]
            lines += table_lines(report.summary, look)
            lines += _route_lines(report.routes, look)
    is_said = report.caption == " ".join(answer)
    lines += [[Span(line)] for line in ([] if is_said else wrap(in_characters(report.caption), look.width))]
    return lines + [
        [Span(line, style="dim")] for remark in report.remarks for line in wrap(in_characters(remark), look.width)
    ]


def _route_lines(graph: RouteGraph | None, look: Look) -> list[Line]:
    """Returns the lines of routes, as a table of layers by tokens with sentences below it; none without routes."""
    if graph is None:
        return []
    in_characters = to_ascii if look.ascii else str
    title = [[Span(line, style="bold")] for line in wrap(in_characters(f"{graph.title}; {graph.share}"), look.width)]
    sentences = [[Span(line)] for text in graph.sentences for line in wrap(in_characters(text), look.width)]
    return [*title, *table_lines(graph.table, look), *sentences, *[[]] * bool(sentences)]


def ineffective_options(report: Report) -> tuple[str, ...]:
    """Returns the names of colour options that have no effect on the report in its terminal; empty if all have one."""
    if not isinstance(report, DrawnReport):
        return "cmap", "theme", "color_scale", "limits"
    if report.look.colors:
        return ()
    if report.kind == "text" and not _has_shades(report):
        return "cmap", "theme", "color_scale", "limits"
    return "cmap", "theme"  # characters of shades still depend on the scale and its limits


def _has_shades(report: DrawnReport) -> bool:
    """True if a terminal without colours draws the weights as shades; over a text, it writes them as numbers."""
    return not isinstance(report.panels[0].columns.canvas, Text)


def table_lines(summary: Summary | None, look: Look) -> list[Line]:
    """Returns the lines of a table and an empty one, with a bar beside each number that has one; none without a table.

    The lines are cut at the look's width.
    """
    if summary is None:
        return []
    columns = []  # of cells of one width: the header, then texts with any bars
    for number, alignment in enumerate(summary.align or ">" * len(summary.header)):
        header, texts = summary.header[number], [row[number] for row in summary.rows]
        bars = [row[number] for row in summary.bars] or [None] * len(texts)
        has_negative = any(length is not None and round(2 * BAR_COLUMNS * length) < 0 for length in bars)
        bar_width = BAR_COLUMNS * (1 + has_negative) + 1 if any(length is not None for length in bars) else 0
        width = max(widest_label(texts), cell_len(header) - bar_width)
        is_left = alignment == "<"
        title = set_cell_size(header, width + bar_width) if is_left or bar_width else right_aligned(header, width)
        cells = [[Span(title, style="bold")]]
        for text, length in zip(texts, bars, strict=True):
            span = Span(set_cell_size(text, width) if is_left else right_aligned(text, width))
            cells.append([span, Span(" "), *_bar_spans(length, has_negative, look)] if bar_width else [span])
        columns.append(cells)
    widths = [sum(cell_len(span.text) for span in column[0]) for column in columns]
    gap = Span("  " if sum(widths) + 2 * len(widths) - 2 <= look.width else " ")
    lines = []
    for first_cell, *other_cells in zip(*columns, strict=True):
        line = list(first_cell)
        for cell in other_cells:
            line += [gap, *cell]
        lines.append(cut(line, look.width))
    return [*lines, []]


def _bar_spans(length: float | None, has_negative: bool, look: Look) -> list[Span]:
    columns = min(max(length or 0.0, -1.0), 1.0) * BAR_COLUMNS
    to_right, to_left = max(columns, 0.0), max(-columns, 0.0)
    color = tuple(colormap(on_paper(SEQUENTIAL, look.drawn_theme))[BAR_COLOR].tolist()) if look.colors else None
    right_bar = "#" * round(to_right) if look.ascii else blocks(round(8 * to_right))
    positive_bar = Span(right_bar.ljust(BAR_COLUMNS), ink=color)
    if not has_negative:
        return [positive_bar]
    full_blocks, half_blocks = divmod(round(2 * to_left), 2)
    left_bar = "#" * round(to_left) if look.ascii else "▐" * half_blocks + "█" * full_blocks
    return [Span(left_bar.rjust(BAR_COLUMNS), ink=color), positive_bar]
