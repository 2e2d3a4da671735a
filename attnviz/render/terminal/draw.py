"""A Report as lines for a terminal: numbers on colour where they fit, blocks of colour where they don't."""

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

MAX_MAP_CELLS = 120  # a picture of more rows than this no longer fits a screen
ROW_LABEL_COLUMNS = 12  # columns left for row labels where a map is pooled


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the report as text: UTF-8 with the escapes of as many colours as the look allows, or plain ASCII."""
    print_lines(report_lines(report), report.look, file)


def max_cells(look: Look) -> int:
    """The most rows or columns that fit this width, one column each."""
    return max(8, min(look.width - ROW_LABEL_COLUMNS, MAX_MAP_CELLS))


def report_lines(report: Report) -> list[Line]:
    """The whole picture, line by line, none wider than the look's width."""
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
            raise AttnvizError("points of heads are a picture; -o heads.png or .html works")
        case _:
            lines += [*_panel_lines(report), *_summary_lines(report.summary, look)]
    lines += [[Span(line)] for line in wrap(written(report.caption), look.width)]
    return lines + [
        [Span(line, style="dim")] for remark in report.remarks for line in wrap(written(remark), look.width)
    ]


def unseen_options(report: Report) -> tuple[str, ...]:
    """The options of colours that this picture shows nothing of: a list has none, nor has a terminal without them."""
    if isinstance(report, HeadList | HeadCards | ExactNumbers):
        return "cmap", "color_scale", "limits"
    return () if report.look.colors else ("cmap",)


def _summary_lines(summary: Summary | None, look: Look) -> list[Line]:
    return [] if summary is None else [*summary_lines(summary, look), []]


def _panel_lines(report: DrawnReport) -> Iterator[Line]:
    """The panels of a report as its kind says, and the legend of their colours where there is one to read."""
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
    """The panel with its words as a terminal writes them."""
    title = in_ascii(panel.title) if look.ascii else panel.title
    rows, columns = (_axis_as_written(axis, look) for axis in (panel.rows, panel.columns))
    return replace(panel, title=title, rows=rows, columns=columns)


def _axis_as_written(axis: Axis, look: Look) -> Axis:
    """The axis with its landmarks as its labels, where it has any, and in ASCII where there is no more."""
    labels = axis.marked() if axis.marks else axis.labels
    return replace(axis, labels=tuple(map(in_ascii, labels)) if look.ascii else labels)
