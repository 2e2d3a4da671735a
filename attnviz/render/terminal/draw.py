"""Draws a report as lines for a terminal: coloured numbers where they fit, else blocks of colour."""

from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from attnviz.base.errors import AttnvizError
from attnviz.render.terminal.cells import legend
from attnviz.render.terminal.lines import Line, Span, fit, in_ascii, print_lines, wrap
from attnviz.render.terminal.maps import choose_grid, map_bands
from attnviz.render.terminal.table import summary_lines
from attnviz.render.terminal.text import shaded_texts
from attnviz.render.terminal.thumbnails import thumbnails
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Axis, Panel
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

MAX_MAP_CELLS = 120  # a map with more rows does not fit on a screen
ROW_LABEL_COLUMNS = 12  # columns reserved for row labels when a map is pooled


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the report as text: UTF-8 with escapes for the colours that the look allows, or plain ASCII.

    Args:
        report: the report to write.
        suffix: unused; the parameters are those of every format.
        file: the open file to write to.
    """
    print_lines(report_lines(report), report.look, file)


def max_cells(look: Look) -> int:
    """The largest number of rows or columns of a map in this terminal, at one column each."""
    return max(8, min(look.width - ROW_LABEL_COLUMNS, MAX_MAP_CELLS))


def report_lines(report: Report) -> list[Line]:
    """The lines of the whole report, none wider than the look's width."""
    look = report.look
    written = in_ascii if look.ascii else str
    lines = [[Span(fit(written(report.title), look.width).rstrip(), style="bold")], []]
    match report:
        case HeadList(summary=summary) | ExactNumbers(summary=summary):
            lines += _summary_lines(summary, look)
        case HeadCards(sections=sections):
            for section in sections:
                title = fit(written(section.title), look.width).rstrip()
                lines += [[Span(title, style="bold")], *_summary_lines(section.summary, look)]
        case SurveyedHeads():
            raise AttnvizError("points of heads need a picture; use -o heads.png or .html")
        case _:
            lines += [*_panel_lines(report), *_summary_lines(report.summary, look)]
    lines += [[Span(line)] for line in wrap(written(report.caption), look.width)]
    return lines + [
        [Span(line, style="dim")] for remark in report.remarks for line in wrap(written(remark), look.width)
    ]


def ineffective_options(report: Report) -> tuple[str, ...]:
    """The colour options without effect here: a list has no colours, nor has a terminal without them."""
    if isinstance(report, HeadList | HeadCards | ExactNumbers):
        return "cmap", "color_scale", "limits"
    if report.look.colors:
        return ()
    return ("cmap", "color_scale", "limits") if isinstance(report, ShadedText) else ("cmap",)


def _summary_lines(summary: Summary | None, look: Look) -> list[Line]:
    return [] if summary is None else [*summary_lines(summary, look), []]


def _panel_lines(report: DrawnReport) -> Iterator[Line]:
    """Yields the panels in the way of the report's type, and the legend of their colours if colours carry numbers."""
    look, panels = report.look, [_as_written(panel, report.look) for panel in report.panels]
    match report:
        case ShadedText():
            yield from shaded_texts(panels, look)
            reads_colors = bool(look.colors)
        case Thumbnails():
            yield from thumbnails(panels, look, filled=report.filled)
            reads_colors = True
        case _:
            numbers = not isinstance(report, Heatmaps) or report.numbers
            tables = isinstance(report, NumberTables)
            grid = choose_grid(panels, report.across, look, tables=tables, numbers=numbers)
            yield from map_bands(panels, grid, look)
            reads_colors = bool(look.colors) or not grid.numbers
    if reads_colors:
        scales = dict.fromkeys((panel.level, panel.scale) for panel in panels)
        yield from (legend(quantity, scale, look) for quantity, scale in scales)
        yield []


def _as_written(panel: Panel, look: Look) -> Panel:
    """The panel with landmarks as labels, and in ASCII if the look asks for it."""
    title = in_ascii(panel.title) if look.ascii else panel.title
    rows, columns = (_axis_as_written(axis, look) for axis in (panel.rows, panel.columns))
    return replace(panel, title=title, rows=rows, columns=columns)


def _axis_as_written(axis: Axis, look: Look) -> Axis:
    """The axis with its landmarks as labels if it has any, and in ASCII if the look asks for it."""
    labels = axis.marked() if axis.marks else axis.labels
    return replace(axis, labels=tuple(map(in_ascii, labels)) if look.ascii else labels)
