"""Draws many heads as one picture of thumbnails with titles, layers down and heads across, without matplotlib."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from attnviz.base.arrays import ByteArray
from attnviz.base.errors import AttnvizError, option
from attnviz.render.figure.fonts import choose_fonts, shown_texts, with_readable_texts
from attnviz.render.figure.letters import (
    COLOR_LEVELS,
    FAINT,
    INK,
    INK_STEPS,
    PAPER,
    Mark,
    text_width,
    wrap_text,
    write_mark,
)
from attnviz.render.figure.picture import PageSize, Picture, page_size
from attnviz.render.figure.theme import THEME_COLORS, rgb
from attnviz.report.picture.colors import NAN, colormap
from attnviz.report.picture.panels import Panel

ABSENT_INDEX, HATCH_INDEX, NAN_INDEX = COLOR_LEVELS, COLOR_LEVELS + 1, COLOR_LEVELS + 2
PNG_COMPRESSION = 1  # zlib's level: higher levels take several times as long and save little
STRIPE_PIXELS = 5  # distance of the stripes in masked cells
PAGE_PIXELS = (2667, 2048)  # largest page if no size is given
MIN_PAGE_PIXELS = 1100  # smallest width of such a page
MAX_THUMBNAIL_PIXELS = 200  # longer side of a thumbnail if no size is given
MIN_THUMBNAIL_PIXELS = 4  # smallest place of a thumbnail
PLAN_DPI = 200
# Pixels below are those of a slide at `PLAN_DPI` pixels per inch.
PLAN_PAGE = (2000, 1500)  # the page of a given size on which texts have the sizes below
NAME_GAP = 20  # between the names of rows and thumbnails, and between thumbnails and the colour bar
MARGIN_PIXELS, GAP_PIXELS, BAR_PIXELS, LEGEND_PIXELS = 56, 12, 30, 230
FLAT_BAR_PIXELS, MAX_FLAT_BAR_PIXELS = 20, 700
MIN_BAR_PIXELS, MAX_BAR_PIXELS = 200, 700
BAR_SPACE_PIXELS = 400  # least height of the thumbnails' area, for a bar beside them with its name
TITLE_PIXELS, TEXT_PIXELS, SMALL_TEXT_PIXELS = 54, 30, 24
LINE_SPACING = 1.35  # from one line to the next, in font sizes
TITLE_GAP = 0.3  # between a title and its thumbnail, in font sizes
NUMBER_SHARE, MAX_NUMBER_SHARE = 0.2, 0.3  # height of a title in thumbnails; the second if letters get too small
MIN_WHOLE_SHARE = 0.8  # cells are cut to whole pixels if at least this share of them remains
UNNUMBERED = f"Maps are too small for head numbers; use a larger {option('size')} to see them."
WITHOUT_VALUES = (
    f"Maps are too small for the values by which heads are sorted; use a larger {option('size')} to see them."
)
OWN_LOW, OWN_HIGH = "smallest", "largest"  # ends of the bar if each head has a scale of its own
NUMBER_PIXELS = (11, 30)  # the smallest and largest letters of a head's number


@dataclass(frozen=True, eq=False)
class Sheet:
    """A picture of thumbnails before its palette is applied.

    Attributes:
        pixels: ``(height, width)``, the index of each pixel's colour in the palette.
        marks: the texts to write on it.
    """

    pixels: ByteArray
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Frame:
    """The geometry of thumbnails, in pixels.

    Attributes:
        rows: the number of thumbnails below each other.
        columns: the number of thumbnails side by side.
        cell: the height and width of a cell.
        side: the height and width of a thumbnail's place.
        gap: the gap between thumbnails.
        title_size: the font size of a head's title; 0 if it would not be legible.
        unit: the size of texts, gaps and colour bars relative to a slide at 200 pixels per inch.
    """

    rows: int
    columns: int
    cell: tuple[float, float]
    side: tuple[int, int]
    gap: int
    title_size: int
    unit: float

    @property
    def step(self) -> tuple[int, int]:
        """The distance from one thumbnail to the next, down and across."""
        return self.side[0] + round(self.title_size * LINE_SPACING) + self.gap, self.side[1] + self.gap


@dataclass(frozen=True, eq=False)
class _SheetPlan:
    """The plan of a sheet of thumbnails, in pixels.

    Attributes:
        groups: the thumbnails of each row.
        frame: the geometry of the thumbnails.
        foot_text: the remarks at the foot of the sheet.
        corner: the left and upper edges of the thumbnails.
        right: the free space at their right.
        area: the height and width that the thumbnails may fill.
        page: the width and height of the sheet.
        legend: the height of the colour bar under the thumbnails; 0 if it stands beside them.
    """

    groups: list[list[Panel]]
    frame: Frame
    foot_text: str
    corner: tuple[int, int]
    right: int
    area: tuple[int, int]
    page: tuple[int, int]
    legend: int

    @property
    def margin(self) -> int:
        """The free space at every edge."""
        return round(MARGIN_PIXELS * self.frame.unit)


def draw_thumbnails(picture: Picture) -> bytes:
    """Returns a picture of thumbnails as the bytes of a PNG with a palette; metadata has title, caption and remarks.

    Raises:
        AttnvizError: if the thumbnails do not fit on a page of the look's size.
    """
    sheet = arrange_sheet(with_readable_texts(picture, choose_fonts(shown_texts(picture, labels=False))))
    pixels = sheet.pixels.copy()
    for mark in sheet.marks:
        write_mark(pixels, mark)
    image = Image.fromarray(pixels)
    image.putpalette(palette(picture).tobytes())
    metadata = PngInfo()
    metadata.add_itxt("Title", picture.title)
    metadata.add_itxt("Description", " ".join((picture.caption, *picture.remarks)))
    look = picture.look
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


def palette(picture: Picture) -> ByteArray:
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


def arrange_sheet(picture: Picture) -> Sheet:
    """Returns a sheet with thumbnails and their titles, the heading, the remarks and the colour bar.

    If the titles of a filled picture are not legible, the values after the heads' names are left out, with a remark.

    Raises:
        AttnvizError: if the thumbnails do not fit on a page of the look's size.
    """
    drawn_picture, plan = picture, _sheet_plan(picture)
    has_values = any(panel.heading.note for panel in picture.panels)
    if picture.filled and has_values and not plan.frame.title_size:
        panels = tuple(replace(panel, heading=replace(panel.heading, note="")) for panel in picture.panels)
        remarks = (*picture.remarks, picture.look.format_options(WITHOUT_VALUES))
        drawn_picture = replace(picture, panels=panels, remarks=remarks)
        plan = _sheet_plan(drawn_picture)
    centred_plan = _centred_plan(plan, page_size(picture.look))
    width, height = centred_plan.page
    pixels = np.full((height, width), PAPER, dtype=np.uint8)
    return Sheet(pixels, tuple(_draw_sheet(drawn_picture, centred_plan, pixels)))


def _sheet_plan(picture: Picture) -> _SheetPlan:
    """Returns a plan with thumbnails as large as the area between title and remarks allows, at its top left."""
    page = page_size(picture.look)
    dpi, unit = picture.look.pixels_per_inch, 1.0
    width, height = PAGE_PIXELS if page.grows else (round(page.width * dpi), round(page.height * dpi))
    if page.is_fixed:
        unit = min(width / PLAN_PAGE[0], height / PLAN_PAGE[1])
    elif page.is_column:
        unit = page.scale * dpi / PLAN_DPI
    margin, foot_text = round(MARGIN_PIXELS * unit), " ".join(picture.remarks)
    legend = round((2.9 * SMALL_TEXT_PIXELS + FLAT_BAR_PIXELS) * unit) if page.is_column else 0
    right = margin + (0 if page.is_column else round(LEGEND_PIXELS * unit))
    source_height = SMALL_TEXT_PIXELS * LINE_SPACING if picture.source else 0.0
    top = margin + round((TITLE_PIXELS * 1.6 + source_height) * unit) if picture.title or source_height else margin
    foot_height = _foot_height(foot_text, width, margin, unit)
    groups = [list(panels) for _, panels in groupby(picture.panels, key=lambda panel: panel.group)]

    def plan_from(left: int) -> _SheetPlan:
        """Returns the plan of the picture with ``left`` pixels between the page's edge and the thumbnails."""
        area = (height if page.grows else height - top - foot_height - legend, width - left - right)
        rows_of_panels = _rows_in_order(picture.panels, area) if picture.filled else _rows_in_bands(groups, area)
        frame = _thumbnail_frame(rows_of_panels, area, unit, has_given_width=not page.grows)
        if picture.filled:
            frame = _frame_for_titles(rows_of_panels, area, frame)
        return _SheetPlan(rows_of_panels, frame, foot_text, (left, top), right, area, (width, height), legend)

    advice = picture.look.format_options(UNNUMBERED)
    if picture.filled:
        plan = plan_from(margin)
        if plan.frame.title_size:
            return plan
        return _plan_without_titles(plan, advice, has_given_width=not page.grows, may_number_columns=False)
    if all(map(_titles_begin_with_layer, groups)):  # rows then need no names at their left
        plan = plan_from(margin)
        if plan.frame.title_size:
            return plan
    name_width = max(text_width(panels[0].group, round(TEXT_PIXELS * unit)) for panels in groups)
    named_plan = plan_from(margin + round(name_width + NAME_GAP * unit))
    if named_plan.frame.title_size:
        return named_plan
    return _plan_without_titles(named_plan, advice, has_given_width=not page.grows)


def _titles_begin_with_layer(panels: list[Panel]) -> bool:
    """True if every title in a row, such as ``3.11``, begins with the layer in the row's name, such as ``layer 3``."""
    return all(panel.group == f"layer {panel.title.partition('.')[0]}" for panel in panels)


def _plan_without_titles(
    plan: _SheetPlan, advice: str, has_given_width: bool, may_number_columns: bool = True
) -> _SheetPlan:
    """Returns a plan without titles: with head numbers over the columns, or a remark if these cannot be numbered."""
    unit, width = plan.frame.unit, plan.page[0]
    are_columns_numbered = may_number_columns and bool(_column_numbers(plan.groups))
    foot_text = plan.foot_text if are_columns_numbered else f"{plan.foot_text} {advice}"
    header_height = round(LINE_SPACING * max(SMALL_TEXT_PIXELS * unit, NUMBER_PIXELS[0]))
    foot_height, old_foot_height = (
        _foot_height(text, width, plan.margin, unit) for text in (foot_text, plan.foot_text)
    )
    area = (plan.area[0] - header_height - foot_height + old_foot_height, plan.area[1])
    frame = replace(_thumbnail_frame(plan.groups, area, unit, has_given_width), title_size=0)
    corner = (plan.corner[0], plan.corner[1] + header_height)
    return replace(plan, frame=frame, foot_text=foot_text, corner=corner, area=area)


def _centred_plan(plan: _SheetPlan, page: PageSize) -> _SheetPlan:
    left, top = plan.corner
    total_width, total_height = plan.frame.step[1] * plan.frame.columns, plan.frame.step[0] * plan.frame.rows
    if page.is_fixed:
        corner = (left + max(plan.area[1] - total_width, 0) // 2, top + max(plan.area[0] - total_height, 0) // 2)
        return replace(plan, corner=corner)
    width = plan.page[0] if page.is_column else max(left + total_width + plan.right, MIN_PAGE_PIXELS)
    foot_height = _foot_height(plan.foot_text, width, plan.margin, plan.frame.unit) + plan.legend
    bar_height = 0 if plan.legend else round(BAR_SPACE_PIXELS * plan.frame.unit)
    return replace(plan, page=(width, top + max(total_height, bar_height) + foot_height))


def _draw_sheet(picture: Picture, plan: _SheetPlan, pixels: ByteArray) -> Iterator[Mark]:
    frame, margin = plan.frame, plan.margin
    left, top = plan.corner
    yield from _draw_panels(pixels, plan.groups, frame, left, top, named=not picture.filled)
    if not frame.title_size and not picture.filled:
        yield from _column_titles(plan.groups, frame, left, top)
    bottom = top + frame.step[0] * frame.rows
    bar_left = left + frame.step[1] * frame.columns + round(NAME_GAP * frame.unit)
    if plan.legend:
        yield from _draw_flat_bar(pixels, picture.panels, left, bottom, bar_left - left, frame.unit)
    else:
        yield from _draw_bar(pixels, picture.panels, bar_left, top, bottom - top, frame.unit)
    yield from _title_marks(picture.title, margin, plan.page[0] - 2 * margin, frame.unit)
    size = round(SMALL_TEXT_PIXELS * frame.unit)
    if picture.source:
        [first_line, *_] = wrap_text(picture.source, plan.page[0] - 2 * margin, size)
        y = margin + (TITLE_PIXELS + LINE_SPACING * SMALL_TEXT_PIXELS) * frame.unit
        yield Mark(margin, y, first_line, size, faint=True)
    remark_lines = wrap_text(plan.foot_text, plan.page[0] - 2 * margin, size)
    for line_index, line in enumerate(remark_lines):
        lines_below = len(remark_lines) - 1 - line_index
        y = plan.page[1] - margin - lines_below * SMALL_TEXT_PIXELS * LINE_SPACING * frame.unit
        yield Mark(margin, y, line, size, faint=True)


def _foot_height(foot_text: str, width: int, margin: int, unit: float) -> int:
    lines = wrap_text(foot_text, width - 2 * margin, round(SMALL_TEXT_PIXELS * unit))
    return margin + round(len(lines) * SMALL_TEXT_PIXELS * LINE_SPACING * unit)


def _rows_in_bands(groups: list[list[Panel]], area: tuple[int, int]) -> list[list[Panel]]:
    """Returns rows of panels, each group in one row, or in several if thumbnails then are at least twice as large."""
    height, width = area
    columns = max(map(len, groups))
    sides = [
        min(height / (len(groups) * rows), width / math.ceil(columns / rows), MAX_THUMBNAIL_PIXELS)
        for rows in range(1, columns + 1)
    ]
    rows_of_group = 1 + sides.index(max(sides)) if max(sides) >= 2 * sides[0] else 1
    across = math.ceil(columns / rows_of_group)
    return [panels[start : start + across] for panels in groups for start in range(0, len(panels), across)]


def _rows_in_order(panels: tuple[Panel, ...], area: tuple[int, int]) -> list[list[Panel]]:
    """Returns the panels in rows, in their order, in as many rows as make thumbnails largest."""
    height, width = area
    height_with_title = 1 + LINE_SPACING * NUMBER_SHARE  # height of a thumbnail with its title, relative to its map
    sides = [
        min(height / rows / height_with_title, width / math.ceil(len(panels) / rows), MAX_THUMBNAIL_PIXELS)
        for rows in range(1, len(panels) + 1)
    ]
    across = math.ceil(len(panels) / (1 + sides.index(max(sides))))
    return [list(panels[start : start + across]) for start in range(0, len(panels), across)]


def _thumbnail_frame(groups: list[list[Panel]], area: tuple[int, int], unit: float, has_given_width: bool) -> Frame:
    """Returns the geometry with thumbnails as large as the area allows; cells may be cut to whole pixels."""
    rows, columns = len(groups), max(map(len, groups))
    shapes = [panel.values.shape for panels in groups for panel in panels]
    max_rows, max_columns = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
    gap = max(3, round(GAP_PIXELS * unit))
    space = min(area[0] / rows, area[1] / columns) - gap
    if has_given_width and space < MIN_THUMBNAIL_PIXELS:
        if len(shapes) == 1:
            raise AttnvizError(f"1 head does not fit that {option('size')}; use a larger one")
        advice = f"use a larger one, or fewer heads with {option('layers')} and {option('heads')}"
        raise AttnvizError(f"{len(shapes)} heads do not fit that {option('size')}; {advice}")
    width_per_size = _title_width(groups)
    title_size = int(min(space * NUMBER_SHARE, space / width_per_size, NUMBER_PIXELS[1] * max(unit, 0.7)))
    title_size = title_size if title_size >= NUMBER_PIXELS[0] else 0
    height = max(area[0] / rows - gap - title_size * LINE_SPACING, MIN_THUMBNAIL_PIXELS)
    width = max(area[1] / columns - gap, MIN_THUMBNAIL_PIXELS)
    if not has_given_width:
        height = min(height, max(MAX_THUMBNAIL_PIXELS, max_rows))
        width = min(width, max(MAX_THUMBNAIL_PIXELS, max_columns))
    cell = min(height / max_rows, width / max_columns)
    if int(cell) >= MIN_WHOLE_SHARE * cell:
        cell = float(int(cell))
    # The short side of a thumbnail is at least a quarter of its long side, if there is space.
    cell_height = min(max(max_rows, max_columns / 4) * cell, height) / max_rows
    cell_width = min(max(max_columns, max_rows / 4) * cell, width) / max_columns
    return Frame(
        rows=rows,
        columns=columns,
        cell=(cell_height, cell_width),
        side=(int(max_rows * cell_height), int(max_columns * cell_width)),
        gap=gap,
        title_size=title_size,
        unit=unit,
    )


def _title_width(groups: list[list[Panel]]) -> float:
    return max(text_width(panel.title, 100) / 100 for panels in groups for panel in panels)


def _frame_for_titles(groups: list[list[Panel]], area: tuple[int, int], frame: Frame) -> Frame:
    """Returns a geometry in which titles do not touch: with wider places, smaller titles, or no titles."""
    width_per_size = _title_width(groups)
    free_width = area[1] // frame.columns - frame.gap
    # Titles may be higher than `NUMBER_SHARE` of a thumbnail rather than too small to read.
    min_title_size = NUMBER_PIXELS[0] if NUMBER_PIXELS[0] <= MAX_NUMBER_SHARE * max(frame.side) else 0
    title_size = max(min(frame.title_size, int(free_width / width_per_size)), min_title_size)
    if title_size * width_per_size > free_width or title_size < NUMBER_PIXELS[0]:
        return replace(frame, title_size=0)
    height = min(frame.side[0], area[0] // frame.rows - frame.gap - round(title_size * LINE_SPACING))
    factor = height / frame.side[0]
    cell = (frame.cell[0] * factor, frame.cell[1] * factor)
    return replace(
        frame,
        cell=cell,
        side=(height, max(int(frame.side[1] * factor), math.ceil(title_size * width_per_size))),
        title_size=title_size,
    )


def _column_titles(groups: list[list[Panel]], frame: Frame, left: int, top: int) -> Iterator[Mark]:
    """Yields "head" and head numbers over the columns, as many as do not touch; nothing if columns have no numbers."""
    numbers = _column_numbers(groups)
    size = max(round(SMALL_TEXT_PIXELS * frame.unit), NUMBER_PIXELS[0])
    if not numbers:
        return
    number_width = 1.2 * max(text_width(number, size) for number in numbers)  # with a gap
    stride = math.ceil(number_width / frame.step[1])
    baseline = top - TITLE_GAP * size
    yield Mark(left - NAME_GAP * frame.unit, baseline, "head", size, faint=True, anchor="rs")
    for column in range(0, len(numbers), stride):
        x = left + column * frame.step[1] + frame.side[1] / 2
        yield Mark(x, baseline, numbers[column], size, faint=True, anchor="ms")


def _column_numbers(groups: list[list[Panel]]) -> list[str]:
    """Returns the head number of each column of thumbnails; no numbers if the heads of a column have different ones."""
    columns = zip_longest(*([panel.title.rpartition(".")[2] for panel in panels] for panels in groups))
    numbers_of_columns = [set(filter(None, column)) for column in columns]
    if any(len(numbers) != 1 for numbers in numbers_of_columns):
        return []
    return [number for [number] in numbers_of_columns]


def _draw_panels(
    pixels: ByteArray, groups: list[list[Panel]], frame: Frame, left: int, top: int, named: bool
) -> Iterator[Mark]:
    title_height = round(frame.title_size * LINE_SPACING)
    for row, panels in enumerate(groups):
        y = top + row * frame.step[0] + title_height
        if named and not (frame.title_size and _titles_begin_with_layer(panels)):
            size = round(min(TEXT_PIXELS * frame.unit, frame.step[0]))
            yield Mark(
                left - NAME_GAP * frame.unit, y + frame.side[0] / 2, panels[0].group, size, faint=True, anchor="rm"
            )
        for column, panel in enumerate(panels):
            x = left + column * frame.step[1]
            if frame.title_size:
                yield Mark(x, y - frame.title_size * TITLE_GAP, panel.title, frame.title_size)
            thumbnail = _thumbnail(panel, frame)
            pixels[y : y + thumbnail.shape[0], x : x + thumbnail.shape[1]] = thumbnail


def _thumbnail(panel: Panel, frame: Frame) -> ByteArray:
    """Returns the thumbnail of a panel as indices of colours in the palette, ``(height, width)`` in pixels."""
    sides = [max(int(count * cell), 1) for count, cell in zip(panel.values.shape, frame.cell, strict=True)]
    levels, visible = panel.drawn_cells(*sides)
    fractions = panel.scale.fraction(levels)
    is_nan = np.isnan(fractions)
    without_nan = np.where(is_nan, 0, fractions) if is_nan.any() else fractions
    cell_colors: ByteArray = np.rint(without_nan * (COLOR_LEVELS - 1)).astype(np.uint8)
    cell_colors[is_nan] = NAN_INDEX
    # The cell that each pixel along a side shows.
    rows, columns = (np.arange(side) * count // side for side, count in zip(sides, levels.shape, strict=True))
    pixels = cell_colors[rows][:, columns]
    if visible.all():
        return np.asarray(pixels)
    is_visible = visible[rows][:, columns]
    x, y = np.arange(pixels.shape[1]), np.arange(pixels.shape[0])[:, None]
    hatching = np.where((x + y) % STRIPE_PIXELS == 0, np.uint8(HATCH_INDEX), np.uint8(ABSENT_INDEX))
    hatched_pixels: ByteArray = np.where(is_visible, pixels, hatching)
    return hatched_pixels


def _bar_ticks(panels: tuple[Panel, ...]) -> list[tuple[float, str]]:
    """Returns the ticks of the colour bar as shares of its length; only words if each head has a scale of its own."""
    quantity, scale = panels[0].color_quantity, panels[0].scale
    ticks = quantity.ticks(scale)
    if all(replace(panel.scale, clipped=scale.clipped) == scale for panel in panels):
        return [(float(scale.fraction(value)), text) for value, text in ticks]
    have_one_low = all(panel.scale.low == scale.low for panel in panels)
    return [(0.0, ticks[0][1] if have_one_low else OWN_LOW), (1.0, OWN_HIGH)]


def _draw_bar(
    pixels: ByteArray, panels: tuple[Panel, ...], x: int, top: int, height: int, unit: float
) -> Iterator[Mark]:
    size = round(TEXT_PIXELS * unit)
    name_lines = wrap_text(panels[0].color_quantity.name, LEGEND_PIXELS * unit - size, size)
    for line_index, line in enumerate(name_lines):
        yield Mark(x, top + (line_index + 1) * size * 1.2, line, size, faint=True)
    top_of_bar = round(top + (len(name_lines) + 1.1) * size * 1.2)
    bar_height = min(round(MAX_BAR_PIXELS * unit), max(top + height - top_of_bar, round(MIN_BAR_PIXELS * unit)))
    levels = np.linspace(COLOR_LEVELS - 1, 0, bar_height).round().astype(np.uint8)
    levels_on_page = levels[: pixels.shape[0] - top_of_bar, None]  # a bar may end below the page
    pixels[top_of_bar : top_of_bar + bar_height, x : x + round(BAR_PIXELS * unit)] = levels_on_page
    for fraction, text in _bar_ticks(panels):
        y = top_of_bar + (1 - fraction) * (bar_height - 1)
        yield Mark(x + round((BAR_PIXELS + 10) * unit), y, text, size, anchor="lm")


def _draw_flat_bar(
    pixels: ByteArray, panels: tuple[Panel, ...], left: int, top: int, width: int, unit: float
) -> Iterator[Mark]:
    size = round(SMALL_TEXT_PIXELS * unit)
    width_of_bar = min(width, round(MAX_FLAT_BAR_PIXELS * unit))
    bar_top = top + round(1.3 * size)
    yield Mark(left, top + size, panels[0].color_quantity.name, size, faint=True)
    levels = np.linspace(0, COLOR_LEVELS - 1, width_of_bar).round().astype(np.uint8)
    pixels[bar_top : bar_top + round(FLAT_BAR_PIXELS * unit), left : left + width_of_bar] = levels
    y = bar_top + round((FLAT_BAR_PIXELS + 0.2 * SMALL_TEXT_PIXELS) * unit) + size
    for fraction, text in _bar_ticks(panels):
        x = left + fraction * width_of_bar
        yield Mark(x, y, text, size, anchor="ls" if x == left else "ms")


def _title_marks(title: str, margin: int, limit: int, unit: float) -> Iterator[Mark]:
    """Yields a mark with the title; if it is too wide, it becomes smaller, down to 70 %, and then is cut."""
    size = round(TITLE_PIXELS * unit)
    while size > 0.7 * TITLE_PIXELS * unit and text_width(title, size, bold=True) > limit:
        size -= 2
    fitting_title = title
    while fitting_title and text_width(fitting_title, size, bold=True) > limit:
        fitting_title = fitting_title[:-2].rstrip() + "…"
    yield Mark(margin, margin + TITLE_PIXELS * unit, fitting_title, size, bold=True)
