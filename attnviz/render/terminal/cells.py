"""Draws the cells of a map in a terminal as coloured numbers or blocks, and the legend of their colours."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from attnviz.render.terminal.lines import Line, Span, cut, fit, to_ascii
from attnviz.report.picture.colors import ColorScale, Rgb, ink_on
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel, Quantity

LEGEND_COLUMNS = 24  # columns of the colour scale
MIN_TICKED_WIDTH = 40  # columns of the narrowest terminal whose legend has numbers between its ends
SPARE_COLUMNS = 4  # columns of a legend that stay free if its colour scale can be shorter
MIN_NAME_COLUMNS = 6  # columns after the scale, above which a legend names its quantity
LEGEND_TICKS = 3  # approximate number of ticks where the steps of the scale are not linear
SHADES = "·░▒▓█"
ASCII_SHADES = ".:-=+*#%@"
SIGNS, ASCII_SIGNS = "▼▽·△▲", "=-.+#"  # for changes: less, about the same, more


@dataclass(frozen=True)
class CellGrid:
    """The geometry of panels: the size and content of cells, and the direction of labels.

    Attributes:
        cell: columns of the terminal per cell.
        has_numbers: True if cells show their numbers.
        rows_a_line: 2 if half blocks show two queries on each line, else 1.
        header: the style of key labels: ``across``, ``cut`` to their cells, ``down`` a letter a line, or ``ticks``,
            which are positions instead of tokens.
        label_columns: columns of the query labels.
        across: the number of panels side by side.
    """

    cell: int
    has_numbers: bool
    rows_a_line: int
    header: str
    label_columns: int
    across: int = 1


def number_cells(panel: Panel, row: int, grid: CellGrid, look: Look) -> Iterator[Span]:
    """Yields the spans of one row of a map: each number on the colour of its value, a dot for a masked cell."""
    papers = panel.scale.rgb(panel.levels[row])
    inks = ink_on(papers).tolist()
    for column, paper in enumerate(papers.tolist()):
        if not panel.visible[row, column]:
            yield Span(_aligned_in_cell("·", grid.cell), style="dim")
        else:
            text = panel.cell(float(panel.values[row, column]))
            yield Span(_aligned_in_cell(text, grid.cell), ink=tuple(inks[column]), paper=tuple(paper))


def block_cells(panel: Panel, row: int, grid: CellGrid, look: Look) -> Iterator[Span]:
    """Yields the spans of one row of a map: blanks on the colours of values, and a dot for a masked cell.

    In ASCII or without colours, yields one span: characters of shades, and blanks for masked cells.
    """
    values, visible = panel.levels[row], panel.visible[row]
    if not look.colors or look.ascii:
        characters = shades(values, panel.scale, _shade_characters(panel.scale, look))
        yield Span(
            "".join(
                shade * grid.cell if is_visible else " " * grid.cell
                for shade, is_visible in zip(characters, visible, strict=True)
            )
        )
        return
    for paper, is_visible in zip(panel.scale.rgb(values).tolist(), visible.tolist(), strict=True):
        yield Span(" " * grid.cell, paper=tuple(paper)) if is_visible else Span("·".ljust(grid.cell), style="dim")


def half_cells(panel: Panel, row: int, grid: CellGrid, look: Look) -> Iterator[Span]:
    """Yields the spans of two rows of a map on one line, as upper and lower halves of blocks."""
    upper, lower = (_row_colors(panel, index) for index in (row, row + 1))
    yield from map(half_block, upper, lower)


@lru_cache(maxsize=65_536)
def half_block(upper_color: Rgb | None, lower_color: Rgb | None) -> Span:
    """Returns a span of one column that shows two pixels, one above the other; ``None`` leaves a pixel uncoloured."""
    if upper_color is None:
        return Span(" ") if lower_color is None else Span("▄", ink=lower_color)
    return Span("▀", ink=upper_color, paper=lower_color)


def shades(values: np.ndarray, scale: ColorScale, ramp: str) -> list[str]:
    """Returns a character of the ramp for each value: the last for the largest value of the scale, ``?`` for NaN."""
    fraction = scale.fraction(values)
    steps = np.rint(np.nan_to_num(fraction) * (len(ramp) - 1)).astype(int)
    return ["?" if np.isnan(position) else ramp[step] for position, step in zip(fraction, steps, strict=True)]


def legend(quantity: Quantity, scale: ColorScale, look: Look) -> Line:
    """Returns the legend of a scale as one line: colours with their numbers, and the quantity's name if there is
    space.
    """
    has_no_ticks = scale.steps == "linear" or look.width < MIN_TICKED_WIDTH
    ticks = quantity.ticks(scale, 1 if has_no_ticks else LEGEND_TICKS)
    texts = [to_ascii(text) if look.ascii else text for _, text in ticks]
    free_columns = look.width - len(quantity.name) - SPARE_COLUMNS - sum(len(text) + 2 for text in texts)
    columns = max(2 * len(ticks), min(LEGEND_COLUMNS, free_columns))
    tick_columns = np.rint(scale.fraction([value for value, _ in ticks]) * columns).astype(int).tolist()
    line = [Span(f"{texts[0]} ")]
    for start, stop, text in zip(tick_columns, tick_columns[1:], texts[1:], strict=False):
        values = scale.value((np.arange(start, stop) + 0.5) / columns)
        if look.colors and not look.ascii:
            line += [Span(" ", paper=tuple(paper)) for paper in scale.rgb(values).tolist()]
        else:
            line.append(Span("".join(shades(values, scale, _shade_characters(scale, look)))))
        line.append(Span(f" {text} "))
    columns_left = look.width - sum(len(span.text) for span in line)
    name = fit(f" {quantity.name}", columns_left).rstrip() if columns_left > MIN_NAME_COLUMNS else ""
    return cut([*line, Span(name)], look.width)


def _shade_characters(scale: ColorScale, look: Look) -> str:
    """Returns the characters that stand for colours: shades, or signs of change if zero is in the middle."""
    if scale.signed:
        return ASCII_SIGNS if look.ascii else SIGNS
    return ASCII_SHADES if look.ascii else SHADES


def _aligned_in_cell(text: str, cell: int) -> str:
    return f"{text:>{cell - 1}} " if len(text) < cell else text


def _row_colors(panel: Panel, row: int) -> list[Rgb | None]:
    """Returns the colour of each cell of a row; ``None`` for masked cells, and for a row below the last one."""
    if row >= len(panel.values):
        return [None] * panel.values.shape[1]
    colors = panel.scale.rgb(panel.levels[row]).tolist()
    return [tuple(color) if is_visible else None for color, is_visible in zip(colors, panel.visible[row], strict=True)]
