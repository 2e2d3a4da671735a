"""Values as half blocks, as cells or as shades, in as many colours as the terminal has."""

import math
from functools import lru_cache

import numpy as np
from rich.style import Style

from attnviz.browse.blocks import CellBlock
from attnviz.browse.layout import ANSI_COLORS
from attnviz.render.terminal.cells import ASCII_SHADES, SHADES
from attnviz.render.terminal.lines import Line, Span
from attnviz.report.colors import DIVERGING, ColorScale, Rgb
from attnviz.report.panels import Quantity

COLORS = {"truecolor": 2**24, "256": 256, "standard": 16, "windows": 16}  # by what rich calls them
CURSOR_COLOR: Rgb = (255, 0, 170)
INCREASE_COLOR, DECREASE_COLOR = (205, 0, 0), (0, 0, 238)  # of a difference where there are 16 colours: red and blue


def pixel_lines(cells: CellBlock, scale: ColorScale, colors: int, cursor: tuple[int, int] | None = None) -> list[Line]:
    """Two rows a line as half blocks; below 256 colours a shade for two rows, the larger of them."""
    if colors <= ANSI_COLORS:
        return _shaded_pairs(cells, scale, colors, cursor)
    height, width = cells.values.shape
    rgb = scale.rgb(cells.values)
    if cursor is not None:
        rgb[cursor] = CURSOR_COLOR
    colored = [[tuple(pixel) for pixel in row] for row in rgb.tolist()]
    seen = cells.visible.tolist()
    if cursor is not None:
        seen[cursor[0]][cursor[1]] = True
    blank = [False] * width
    lines: list[Line] = []
    for row in range(0, height, 2):
        last = row + 1 == height
        below, below_seen = (colored[row], blank) if last else (colored[row + 1], seen[row + 1])
        lines.append(_half_blocks(colored[row], seen[row], below, below_seen))
    return lines


def shade_span(value: float, seen: bool, scale: ColorScale, colors: int, text: str, cursor: bool = False) -> Span:
    """One cell that says its value in ``text``, or a shade as wide where the terminal has few colours."""
    return shade_at(float(scale.fraction(value)), value, seen, scale, colors, text, cursor)


def shade_at(
    fraction: float, value: float, seen: bool, scale: ColorScale, colors: int, text: str, cursor: bool = False
) -> Span:
    """The same of a value that is ``fraction`` of the way along the colours, for who knows those of many at once."""
    style = "reverse" if cursor else ""
    if not seen:
        return Span(text if text.strip() else "·".ljust(len(text)), style=style or "dim")
    if colors <= ANSI_COLORS:
        strong = abs(fraction - (0.5 if scale.colormap == DIVERGING else 0)) >= 0.25
        return Span(text, ink=_sign(value, scale, colors), style=style or ("bold" if strong else ""))
    ink, paper = _ink_and_paper(0.0 if math.isnan(fraction) else round(fraction, 2), scale.colormap)
    return Span(text, ink=ink, paper=paper, style="bold" if cursor else "")


def shades(cells: CellBlock, scale: ColorScale, ascii: bool = False) -> list[list[str]]:
    """Each cell as one character, darker for more; a cell that is not visible is a space."""
    ramp = ASCII_SHADES if ascii else SHADES
    fraction = np.nan_to_num(scale.fraction(cells.values))
    if scale.colormap == DIVERGING:
        fraction = np.abs(fraction - 0.5) * 2
    steps = np.rint(fraction * (len(ramp) - 1)).astype(int).tolist()
    visible = cells.visible.tolist()
    return [
        [ramp[step] if seen else " " for step, seen in zip(row, row_seen, strict=True)]
        for row, row_seen in zip(steps, visible, strict=True)
    ]


def legend(quantity: Quantity, scale: ColorScale, colors: int, columns: int) -> Line:
    """The colours from the least to the most, with both written beside them."""
    values = scale.value(np.linspace(0, 1, columns))
    bar = row_spans(CellBlock(values[None].astype(np.float32), np.ones((1, columns), dtype=bool)), 0, scale, colors, 1)
    (_, low), *_, (_, high) = quantity.ticks(scale)
    return [Span(f"{low} "), *bar, Span(f" {high}")]


def row_spans(cells: CellBlock, row: int, scale: ColorScale, colors: int, cell: int, cursor: int | None = None) -> Line:
    """One row of cells, each ``cell`` columns wide."""
    if colors <= ANSI_COLORS:
        one = CellBlock(cells.values[row : row + 1], cells.visible[row : row + 1])
        glyphs = shades(one, scale)[0]
        if cursor is not None:
            glyphs[cursor] = "+"
        return [
            Span(glyph * cell, ink=_sign(value, scale, colors), style="reverse" if place == cursor else "")
            for place, (glyph, value) in enumerate(zip(glyphs, cells.values[row].tolist(), strict=True))
        ]
    papers = scale.rgb(cells.values[row]).tolist()
    seen = cells.visible[row].tolist()
    line = []
    for place, paper in enumerate(papers):
        if place == cursor:
            line.append(Span("[]" if cell > 1 else "+", ink=(255, 255, 255), paper=CURSOR_COLOR, style="bold"))
        else:
            line.append(Span(" " * cell, paper=tuple(paper)) if seen[place] else Span("·".ljust(cell), style="dim"))
    return line


def _half_blocks(above: list[Rgb], above_seen: list[bool], below: list[Rgb], below_seen: list[bool]) -> Line:
    return [
        half_block(top if top_seen else None, bottom if bottom_seen else None)
        for top, top_seen, bottom, bottom_seen in zip(above, above_seen, below, below_seen, strict=True)
    ]


@lru_cache(maxsize=65_536)
def half_block(above: Rgb | None, below: Rgb | None) -> Span:
    """Two pixels in one column; ``None`` leaves the terminal's own colour."""
    if above is None:
        return Span(" ") if below is None else Span("▄", ink=below)
    return Span("▀", ink=above, paper=below)


def _shaded_pairs(cells: CellBlock, scale: ColorScale, colors: int, cursor: tuple[int, int] | None) -> list[Line]:
    height, width = cells.values.shape
    starts = np.arange(0, height, 2)
    strength = np.where(cells.visible, np.abs(cells.values) if scale.colormap == DIVERGING else cells.values, -np.inf)
    taller = np.concatenate([strength, np.full((1, width), -np.inf)]) if height % 2 else strength
    lower = np.minimum(starts + 1, height - 1)[:, None]
    pick = np.where(taller[1::2] > strength[starts], lower, starts[:, None])
    columns = np.arange(width)[None]
    pairs = CellBlock(cells.values[pick, columns], cells.visible[pick, columns])
    at = cursor and (cursor[0] // 2, cursor[1])
    return [
        row_spans(pairs, row, scale, colors, 1, at[1] if at and at[0] == row else None) for row in range(len(starts))
    ]


def _sign(value: float, scale: ColorScale, colors: int) -> Rgb | None:
    if scale.colormap != DIVERGING or not colors:
        return None
    return INCREASE_COLOR if value > 0 else DECREASE_COLOR


@lru_cache(maxsize=1024)
def _ink_and_paper(fraction: float, name: str) -> tuple[Rgb, Rgb]:
    from attnviz.report.colors import colormap, ink_on

    paper = colormap(name)[round(fraction * 255)]
    return tuple(ink_on(paper).tolist()), tuple(paper.tolist())


@lru_cache(maxsize=65_536)
def style_of(ink: tuple[int, int, int] | None, paper: tuple[int, int, int] | None, style: str) -> Style:
    """The style of a span, as rich has it."""
    colors = (None if color is None else "rgb({},{},{})".format(*color) for color in (ink, paper))
    words = dict.fromkeys(style.split(), True)
    ink_name, paper_name = colors
    return Style(color=ink_name, bgcolor=paper_name, **words)  # type: ignore[arg-type]
