"""A Report as lines for a terminal: numbers on colour where they fit, blocks of colour where they don't."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import IO

import numpy as np
from rich.cells import cell_len, set_cell_size

from attnviz.colors import SEQUENTIAL, ColorScale, Rgb, colormap, ink_on
from attnviz.look import Look
from attnviz.panels import Axis, Panel
from attnviz.report import Report, Summary

GAP = 3  # columns between panels
LEGEND = 24  # columns of the colour scale
TALLEST_HEADER = 10  # lines of key labels written downwards
WIDEST_CELL = 10
NARROWEST_NUMBER = 3
MOST_CELLS = 120  # a picture of more rows than this no longer fits a screen
BAR = 4  # columns of a bar beside a number
BAR_COLOR = 140  # of 256: a green that stands out on dark and on light
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
MARGIN = 12  # columns left for row labels where a map is pooled
SHADES = "·░▒▓█"
ASCII_SHADES = ".:-=+*#%@"
ASCII_FOR = str.maketrans({"…": "~", "·": ".", "−": "-", "“": '"', "”": '"', "␣": "_", "◌": "o", "±": "~", "–": "-"})
CUBE = np.array([0, 95, 135, 175, 215, 255])


@dataclass(frozen=True)
class Span:
    """A run of text in one style; ``None`` leaves the terminal's own colour."""

    text: str
    ink: Rgb | None = None
    paper: Rgb | None = None
    style: str = ""


Line = list[Span]
SMALLEST_THUMBNAIL, LARGEST_THUMBNAIL = 8, 16  # columns


@dataclass(frozen=True)
class Grid:
    """The geometry of the panels: how wide a cell is, what is in it, how its labels run.

    Attributes:
        cell: columns a cell takes.
        numbers: whether cells show their numbers.
        rows_a_line: 2 where half blocks put two queries on a line, else 1.
        header: key labels ``across``, ``down``, or position ``ticks`` alone.
        labels: columns of the query labels.
        across: panels side by side.
    """

    cell: int
    numbers: bool
    rows_a_line: int
    header: str
    labels: int
    across: int = 1


THUMBNAIL_GRID = Grid(cell=1, numbers=False, rows_a_line=2, header="", labels=0)


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the report as text: UTF-8 with the escapes of as many colours as the look allows, or plain ASCII."""
    print_lines(report_lines(report), report.look, file)


def print_lines(lines: list[Line], look: Look, file: IO[bytes]) -> None:
    """Writes lines as UTF-8 with the escapes of as many colours as the look allows, or as plain ASCII."""
    if look.ascii:
        texts = (_plain(line).translate(ASCII_FOR).encode("ascii", "backslashreplace") for line in lines)
    else:
        texts = (_encoded(line, look.colors).encode() for line in lines)
    file.write(b"".join(text + b"\n" for text in texts))


def max_cells(look: Look) -> int:
    """The most rows or columns that fit this width, one column each."""
    return max(8, min(look.width - MARGIN, MOST_CELLS))


def thumbnail_cells(look: Look) -> int:
    """The most rows or columns of one of many heads: twelve side by side where the terminal is wide, else six."""
    across = 12 if look.width >= 12 * (SMALLEST_THUMBNAIL + 1) else 6
    return min(max((look.width + 1) // across - 1, SMALLEST_THUMBNAIL), LARGEST_THUMBNAIL)


def report_lines(report: Report) -> list[Line]:
    """The whole picture, line by line, none wider than the look's width."""
    width = report.look.width
    if report.look.ascii:
        report = _in_ascii(report)
    lines = [[Span(fit(report.title, width).rstrip(), style="bold")], []]
    if report.panels:
        lines += _panels_lines(report)
    if report.summary is not None:
        lines += [*_summary_lines(report.summary, report.look), []]
    lines += [[Span(line)] for line in wrap(report.caption, width)]
    return lines + [[Span(line, style="dim")] for remark in report.remarks for line in wrap(remark, width)]


def _panels_lines(report: Report) -> list[Line]:
    """The panels in bands, and the legend of each scale."""
    grid = THUMBNAIL_GRID if report.style == "overview" else choose_grid(report)
    lines: list[Line] = []
    if report.style == "overview":
        lines += _thumbnails(report)
    else:
        panels = [part for panel in report.panels for part in _fitting_parts(panel, grid, report.look.width)]
        for start in range(0, len(panels), grid.across):
            lines += [*_band(panels[start : start + grid.across], grid, report.look), []]
    if not grid.numbers or report.look.colors > 0:
        scales = dict.fromkeys((panel.quantity, panel.scale) for panel in report.panels)
        lines += [_legend(quantity.name, quantity.text, scale, report.look) for quantity, scale in scales]
        lines.append([])
    return lines


def choose_grid(report: Report) -> Grid:
    """The geometry in which the panels fit the width: with numbers if that is possible, then in the fewest lines."""
    columns = max(len(panel.columns.labels) for panel in report.panels)
    grids = _grids(report)
    for wanted in (report.across or 1, 1):
        fitting = [
            replace(grid, across=_across(grid, columns, report))
            for grid in grids
            if grid.labels + 1 + wanted * (columns * grid.cell + GAP) - GAP <= report.look.width
        ]
        numbered = [grid for grid in fitting if grid.numbers]
        if fitting:
            return min(numbered, key=lambda grid: _lines(grid, report)) if numbered else fitting[0]
    return grids[-1]


def _grids(report: Report) -> list[Grid]:
    """The geometries that the report's cells allow, from the widest to the densest."""
    panels, look = report.panels, report.look
    labels = min(max(_widest(panel.rows.labels) for panel in panels), max(6, look.width // 4))
    number = max(NARROWEST_NUMBER, *(_number_width(panel) for panel in panels))
    key = max(_widest(panel.columns.labels) for panel in panels)
    pooled = any(panel.rows.pooled or panel.columns.pooled for panel in panels)
    numbered = [Grid(number + 1, True, 1, "down", labels)]
    if max(number, key) < WIDEST_CELL:
        numbered.append(Grid(max(number, key) + 1, True, 1, "across", labels))
    if report.style == "table":
        return numbered
    if look.colors:
        numbered.append(Grid(number, True, 1, "down", labels))
    half_blocks = 2 if look.colors and not look.ascii else 1
    return [
        *([] if pooled else numbered),
        Grid(2, False, 1, "ticks" if pooled else "down", labels),
        Grid(1, False, half_blocks, "ticks" if pooled or key > TALLEST_HEADER else "down", labels),
    ]


def _lines(grid: Grid, report: Report) -> float:
    """The lines that the panels take; those of labels written down, and of cells without padding, count for more."""
    rows = max(len(panel.rows.labels) for panel in report.panels)
    tallest = max(len(_stacked(label, TALLEST_HEADER)) for label in report.panels[0].columns.labels)
    lines = -(-len(report.panels) // grid.across) * (rows + 2 + (1 if grid.header == "across" else tallest))
    return lines * (1.0 if grid.header == "across" else 1.5)


def _thumbnails(report: Report) -> Iterator[Line]:
    """The panels of each group side by side, evenly over as few bands as the width allows."""
    side = max(len(panel.columns.labels) for panel in report.panels)
    most = max(1, (report.look.width + 1) // (max(side, SMALLEST_THUMBNAIL) + 1))
    for _, group in groupby(report.panels, lambda panel: panel.group):
        panels = list(group)
        across = -(-len(panels) // -(-len(panels) // most))
        for start in range(0, len(panels), across):
            yield from _thumbnail_band(panels[start : start + across], report.look)


def _thumbnail_band(panels: list[Panel], look: Look) -> Iterator[Line]:
    """Thumbnails side by side, each under its number."""
    half = look.colors > 0 and not look.ascii
    draw_row = _half_cells if half else _block_cells
    widths = [max(len(panel.columns.labels), SMALLEST_THUMBNAIL) for panel in panels]
    yield [
        part
        for panel, width in zip(panels, widths, strict=True)
        for part in (Span(fit(panel.title, width), style="bold"), Span(" "))
    ][:-1]
    for row in range(0, max(len(panel.values) for panel in panels), 1 + half):
        line: Line = []
        for panel, width in zip(panels, widths, strict=True):
            drawn = list(draw_row(panel, row, THUMBNAIL_GRID, look)) if row < len(panel.values) else []
            line += [*drawn, Span(" " * (width + 1 - sum(cell_len(span.text) for span in drawn)))]
        yield line[:-1]
    yield []


def fit(text: str, width: int) -> str:
    """The text in exactly ``width`` columns: padded, or cut and marked."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1) + "…", width)


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` columns, broken at spaces where that is possible."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
            continue
        pieces = list(_chopped(word, width))
        lines = [*lines, *pieces] if lines[-1] else [*lines[:-1], *pieces]
    return lines


def _across(grid: Grid, columns: int, report: Report) -> int:
    """How many panels stand side by side: as many as fit, spread evenly over the bands."""
    most = max(1, (report.look.width - grid.labels - 1 + GAP) // (columns * grid.cell + GAP))
    if report.across is not None:
        return report.across if most >= report.across else 1
    bands = -(-len(report.panels) // most)
    return -(-len(report.panels) // bands)


def _band(panels: list[Panel], grid: Grid, look: Look) -> list[Line]:
    """Panels side by side, the query labels once at the left."""
    blocks = [_panel_lines(panel, grid, look, labelled=index == 0) for index, panel in enumerate(panels)]
    height = max(len(block) for block in blocks)
    widths = [len(panel.columns.labels) * grid.cell for panel in panels]
    widths[0] += grid.labels + 1
    lines: list[Line] = []
    for row in range(height):
        line: Line = []
        for index, (block, width) in enumerate(zip(blocks, widths, strict=True)):
            part = block[row - (height - len(block))] if row >= height - len(block) else [Span(" " * width)]
            line += [Span(" " * GAP), *part] if index else part
        lines.append(line)
    return lines


def _panel_lines(panel: Panel, grid: Grid, look: Look, labelled: bool) -> list[Line]:
    """One panel: its title, the key labels, and the rows, all of the same width."""
    width = len(panel.columns.labels) * grid.cell
    margin = Span(" " * (grid.labels + 1)) if labelled else Span("")
    lines = [[margin, Span(fit(panel.title, width), style="bold")]]
    lines += [[margin, Span(text)] for text in _header(panel.columns, grid, width)]
    draw_row = _number_cells if grid.numbers else _half_cells if grid.rows_a_line == 2 else _block_cells
    for start in range(0, len(panel.rows.labels), grid.rows_a_line):
        label = Span(f"{_right(panel.rows.labels[start], grid.labels)} " if labelled else "")
        lines.append([label, *draw_row(panel, start, grid, look)])
    return lines


def _header(columns: Axis, grid: Grid, width: int) -> list[str]:
    if grid.header == "across":
        return ["".join(f"{_right(label, grid.cell - 1)} " for label in columns.labels)]
    if grid.header == "ticks":
        return [_ticks(columns, grid.cell, width)]
    stacks = [_stacked(label, TALLEST_HEADER) for label in columns.labels]
    height = max(len(stack) for stack in stacks)
    at = max(0, (grid.cell - 1) // 2) if grid.numbers else 0
    padded = [[""] * (height - len(stack)) + stack for stack in stacks]
    return ["".join(set_cell_size(" " * at + stack[row], grid.cell) for stack in padded) for row in range(height)]


def _ticks(columns: Axis, cell: int, width: int) -> str:
    """Positions of keys over their columns, as many as stand apart."""
    line = ""
    for index, edge in enumerate(columns.edges[:-1]):
        if index * cell >= cell_len(line) + (2 if line else 0) and index * cell + len(str(edge)) <= width:
            line = line.ljust(index * cell) + str(edge)
    return line.ljust(width)


def _number_cells(panel: Panel, row: int, grid: Grid, look: Look) -> Iterator[Span]:
    papers = panel.scale.rgb(panel.values[row])
    inks = ink_on(papers).tolist()
    for column, paper in enumerate(papers.tolist()):
        if not panel.visible[row, column]:
            yield Span(_padded("·", grid.cell), style="dim")
        else:
            text = panel.quantity.cell(float(panel.values[row, column]))
            yield Span(_padded(text, grid.cell), ink=tuple(inks[column]), paper=tuple(paper))


def _padded(text: str, cell: int) -> str:
    """A number at the right of its cell, a column of padding behind it where there is room for one."""
    return f"{text:>{cell - 1}} " if len(text) < cell else text


def _block_cells(panel: Panel, row: int, grid: Grid, look: Look) -> Iterator[Span]:
    values, visible = panel.values[row], panel.visible[row]
    if not look.colors or look.ascii:
        shades = _shades(values, panel.scale, ASCII_SHADES if look.ascii else SHADES)
        yield Span(
            "".join(shade * grid.cell if seen else " " * grid.cell for shade, seen in zip(shades, visible, strict=True))
        )
        return
    for paper, seen in zip(panel.scale.rgb(values).tolist(), visible.tolist(), strict=True):
        yield Span(" " * grid.cell, paper=tuple(paper)) if seen else Span("·".ljust(grid.cell), style="dim")


def _half_cells(panel: Panel, row: int, grid: Grid, look: Look) -> Iterator[Span]:
    upper, lower = (_row_colors(panel, at) for at in (row, row + 1))
    for top, bottom in zip(upper, lower, strict=True):
        if top is None:
            yield Span(" ") if bottom is None else Span("▄", ink=bottom)
        else:
            yield Span("▀", ink=top, paper=bottom)


def _row_colors(panel: Panel, row: int) -> list[Rgb | None]:
    if row >= len(panel.values):
        return [None] * panel.values.shape[1]
    colors = panel.scale.rgb(panel.values[row]).tolist()
    return [tuple(color) if seen else None for color, seen in zip(colors, panel.visible[row], strict=True)]


def _shades(values: np.ndarray, scale: ColorScale, ramp: str) -> list[str]:
    steps = np.nan_to_num(scale.fraction(values)) * (len(ramp) - 1)
    return [ramp[step] for step in np.rint(steps).astype(int)]


def _legend(name: str, text: Callable[[float], str], scale: ColorScale, look: Look) -> Line:
    low, high = text(scale.low), text(scale.high)
    columns = max(4, min(LEGEND, look.width - len(low) - len(high) - len(name) - 4))
    values = np.linspace(scale.low, scale.high, columns)
    if look.colors and not look.ascii:
        bar = [Span(" ", paper=tuple(paper)) for paper in scale.rgb(values).tolist()]
    else:
        bar = [Span("".join(_shades(values, scale, ASCII_SHADES if look.ascii else SHADES)))]
    room = look.width - columns - len(low) - len(high) - 2
    return [Span(f"{low} "), *bar, Span(f" {high}"), Span(fit(f"  {name}", room).rstrip() if room > 6 else "")]


def _summary_lines(summary: Summary, look: Look) -> list[Line]:
    """The table, a bar beside each number that has one, columns cut at the right where they do not fit."""
    columns = [
        _table_column(place, summary, side == "<", look)
        for place, side in enumerate(summary.align or ">" * len(summary.header))
    ]
    widths = [sum(cell_len(span.text) for span in column[0]) for column in columns]
    gap = "  " if sum(widths) + 2 * len(widths) - 2 <= look.width else " "
    return [_cut(_joined(list(cells), gap), look.width) for cells in zip(*columns, strict=True)]


def _table_column(place: int, summary: Summary, left: bool, look: Look) -> list[Line]:
    """The cells of one column, the header first, all of the same width."""
    header, texts = summary.header[place], [row[place] for row in summary.rows]
    bars = [row[place] for row in summary.bars] or [None] * len(texts)
    beside = BAR + 1 if any(length is not None for length in bars) else 0
    width = max(_widest(texts), cell_len(header) - beside)
    head = set_cell_size(header, width + beside) if left or beside else _right(header, width)
    numbers = [Span(set_cell_size(text, width) if left else _right(text, width)) for text in texts]
    return [
        [Span(head, style="bold")],
        *(
            [number, Span(" "), _bar(length, look)] if beside else [number]
            for number, length in zip(numbers, bars, strict=True)
        ),
    ]


def _bar(length: float | None, look: Look) -> Span:
    """A bar in `BAR` columns, in eighths of one, or in whole ones where only ASCII can be drawn."""
    eighths = round(min(max(length or 0.0, 0.0), 1.0) * BAR * 8)
    whole, part = divmod(eighths, 8)
    drawn = "#" * round(eighths / 8) if look.ascii else "█" * whole + EIGHTHS[part]
    color = tuple(colormap(SEQUENTIAL)[BAR_COLOR].tolist()) if look.colors else None
    return Span(drawn.ljust(BAR), ink=color)


def _joined(cells: list[Line], gap: str) -> Line:
    line: Line = []
    for cell in cells:
        line += [Span(gap), *cell] if line else cell
    return line


def _cut(line: Line, width: int) -> Line:
    """As much of the line as the width holds."""
    kept: Line = []
    for span in line:
        room = width - sum(cell_len(one.text) for one in kept)
        kept.append(replace(span, text=fit(span.text, min(room, cell_len(span.text))) if room > 0 else ""))
    return kept


def _fitting_parts(panel: Panel, grid: Grid, width: int) -> Iterator[Panel]:
    """The panel, in parts of as many columns as the width holds where it is wider than that."""
    most = max(1, (width - grid.labels - 1) // grid.cell)
    count = len(panel.columns.labels)
    for start in range(0, count, most):
        stop = min(start + most, count)
        columns = Axis(panel.columns.name, panel.columns.labels[start:stop], panel.columns.edges[start : stop + 1])
        title = panel.title if count <= most else f"{panel.title}, keys {start}:{stop}"
        yield replace(
            panel,
            title=title,
            values=panel.values[:, start:stop],
            visible=panel.visible[:, start:stop],
            columns=columns,
        )


def _number_width(panel: Panel) -> int:
    shown = panel.values[panel.visible]
    extremes = (float(shown.min()), float(shown.max())) if shown.size else (0.0,)
    return max(len(panel.quantity.cell(value)) for value in extremes)


def _in_ascii(report: Report) -> Report:
    """The report with every word in ASCII, before anything is measured."""
    return replace(
        report,
        title=_ascii(report.title),
        panels=tuple(_ascii_labels(panel) for panel in report.panels),
        caption=_ascii(report.caption),
        remarks=tuple(_ascii(remark) for remark in report.remarks),
    )


def _ascii_labels(panel: Panel) -> Panel:
    rows, columns = (
        replace(axis, labels=tuple(_ascii(label) for label in axis.labels)) for axis in (panel.rows, panel.columns)
    )
    return replace(panel, title=_ascii(panel.title), rows=rows, columns=columns)


def _ascii(text: str) -> str:
    return text.translate(ASCII_FOR).encode("ascii", "backslashreplace").decode("ascii")


def _widest(labels: Iterable[str]) -> int:
    return max((cell_len(label) for label in labels), default=1)


def _right(text: str, width: int) -> str:
    """The text at the right of ``width`` columns, cut where it is longer."""
    return " " * (width - cell_len(text)) + text if cell_len(text) <= width else fit(text, width)


def _stacked(label: str, height: int) -> list[str]:
    """The characters of a label, one a line, combining marks with their letter, at most ``height``."""
    stack: list[str] = []
    for character in label:
        if stack and cell_len(stack[-1] + character) == cell_len(stack[-1]):
            stack[-1] += character
        else:
            stack.append(character)
    return stack if len(stack) <= height else [*stack[: height - 1], "…"]


def _chopped(word: str, width: int) -> Iterator[str]:
    piece = ""
    for character in word:
        if cell_len(piece + character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def _plain(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def _encoded(line: Line, colors: int) -> str:
    """The line with escapes, one for each run of spans of the same style."""
    if not colors:
        return _plain(line)
    encoded = ""
    for codes, spans in groupby(line, lambda span: _codes(span, colors)):
        text = "".join(span.text for span in spans)
        encoded += f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
    return encoded.rstrip(" ")


def _codes(span: Span, colors: int) -> str:
    codes = {"bold": ["1"], "dim": ["2"], "": []}[span.style]
    codes = codes + ([f"38;{_color_code(span.ink, colors)}"] if span.ink is not None else [])
    return ";".join(codes + ([f"48;{_color_code(span.paper, colors)}"] if span.paper is not None else []))


@cache
def _color_code(color: Rgb, colors: int) -> str:
    return f"5;{nearest_of_256(color)}" if colors == 256 else "2;{};{};{}".format(*color)


def nearest_of_256(color: Rgb) -> int:
    """The number of the nearest colour of a 256-colour terminal: its cube or its greys."""
    wanted = np.array(color)
    steps = np.abs(wanted[:, None] - CUBE).argmin(axis=1)
    grey = int(np.clip(round((wanted.mean() - 8) / 10), 0, 23))
    cube_error = np.square(CUBE[steps] - wanted).sum()
    grey_error = np.square(8 + 10 * grey - wanted).sum()
    return 232 + grey if grey_error < cube_error else int(16 + steps @ (36, 6, 1))
