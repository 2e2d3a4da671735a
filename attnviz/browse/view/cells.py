"""Draws values as pixels, half blocks, coloured cells or shades, as the terminal allows; legends and numbers."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attnviz.base.arrays import BoolArray, ByteArray, Float64Array
from attnviz.browse.actions.layout import ANSI_COLORS
from attnviz.browse.session.blocks import CellBlock, RefinedBlock
from attnviz.browse.view.graphics import PictureArea, picture_lines
from attnviz.browse.view.parts import CURSOR_COLOR
from attnviz.render.terminal.lines import Line, Span, right_aligned
from attnviz.render.terminal.maps import MASKED, SHADES, half_block
from attnviz.report.picture.colors import ColorScale, Rgb, colormap, ink_on
from attnviz.report.picture.panels import Quantity

COLORS = {"truecolor": 2**24, "256": 256, "standard": 16, "windows": 16}  # of each of rich's colour systems
OFF_SCREEN_BRIGHTNESS = 0.35  # factor for cells of the minimap that are not on the screen
LARGE_DISTANCE = 0.25  # on the colour scale; texts of values at least so far from zero are bold without colours
WHITE = (255, 255, 255)
INCREASE_COLOR, DECREASE_COLOR = (205, 0, 0), (0, 0, 238)  # signs on terminals of 16 colours: red and blue


class Cells(NamedTuple):
    """The coloured cells of a map."""

    block: CellBlock
    scale: ColorScale
    cell_width: int = 1  # columns of a cell
    rows_a_line: int = 1  # rows of cells per line, 1 or 2
    cursor: tuple[int, int] | None = None  # the row and the column of the cell under the cursor
    texts: tuple[tuple[str, ...], ...] | None = None  # of each cell, such as its number
    bright_cells: BoolArray | None = None  # False in cells of a minimap that are darkened, ``(rows, columns)``
    area: PictureArea | None = None  # the size in pixels; None draws characters


def cell_lines(cells: Cells, colors: int) -> list[Line]:
    """Returns the lines that draw cells: their texts if they have any, else pixels, half blocks or coloured blanks.

    On a terminal of at most 16 colours, cells without texts are drawn in shades.
    """
    if colors > ANSI_COLORS and cells.texts is None:
        rgb = cells.scale.rgb(cells.block.values)
        if cells.area is not None:
            return picture_lines(rgb, cells.block.visible, cells.area, cells.cursor)
        return _half_block_lines(cells, rgb) if cells.rows_a_line == 2 else _blank_lines(cells, rgb)
    line_cells = _paired_rows(cells) if cells.rows_a_line == 2 else cells
    draw_line = _shade_line if line_cells.texts is None else _number_line
    return [
        draw_line(line_cells, row, fractions, colors)
        for row, fractions in enumerate(line_cells.scale.fraction(line_cells.block.values))
    ]


def legend(quantity: Quantity, scale: ColorScale, columns: int, colors: int) -> Line:
    """Returns the legend: the lowest value, a strip of all colours, and the highest value."""
    (_, low), *_, (_, high) = quantity.ticks(scale)
    values = scale.value(np.linspace(0, 1, columns))
    strip = CellBlock(values[None].astype(np.float32), np.ones((1, columns), dtype=bool))
    return [Span(f"{low} "), *cell_lines(Cells(strip, scale), colors)[0], Span(f" {high}")]


def quantity_text(quantity: Quantity, value: float) -> str:
    """Returns a value as text for a list; percentages have one decimal, and scores two instead of four."""
    if math.isnan(value):
        return "NaN"
    spec = quantity.spec.replace("0%", "1%") if quantity.unit == "%" else quantity.spec.replace(".4f", ".2f")
    return format(value, spec)


def preview_status(previews: list[RefinedBlock]) -> Span:
    """Returns the progress of previews: the queries per row of cells, and the share refined; "" without previews."""
    if not previews:
        return Span("", style="bold")
    share = sum(block.refined_share for block in previews) / len(previews)
    queries_a_row = max(block.queries_a_row for block in previews)
    return Span(f" preview: 1 query in {queries_a_row}, {share:.0%} refined ", style="bold")


def shaded_span(
    fraction: float, value: float, is_visible: bool, scale: ColorScale, colors: int, text: str, has_cursor: bool = False
) -> Span:
    """Returns a text on the colour of its value; on a terminal of few colours, large values are bold.

    A masked cell is dim, without a colour, and has a dot if its text is blank.
    """
    style = "reverse" if has_cursor else ""
    if not is_visible:
        return Span(text if text.strip() else "·".ljust(len(text)), style=style or "dim")
    if colors <= ANSI_COLORS:
        fraction_of_zero = 0.5 if scale.signed else 0.0
        is_large = abs(fraction - fraction_of_zero) >= LARGE_DISTANCE
        return Span(text, ink=_sign_color(value, scale, colors), style=style or ("bold" if is_large else ""))
    # Rounded, so that the cache of `_ink_and_paper` holds few colours.
    ink, paper = _ink_and_paper(0.0 if math.isnan(fraction) else round(fraction, 2), scale.colormap)
    return Span(text, ink=ink, paper=paper, style="bold" if has_cursor else "")


def _half_block_lines(cells: Cells, rgb: ByteArray) -> list[Line]:
    """Returns lines of half blocks, two rows of cells each; the cursor's cell has the cursor's colour."""
    visible, cell_colors = cells.block.visible.copy(), rgb.copy()
    if cells.bright_cells is not None:
        darker_colors = np.rint(rgb * OFF_SCREEN_BRIGHTNESS).astype(np.uint8)
        cell_colors = np.where(cells.bright_cells[..., None], rgb, darker_colors)
    if cells.cursor is not None:
        cell_colors[cells.cursor], visible[cells.cursor] = CURSOR_COLOR, True
    pixels: list[list[Rgb | None]] = [
        [(red, green, blue) if is_visible else None for (red, green, blue), is_visible in zip(*row, strict=True)]
        for row in zip(cell_colors.tolist(), visible.tolist(), strict=True)
    ]
    # the blank row completes an odd number of rows; with an even number zip ignores it
    lower_rows: list[list[Rgb | None]] = [*pixels[1::2], [None] * rgb.shape[1]]
    return [list(map(half_block, top, bottom)) for top, bottom in zip(pixels[::2], lower_rows, strict=False)]


def _blank_lines(cells: Cells, rgb: ByteArray) -> list[Line]:
    """Returns a line for each row of cells: blanks on the cell's colour, or a dim dot for a masked cell."""
    blanks, masked_span = " " * cells.cell_width, Span("·".ljust(cells.cell_width), style="dim")

    def span(paper: list[int], is_visible: bool) -> Span:
        return Span(blanks, paper=(paper[0], paper[1], paper[2])) if is_visible else masked_span

    rows = zip(rgb.tolist(), cells.block.visible.tolist(), strict=True)
    lines = [list(map(span, papers, visible)) for papers, visible in rows]
    if cells.cursor is not None:
        row, column = cells.cursor
        text = "[]" if cells.cell_width > 1 else "+"
        lines[row][column] = Span(text, ink=WHITE, paper=CURSOR_COLOR, style="bold")
    return lines


def _number_line(cells: Cells, row: int, fractions: Float64Array, colors: int) -> Line:
    """Returns the line of one row of cells with their texts."""
    assert cells.texts is not None
    block, cursor = cells.block, _cursor_column(cells, row)
    cell_values = zip(
        fractions.tolist(), block.values[row].tolist(), block.visible[row].tolist(), cells.texts[row], strict=True
    )
    line = []
    for column, (fraction, value, is_visible, text) in enumerate(cell_values):
        has_cursor = column == cursor
        aligned_text = right_aligned(text, cells.cell_width)
        span = shaded_span(fraction, value, is_visible, cells.scale, colors, aligned_text, has_cursor=has_cursor)
        if has_cursor and colors > ANSI_COLORS:
            span = replace(span, ink=WHITE, paper=CURSOR_COLOR, style="bold")
        line.append(span)
    return line


def _shade_line(cells: Cells, row: int, fractions: Float64Array, colors: int) -> Line:
    """Returns the line of one row of cells: denser characters for larger values, dots for masked cells."""
    block, scale, cursor = cells.block, cells.scale, _cursor_column(cells, row)
    densities = np.nan_to_num(fractions)
    if scale.signed:
        densities = np.abs(densities - 0.5) * 2  # no change is in the middle of the scale
    steps = np.rint(densities * (len(SHADES) - 1)).astype(int).tolist()
    glyphs = [
        SHADES[step] if is_visible else MASKED
        for step, is_visible in zip(steps, block.visible[row].tolist(), strict=True)
    ]
    if cursor is not None:
        glyphs[cursor] = "+"
    return [
        Span(
            glyph * cells.cell_width, ink=_sign_color(value, scale, colors), style="reverse" if column == cursor else ""
        )
        for column, (glyph, value) in enumerate(zip(glyphs, block.values[row].tolist(), strict=True))
    ]


def _paired_rows(cells: Cells) -> Cells:
    """Returns the cells with every two rows pooled to the larger value, or to the larger absolute change."""
    block, cursor = cells.block, cells.cursor
    visible = block.visible if cells.bright_cells is None else block.visible & cells.bright_cells
    height, width = block.values.shape
    starts = np.arange(0, height, 2)
    magnitudes = np.abs(block.values) if cells.scale.signed else block.values
    visible_magnitudes = np.where(visible, magnitudes, -np.inf)
    masked_row = np.full((height % 2, width), -np.inf)  # completes an odd number of rows
    lower_magnitudes = np.concatenate([visible_magnitudes, masked_row])[1::2]
    lower_rows = np.minimum(starts + 1, height - 1)[:, None]
    chosen_rows = np.where(lower_magnitudes > visible_magnitudes[starts], lower_rows, starts[:, None])
    columns = np.arange(width)[None]
    pairs = CellBlock(block.values[chosen_rows, columns], visible[chosen_rows, columns])
    pair_of_cursor = None if cursor is None else (cursor[0] // 2, cursor[1])
    return cells._replace(block=pairs, rows_a_line=1, cursor=pair_of_cursor)


def _cursor_column(cells: Cells, row: int) -> int | None:
    """Returns the column of the cursor if it is in this row of cells, else ``None``."""
    return cells.cursor[1] if cells.cursor is not None and cells.cursor[0] == row else None


def _sign_color(value: float, scale: ColorScale, colors: int) -> Rgb | None:
    """Returns red for an increase and blue for any other change; ``None`` for other numbers, or without colours."""
    if not scale.signed or not colors:
        return None
    return INCREASE_COLOR if value > 0 else DECREASE_COLOR


@lru_cache(maxsize=1024)
def _ink_and_paper(fraction: float, colormap_name: str) -> tuple[Rgb, Rgb]:
    """Returns the colours of text and background at a position of a colormap, from 0 to 1."""
    colors = colormap(colormap_name)
    paper = colors[round(fraction * (len(colors) - 1))]
    return tuple(ink_on(paper).tolist()), tuple(paper.tolist())
