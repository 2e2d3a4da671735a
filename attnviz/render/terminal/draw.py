"""A Report as lines for a terminal: numbers on colour where they fit, blocks of colour where they don't."""

from dataclasses import replace
from typing import IO

from attnviz.render.terminal.cells import legend
from attnviz.render.terminal.lines import Line, Span, fit, in_ascii, print_lines, wrap
from attnviz.render.terminal.maps import choose_grid, map_bands
from attnviz.render.terminal.overview import thumbnails
from attnviz.render.terminal.table import summary_lines
from attnviz.render.terminal.text import shaded_texts
from attnviz.report.look import Look
from attnviz.report.panels import Panel
from attnviz.report.report import Report

MOST_CELLS = 120  # a picture of more rows than this no longer fits a screen
MARGIN = 12  # columns left for row labels where a map is pooled


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the report as text: UTF-8 with the escapes of as many colours as the look allows, or plain ASCII."""
    print_lines(report_lines(report), report.look, file)


def max_cells(look: Look) -> int:
    """The most rows or columns that fit this width, one column each."""
    return max(8, min(look.width - MARGIN, MOST_CELLS))


def report_lines(report: Report) -> list[Line]:
    """The whole picture, line by line, none wider than the look's width."""
    width = report.look.width
    report = replace(report, panels=tuple(map(_with_marks, report.panels)))
    if report.look.ascii:
        report = _all_ascii(report)
    lines = [[Span(fit(report.title, width).rstrip(), style="bold")], []]
    if report.panels:
        lines += [*_panels_lines(report), *_legends(report)]
    if report.summary is not None:
        lines += [*summary_lines(report.summary, report.look), []]
    lines += [[Span(line)] for line in wrap(report.caption, width)]
    return lines + [[Span(line, style="dim")] for remark in report.remarks for line in wrap(remark, width)]


def _with_marks(panel: Panel) -> Panel:
    """The panel with its landmarks as its labels, where it has any."""
    rows, columns = (
        replace(axis, labels=axis.marked()) if axis.marks else axis for axis in (panel.rows, panel.columns)
    )
    return replace(panel, rows=rows, columns=columns)


def _panels_lines(report: Report) -> list[Line]:
    """The panels in the report's style."""
    if report.style == "text":
        return list(shaded_texts(report))
    return list(thumbnails(report) if report.style == "overview" else map_bands(report, choose_grid(report)))


def _legends(report: Report) -> list[Line]:
    """The legend of each scale, where there are colours or shades to read."""
    if not report.look.colors and report.style != "overview" and _writes_numbers(report):
        return []
    scales = dict.fromkeys((panel.quantity, panel.scale) for panel in report.panels)
    return [*(legend(quantity.name, quantity.text, scale, report.look) for quantity, scale in scales), []]


def _writes_numbers(report: Report) -> bool:
    return report.style == "text" or choose_grid(report).numbers


def _all_ascii(report: Report) -> Report:
    """The report with every word in ASCII, before anything is measured."""
    return replace(
        report,
        title=in_ascii(report.title),
        panels=tuple(_ascii_labels(panel) for panel in report.panels),
        caption=in_ascii(report.caption),
        remarks=tuple(in_ascii(remark) for remark in report.remarks),
    )


def _ascii_labels(panel: Panel) -> Panel:
    rows, columns = (
        replace(axis, labels=tuple(in_ascii(label) for label in axis.labels)) for axis in (panel.rows, panel.columns)
    )
    return replace(panel, title=in_ascii(panel.title), rows=rows, columns=columns)
