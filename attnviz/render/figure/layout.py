"""Lays out a picture of maps on its page, in inches, so that nothing overlaps or leaves the page."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError, option
from attnviz.render.figure.grid import (
    AXIS_NAME_POINTS,
    CELL_HEIGHT_PER_NUMBER,
    LABEL_PADDING,
    PANEL_TITLE_POINTS,
    Area,
    PanelGrid,
    axis_depth,
    fit_grid,
    longest_number,
    shows_columns,
    shows_rows,
)
from attnviz.render.figure.labels import Labels, label_axis
from attnviz.render.figure.page_size import page_size
from attnviz.render.figure.picture import Picture
from attnviz.render.figure.ruler import ELLIPSIS, LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.render.figure.text_blocks import TITLE_POINTS, TextLine, foot_block, head_block
from attnviz.report.picture.colors import MIN_TICK_SHARE, ColorScale
from attnviz.report.picture.panels import Axis, Panel, Quantity

PAGE_SCALES = (1.0, 1.5, 2.2, 3.2, 4.4)  # factors by which a page may grow to make numbers legible
MAP_PAGE_SCALES = PAGE_SCALES[:3]  # factors to bring the longer side of every map to MIN_MAP_SIDE
MIN_MAP_SIDE = 1.2  # inches
MIN_PAGE_WIDTH = 5.0  # inches, as all lengths below, of a slide; other pages scale them
MAX_TITLE_WIDTH = 6.0  # a longer title takes two lines
BAR_WIDTH, BAR_GAP, MAX_BAR_HEIGHT, MIN_BAR_HEIGHT = 0.22, 0.4, 4.0, 1.6
MAX_BAR_NAME_WIDTH = 1.1
MIN_PANEL_TITLE_POINTS = 9.0
MIN_AXIS_NAME_WIDTH = 0.75  # an axis may be shorter: its name then runs into the gaps beside it
MAX_NUMBER_POINTS, WANTED_NUMBER_POINTS, MIN_NUMBER_POINTS = 14.0, 8.0, 5.0
MAX_REMARKS_SHARE = 0.25  # of the page's height
MAX_BARS = 3  # with more scales, titles of panels name the limits instead
LARGER = f"use fewer tokens or heads, or a larger {option('size')}"
NO_NUMBERS = f"The cells are too small for numbers; {LARGER}."


@dataclass(frozen=True)
class Box:
    """A rectangle in inches from the page's lower left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Place:
    """The place of one panel, with its labels.

    Attributes:
        panel: the panel.
        box: the rectangle of its cells.
        title: its title, cut to its width.
        rows: the labels of the queries; ``None`` if the panel at its left has them.
        columns: the labels of the keys; ``None`` if the panel below has them.
        reach: the distances in inches from the cells to the names of the query and key axes.
    """

    panel: Panel
    box: Box
    title: str
    rows: Labels | None
    columns: Labels | None
    reach: tuple[float, float]


@dataclass(frozen=True)
class Bar:
    """A colour bar: its place, the lines of its name, and its ticks."""

    box: Box
    scale: ColorScale
    name: tuple[str, ...]
    quantity: Quantity
    ticks: tuple[tuple[float, str], ...]


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
        labels: the font size of token labels.
        titles: the font size of the panels' titles.
        numbers: the font size of numbers in cells; 0 if there are none.
    """

    width: float
    height: float
    scale: float
    places: tuple[Place, ...]
    bars: tuple[Bar, ...]
    lines: tuple[TextLine, ...]
    labels: float
    titles: float
    numbers: float


def arrange(picture: Picture, ruler: Ruler) -> Layout:
    """The layout on a page of the picture's size, or as large as it needs; numbers too small to read are left out.

    Raises:
        AttnvizError: if numbers are too small to read in a bare figure, which has no remark to say so.
    """
    layout = _legible_layout(picture, ruler)
    if picture.numbers and layout.numbers < MIN_NUMBER_POINTS * (1 if page_size(picture.look).column else layout.scale):
        if picture.look.bare:
            raise AttnvizError(f"with {option('bare')} nothing can say that cells are too small for numbers; {LARGER}")
        return _legible_layout(
            replace(picture, numbers=False, remarks=(*picture.remarks, picture.look.worded(NO_NUMBERS))), ruler
        )
    return layout


def _legible_layout(picture: Picture, ruler: Ruler) -> Layout:
    """The layout on the smallest page whose numbers, or maps, are large enough."""
    factors = PAGE_SCALES if picture.numbers else MAP_PAGE_SCALES
    for factor in factors if page_size(picture.look).grows else factors[:1]:
        layout = _layout_of(picture, factor, ruler)
        if layout.numbers >= WANTED_NUMBER_POINTS if picture.numbers else _smallest(layout) >= MIN_MAP_SIDE:
            break
    return layout


def _smallest(layout: Layout) -> float:
    """The longer side of the smallest map, in inches."""
    return min(max(place.box.width, place.box.height) for place in layout.places)


def _layout_of(picture: Picture, factor: float, ruler: Ruler) -> Layout:
    page = page_size(picture.look, factor)
    wide, high, scale, margin = page.width, page.height, page.scale, page.margin
    bars = plain_bars(picture, scale, ruler)
    beside = max((bar.box.width for bar in bars), default=0.0) + BAR_GAP * scale
    head = head_block(picture, wide - 2 * margin, scale, ruler)
    foot = foot_block(picture, wide - 2 * margin, scale, ruler, MAX_REMARKS_SHARE * high)
    around = 0.0 if page.column else 2 * margin + head.height + foot.height
    area = Area(wide - 2 * margin - beside, high - around, scale, picture.look.dpi, page.fixed)
    grid = fit_grid(picture, area, ruler)
    if page.grows:
        title = min(ruler.width(picture.title, TITLE_POINTS[-1], bold=True), MAX_TITLE_WIDTH)
        wide = max(grid.width + beside, title, MIN_PAGE_WIDTH) + 2 * margin
    if not page.fixed:
        head = head_block(picture, wide - 2 * margin, scale, ruler)
        foot = foot_block(picture, wide - 2 * margin, scale, ruler, high)
        inner = max(grid.height, MIN_BAR_HEIGHT * scale * len(bars))
        high = inner + head.height + foot.height + 2 * margin
    inner = high - 2 * margin - head.height - foot.height
    left = margin + max(wide - 2 * margin - grid.width - beside, 0) / 2
    top = high - margin - head.height - max(inner - grid.height, 0) / 2
    titles = _title_points(picture, grid, scale, ruler)
    places = tuple(_places(picture, grid, left, top, scale, titles, ruler))
    return Layout(
        width=wide,
        height=high,
        scale=scale,
        places=places,
        bars=_placed_bars(bars, places, left + grid.width + BAR_GAP * scale, margin + foot.height, scale),
        lines=(*head.at(margin, high - margin), *foot.at(margin, margin + foot.height)),
        labels=grid.labelling.points,
        titles=titles,
        numbers=_number_points(picture, grid, scale, ruler) if picture.numbers else 0.0,
    )


def _title_points(picture: Picture, grid: PanelGrid, scale: float, ruler: Ruler) -> float:
    """The largest font size at which no title is wider than its panel, at least the smallest legible size."""
    shares = (
        grid.cell[0] * len(panel.columns.labels) / max(ruler.width(panel.title, 1.0), 1e-6) for panel in picture.panels
    )
    return max(min(PANEL_TITLE_POINTS * scale, *shares), MIN_PANEL_TITLE_POINTS * scale)


def _places(
    picture: Picture, grid: PanelGrid, left: float, top: float, scale: float, titles: float, ruler: Ruler
) -> Iterator[Place]:
    wide, high = grid.cell
    pixel = picture.look.dpi
    for number, panel in enumerate(picture.panels):
        row, column = divmod(number, grid.across)
        x = left + sum(grid.gaps[: column + 1]) + sum(grid.lefts[: column + 1]) + wide * sum(grid.columns[:column])
        y = top - grid.title * (row + 1) - high * sum(grid.rows[:row]) - sum(grid.bottoms[:row])
        width, height = wide * len(panel.columns.labels), high * len(panel.rows.labels)
        box = Box(round(x * pixel) / pixel, round((y - height) * pixel) / pixel, width, height)
        shown_rows = shows_rows(picture.panels, number, grid.across)
        shown_columns = shows_columns(picture.panels, number, grid.across)
        rows = _labels_of(panel.rows, grid, high, height, scale, ruler) if shown_rows else None
        columns = _labels_of(panel.columns, grid, wide, width, scale, ruler) if shown_columns else None
        yield Place(
            panel=panel,
            box=box,
            title=_panel_title(panel.title, titles, width, ruler),
            rows=rows,
            columns=columns,
            reach=(grid.lefts[column] - axis_depth(0, scale), grid.bottoms[row] - axis_depth(0, scale)),
        )


def _panel_title(title: str, points: float, width: float, ruler: Ruler) -> str:
    """The title; if it is too wide, without "head" at its start, then cut after a word."""
    texts = (title, title.removeprefix("head "))
    if (whole := next((text for text in texts if ruler.width(text, points) <= width + 1e-6), None)) is not None:
        return whole
    words = texts[1].split(" ")
    starts = (" ".join(words[:count]).rstrip(" ·") + ELLIPSIS for count in range(len(words) - 1, 1, -1))
    fitting = (text for text in starts if ruler.width(text, points) <= width)
    return next(fitting, ruler.cut(texts[1], points, width))


def _labels_of(axis: Axis, grid: PanelGrid, cell: float, length: float, scale: float, ruler: Ruler) -> Labels:
    """The labels of an axis; if its name is longer than the axis, the note in the name is left out."""
    labels = label_axis(axis, grid.labelling, cell, ruler)
    points = AXIS_NAME_POINTS * scale
    if ruler.width(labels.name, points) <= length:
        return labels
    return replace(labels, name=ruler.cut(axis.name, points, max(length, MIN_AXIS_NAME_WIDTH * scale)))


def _number_points(picture: Picture, grid: PanelGrid, scale: float, ruler: Ruler) -> float:
    wide, high = grid.cell
    widest = longest_number(picture, ruler)
    return min(
        MAX_NUMBER_POINTS * scale,
        high * POINTS_PER_INCH / CELL_HEIGHT_PER_NUMBER * 1.1,
        wide / (widest + 0.6 / POINTS_PER_INCH),
    )


def plain_bars(picture: Picture, scale: float, ruler: Ruler) -> list[Bar]:
    """The colour bars with the width that their ticks and names need, not yet placed.

    Args:
        picture: the panels with their scales.
        scale: the size of fonts relative to those of a slide.
        ruler: measures the text.
    """
    bars = []
    points = AXIS_NAME_POINTS * scale
    scales = dict.fromkeys((panel.level, panel.scale) for panel in picture.panels)
    for quantity, colors in scales if len(scales) <= MAX_BARS else ():
        name = tuple(ruler.wrap(quantity.name, points, MAX_BAR_NAME_WIDTH * scale))
        ticks = quantity.ticks(colors)
        beside = ruler.longest(tuple(text for _, text in ticks), points)
        width = max((BAR_WIDTH + LABEL_PADDING) * scale + beside, ruler.longest(name, points))
        bars.append(Bar(Box(0, 0, width, 0), colors, name, quantity, ticks))
    return bars


def _placed_bars(bars: list[Bar], places: tuple[Place, ...], x: float, lowest: float, scale: float) -> tuple[Bar, ...]:
    """The bars placed below each other, from the upper edge of the panels downwards."""
    if not bars:
        return ()
    top = max(place.box.y + place.box.height for place in places)
    bottom = min(place.box.y for place in places)
    space = max((top - bottom) / len(bars), min(MIN_BAR_HEIGHT * scale, (top - lowest) / len(bars)))
    placed = []
    for number, bar in enumerate(bars):
        names = (len(bar.name) * AXIS_NAME_POINTS * LINE_HEIGHT / POINTS_PER_INCH + 2 * LABEL_PADDING) * scale
        gap = 0 if number == len(bars) - 1 else 0.15 * scale
        height = max(min(space - names - gap, MAX_BAR_HEIGHT * scale), 0.3 * scale)
        upper = top - number * space - names
        ticks = _separate_ticks(bar, AXIS_NAME_POINTS * scale / POINTS_PER_INCH / height)
        placed.append(replace(bar, box=Box(x, upper - height, BAR_WIDTH * scale, height), ticks=ticks))
    return tuple(placed)


def _separate_ticks(bar: Bar, letter: float) -> tuple[tuple[float, str], ...]:
    """The bar's ticks, as many as do not touch; ``letter`` is the height of a letter as a share of the bar's."""
    most = max(int(MIN_TICK_SHARE / letter), 1)
    return bar.quantity.ticks(bar.scale, min(most, 6))
