"""Draws values as half blocks, as coloured cells or as shades, in as many colours as the terminal has."""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from rich.style import Style

from attnviz.base.arrays import ByteArray, Float64Array, FloatArray
from attnviz.browse.drawing.themes import CURSOR_COLOR
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.view.boxes import Cells, Paragraph
from attnviz.render.terminal.cells import SHADES, half_block
from attnviz.render.terminal.lines import Line, Span, right
from attnviz.report.picture.colors import DIVERGING, ColorScale, Rgb, colormap, ink_on

COLORS = {"truecolor": 2**24, "256": 256, "standard": 16, "windows": 16}  # by rich's names of colour systems
OFF_SCREEN_BRIGHTNESS = 0.35  # factor for cells of the minimap that are not on the screen
INCREASE_COLOR, DECREASE_COLOR = (205, 0, 0), (0, 0, 238)  # signs on terminals of 16 colours: red and blue


def cell_lines(cells: Cells, colors: int) -> list[Line]:
    """Returns the lines of cells, drawn in the way that ``cells`` asks for and the terminal's colours allow."""
    if colors > ANSI_COLORS and cells.texts is None:
        rgb = cells.scale.rgb(cells.block.values)
        if cells.area is not None:
            from attnviz.browse.drawing.graphics import picture_lines

            return picture_lines(rgb, cells.block.visible, cells.area, cells.cursor)
        return _half_block_lines(cells, rgb) if cells.rows_a_line == 2 else _blank_lines(cells, rgb)
    shown = _pairs(cells) if cells.rows_a_line == 2 else cells
    draw = _shade_line if shown.texts is None else _number_line
    return [draw(shown, row, each, colors) for row, each in enumerate(_fractions(shown.scale, shown.block.values))]


def text_lines(text: Paragraph, colors: int) -> list[Line]:
    """Returns the lines of a text with each token on its colour and the cursor's token underlined."""
    places = [place for line in text.lines for place, _ in line if place is not None]
    fractions = dict(zip(places, _fractions(text.scale, text.values[places]).tolist(), strict=True))
    return [
        [Span(" "), *(_shaded_piece(text, fractions, place, piece, colors) for place, piece in line[1:])]
        for line in text.lines
    ]


def _fractions(scale: ColorScale, values: FloatArray) -> Float64Array:
    """Returns the position of each value on the colour scale, from 0 to 1."""
    return scale.fraction(values)


def shade_at(
    fraction: float, value: float, visible: bool, scale: ColorScale, colors: int, text: str, cursor: bool = False
) -> Span:
    """Returns a text on the colour of its value; with few colours, large values are bold and signs coloured.

    Args:
        fraction: the position of the value on the colour scale, from 0 to 1.
        value: the value; its sign shows if the terminal has few colours.
        visible: False for a masked cell.
        scale: the colour scale.
        colors: the number of colours of the terminal.
        text: the text.
        cursor: True if the text is under the cursor.
    """
    style = "reverse" if cursor else ""
    if not visible:
        return Span(text if text.strip() else "·".ljust(len(text)), style=style or "dim")
    if colors <= ANSI_COLORS:
        strong = abs(fraction - (0.5 if scale.colormap == DIVERGING else 0)) >= 0.25
        return Span(text, ink=_sign(value, scale, colors), style=style or ("bold" if strong else ""))
    ink, paper = _ink_and_paper(0.0 if math.isnan(fraction) else round(fraction, 2), scale.colormap)
    return Span(text, ink=ink, paper=paper, style="bold" if cursor else "")


def _half_block_lines(cells: Cells, rgb: ByteArray) -> list[Line]:
    """Returns two rows of cells per line, with the cursor's cell in a colour of its own."""
    drawn = cells.block.visible.copy()
    if cells.bright is not None:
        rgb = np.where(cells.bright[..., None], rgb, np.rint(rgb * OFF_SCREEN_BRIGHTNESS).astype(np.uint8))
    if cells.cursor is not None:
        rgb[cells.cursor], drawn[cells.cursor] = CURSOR_COLOR, True
    pixels: list[list[Rgb | None]] = [
        [(red, green, blue) if shown else None for (red, green, blue), shown in zip(*row, strict=True)]
        for row in zip(rgb.tolist(), drawn.tolist(), strict=True)
    ]
    below: list[list[Rgb | None]] = [*pixels[1::2], [None] * rgb.shape[1]]
    return [list(map(half_block, top, bottom)) for top, bottom in zip(pixels[::2], below, strict=False)]


def _blank_lines(cells: Cells, rgb: ByteArray) -> list[Line]:
    """Returns one row of cells per line, each cell as blanks on its colour."""
    wide, lines = " " * cells.cell, []
    hidden = Span("·".ljust(cells.cell), style="dim")
    for papers, visible in zip(rgb.tolist(), cells.block.visible.tolist(), strict=True):
        lines.append(
            [Span(wide, paper=tuple(paper)) if shown else hidden for paper, shown in zip(papers, visible, strict=True)]
        )
    if cells.cursor is not None:
        row, column = cells.cursor
        text = "[]" if cells.cell > 1 else "+"
        lines[row][column] = Span(text, ink=(255, 255, 255), paper=CURSOR_COLOR, style="bold")
    return lines


def _number_line(cells: Cells, row: int, fractions: Float64Array, colors: int) -> Line:
    """Returns one row of cells with their numbers, with the cursor's cell in a colour of its own."""
    assert cells.texts is not None
    block, cursor = cells.block, _cursor_in(cells, row)
    numbers = zip(
        fractions.tolist(), block.values[row].tolist(), block.visible[row].tolist(), cells.texts[row], strict=True
    )
    line = []
    for column, (fraction, value, visible, text) in enumerate(numbers):
        here = column == cursor
        span = shade_at(fraction, value, visible, cells.scale, colors, right(text, cells.cell), here)
        colored = here and colors > ANSI_COLORS
        line.append(replace(span, ink=(255, 255, 255), paper=CURSOR_COLOR, style="bold") if colored else span)
    return line


def _shade_line(cells: Cells, row: int, fractions: Float64Array, colors: int) -> Line:
    """Returns one row of cells as characters, denser for larger values; a masked cell is blank."""
    block, scale, cursor = cells.block, cells.scale, _cursor_in(cells, row)
    strengths = np.nan_to_num(fractions)
    if scale.colormap == DIVERGING:
        strengths = np.abs(strengths - 0.5) * 2
    steps = np.rint(strengths * (len(SHADES) - 1)).astype(int).tolist()
    glyphs = [SHADES[step] if shown else " " for step, shown in zip(steps, block.visible[row].tolist(), strict=True)]
    if cursor is not None:
        glyphs[cursor] = "+"
    return [
        Span(glyph * cells.cell, ink=_sign(value, scale, colors), style="reverse" if column == cursor else "")
        for column, (glyph, value) in enumerate(zip(glyphs, block.values[row].tolist(), strict=True))
    ]


def _pairs(cells: Cells) -> Cells:
    """Returns cells with every two rows pooled to the larger value: few colours cannot draw half blocks."""
    block, cursor = cells.block, cells.cursor
    visible = block.visible if cells.bright is None else block.visible & cells.bright
    height, width = block.values.shape
    starts = np.arange(0, height, 2)
    strength = np.where(visible, np.abs(block.values) if cells.scale.colormap == DIVERGING else block.values, -np.inf)
    taller = np.concatenate([strength, np.full((1, width), -np.inf)]) if height % 2 else strength
    lower = np.minimum(starts + 1, height - 1)[:, None]
    pick = np.where(taller[1::2] > strength[starts], lower, starts[:, None])
    columns = np.arange(width)[None]
    pairs = CellBlock(block.values[pick, columns], visible[pick, columns])
    return cells._replace(block=pairs, rows_a_line=1, cursor=cursor and (cursor[0] // 2, cursor[1]))


def _cursor_in(cells: Cells, row: int) -> int | None:
    return cells.cursor[1] if cells.cursor is not None and cells.cursor[0] == row else None


def _shaded_piece(text: Paragraph, fractions: dict[int, float], place: int | None, piece: str, colors: int) -> Span:
    if place is None or not piece.strip():
        return Span(piece)
    value, visible = float(text.values[place]), bool(text.visible[place])
    span = shade_at(fractions[place], value, visible, text.scale, colors, piece)
    return replace(span, style=f"{span.style} underline bold".strip()) if place == text.cursor else span


def _sign(value: float, scale: ColorScale, colors: int) -> Rgb | None:
    if scale.colormap != DIVERGING or not colors:
        return None
    return INCREASE_COLOR if value > 0 else DECREASE_COLOR


@lru_cache(maxsize=1024)
def _ink_and_paper(fraction: float, name: str) -> tuple[Rgb, Rgb]:
    paper = colormap(name)[round(fraction * 255)]
    return tuple(ink_on(paper).tolist()), tuple(paper.tolist())


@lru_cache(maxsize=65_536)
def style_of(ink: tuple[int, int, int] | None, paper: tuple[int, int, int] | None, style: str) -> Style:
    """Returns a span's style as a rich style.

    Args:
        ink: the colour of the text; ``None`` for the terminal's.
        paper: the background; ``None`` for the terminal's.
        style: rich's names of attributes, such as ``bold``, separated by spaces.
    """
    colors = (None if color is None else "rgb({},{},{})".format(*color) for color in (ink, paper))
    words = dict.fromkeys(style.split(), True)
    ink_name, paper_name = colors
    return Style(color=ink_name, bgcolor=paper_name, **words)  # type: ignore[arg-type]
