"""Draws a report as lines for a terminal: coloured numbers if they fit, otherwise blocks of colour."""

from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from attnviz.base.errors import AttnvizError
from attnviz.media.text import Text
from attnviz.render.terminal.cells import legend
from attnviz.render.terminal.lines import Line, Span, fit, print_lines, to_ascii, wrap
from attnviz.render.terminal.maps import ROW_LABEL_COLUMNS, choose_grid, map_bands
from attnviz.render.terminal.table import summary_lines
from attnviz.render.terminal.text import shaded_texts
from attnviz.render.terminal.thumbnails import thumbnails
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import NOTE
from attnviz.report.picture.report import (
    DrawnReport,
    ExactNumbers,
    HeadCards,
    HeadList,
    Heatmaps,
    NumberTables,
    Report,
    ShadedText,
    Summary,
    SurveyedHeads,
    Thumbnails,
)

MIN_MAP_CELLS = 8  # rows or columns of a map in a terminal of any width
MAX_MAP_CELLS = 120  # rows or columns; a larger map does not fit a screen


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes a report as UTF-8 text with escape sequences for colours, or as plain ASCII.

    Raises:
        AttnvizError: for the heads of a survey, which need a picture.
    """
    print_lines(report_lines(report), report.look, file)


def max_cells(look: Look) -> int:
    """Returns the largest number of rows or columns of a map whose cells are one column of the terminal wide.

    It is within `MIN_MAP_CELLS` and `MAX_MAP_CELLS`.
    """
    return max(MIN_MAP_CELLS, min(look.width - ROW_LABEL_COLUMNS, MAX_MAP_CELLS))


def report_lines(report: Report) -> list[Line]:
    """Returns all lines of a report, none wider than the look's width.

    Raises:
        AttnvizError: for the heads of a survey, which need a picture.
    """
    look = report.look
    in_characters = to_ascii if look.ascii else str
    lines = [[Span(fit(in_characters(report.title), look.width).rstrip(), style="bold")], []]
    match report:
        case HeadList(summary=summary) | ExactNumbers(summary=summary):
            lines += _summary_lines(summary, look)
        case HeadCards(sections=sections):
            for section in sections:
                title = fit(in_characters(section.title), look.width).rstrip()
                lines += [[Span(title, style="bold")], *_summary_lines(section.summary, look)]
        case SurveyedHeads():
            raise AttnvizError("a terminal cannot draw points or cards of heads; use -o heads.png or .html")
        case _:
            lines += [*_panel_lines(report), *_summary_lines(report.summary, look)]
    lines += [[Span(line)] for line in wrap(in_characters(report.caption), look.width)]
    return lines + [
        [Span(line, style="dim")] for remark in report.remarks for line in wrap(in_characters(remark), look.width)
    ]


def ineffective_options(report: Report) -> tuple[str, ...]:
    """Returns the names of colour options that have no effect on the report in its terminal; empty if all have one."""
    if isinstance(report, HeadList | HeadCards | ExactNumbers):
        return "cmap", "color_scale", "limits"
    if report.look.colors:
        return ()
    if isinstance(report, ShadedText) and not _has_shades(report):
        return "cmap", "color_scale", "limits"
    return ("cmap",)  # characters of shades still depend on the scale and its limits


def _summary_lines(summary: Summary | None, look: Look) -> list[Line]:
    return [] if summary is None else [*summary_lines(summary, look), []]


def _panel_lines(report: DrawnReport) -> Iterator[Line]:
    look, in_characters = report.look, to_ascii if report.look.ascii else str
    panels = []
    for panel in report.panels:
        rows, columns = (
            replace(axis, labels=tuple(map(in_characters, axis.mark_labels() if axis.marks else axis.labels)))
            for axis in (panel.rows, panel.columns)
        )
        # The separator stays, since a title is split at it; it becomes ASCII when lines are printed.
        title = NOTE.join(map(in_characters, panel.title.split(NOTE)))
        panels.append(replace(panel, title=title, rows=rows, columns=columns))
    match report:
        case ShadedText():
            yield from shaded_texts(panels, look)
            needs_legend = bool(look.colors) or _has_shades(report)
        case Thumbnails():
            yield from thumbnails(panels, look, fills_rows=report.filled)
            needs_legend = True
        case _:
            has_numbers = not isinstance(report, Heatmaps) or report.numbers
            is_table = isinstance(report, NumberTables)
            grid = choose_grid(panels, report.across, look, needs_numbers=is_table, may_have_numbers=has_numbers)
            yield from map_bands(panels, grid, look)
            needs_legend = bool(look.colors) or not grid.has_numbers
    if needs_legend:
        scales = dict.fromkeys((panel.color_quantity, panel.scale) for panel in panels)
        yield from (legend(quantity, scale, look) for quantity, scale in scales)
        yield []


def _has_shades(report: ShadedText) -> bool:
    """True if a terminal without colours draws the weights as shades; over a text, it writes them as numbers."""
    return not isinstance(report.panels[0].columns.canvas, Text)
