"""Lays out the colour bars of a figure: beside the panels, or under them in a narrow column of a journal."""

from dataclasses import dataclass, replace

from attnviz.render.figure.grid import AXIS_NAME_POINTS, LABEL_PADDING
from attnviz.render.figure.picture import Picture
from attnviz.render.figure.ruler import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.report.picture.colors import MIN_TICK_SHARE, ColorScale
from attnviz.report.picture.panels import Quantity

BAR_WIDTH, BAR_GAP, MAX_BAR_HEIGHT, MIN_BAR_HEIGHT = 0.22, 0.4, 4.0, 1.6  # inches of a slide, as all lengths here
MAX_BAR_NAME_WIDTH = 1.1
FLAT_BAR_HEIGHT, MAX_FLAT_BAR_WIDTH, LEGEND_POINTS = 0.14, 3.2, 9.0  # of bars under the panels
MAX_LEGEND_TICKS = 6
MIN_TICK_GAP = 1.3  # from tick to tick along a bar under the panels, in widths of the widest tick
MIN_CROWDED_BAR_HEIGHT = 0.3  # if names fill the space
TICK_GAP = 0.15  # between the ticks of a bar and the name of the bar below
LEGEND_PADDINGS = 6  # above and below the name, the bar and its ticks
NAME_SHARE = 0.9  # of a bar's share of the width under the panels
MAX_BARS = 3  # with more scales, titles of panels name the limits instead


@dataclass(frozen=True)
class Box:
    """A rectangle in inches from the page's lower left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Bar:
    """A colour bar.

    Attributes:
        box: its place.
        scale: the colours and their limits.
        name: the lines of its name.
        quantity: the quantity of its numbers.
        ticks: the values and texts of its ticks.
        points: the font size of its ticks and its name.
        name_beside: True if the name stands at the right of a horizontal bar, False if it stands above.
    """

    box: Box
    scale: ColorScale
    name: tuple[str, ...]
    quantity: Quantity
    ticks: tuple[tuple[float, str], ...]
    points: float
    name_beside: bool = False


def plain_bars(picture: Picture, scale: float, ruler: Ruler) -> list[Bar]:
    """Returns a colour bar for each scale of the panels, or an empty list for more than `MAX_BARS` scales.

    Each bar is as wide as needed for its ticks and its name. Its place is (0, 0) and its height 0 until it is placed.
    """
    bars = []
    points = AXIS_NAME_POINTS * scale
    scales = dict.fromkeys((panel.color_quantity, panel.scale) for panel in picture.panels)
    for quantity, colors in scales if len(scales) <= MAX_BARS else ():
        name = tuple(ruler.wrap(quantity.name, points, MAX_BAR_NAME_WIDTH * scale))
        ticks = quantity.ticks(colors)
        tick_width = ruler.longest_width(tuple(text for _, text in ticks), points)
        width = max((BAR_WIDTH + LABEL_PADDING) * scale + tick_width, ruler.longest_width(name, points))
        bars.append(Bar(Box(0, 0, width, 0), colors, name, quantity, ticks, points))
    return bars


def bars_beside(bars: list[Bar], panels: list[Box], x: float, lowest: float, scale: float) -> tuple[Bar, ...]:
    """Returns the bars placed one below another, each under its name, from the upper edge of the panels downwards.

    The bars may reach below the panels. Without bars, returns ``()``.
    """
    if not bars:
        return ()
    top = max(box.y + box.height for box in panels)
    bottom = min(box.y for box in panels)
    space = max(top - bottom, min(MIN_BAR_HEIGHT * scale * len(bars), top - lowest))
    letter_height = AXIS_NAME_POINTS * scale / POINTS_PER_INCH
    name_heights = [len(bar.name) * letter_height * LINE_HEIGHT + 2 * LABEL_PADDING * scale for bar in bars]
    gap = letter_height / 2 + TICK_GAP * scale  # half a tick of the bar above, and free space
    height_for_bars = space - sum(name_heights) - gap * (len(bars) - 1)
    height = max(min(height_for_bars / len(bars), MAX_BAR_HEIGHT * scale), MIN_CROWDED_BAR_HEIGHT * scale)
    placed_bars, top_of_bar = [], top
    for bar, name_height in zip(bars, name_heights, strict=True):
        top_of_bar -= name_height
        max_ticks = max(int(MIN_TICK_SHARE / (letter_height / height)), 1)  # more would touch
        ticks = bar.quantity.ticks(bar.scale, min(max_ticks, MAX_LEGEND_TICKS))
        placed_bars.append(replace(bar, box=Box(x, top_of_bar - height, BAR_WIDTH * scale, height), ticks=ticks))
        top_of_bar -= height + gap
    return tuple(placed_bars)


def legend_height(bars: list[Bar], width: float, scale: float, ruler: Ruler) -> float:
    """Returns the height in inches of colour bars side by side under the panels, with names and ticks.

    Returns 0 without bars.
    """
    if not bars:
        return 0.0
    name_lines = max(len(_name_lines_below(bar, width / len(bars), ruler)) for bar in bars)
    text_height = (name_lines + 1) * LEGEND_POINTS * LINE_HEIGHT / POINTS_PER_INCH  # the names, and a line of ticks
    return (text_height + FLAT_BAR_HEIGHT + LEGEND_PADDINGS * LABEL_PADDING) * scale


def _name_lines_below(bar: Bar, width: float, ruler: Ruler) -> tuple[str, ...]:
    points = bar.points * LEGEND_POINTS / AXIS_NAME_POINTS
    return tuple(ruler.wrap(" ".join(bar.name), points, NAME_SHARE * width))


def bars_below(bars: list[Bar], area: Box, scale: float, ruler: Ruler) -> tuple[Bar, ...]:
    """Returns the bars placed side by side in an area under the panels, each horizontal and under its name.

    Without bars, returns ``()``.
    """
    placed_bars = []
    points = LEGEND_POINTS * scale
    for bar_index, bar in enumerate(bars):
        share_of_width = area.width / len(bars)
        tick_width = ruler.longest_width(tuple(text for _, text in bar.ticks), points)
        width = min(share_of_width - tick_width - BAR_GAP * scale, MAX_FLAT_BAR_WIDTH * scale)
        name = _name_lines_below(bar, share_of_width, ruler)
        y = area.y + points * LINE_HEIGHT / POINTS_PER_INCH + 2 * LABEL_PADDING * scale
        x = area.x + bar_index * share_of_width + (share_of_width - width) / 2
        tick_count = min(max(int(width / tick_width / MIN_TICK_GAP), 1), MAX_LEGEND_TICKS)
        ticks = bar.quantity.ticks(bar.scale, tick_count)
        box = Box(x, y, width, FLAT_BAR_HEIGHT * scale)
        placed_bars.append(replace(bar, box=box, name=name, ticks=ticks, points=points))
    return tuple(placed_bars)
