"""Lays out a picture of maps on its page, in inches, so that nothing overlaps or leaves the page."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.render.figure.bars import (
    BAR_GAP,
    MIN_BAR_HEIGHT,
    Bar,
    Box,
    bars_below,
    bars_beside,
    legend_height,
    plain_bars,
)
from attnviz.render.figure.grid import (
    AXIS_NAME_POINTS,
    CELL_HEIGHT_PER_NUMBER,
    PANEL_TITLE_POINTS,
    Area,
    PanelGrid,
    axis_depth,
    fit_grid,
    needs_key_labels,
    needs_query_labels,
    widest_number,
)
from attnviz.render.figure.labels import Labels, label_axis
from attnviz.render.figure.picture import Picture, page_size
from attnviz.render.figure.ruler import POINTS_PER_INCH, Ruler
from attnviz.render.figure.text_blocks import (
    ROUNDING_INCHES,
    TITLE_POINTS,
    TextLine,
    fitting_title,
    remarks_block,
    title_block,
)
from attnviz.report.picture.panels import Axis, Panel

PAGE_SCALES = (1.0, 1.5, 2.2, 3.2, 4.4)  # factors by which a page may grow to make numbers legible
MAP_PAGE_SCALES = PAGE_SCALES[:3]  # factors to bring the longer side of every map to MIN_MAP_SIDE
MIN_MAP_SIDE = 1.2  # inches
MIN_PAGE_WIDTH = 5.0  # inches, as all lengths below, of a slide; other pages scale them
MAX_TITLE_WIDTH = 6.0  # a longer title takes two lines
MAX_TITLE_LINES = 2  # of a panel
MIN_PANEL_TITLE_POINTS = 9.0
MIN_AXIS_NAME_WIDTH = 0.75  # an axis may be shorter: its name then runs into the gaps beside it
MAX_NUMBER_POINTS, WANTED_NUMBER_POINTS, MIN_NUMBER_POINTS = 14.0, 8.0, 5.0
MAX_REMARKS_SHARE = 0.25  # of the page's height
LARGER_CELLS_ADVICE = f"use fewer tokens or heads, or a larger {option('size')}"
NO_NUMBERS = f"The cells are too small for numbers; {LARGER_CELLS_ADVICE}."


@dataclass(frozen=True)
class Place:
    """The place of one panel, with its labels.

    Attributes:
        panel: the panel.
        box: the rectangle of its cells.
        title: its title, cut to its width.
        rows: the labels of the queries; ``None`` if the panel at its left has them.
        columns: the labels of the keys; ``None`` if the panel below has them.
        label_inches: the width of the query labels and the height of the key labels.
    """

    panel: Panel
    box: Box
    title: str
    rows: Labels | None
    columns: Labels | None
    label_inches: tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """The layout of a page of maps: lengths in inches, font sizes in points.

    Attributes:
        width: the width of the page.
        height: the height of the page.
        scale: the size of fonts relative to those of a slide.
        places: the panels.
        bars: the colour bars, one per colour scale.
        lines: the lines of the title, the summary and the remarks.
        label_points: the font size of token labels.
        title_points: the font size of the panels' titles.
        number_points: the font size of numbers in cells; 0 if there are none.
        name_points: the font size of the axes' names.
    """

    width: float
    height: float
    scale: float
    places: tuple[Place, ...]
    bars: tuple[Bar, ...]
    lines: tuple[TextLine, ...]
    label_points: float
    title_points: float
    number_points: float
    name_points: float


def arrange_maps(picture: Picture, ruler: Ruler) -> Layout:
    """Returns the layout of maps on a page of the picture's size, or on one as large as needed.

    Numbers that would be too small to read are left out, with a remark.

    Raises:
        AttnvizError: if numbers are too small to read in a bare figure, which has no remark to say so.
    """
    layout = _legible_layout(picture, ruler)
    # The limit grows with the fonts of a page, but is the same for columns of all widths.
    min_points = MIN_NUMBER_POINTS * (1 if page_size(picture.look).is_column else layout.scale)
    if picture.numbers and layout.number_points < min_points:
        if picture.look.bare:
            raise AttnvizError(
                f"cells are too small for numbers, and {option('bare')} leaves out the remark that says so; "
                f"{LARGER_CELLS_ADVICE}"
            )
        remarks = (*picture.remarks, picture.look.format_options(NO_NUMBERS))
        return _legible_layout(replace(picture, numbers=False, remarks=remarks), ruler)
    return layout


def _legible_layout(picture: Picture, ruler: Ruler) -> Layout:
    """Returns the layout on the smallest page on which numbers, or maps without numbers, are large enough."""
    factors = PAGE_SCALES if picture.numbers else MAP_PAGE_SCALES
    for factor in factors if page_size(picture.look).grows else factors[:1]:
        layout = _page_layout(picture, factor, ruler)
        if picture.numbers:
            is_legible = layout.number_points >= WANTED_NUMBER_POINTS
        else:
            is_legible = min(max(place.box.width, place.box.height) for place in layout.places) >= MIN_MAP_SIDE
        if is_legible:
            break
    return layout


def _page_layout(picture: Picture, factor: float, ruler: Ruler) -> Layout:
    page = page_size(picture.look, factor)
    page_width, page_height, scale, margin = page.width, page.height, page.scale, page.margin
    bars = plain_bars(picture, scale, ruler)
    bar_space = 0.0 if page.is_column else max((bar.box.width for bar in bars), default=0.0) + BAR_GAP * scale
    legend_space = legend_height(bars, page_width - 2 * margin, scale, ruler) if page.is_column else 0.0
    heading = title_block(picture, page_width - 2 * margin, scale, ruler)
    remarks = remarks_block(picture, page_width - 2 * margin, scale, ruler, MAX_REMARKS_SHARE * page_height)
    # A column of a paper is as high as its content, so texts take no space from the panels.
    space_around = 0.0 if page.is_column else 2 * margin + heading.height + remarks.height
    title_lines = int(any(panel.title for panel in picture.panels))
    area = Area(
        width=page_width - 2 * margin - bar_space,
        height=page_height - space_around - legend_space,
        scale=scale,
        dpi=picture.look.pixels_per_inch,
        is_fixed=page.is_fixed,
        title_lines=title_lines,
    )
    grid = fit_grid(picture, area, ruler)
    if any(
        ruler.width(panel.heading.shortened().text, MIN_PANEL_TITLE_POINTS * scale) > width + ROUNDING_INCHES
        for panel, width in _panel_widths(picture, grid)
    ):  # a title would be cut, even without "head "
        area = replace(area, title_lines=MAX_TITLE_LINES)
        grid = fit_grid(picture, area, ruler)
    if page.grows:
        title_width = min(ruler.width(picture.title, TITLE_POINTS[-1], bold=True), MAX_TITLE_WIDTH)
        page_width = max(grid.width + bar_space, title_width, MIN_PAGE_WIDTH) + 2 * margin
    if not page.is_fixed:
        heading = title_block(picture, page_width - 2 * margin, scale, ruler)
        remarks = remarks_block(picture, page_width - 2 * margin, scale, ruler, page_height)
        content_height = (
            grid.height + legend_space if page.is_column else max(grid.height, MIN_BAR_HEIGHT * scale * len(bars))
        )
        page_height = content_height + heading.height + remarks.height + 2 * margin
    content_height = page_height - 2 * margin - heading.height - remarks.height - legend_space
    left = margin + max(page_width - 2 * margin - grid.width - bar_space, 0) / 2
    top = page_height - margin - heading.height - max(content_height - grid.height, 0) / 2
    title_points = _title_points(picture, grid, area.title_lines, scale, ruler)
    name_points = min(AXIS_NAME_POINTS * scale, max(grid.labelling.points, title_points))
    bars = [replace(bar, points=name_points) for bar in bars]  # a legend is no larger than the names of the axes
    places = tuple(_panel_places(picture, grid, left, top, scale, (title_points, area.title_lines), ruler))
    if page.is_column:
        legend_area = Box(margin, top - grid.height - legend_space, page_width - 2 * margin, legend_space)
        placed_bars = bars_below(bars, legend_area, scale, ruler)
    else:
        boxes = [place.box for place in places]
        bars_left, lowest_bottom = left + grid.width + BAR_GAP * scale, margin + remarks.height
        placed_bars = bars_beside(bars, boxes, bars_left, lowest_bottom, scale)
    return Layout(
        width=page_width,
        height=page_height,
        scale=scale,
        places=places,
        bars=placed_bars,
        lines=(
            *heading.lines_at(margin, page_height - margin),
            *remarks.lines_at(margin, margin + remarks.height),
        ),
        label_points=grid.labelling.points,
        title_points=title_points,
        number_points=_number_points(picture, grid, scale, ruler) if picture.numbers else 0.0,
        name_points=name_points,
    )


def _panel_widths(picture: Picture, grid: PanelGrid) -> list[tuple[Panel, float]]:
    pairs = zip(picture.panels, grid.factors, strict=True)
    return [(panel, grid.cell[0] * factor * len(panel.columns.labels)) for panel, factor in pairs]


def _title_points(picture: Picture, grid: PanelGrid, lines: int, scale: float, ruler: Ruler) -> float:
    widths = [(panel.title, width) for panel, width in _panel_widths(picture, grid)]
    if lines <= 1:
        # A title may be empty; the minimum avoids a division by 0.
        largest_points = (width / max(ruler.width(title, 1.0), 1e-6) for title, width in widths)
        return max(min(PANEL_TITLE_POINTS * scale, *largest_points), MIN_PANEL_TITLE_POINTS * scale)
    sizes = (points * scale for points in np.arange(PANEL_TITLE_POINTS, MIN_PANEL_TITLE_POINTS, -0.5).tolist())
    fitting_sizes = (
        points for points in sizes if all(len(ruler.wrap(title, points, width)) <= lines for title, width in widths)
    )  # in steps of half a point
    return next(fitting_sizes, MIN_PANEL_TITLE_POINTS * scale)


def _panel_places(
    picture: Picture, grid: PanelGrid, left: float, top: float, scale: float, titles: tuple[float, int], ruler: Ruler
) -> Iterator[Place]:
    title_points, title_lines = titles
    max_cell_width, max_cell_height = grid.cell
    dpi = picture.look.pixels_per_inch
    for panel_index, panel in enumerate(picture.panels):
        row, column = divmod(panel_index, grid.across)
        x = (
            left
            + sum(grid.gaps[: column + 1])
            + sum(grid.lefts[: column + 1])
            + max_cell_width * sum(grid.column_cells[:column])
        )
        y = top - grid.title_height * (row + 1) - max_cell_height * sum(grid.row_cells[:row]) - sum(grid.bottoms[:row])
        cell_width, cell_height = (size * grid.factors[panel_index] for size in (max_cell_width, max_cell_height))
        width, height = cell_width * len(panel.columns.labels), cell_height * len(panel.rows.labels)
        box = Box(round(x * dpi) / dpi, round((y - height) * dpi) / dpi, width, height)
        has_query_labels = needs_query_labels(picture.panels, panel_index, grid.across, grid.labelling)
        has_key_labels = needs_key_labels(picture.panels, panel_index, grid.across, grid.labelling)
        rows = _axis_labels(panel.rows, grid, cell_height, height, scale, ruler) if has_query_labels else None
        columns = _axis_labels(panel.columns, grid, cell_width, width, scale, ruler) if has_key_labels else None
        yield Place(
            panel=panel,
            box=box,
            title=fitting_title(panel.heading, title_points, title_lines, width, ruler),
            rows=rows,
            columns=columns,
            label_inches=(grid.lefts[column] - axis_depth(0, scale), grid.bottoms[row] - axis_depth(0, scale)),
        )


def _axis_labels(axis: Axis, grid: PanelGrid, cell: float, length: float, scale: float, ruler: Ruler) -> Labels:
    labels = label_axis(axis, grid.labelling, cell, ruler)
    points = AXIS_NAME_POINTS * scale
    if ruler.width(labels.name, points) <= length:
        return labels
    return replace(labels, name=ruler.cut(axis.name, points, max(length, MIN_AXIS_NAME_WIDTH * scale)))


def _number_points(picture: Picture, grid: PanelGrid, scale: float, ruler: Ruler) -> float:
    """Returns the largest font size, up to `MAX_NUMBER_POINTS`, at which every number fits its cell."""
    cell_width, cell_height = grid.cell
    number_width = widest_number(picture, ruler)
    return min(
        MAX_NUMBER_POINTS * scale,
        cell_height * POINTS_PER_INCH / CELL_HEIGHT_PER_NUMBER * 1.1,  # slightly tighter than cells are planned
        cell_width / (number_width + 0.6 / POINTS_PER_INCH),  # with 0.6 font sizes of space
    )
