"""Lays out panels in a grid: the number of panels side by side, the size of cells, and the labels of tokens."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from attnviz.render.figure.labels import Labelling, label_depth, label_stride, labels_fit, prefers_positions
from attnviz.render.figure.picture import Picture, page_size
from attnviz.render.figure.ruler import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.report.picture.panels import Axis, Panel

PANEL_GAP = 0.28  # all inches in this file are those of a slide; other pages scale them
GROUP_GAP = 0.6
LABEL_PADDING = 0.06  # between cells and labels, and between labels and the axis's name
AXIS_NAME_POINTS = 12.0  # font size of the names of axes and colour bars
PANEL_TITLE_POINTS = 14.0
LABEL_POINTS = (18.0, 16.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 8.0)
MIN_LABEL_POINTS = 6.0  # smallest labels on a page of any size
MIN_FRAME_POINTS = 4.0  # smallest labels in the frame of a slide, which the slide enlarges
MIN_FLAT_LABEL_POINTS = 12.0  # key labels are turned rather than made smaller than this
MAX_LABEL_INCHES = 1.7
MAX_LABEL_SHARE = 0.22  # largest width of a label, as a share of the width for all panels
MIN_CELL_INCHES = 1e-4  # the labels alone may need more than the area; a cell stays above 0 even then
MAX_CELL_INCHES = 1.5
MAX_LABEL_ROUNDS = 3  # to find larger cells whose labels still fit
MAX_ASPECT_RATIO = 4.0  # cells of a map with few queries and many keys are stretched until it has this ratio
MAX_SOUND_RATIO = 2.4  # of a map of words over frames, whose rows are few
MAX_STRETCH = 1.35  # of the cells of a slide, so that maps fill more of it
UNEVEN_SIDES = 2.0  # maps are equally large if the longest has this many times the tokens of the shortest
MAX_FACTOR_OF_OTHER_AXES = 2.3
STRIP_HEIGHT = 0.4  # of the envelope of a sound above a map
CELL_HEIGHT_PER_NUMBER = 1.9  # height of a cell with a number, in heights of the number


@dataclass(frozen=True)
class Area:
    """The area that the panels may fill.

    Attributes:
        width: the width in inches.
        height: the height in inches.
        scale: the size of fonts relative to those of a slide.
        dpi: pixels per inch.
        is_fixed: True if the panels must fill the area; False if cells have a largest size.
        title_lines: the lines of the longest title of a panel; 0 if no panel has a title.
    """

    width: float
    height: float
    scale: float
    dpi: int
    is_fixed: bool
    title_lines: int = 1


@dataclass(frozen=True)
class PanelGrid:
    """Panels in rows and columns, in inches.

    Attributes:
        across: the number of panels side by side.
        labelling: the style of the token labels.
        lefts: the space for query labels in each column.
        bottoms: the space for key labels in each row.
        column_cells: the width of the widest panel in each column, in cells of the largest map.
        row_cells: the height of the tallest panel in each row, in cells of the largest map.
        gaps: the gap before each column.
        title_height: the space for titles above each row, and for the envelopes of sounds.
        factors: the size of each panel's cells, in cells of the largest map.
        cell: the width and height of a cell of the largest map.
    """

    across: int
    labelling: Labelling
    lefts: tuple[float, ...]
    bottoms: tuple[float, ...]
    column_cells: tuple[float, ...]
    row_cells: tuple[float, ...]
    gaps: tuple[float, ...]
    title_height: float
    factors: tuple[float, ...]
    cell: tuple[float, float] = (0.0, 0.0)

    @property
    def width(self) -> float:
        """The width of all panels with their labels, in inches."""
        return sum(self.lefts) + sum(self.gaps) + self.cell[0] * sum(self.column_cells)

    @property
    def height(self) -> float:
        """The height of all panels with their labels and titles, in inches."""
        return sum(self.bottoms) + self.title_height * len(self.row_cells) + self.cell[1] * sum(self.row_cells)


def fit_grid(picture: Picture, area: Area, ruler: Ruler) -> PanelGrid:
    """Returns the grid whose cells are largest, with panels that belong together side by side."""
    count, group = len(picture.panels), picture.across or 1
    candidates = [_grid_across(picture, area, across, ruler) for across in range(group, count + group, group)]
    return max(candidates, key=lambda grid: grid.cell[0] * grid.cell[1])


def needs_query_labels(panels: tuple[Panel, ...], panel_index: int, across: int, labelling: Labelling) -> bool:
    """True if a panel needs query labels: it is the first of its row, or its left neighbour has other labels."""
    if panel_index % across == 0:
        return True
    return not _have_same_labels(panels[panel_index - 1].rows, panels[panel_index].rows, labelling)


def needs_key_labels(panels: tuple[Panel, ...], panel_index: int, across: int, labelling: Labelling) -> bool:
    """True if a panel needs key labels: it is the last of its column, or the panel below has other labels."""
    index_below = panel_index + across
    if index_below >= len(panels):
        return True
    return not _have_same_labels(panels[index_below].columns, panels[panel_index].columns, labelling)


def _have_same_labels(axis: Axis, other: Axis, labelling: Labelling) -> bool:
    if labelling.shows_positions(axis) and labelling.shows_positions(other) and not (axis.marks or other.marks):
        return axis.edges == other.edges and len(axis.labels) == len(other.labels)
    return axis.labels == other.labels


def strip_height(panels: tuple[Panel, ...]) -> float:
    """Returns the inches above each map for the envelope of its sound, at the scale of a slide; 0 without a sound."""
    return STRIP_HEIGHT if any(panel.columns.seconds is not None for panel in panels) else 0.0


def axis_depth(label_inches: float, scale: float) -> float:
    """Returns the space in inches beside a panel for the labels and the name of an axis together."""
    return label_inches + (2 * LABEL_PADDING + AXIS_NAME_POINTS * LINE_HEIGHT / POINTS_PER_INCH) * scale


def _grid_across(picture: Picture, area: Area, across: int, ruler: Ruler) -> PanelGrid:
    """Returns the grid in the first style in which all labels fit; else one with positions or every nth label."""
    for labelling in _labellings(picture, area):
        grid = _grid_with(picture, area, across, labelling, ruler)
        axes = {id(axis): (axis, size) for axis, size in _axes_with_cells(picture, grid)}
        if all(labels_fit(axis, labelling, size, ruler) for axis, size in axes.values()):
            return grid
    return _grid_with(picture, area, across, _labelling_with_positions(picture, grid, area, ruler), ruler)


def _labellings(picture: Picture, area: Area) -> Iterator[Labelling]:
    """Yields the styles of labels to try: flat labels, the largest first, then those with turned key labels."""
    font_size = picture.look.font_size
    has_positions = any(panel.rows.pooled or panel.columns.pooled for panel in picture.panels)
    needs_small_labels = picture.look.mark is not None or page_size(picture.look).is_column or has_positions
    limit = min(MAX_LABEL_INCHES * area.scale, MAX_LABEL_SHARE * area.width)
    smallest_points = MIN_LABEL_POINTS if picture.look.frame is None else MIN_FRAME_POINTS
    if font_size is not None:
        yield from (Labelling(font_size, is_turned, limit) for is_turned in (False, True))
        return
    first_size = LABEL_POINTS.index(MIN_FLAT_LABEL_POINTS) if needs_small_labels else 0
    for is_turned in (False, True):
        for points in LABEL_POINTS[first_size:]:
            is_large_enough = is_turned or points >= MIN_FLAT_LABEL_POINTS
            if is_large_enough and points * area.scale >= smallest_points:
                yield Labelling(points * area.scale, is_turned, limit)


def _labelling_with_positions(picture: Picture, grid: PanelGrid, area: Area, ruler: Ruler) -> Labelling:
    """Returns the grid's labelling with positions on axes of many tokens; if both axes have them, the font may grow."""
    dense_axes = [
        axis for axis, size in _axes_with_cells(picture, grid) if prefers_positions(axis, grid.labelling, size, ruler)
    ]
    position_axes = {axis.name for axis in dense_axes}
    min_tokens = min((len(axis.labels) for axis in dense_axes), default=0)
    may_grow = len(position_axes) == 2 and picture.look.font_size is None and not page_size(picture.look).is_column
    points = max(grid.labelling.points, MIN_FLAT_LABEL_POINTS * area.scale) if may_grow else grid.labelling.points
    return replace(
        grid.labelling, position_axes=frozenset(position_axes), min_position_tokens=min_tokens, points=points
    )


def _axes_with_cells(picture: Picture, grid: PanelGrid) -> Iterator[tuple[Axis, float]]:
    """Yields the query axis and the key axis of each panel, each with the size of a cell along it in inches."""
    for panel, factor in zip(picture.panels, grid.factors, strict=True):
        yield panel.rows, grid.cell[1] * factor
        yield panel.columns, grid.cell[0] * factor


def cell_factors(panels: tuple[Panel, ...]) -> tuple[float, ...]:
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


def _grid_with(picture: Picture, area: Area, across: int, labelling: Labelling, ruler: Ruler) -> PanelGrid:
    """Returns the grid with the largest cells that leave space for their labels: all labels, or every nth."""
    grid = _grid_at_strides(picture, area, across, labelling, ruler, {})
    strides = first_strides = _strides(picture, grid, ruler)
    if max(first_strides.values()) == 1:  # every token has its label
        return grid
    for _ in range(MAX_LABEL_ROUNDS):  # larger cells may show more labels, which may be longer
        tighter_grid = _grid_at_strides(picture, area, across, labelling, ruler, strides)
        earlier_strides, strides = strides, _strides(picture, tighter_grid, ruler)
        if strides == earlier_strides:
            return tighter_grid
    return replace(_grid_at_strides(picture, area, across, labelling, ruler, first_strides), cell=grid.cell)


def _strides(picture: Picture, grid: PanelGrid, ruler: Ruler) -> dict[int, int]:
    """Returns the step from one labelled token to the next on each axis of the panels, by ``id`` of the axis."""
    axes_with_cells = _axes_with_cells(picture, grid)
    return {id(axis): label_stride(axis, grid.labelling, cell, ruler) for axis, cell in axes_with_cells}


def _grid_at_strides(
    picture: Picture, area: Area, across: int, labelling: Labelling, ruler: Ruler, strides: dict[int, int]
) -> PanelGrid:
    """Returns the grid with the largest cells that leave space for labels at the ``strides``."""
    panels, scale, factors = picture.panels, area.scale, cell_factors(picture.panels)
    column_count = min(across, len(panels))
    row_count = math.ceil(len(panels) / column_count)
    lefts, column_cells = [0.0] * column_count, [1.0] * column_count
    bottoms, row_cells = [0.0] * row_count, [1.0] * row_count

    def depth(axis: Axis) -> float:
        """Returns the inches beside a panel for an axis' name and its labels in the style of ``labelling``."""
        return axis_depth(label_depth(axis, labelling, ruler, strides.get(id(axis), 1)), scale)

    for panel_index, panel in enumerate(panels):
        row, column = divmod(panel_index, column_count)
        column_cells[column] = max(column_cells[column], len(panel.columns.labels) * factors[panel_index])
        row_cells[row] = max(row_cells[row], len(panel.rows.labels) * factors[panel_index])
        if needs_query_labels(panels, panel_index, column_count, labelling):
            lefts[column] = max(lefts[column], depth(panel.rows))
        if needs_key_labels(panels, panel_index, column_count, labelling):
            bottoms[row] = max(bottoms[row], depth(panel.columns))
    group = picture.across or 1
    gaps = [GROUP_GAP if group > 1 and column % group == 0 else PANEL_GAP for column in range(column_count)]
    title_height = PANEL_GAP / 4
    if area.title_lines:
        title_height = PANEL_TITLE_POINTS * area.title_lines * LINE_HEIGHT / POINTS_PER_INCH + PANEL_GAP / 2
    grid = PanelGrid(
        across=column_count,
        labelling=labelling,
        lefts=tuple(lefts),
        bottoms=tuple(bottoms),
        column_cells=tuple(column_cells),
        row_cells=tuple(row_cells),
        gaps=(0.0, *(gap * scale for gap in gaps[1:])),
        title_height=(title_height + strip_height(panels)) * scale,
        factors=factors,
    )
    return replace(grid, cell=_cell_size(picture, area, grid, ruler))


def _cell_size(picture: Picture, area: Area, grid: PanelGrid, ruler: Ruler) -> tuple[float, float]:
    ratio = _cell_ratio(picture, ruler)
    width = max((area.width - grid.width) / sum(grid.column_cells), MIN_CELL_INCHES)
    height = max((area.height - grid.height) / sum(grid.row_cells), MIN_CELL_INCHES)
    side = min(height, width / ratio)
    if not area.is_fixed:
        side = min(side, MAX_CELL_INCHES * area.scale / max(ratio, 1.0))
        return _whole_pixels(side * ratio, area.dpi), _whole_pixels(side, area.dpi)
    longest = side * (MAX_STRETCH if ratio == 1.0 else 1.0)
    return _whole_pixels(min(width, longest * ratio), area.dpi), _whole_pixels(min(height, longest), area.dpi)


def _cell_ratio(picture: Picture, ruler: Ruler) -> float:
    """Returns the width of a cell divided by its height.

    Cells with numbers are wide enough for them. Other cells are square, unless one side of the maps has more than
    `MAX_ASPECT_RATIO` times as many cells as the other (`MAX_SOUND_RATIO` times for a sound). Then cells are longer
    along the side with fewer cells.
    """
    if picture.numbers:
        number_width = widest_number(picture, ruler) + 0.8 / POINTS_PER_INCH  # 0.8 font sizes of space, per point
        return max(number_width / (CELL_HEIGHT_PER_NUMBER / POINTS_PER_INCH), 1.0)
    rows = max(len(panel.rows.labels) for panel in picture.panels)
    columns = max(len(panel.columns.labels) for panel in picture.panels)
    is_timed = any(panel.columns.seconds is not None and panel.rows.seconds is None for panel in picture.panels)
    limit = MAX_SOUND_RATIO if is_timed else MAX_ASPECT_RATIO
    stretch = max(rows / columns, columns / rows, limit) / limit
    return stretch if rows > columns else 1 / stretch


def widest_number(picture: Picture, ruler: Ruler) -> float:
    """Returns the width of the widest number in a cell, in inches per point of its font size.

    Measures only the smallest and the largest visible number of each panel; 1 / `POINTS_PER_INCH` if none is visible.
    """
    visible_values = [panel.values[panel.visible] for panel in picture.panels]
    texts = set()
    for panel, values in zip(picture.panels, visible_values, strict=True):
        if values.size:
            texts |= {panel.cell(float(values.min())), panel.cell(float(values.max()))}
    return max((ruler.width(text, 1.0) for text in texts), default=1.0 / POINTS_PER_INCH)


def _whole_pixels(inches: float, dpi: int) -> float:
    pixels = inches * dpi
    return math.floor(pixels) / dpi if pixels >= 2 else inches
