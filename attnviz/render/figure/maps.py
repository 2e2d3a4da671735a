"""Lays out maps in a grid: panels side by side, the size of cells, the labels of tokens, and titles."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.render.figure.labels import (
    Labelling,
    Labels,
    label_axis,
    label_depth,
    label_stride,
    labels_fit,
    prefers_positions,
)
from attnviz.render.figure.page import (
    AXIS_NAME_POINTS,
    LABEL_PADDING,
    Box,
    Content,
    Page,
    PlacedPanel,
    arrange_page,
    fitting_title,
)
from attnviz.render.figure.picture import PageSize, page_size
from attnviz.render.figure.words import LINE_HEIGHT, POINTS_PER_INCH, ROUNDING_INCHES, Ruler
from attnviz.report.picture.panels import Axis, Panel
from attnviz.report.picture.report import DrawnReport

PAGE_SCALES = (1.0, 1.5, 2.2, 3.2, 4.4)  # factors by which a page may grow to make numbers legible
MAP_PAGE_SCALES = PAGE_SCALES[:3]  # factors to bring the longer side of every map to MIN_MAP_SIDE
MIN_MAP_SIDE = 1.2  # inches
PANEL_GAP = 0.28  # all inches below are those of a slide; other pages scale them
GROUP_GAP = 0.6
PANEL_TITLE_POINTS, MIN_PANEL_TITLE_POINTS, MAX_PANEL_TITLE_LINES = 14.0, 9.0, 2
LABEL_POINTS = (18.0, 16.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 8.0)
MIN_LABEL_POINTS = 6.0  # smallest labels on a page of any size
MIN_FRAME_POINTS = 4.0  # smallest labels in the frame of a slide, which the slide enlarges
MIN_FLAT_LABEL_POINTS = 12.0  # key labels are turned rather than made smaller than this
MAX_LABEL_INCHES = 1.7
MAX_LABEL_SHARE = 0.22  # largest width of a label, as a share of the width for all panels
MIN_AXIS_NAME_WIDTH = 0.75  # an axis may be shorter: its name then runs into the gaps beside it
MIN_CELL_INCHES = 1e-4  # the labels alone may need more than the area; a cell stays above 0 even then
MAX_CELL_INCHES = 1.5
MAX_LABEL_ROUNDS = 3  # to find larger cells whose labels still fit
MAX_ASPECT_RATIO = 4.0  # cells of a map with few queries and many keys are stretched until it has this ratio
MAX_SOUND_RATIO = 2.4  # of a map of words over frames, whose rows are few
MAX_STRETCH = 1.35, 1.8  # of the cells of a slide in height and in width, so that maps fill more of it
UNEVEN_SIDES = 2.0  # maps are equally large if the longest has this many times the tokens of the shortest
MAX_FACTOR_OF_OTHER_AXES = 2.3
STRIP_HEIGHT = 0.4  # of the envelope of a sound above a map
CELL_HEIGHT_PER_NUMBER = 1.9  # height of a cell with a number, in heights of the number
MAX_NUMBER_POINTS, WANTED_NUMBER_POINTS, MIN_NUMBER_POINTS = 14.0, 8.0, 5.0
LARGER_CELLS_ADVICE = f"use fewer tokens or heads, or a larger {option('size')}"
NO_NUMBERS = f"The cells are too small for numbers; {LARGER_CELLS_ADVICE}."


@dataclass(frozen=True)
class _Grid:
    """Panels in rows and columns, in inches."""

    across: int  # the number of panels side by side
    labelling: Labelling  # the style of the token labels
    # for each panel, True if it needs query labels: those at its left have others, or it is the first
    has_rows: tuple[bool, ...]
    # for each panel, True if it needs key labels: those below have others, or it is the last
    has_columns: tuple[bool, ...]
    lefts: tuple[float, ...]  # the space for query labels in each column
    bottoms: tuple[float, ...]  # the space for key labels in each row
    column_cells: tuple[float, ...]  # the width of the widest panel in each column, in cells of the largest map
    row_cells: tuple[float, ...]  # the height of the tallest panel in each row, in cells of the largest map
    gaps: tuple[float, ...]  # the gap before each column
    title_lines: int  # the lines of the longest title of a panel; 0 if no panel has a title
    title_height: float  # the space for titles above each row, and for the envelopes of sounds
    factors: tuple[float, ...]  # the size of each panel's cells, in cells of the largest map
    cell: tuple[float, float] = (0.0, 0.0)  # the width and height of a cell of the largest map

    @property
    def width(self) -> float:
        """The width of all panels with their labels."""
        return sum(self.lefts) + sum(self.gaps) + self.cell[0] * sum(self.column_cells)

    @property
    def height(self) -> float:
        """The height of all panels with their labels and titles."""
        return sum(self.bottoms) + self.title_height * len(self.row_cells) + self.cell[1] * sum(self.row_cells)

    def size(self, index: int, panel: Panel) -> tuple[float, float]:
        """Returns the width and height of a panel's cells."""
        cell_width, cell_height = (side * self.factors[index] for side in self.cell)
        return cell_width * len(panel.columns.labels), cell_height * len(panel.rows.labels)

    def axes(self, panels: tuple[Panel, ...]) -> Iterator[tuple[Axis, float]]:
        """Yields the query axis and the key axis of each panel, each with the size of a cell along it."""
        for panel, factor in zip(panels, self.factors, strict=True):
            yield panel.rows, self.cell[1] * factor
            yield panel.columns, self.cell[0] * factor


def arrange_maps(picture: DrawnReport, ruler: Ruler) -> Page:
    """Returns the page of maps, of the picture's size, or as large as needed.

    Numbers that would be too small to read are left out, with a remark.
    """
    page = _legible_page(picture, ruler)
    # The limit grows with the fonts of a page, but is the same for columns of all widths.
    min_points = MIN_NUMBER_POINTS * (1 if page_size(picture.look).is_column else page.scale)
    if picture.numbers and page.content.number_points < min_points:
        if picture.look.bare:
            raise AttnvizError(
                f"cells are too small for numbers, and {option('bare')} leaves out the remark that says so; "
                f"{LARGER_CELLS_ADVICE}"
            )
        remarks = (*picture.remarks, picture.look.format_options(NO_NUMBERS))
        page = _legible_page(replace(picture, numbers=False, remarks=remarks), ruler)
    return page


def _legible_page(picture: DrawnReport, ruler: Ruler) -> Page:
    """Returns the smallest page on which numbers, or maps without numbers, are large enough."""
    factors = PAGE_SCALES if picture.numbers else MAP_PAGE_SCALES
    for factor in factors if page_size(picture.look).grows else factors[:1]:
        page = arrange_page(picture, page_size(picture.look, factor), _maps_body, ruler)
        if picture.numbers:
            is_legible = page.content.number_points >= WANTED_NUMBER_POINTS
        else:
            is_legible = min(max(placed.box.width, placed.box.height) for placed in page.content.panels) >= MIN_MAP_SIDE
        if is_legible:
            break
    return page


def _maps_body(picture: DrawnReport, area: PageSize, ruler: Ruler) -> Content:
    panels, scale = picture.panels, area.scale
    grid = _GridPlan(picture, area, int(any(panel.title for panel in panels)), ruler).largest()
    short_titles = [(panel.heading.shortened().text, grid.size(index, panel)[0]) for index, panel in enumerate(panels)]
    smallest_points = MIN_PANEL_TITLE_POINTS * scale
    if any(ruler.width(title, smallest_points) > width + ROUNDING_INCHES for title, width in short_titles):
        grid = _GridPlan(picture, area, MAX_PANEL_TITLE_LINES, ruler).largest()  # else a title would be cut
    title_points = _title_points(panels, grid, scale, ruler)
    name_points = min(AXIS_NAME_POINTS * scale, max(grid.labelling.points, title_points))
    placed_panels = []
    for index, panel in enumerate(panels):
        row, column = divmod(index, grid.across)
        x = (
            sum(grid.gaps[: column + 1])
            + sum(grid.lefts[: column + 1])
            + grid.cell[0] * sum(grid.column_cells[:column])
        )
        y = -grid.title_height * (row + 1) - grid.cell[1] * sum(grid.row_cells[:row]) - sum(grid.bottoms[:row])
        width, height = grid.size(index, panel)
        cell_width, cell_height = (side * grid.factors[index] for side in grid.cell)
        rows = columns = None
        if grid.has_rows[index]:
            rows = _axis_labels(panel.rows, grid, cell_height, height, scale, ruler)
        if grid.has_columns[index]:
            columns = _axis_labels(panel.columns, grid, cell_width, width, scale, ruler)
        placed_panels.append(
            PlacedPanel(
                panel=panel,
                box=Box(x, y - height, width, height),
                title=fitting_title(panel.heading, title_points, grid.title_lines, width, ruler),
                rows=rows,
                columns=columns,
            )
        )
    number_points = 0.0
    if picture.numbers:  # the largest font size at which every number fits its cell
        number_points = min(
            MAX_NUMBER_POINTS * scale,
            grid.cell[1] * POINTS_PER_INCH / CELL_HEIGHT_PER_NUMBER * 1.1,  # slightly tighter than cells are planned
            grid.cell[0] / (_widest_number(picture, ruler) + 0.6 / POINTS_PER_INCH),  # with 0.6 font sizes of space
        )
    return Content(
        width=grid.width,
        height=grid.height,
        points=grid.labelling.points,
        panels=tuple(placed_panels),
        title_points=title_points,
        number_points=number_points,
        name_points=name_points,
    )


def _title_points(panels: tuple[Panel, ...], grid: _Grid, scale: float, ruler: Ruler) -> float:
    """Returns the largest font size at which all titles fit; in steps of half a point if they may have two lines."""
    largest, smallest = PANEL_TITLE_POINTS * scale, MIN_PANEL_TITLE_POINTS * scale
    widths = [(panel.title, grid.size(index, panel)[0]) for index, panel in enumerate(panels)]
    if grid.title_lines <= 1:
        return min(ruler.largest_points((title,), width, largest, smallest) for title, width in widths)
    sizes = (points * scale for points in np.arange(PANEL_TITLE_POINTS, MIN_PANEL_TITLE_POINTS, -0.5).tolist())
    fitting_sizes = (
        points
        for points in sizes
        if all(len(ruler.wrap(title, points, width)) <= grid.title_lines for title, width in widths)
    )
    return next(fitting_sizes, smallest)


def _axis_labels(axis: Axis, grid: _Grid, cell: float, length: float, scale: float, ruler: Ruler) -> Labels:
    labels = label_axis(axis, grid.labelling, cell, ruler)
    points = AXIS_NAME_POINTS * scale
    if ruler.width(labels.name, points) <= length:
        return labels
    return replace(labels, name=ruler.cut(axis.name, points, max(length, MIN_AXIS_NAME_WIDTH * scale)))


@dataclass(frozen=True)
class _GridPlan:
    """Finds the grid of a picture's panels in an area."""

    picture: DrawnReport
    area: PageSize
    title_lines: int  # of the longest title of a panel; 0 if no panel has a title
    ruler: Ruler

    def largest(self) -> _Grid:
        """Returns the grid whose cells are largest, with panels that belong together side by side."""
        count, group = len(self.picture.panels), self.picture.across or 1
        candidates = [self.grid_across(across) for across in range(group, count + group, group)]
        return max(candidates, key=lambda grid: grid.cell[0] * min(grid.cell))  # labels need width more than height

    def grid_across(self, across: int) -> _Grid:
        """Returns the grid in the first style in which all labels fit; else one with positions or every nth label.

        If both axes have positions, the font may grow.
        """
        for labelling in self.labellings():
            grid = self.grid_with(across, labelling)
            axes = {id(axis): (axis, cell) for axis, cell in grid.axes(self.picture.panels)}
            if all(labels_fit(axis, labelling, cell, self.ruler) for axis, cell in axes.values()):
                return grid
        dense_axes = [
            axis
            for axis, cell in grid.axes(self.picture.panels)
            if prefers_positions(axis, grid.labelling, cell, self.ruler)
        ]
        position_axes = frozenset(axis.name for axis in dense_axes)
        points = grid.labelling.points
        if len(position_axes) == 2 and self.picture.look.font_size is None and not self.area.is_column:
            points = max(points, MIN_FLAT_LABEL_POINTS * self.area.scale)
        labelling = replace(
            grid.labelling,
            position_axes=position_axes,
            min_position_tokens=min((len(axis.labels) for axis in dense_axes), default=0),
            points=points,
        )
        return self.grid_with(across, labelling)

    def labellings(self) -> Iterator[Labelling]:
        """Yields the styles of labels to try: flat labels, the largest first, then those with turned key labels."""
        font_size = self.picture.look.font_size
        has_positions = any(panel.pooled for panel in self.picture.panels)
        needs_small_labels = self.picture.look.mark is not None or self.area.is_column or has_positions
        limit = min(MAX_LABEL_INCHES * self.area.scale, MAX_LABEL_SHARE * self.area.width)
        smallest_points = MIN_LABEL_POINTS if self.picture.look.frame is None else MIN_FRAME_POINTS
        if font_size is not None:
            yield from (Labelling(font_size, is_turned, limit) for is_turned in (False, True))
            return
        smallest_flat = LABEL_POINTS.index(MIN_FLAT_LABEL_POINTS)
        first_size = smallest_flat if needs_small_labels else 0
        labels = [label for panel in self.picture.panels for label in panel.rows.labels]
        while first_size < smallest_flat:  # labels of rows are made smaller rather than cut
            if self.ruler.longest_width(labels, LABEL_POINTS[first_size] * self.area.scale) <= limit:
                break
            first_size += 1
        for is_turned in (False, True):
            for points in LABEL_POINTS[first_size:]:
                is_large_enough = is_turned or points >= MIN_FLAT_LABEL_POINTS
                if is_large_enough and points * self.area.scale >= smallest_points:
                    yield Labelling(points * self.area.scale, is_turned, limit)

    def grid_with(self, across: int, labelling: Labelling) -> _Grid:
        """Returns the grid with the largest cells that leave space for their labels: all labels, or every nth."""

        def strides_of(grid: _Grid) -> dict[int, int]:
            """Returns the step from one labelled token to the next on each axis, by ``id`` of the axis."""
            return {
                id(axis): label_stride(axis, labelling, cell, self.ruler)
                for axis, cell in grid.axes(self.picture.panels)
            }

        grid = self.grid_at(across, labelling, {})
        strides = first_strides = strides_of(grid)
        if max(first_strides.values()) == 1:  # every token has its label
            return grid
        for _ in range(MAX_LABEL_ROUNDS):  # larger cells may show more labels, which may be longer
            tighter_grid = self.grid_at(across, labelling, strides)
            earlier_strides, strides = strides, strides_of(tighter_grid)
            if strides == earlier_strides:
                return tighter_grid
        return replace(self.grid_at(across, labelling, first_strides), cell=grid.cell)

    def grid_at(self, across: int, labelling: Labelling, strides: dict[int, int]) -> _Grid:
        """Returns the grid with the largest cells that leave space for labels at the ``strides``."""
        panels, scale = self.picture.panels, self.area.scale
        count, factors = len(panels), _cell_factors(panels)
        column_count = min(across, count)
        row_count = math.ceil(count / column_count)
        lefts, column_cells = [0.0] * column_count, [1.0] * column_count
        bottoms, row_cells = [0.0] * row_count, [1.0] * row_count
        has_rows = tuple(
            index % column_count == 0 or not labelling.are_alike(panels[index - 1].rows, panel.rows)
            for index, panel in enumerate(panels)
        )
        has_columns = tuple(
            index + column_count >= count
            or not labelling.are_alike(panels[index + column_count].columns, panel.columns)
            for index, panel in enumerate(panels)
        )

        def depth(axis: Axis) -> float:
            """Returns the inches beside a panel for an axis' name and its labels in the style of ``labelling``."""
            name_depth = 2 * LABEL_PADDING + AXIS_NAME_POINTS * LINE_HEIGHT / POINTS_PER_INCH
            return label_depth(axis, labelling, self.ruler, strides.get(id(axis), 1)) + name_depth * scale

        for index, panel in enumerate(panels):
            row, column = divmod(index, column_count)
            column_cells[column] = max(column_cells[column], len(panel.columns.labels) * factors[index])
            row_cells[row] = max(row_cells[row], len(panel.rows.labels) * factors[index])
            if has_rows[index]:
                lefts[column] = max(lefts[column], depth(panel.rows))
            if has_columns[index]:
                bottoms[row] = max(bottoms[row], depth(panel.columns))
        group = self.picture.across or 1
        gaps = [GROUP_GAP if group > 1 and column % group == 0 else PANEL_GAP for column in range(column_count)]
        title_height = PANEL_GAP / 4
        if self.title_lines:
            title_height = PANEL_TITLE_POINTS * self.title_lines * LINE_HEIGHT / POINTS_PER_INCH + PANEL_GAP / 2
        grid = _Grid(
            across=column_count,
            labelling=labelling,
            has_rows=has_rows,
            has_columns=has_columns,
            lefts=tuple(lefts),
            bottoms=tuple(bottoms),
            column_cells=tuple(column_cells),
            row_cells=tuple(row_cells),
            gaps=(0.0, *(gap * scale for gap in gaps[1:])),
            title_lines=self.title_lines,
            title_height=(title_height + strip_height(panels)) * scale,
            factors=factors,
        )
        return replace(grid, cell=self.cell_size(grid))

    def cell_size(self, grid: _Grid) -> tuple[float, float]:
        """Returns the width and height of the largest cells for which a grid has space, in whole pixels."""
        dpi, panels = self.picture.look.pixels_per_inch, self.picture.panels
        if self.picture.numbers:  # with 0.8 font sizes of space, per point
            number_width = _widest_number(self.picture, self.ruler) + 0.8 / POINTS_PER_INCH
            ratio = max(number_width / (CELL_HEIGHT_PER_NUMBER / POINTS_PER_INCH), 1.0)
        else:  # square, unless one side has many times the cells of the other: then longer along the other side
            rows = max(len(panel.rows.labels) for panel in panels)
            columns = max(len(panel.columns.labels) for panel in panels)
            is_timed = any(panel.columns.seconds is not None and panel.rows.seconds is None for panel in panels)
            limit = MAX_SOUND_RATIO if is_timed else MAX_ASPECT_RATIO
            stretch = max(rows / columns, columns / rows, limit) / limit
            ratio = stretch if rows > columns else 1 / stretch
        width = max((self.area.width - grid.width) / sum(grid.column_cells), MIN_CELL_INCHES)
        height = max((self.area.height - grid.height) / sum(grid.row_cells), MIN_CELL_INCHES)
        side = min(height, width / ratio)
        if not self.area.is_fixed:
            side = min(side, MAX_CELL_INCHES * self.area.scale / max(ratio, 1.0))
            return _whole_pixels(side * ratio, dpi), _whole_pixels(side, dpi)
        higher, wider = MAX_STRETCH if ratio == 1.0 else (1.0, 1.0)
        return _whole_pixels(min(width, side * wider * ratio), dpi), _whole_pixels(min(height, side * higher), dpi)


def strip_height(panels: tuple[Panel, ...]) -> float:
    """Returns the inches above each map for the envelope of its sound, at the scale of a slide; 0 without a sound."""
    return STRIP_HEIGHT if any(panel.columns.seconds is not None for panel in panels) else 0.0


def _cell_factors(panels: tuple[Panel, ...]) -> tuple[float, ...]:
    """Returns the size of each panel's cells, relative to the cells of the largest map.

    All cells have the same size, unless the longest map has at least `UNEVEN_SIDES` times the cells of the shortest.
    Then all maps have the same size, so short texts stay readable beside long ones. If the maps have different axes,
    a factor is at most ``MAX_FACTOR_OF_OTHER_AXES``, so that no map takes the space of the others' labels.
    """
    sides = [max(panel.values.shape) for panel in panels]
    if max(sides) < UNEVEN_SIDES * min(sides):
        return (1.0,) * len(panels)
    has_other_axes = len({(panel.rows.name, panel.columns.name) for panel in panels}) > 1
    return tuple(min(max(sides) / side, MAX_FACTOR_OF_OTHER_AXES if has_other_axes else math.inf) for side in sides)


def _whole_pixels(inches: float, dpi: int) -> float:
    pixels = inches * dpi
    return math.floor(pixels) / dpi if pixels >= 2 else inches


def _widest_number(picture: DrawnReport, ruler: Ruler) -> float:
    """Returns the width of the widest number in a cell, in inches per point of its font size.

    Measures only the smallest and the largest visible number of each panel; 1 / `POINTS_PER_INCH` if none is visible.
    """
    texts = {
        panel.cell(float(value))
        for panel in picture.panels
        if panel.visible.any()
        for value in (panel.values[panel.visible].min(), panel.values[panel.visible].max())
    }
    return ruler.longest_width(texts, 1.0) if texts else 1.0 / POINTS_PER_INCH
