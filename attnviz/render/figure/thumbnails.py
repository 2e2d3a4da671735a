"""Lays out many heads as thumbnails with titles, layers down and heads across, and paints them without matplotlib."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from attnviz.base.arrays import ByteArray
from attnviz.base.errors import AttnvizError, option
from attnviz.render.figure.page import LABEL_PADDING, Box, Content, Page, PlacedPanel, TextLine, arrange_page
from attnviz.render.figure.picture import (
    THEME_COLORS,
    PageSize,
    page_size,
    rgb,
    shown_texts,
    with_readable_texts,
)
from attnviz.render.figure.words import POINTS_PER_INCH, PillowRuler, Ruler, choose_fonts, pillow_runs
from attnviz.report.picture.colors import NAN, colormap
from attnviz.report.picture.look import FIGURE_DPI, refuse_pixels
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import DrawnReport

if TYPE_CHECKING:
    from attnviz.render.figure.own_figure import OwnFigure

COLOR_LEVELS = 232  # colours of the colormap; the other 24 of a palette are paper, ink and cells without a value
INK_STEPS = 8  # shades from paper to ink, for smooth letters
ABSENT_INDEX, HATCH_INDEX, NAN_INDEX = COLOR_LEVELS, COLOR_LEVELS + 1, COLOR_LEVELS + 2
INK = PAPER = COLOR_LEVELS + 3
FAINT = INK + INK_STEPS
PNG_COMPRESSION = 1  # zlib's level: higher levels take several times as long and save little
STRIPE_PIXELS = 5  # distance of the stripes in masked cells
SHEET_INCHES = (13.333, 12.6)  # the largest page if no size is given
WORD_SCALE = 0.9  # of the words around thumbnails, so that these have more space
MAX_THUMBNAIL_INCHES = 1.0  # longer side of a thumbnail if no size is given
MIN_THUMBNAIL_PIXELS = 4  # smallest side of a thumbnail
# Lengths in inches and font sizes in points are those of a slide.
NAME_GAP, GAP, MIN_GAP_PIXELS = 0.1, 0.06, 3  # between the names of rows and thumbnails, and between thumbnails
BLOCK_GAP = 0.3  # between blocks of rows beside each other
LARGE_SHARE = 0.85  # of the largest possible side, at which thumbnails are large enough
MIN_SHEET_RATIO = 0.6  # of the columns of a sheet to its rows
ROW_NAME_POINTS, COLUMN_NUMBER_POINTS = 10.8, 8.6
ASCENT = 0.93  # of letters above their baseline, in font sizes
LINE_SPACING = 1.35  # from one line to the next, in font sizes
TITLE_GAP = 0.3  # between a title and its thumbnail, in font sizes
NUMBER_SHARE, MAX_NUMBER_SHARE = 0.2, 0.3  # height of a title in thumbnails; the second if letters get too small
NUMBER_PIXELS = (11, 30)  # the smallest and largest letters of a head's number
MIN_WHOLE_SHARE = 0.8  # cells are cut to whole pixels if at least this share of them remains
UNNUMBERED = f"Maps are too small for head numbers; use a larger {option('size')} to see them."
WITHOUT_VALUES = (
    f"Maps are too small for the values by which heads are sorted; use a larger {option('size')} to see them."
)


@dataclass(frozen=True)
class PixelText:
    """A line of text in a sheet; lengths are in pixels."""

    x: float  # of its anchor, from the left edge
    y: float  # of its anchor, from the upper edge
    text: str
    size: int  # the font size
    faint: bool = False  # True for the faint ink
    bold: bool = False  # True for bold letters
    anchor: str = "la"  # the point of the text that is at ``x`` and ``y``, by Pillow's name: ``la`` is the upper left


@dataclass(frozen=True, eq=False)
class Sheet:
    """A picture of thumbnails before its palette is applied."""

    pixels: ByteArray  # ``(height, width)``, the index of each pixel's colour in the palette
    texts: tuple[PixelText, ...]  # the texts to write on it


@dataclass(frozen=True)
class ThumbnailGrid:
    """The geometry of thumbnails in rows and columns; lengths are in pixels."""

    rows: int  # the number of thumbnails below each other
    columns: int  # the number of thumbnails side by side
    cell: tuple[float, float]  # the height and width of a cell
    side: tuple[int, int]  # the height and width of the space of a thumbnail
    gap: int  # the gap between thumbnails
    title_size: int  # the font size of a head's title; 0 if it would not be legible
    left: float = 0.0  # inches for the names of rows, at the left of each block
    blocks: int = 1  # the number of blocks of columns, each with rows of its own
    header: float = 0.0  # inches for the numbers over columns
    column_points: float = 0.0  # the font size of the numbers over columns; 0 for none
    numbers: tuple[str, ...] = ()  # over the columns of each block; empty for none

    @property
    def step(self) -> tuple[int, int]:
        """The distance from one thumbnail to the next, down and across."""
        return self.side[0] + round(self.title_size * LINE_SPACING) + self.gap, self.side[1] + self.gap


def arrange_thumbnails(picture: DrawnReport, ruler: Ruler) -> Page:
    """Returns the page of thumbnails and their titles, of the look's size, or as large as needed.

    If the titles of a filled picture are not legible, the values after the heads' names are left out, with a remark;
    another remark says if neither thumbnails nor their columns have the numbers of heads.
    """
    size = page_size(picture.look)
    if size.grows:
        size = replace(size, width=SHEET_INCHES[0], height=SHEET_INCHES[1])
    if not size.is_column:
        size = replace(size, scale=WORD_SCALE * size.scale, margin=WORD_SCALE * size.margin)
    page = arrange_page(picture, size, _thumbnails_body, ruler)
    has_values = any(panel.heading.note for panel in picture.panels)
    if picture.filled and has_values and not page.content.title_points:
        panels = tuple(replace(panel, heading=replace(panel.heading, note="")) for panel in picture.panels)
        remarks = (*picture.remarks, picture.look.format_options(WITHOUT_VALUES))
        picture = replace(picture, panels=panels, remarks=remarks)
        page = arrange_page(picture, size, _thumbnails_body, ruler)
    if not page.content.title_points and not page.content.column_points:
        remarks = (*picture.remarks, picture.look.format_options(UNNUMBERED))
        page = arrange_page(replace(picture, remarks=remarks), size, _thumbnails_body, ruler)
    return page


def draw_thumbnails(picture: DrawnReport) -> bytes:
    """Returns a picture of thumbnails as the bytes of a PNG with a palette; metadata has title, caption and remarks."""
    look = picture.look
    readable_picture = with_readable_texts(picture, choose_fonts(shown_texts(picture, labels=False)))
    page = arrange_thumbnails(readable_picture, PillowRuler())
    refuse_pixels(page.width, page.height, look.pixels_per_inch)
    sheet = paint_sheet(page, look.pixels_per_inch)
    pixels = sheet.pixels.copy()
    for text in sheet.texts:
        x, y = round(text.x), round(text.y)
        runs = list(pillow_runs(text.text, text.size, text.bold))
        for characters, font in runs:
            left, top, right, bottom = (int(side) for side in font.getbbox(characters, anchor=text.anchor))
            letters = Image.new("L", (right - left + 2, bottom - top + 2))  # with a border of one pixel
            ImageDraw.Draw(letters).text((1 - left, 1 - top), characters, fill=255, font=font, anchor=text.anchor)
            # Shades from paper to ink; pixels under no letter, and letters beyond the edges, stay as they are.
            x_of_letters, y_of_letters = x + left - 1, y + top - 1
            target = pixels[
                max(y_of_letters, 0) : max(y_of_letters + letters.height, 0),
                max(x_of_letters, 0) : max(x_of_letters + letters.width, 0),
            ]
            letters_inside = np.asarray(letters)[max(-y_of_letters, 0) :, max(-x_of_letters, 0) :]
            steps = letters_inside[: target.shape[0], : target.shape[1]].astype(np.uint16) * (INK_STEPS - 1) // 255
            ink = FAINT if text.faint else INK
            np.copyto(target, (ink + steps).astype(np.uint8), where=steps > 0)
            if len(runs) > 1:
                x += round(font.getlength(characters))
    image = Image.fromarray(pixels)
    image.putpalette(palette(picture).tobytes())
    metadata = PngInfo()
    metadata.add_itxt("Title", picture.title)
    metadata.add_itxt("Description", " ".join((picture.caption, *picture.remarks)))
    with io.BytesIO() as file:
        transparency = {"transparency": PAPER} if look.transparent else {}  # the paper's index in the palette
        image.save(
            file,
            "PNG",
            pnginfo=metadata,
            dpi=(look.pixels_per_inch, look.pixels_per_inch),
            compress_level=PNG_COMPRESSION,
            **transparency,
        )
        return file.getvalue()


def draw_maps(matplotlib_figure: "OwnFigure", page: Page, picture: DrawnReport) -> None:
    """Draws all thumbnails of a page as one image."""
    axes = matplotlib_figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    pixels = palette(picture)[_map_pixels(page, picture.look.pixels_per_inch)]
    axes.imshow(pixels, interpolation="none", aspect="auto")


def palette(picture: DrawnReport) -> ByteArray:
    """Returns the colours of a sheet, ``(256, 3)``: of the colormap, of masked and NaN cells, and of letters."""
    theme = {
        name: np.array(rgb(color), dtype=np.float64) for name, color in THEME_COLORS[picture.look.drawn_theme].items()
    }
    colors = np.zeros((256, 3), dtype=np.float64)
    color_indices = np.rint(np.linspace(0, 255, COLOR_LEVELS)).astype(np.intp)  # of the colormap's 256 colours
    colors[:COLOR_LEVELS] = colormap(picture.panels[0].scale.colormap)[color_indices]
    colors[[ABSENT_INDEX, HATCH_INDEX, NAN_INDEX]] = theme["absent"], theme["hatch"], NAN
    for start, ink in ((INK, "ink"), (FAINT, "faint")):
        shares = np.linspace(0, 1, INK_STEPS)[:, None]
        colors[start : start + INK_STEPS] = (1 - shares) * theme["paper"] + shares * theme[ink]
    return np.rint(colors).astype(np.uint8)


def paint_sheet(page: Page, dpi: int) -> Sheet:
    """Returns a page in pixels: its thumbnails and colour bars, and the texts to write on it."""
    pixels = _map_pixels(page, dpi)

    def pixel_text(line: TextLine, anchor: str = "la") -> PixelText:
        size, y = round(line.points * dpi / POINTS_PER_INCH), (page.height - line.y) * dpi
        return PixelText(line.x * dpi, y, line.text, size, line.faint, line.bold, anchor)

    texts = [pixel_text(line) for line in (*page.content.lines, *page.lines)]
    for bar in page.bars:
        box, gap = bar.box, LABEL_PADDING * page.scale
        is_flat = box.width > box.height
        area = _framed_area(pixels, box, page, dpi)
        levels = np.linspace(0, COLOR_LEVELS - 1, area.shape[1 if is_flat else 0]).round().astype(np.uint8)
        area[:] = levels if is_flat else levels[::-1, None]
        texts += [pixel_text(line, "ld") for line in bar.name_lines(page.scale)]
        for value, text in bar.ticks:
            share = float(bar.scale.fraction(value))
            x, y = (
                (box.x + share * box.width, box.y - gap)
                if is_flat
                else (box.x + box.width + gap, box.y + share * box.height)
            )
            texts.append(pixel_text(TextLine(x, y, text, bar.points, faint=False), "ma" if is_flat else "lm"))
    return Sheet(pixels, tuple(texts))


def _framed_area(pixels: ByteArray, box: Box, page: Page, dpi: int) -> ByteArray:
    """Returns the pixels in a rectangle of a page, after drawing a frame around it: zero is the paper's colour."""
    top, left = round((page.height - box.y - box.height) * dpi), round(box.x * dpi)
    bottom, right = top + round(box.height * dpi), left + round(box.width * dpi)
    pixels[max(top - 1, 0) : bottom + 1, max(left - 1, 0) : right + 1] = HATCH_INDEX
    return pixels[max(top, 0) : bottom, left:right]


def _map_pixels(page: Page, dpi: int) -> ByteArray:
    """Returns the thumbnails of a page as indices of colours in the palette, ``(height, width)``."""
    pixels = np.full((round(page.height * dpi), round(page.width * dpi)), PAPER, dtype=np.uint8)
    for placed in page.content.panels:
        area, panel = _framed_area(pixels, placed.box, page, dpi), placed.panel
        levels, visible = panel.drawn_cells(*area.shape)
        fractions = panel.scale.fraction(levels)
        is_nan = np.isnan(fractions)
        without_nan = np.where(is_nan, 0, fractions) if is_nan.any() else fractions
        cell_colors: ByteArray = np.rint(without_nan * (COLOR_LEVELS - 1)).astype(np.uint8)
        cell_colors[is_nan] = NAN_INDEX
        # The cell that each pixel along a side shows.
        shown_rows, shown_columns = (
            np.arange(side) * count // side for side, count in zip(area.shape, levels.shape, strict=True)
        )
        area[:] = cell_colors[shown_rows][:, shown_columns]
        if not visible.all():
            x, y = np.arange(area.shape[1]), np.arange(area.shape[0])[:, None]
            hatching = np.where((x + y) % STRIPE_PIXELS == 0, np.uint8(HATCH_INDEX), np.uint8(ABSENT_INDEX))
            area[:] = np.where(visible[shown_rows][:, shown_columns], area, hatching)
    return pixels


def _choose_grid(picture: DrawnReport, area: PageSize, ruler: Ruler) -> tuple[list[list[Panel]], ThumbnailGrid]:
    """Returns the rows of thumbnails, and the grid in which these are as large as the area allows.

    Groups of few heads stand in several blocks beside each other, if the thumbnails grow by it.
    """
    dpi, scale, panels = picture.look.pixels_per_inch, area.scale, picture.panels
    # The inches that the names of rows take at their left, and True if each thumbnail has a title: the first that fits.
    if picture.filled:
        groups = [list(panels)]
        candidates = [(0.0, True), (0.0, False)]
    else:
        groups = [list(panels) for _, panels in groupby(panels, key=lambda panel: panel.group)]
        names_width = ruler.longest_width((panels[0].group for panels in groups), ROW_NAME_POINTS * scale)
        left_of_names = names_width + NAME_GAP * scale
        candidates = [(left_of_names, True), (left_of_names, False)]
        if all(panel.heading.names_group for panel in panels):  # rows need no names if each title has the layer
            candidates = [(0.0, True), *candidates]

    for left, has_titles in candidates:
        height, width = int(area.height * dpi), int((area.width - left) * dpi)
        rows = _rows_of(groups, (height, width), MAX_THUMBNAIL_INCHES * dpi, is_filled=picture.filled)
        across, blocks = max(map(len, rows)), 1
        if not picture.filled and len(rows) == len(groups):
            blocks = _block_count(
                len(rows), across, (height, width), round(GAP * scale * dpi), MAX_THUMBNAIL_INCHES * dpi
            )
        width -= int((blocks - 1) * (left + BLOCK_GAP * scale) * dpi)
        numbers: tuple[str, ...] = ()  # of the head in each column, unless the heads of a column have different ones
        if not (has_titles or picture.filled):
            columns = zip_longest(*([panel.heading.number for panel in panels] for panels in rows))
            numbers_of_columns = [set(column) - {None} for column in columns]
            if all(len(column_numbers) == 1 for column_numbers in numbers_of_columns):
                numbers = tuple(str(number) for [number] in numbers_of_columns)
        column_points = max(COLUMN_NUMBER_POINTS * scale, NUMBER_PIXELS[0] * POINTS_PER_INCH / dpi) if numbers else 0.0
        header = LINE_SPACING * column_points / POINTS_PER_INCH
        size = int((area.height - header) * dpi), width
        grid = _thumbnail_grid(panels, (math.ceil(len(rows) / blocks), blocks * across), size, area, dpi, ruler)
        if has_titles and picture.filled:
            grid = _grid_for_titles(panels, size, grid, ruler)
        if grid.title_size or not has_titles:
            break
    grid = replace(grid, title_size=grid.title_size if has_titles else 0, left=left, blocks=blocks)
    return rows, replace(grid, header=header, column_points=column_points, numbers=numbers)


def _thumbnails_body(picture: DrawnReport, area: PageSize, ruler: Ruler) -> Content:
    """Returns thumbnails as large as the area allows, with titles, or the names of rows and numbers of columns."""
    dpi, scale = picture.look.pixels_per_inch, area.scale
    rows, grid = _choose_grid(picture, area, ruler)
    left, header, numbers, column_points = grid.left, grid.header, grid.numbers, grid.column_points
    title_points = grid.title_size * POINTS_PER_INCH / dpi
    block_step = left + grid.columns // grid.blocks * grid.step[1] / dpi + BLOCK_GAP * scale
    lines, placed_panels = [], []
    for index, panels in enumerate(rows):
        block, row = divmod(index, grid.rows)
        block_left = block * block_step + left
        top = -header - (row * grid.step[0] + round(grid.title_size * LINE_SPACING)) / dpi  # of the thumbnails
        if not picture.filled and not (grid.title_size and all(panel.heading.names_group for panel in panels)):
            points, name = min(ROW_NAME_POINTS * scale, grid.step[0] * POINTS_PER_INCH / dpi), panels[0].group
            x, middle = block_left - NAME_GAP * scale - ruler.width(name, points), top - grid.side[0] / dpi / 2
            lines.append(TextLine(x, middle + ASCENT * points / POINTS_PER_INCH / 2, name, points))
        for column, panel in enumerate(panels):
            x = block_left + column * grid.step[1] / dpi
            if grid.title_size:
                y = top + (TITLE_GAP + ASCENT) * title_points / POINTS_PER_INCH
                lines.append(TextLine(x, y, panel.title, title_points, faint=False))
            height, width = (
                max(int(count * cell), 1) / dpi for count, cell in zip(panel.values.shape, grid.cell, strict=True)
            )
            placed_panels.append(PlacedPanel(panel, Box(x, top - height, width, height)))
    if numbers:  # of the heads over the columns of each block, as many as do not touch
        stride = math.ceil(1.2 * ruler.longest_width(numbers, column_points) * dpi / grid.step[1])  # with a gap
        name_width = NAME_GAP * scale + ruler.width("head", column_points)
        for block_left in (left + block * block_step for block in range(grid.blocks)):
            lines.append(TextLine(block_left - name_width, 0, "head", column_points))
            for column in range(0, len(numbers), stride):
                center = block_left + (column * grid.step[1] + grid.side[1] / 2) / dpi
                x = center - ruler.width(numbers[column], column_points) / 2
                lines.append(TextLine(x, 0, numbers[column], column_points))
    return Content(
        width=grid.blocks * block_step - BLOCK_GAP * scale - grid.gap / dpi,
        height=header + grid.step[0] * grid.rows / dpi,
        points=title_points,
        panels=tuple(placed_panels),
        lines=tuple(lines),
        title_points=title_points,
        column_points=column_points,
    )


def _rows_of(
    groups: list[list[Panel]], size: tuple[int, int], max_side: float, *, is_filled: bool
) -> list[list[Panel]]:
    """Returns rows of panels, each group in as many rows as make thumbnails largest.

    Unless rows are filled in order, a group stays in one row if more would make thumbnails less than twice as large.
    """
    height_with_title = 1 + LINE_SPACING * NUMBER_SHARE if is_filled else 1.0  # in heights of the map
    height, width = size[0] / height_with_title / len(groups), size[1]
    columns = max(map(len, groups))
    sides = [min(height / rows, width / math.ceil(columns / rows), max_side) for rows in range(1, columns + 1)]
    rows_of_group = 1 + sides.index(max(sides)) if is_filled or max(sides) >= 2 * sides[0] else 1
    across = math.ceil(columns / rows_of_group)
    return [panels[start : start + across] for panels in groups for start in range(0, len(panels), across)]


def _block_count(rows: int, across: int, size: tuple[int, int], gap: int, max_side: float) -> int:
    """Returns the number of blocks of rows beside each other: the fewest at which thumbnails are about the largest.

    A sheet that would still be far higher than wide has more blocks, as long as thumbnails stay that large.
    """
    height_with_title = 1 + LINE_SPACING * NUMBER_SHARE  # in heights of the map
    sides = {}
    for blocks in range(1, rows + 1):
        height = (size[0] / math.ceil(rows / blocks) - gap) / height_with_title
        sides[blocks] = min(height, size[1] / (blocks * across) - gap, max_side)
    large = [blocks for blocks, side in sides.items() if LARGE_SHARE * max(sides.values()) <= side]
    return next(
        (blocks for blocks in large if blocks * across >= MIN_SHEET_RATIO * math.ceil(rows / blocks)), large[-1]
    )


def _thumbnail_grid(
    panels: Sequence[Panel], shape: tuple[int, int], size: tuple[int, int], area: PageSize, dpi: int, ruler: Ruler
) -> ThumbnailGrid:
    """Returns the geometry of so many rows and columns of thumbnails, as large as the area allows.

    Cells may be cut to whole pixels.
    """
    rows, columns = shape
    unit, has_given_width = area.scale * dpi / FIGURE_DPI, area.is_fixed or area.is_column
    shapes = [panel.values.shape for panel in panels]
    max_rows, max_columns = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
    gap = max(MIN_GAP_PIXELS, round(GAP * area.scale * dpi))
    space = min(size[0] / rows, size[1] / columns) - gap
    if has_given_width and space < MIN_THUMBNAIL_PIXELS:
        if len(shapes) == 1:
            raise AttnvizError(f"1 head does not fit that {option('size')}; use a larger one")
        advice = f"use a larger one, or fewer heads with {option('layers')} and {option('heads')}"
        raise AttnvizError(f"{len(shapes)} heads do not fit that {option('size')}; {advice}")
    width_per_size = ruler.longest_width((panel.title for panel in panels), POINTS_PER_INCH)  # of titles
    title_size = int(min(space * NUMBER_SHARE, space / width_per_size, NUMBER_PIXELS[1] * max(unit, 0.7)))
    title_size = title_size if title_size >= NUMBER_PIXELS[0] else 0
    height = max(size[0] / rows - gap - title_size * LINE_SPACING, MIN_THUMBNAIL_PIXELS)
    width = max(size[1] / columns - gap, MIN_THUMBNAIL_PIXELS)
    if not has_given_width:
        height = min(height, max(MAX_THUMBNAIL_INCHES * dpi, max_rows))
        width = min(width, max(MAX_THUMBNAIL_INCHES * dpi, max_columns))
    cell = min(height / max_rows, width / max_columns)
    if int(cell) >= MIN_WHOLE_SHARE * cell:
        cell = float(int(cell))
    # The short side of a thumbnail is at least a quarter of its long side, if there is space.
    cell_height = min(max(max_rows, max_columns / 4) * cell, height) / max_rows
    cell_width = min(max(max_columns, max_rows / 4) * cell, width) / max_columns
    return ThumbnailGrid(
        rows=rows,
        columns=columns,
        cell=(cell_height, cell_width),
        side=(int(max_rows * cell_height), int(max_columns * cell_width)),
        gap=gap,
        title_size=title_size,
    )


def _grid_for_titles(
    panels: Sequence[Panel], size: tuple[int, int], grid: ThumbnailGrid, ruler: Ruler
) -> ThumbnailGrid:
    """Returns a geometry in which titles do not touch: with more space in a row, smaller titles, or no titles."""
    width_per_size = ruler.longest_width((panel.title for panel in panels), POINTS_PER_INCH)  # of titles
    free_width = size[1] // grid.columns - grid.gap
    # Titles may be higher than `NUMBER_SHARE` of a thumbnail rather than too small to read.
    min_title_size = NUMBER_PIXELS[0] if NUMBER_PIXELS[0] <= MAX_NUMBER_SHARE * max(grid.side) else 0
    title_size = max(min(grid.title_size, int(free_width / width_per_size)), min_title_size)
    if title_size * width_per_size > free_width or title_size < NUMBER_PIXELS[0]:
        return replace(grid, title_size=0)
    height = min(grid.side[0], size[0] // grid.rows - grid.gap - round(title_size * LINE_SPACING))
    factor = height / grid.side[0]
    cell = (grid.cell[0] * factor, grid.cell[1] * factor)
    return replace(
        grid,
        cell=cell,
        side=(height, max(int(grid.side[1] * factor), math.ceil(title_size * width_per_size))),
        title_size=title_size,
    )
