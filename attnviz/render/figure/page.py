"""Lays out the page of a figure: the title above, the content, its legend beside or below it, and remarks at the foot.

Lengths are in inches, font sizes in points.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.render.figure.labels import Labels
from attnviz.render.figure.picture import PageSize, page_size
from attnviz.render.figure.words import ELLIPSIS, LINE_HEIGHT, POINTS_PER_INCH, ROUNDING_INCHES, Ruler
from attnviz.report.picture.colors import MIN_TICK_SHARE, ColorScale
from attnviz.report.picture.panels import Heading, Panel, Quantity
from attnviz.report.picture.report import DrawnReport

# All lengths and font sizes are those of a slide; other pages scale them.
LABEL_PADDING = 0.06  # between cells and labels, and between labels and the axis's name
AXIS_NAME_POINTS = 12.0  # font size of the names of axes and colour bars
TITLE_POINTS, MIN_TITLE_POINTS, MAX_TITLE_LINES = 22.0, 16.0, 2
SOURCE_POINTS = 12.0  # size of the line under the title that names the model
REMARK_POINTS = 10.0
SUMMARY_SIZE = 1.15  # font size of the summary, in sizes of remarks
MAX_SUMMARY_ROWS = 8
MAX_REMARKS_SHARE = 0.25  # of the page's height
MIN_PAGE_WIDTH = 5.0
MAX_TITLE_WIDTH = 6.0  # a longer title takes two lines
LOW_CONTENT = 2.0  # the legend of a content lower than this lies under it
BAR_WIDTH, BAR_GAP, MAX_BAR_HEIGHT, MIN_BAR_HEIGHT = 0.16, 0.3, 2.0, 1.6
MAX_BAR_NAME_WIDTH = 1.1
MAX_FLAT_BAR_WIDTH, COLUMN_LEGEND_POINTS = 2.6, 9.0  # of bars under the content, and in a column of a journal
MAX_LEGEND_TICKS = 6
MIN_TICK_GAP = 1.3  # from tick to tick along a bar under the panels, in widths of the widest tick
MIN_CROWDED_BAR_HEIGHT = 0.3  # if names fill the space
TICK_GAP = 0.15  # between the ticks of a bar and the name of the bar below
LEGEND_PADDINGS = 6  # above and below the name, the bar and its ticks
NAME_SHARE = 0.9  # of a bar's share of the width under the panels
MAX_BARS = 3  # with more scales, titles of panels name the limits instead
OWN_LOW, OWN_HIGH = "smallest", "largest"  # ends of the bar if each thumbnail has a scale of its own
# Font sizes of tokens; the first at which the content fits is used.
TOKEN_SIZES = (28.0, 24.0, 21.0, 18.0, 16.0, 14.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0)
IMAGE_SIZES = (*TOKEN_SIZES, 3.0, 2.5, 2.0, 1.5, 1.0, 0.75, 0.5)  # for images, which have the size of these tokens
MAX_DEFAULT_TOKEN_POINTS = 14.0  # if the content chooses the size of the page


@dataclass(frozen=True)
class Box:
    """A rectangle, from the lower left corner of a page or the upper left corner of a slide."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> "Box":
        """Returns the rectangle ``x`` inches further to the right and ``y`` further up."""
        return replace(self, x=self.x + x, y=self.y + y)

    def on_pixels(self, dpi: int) -> "Box":
        """Returns the rectangle with its lower left corner at the nearest corner of a pixel."""
        return replace(self, x=round(self.x * dpi) / dpi, y=round(self.y * dpi) / dpi)


@dataclass(frozen=True)
class TextLine:
    """A line of text; ``x`` and ``y`` place its upper left corner."""

    x: float
    y: float
    text: str
    points: float
    bold: bool = False
    faint: bool = True


@dataclass(frozen=True)
class Word:
    """A token at its point of the page."""

    x: float  # its left or right end, as ``align`` says
    y: float  # its middle
    text: str
    align: str = "left"  # ``left`` or ``right``
    box: Box | None = None  # the rectangle behind it, or ``None``
    fill: tuple[int, int, int] | None = None  # the colour of the box; ``None`` draws the token as masked
    marked: bool = False  # True if the box has an outline
    points: float | None = None  # its font size; ``None`` for that of all tokens
    faint: bool = False  # True for grey letters


@dataclass(frozen=True, eq=False)
class Strokes:
    """The lines of one head: their ends, ``(lines, 2, 2)``, and their strengths from 0 to 1, ``(lines,)``.

    The hue is that of the head if several share a picture, else ``None``.
    """

    ends: Float64Array
    strengths: Float64Array
    hue: tuple[int, int, int] | None = None
    # the width of a line without strength, and what is added at strength 1, in points if tokens have 14
    widths: tuple[float, float] = (0.6, 1.8)


@dataclass(frozen=True, eq=False)
class PlacedPanel:
    """A panel in its rectangle: a map with its title and labels, a thumbnail, or weights over an image or a sound."""

    panel: Panel
    box: Box  # the rectangle of its cells
    title: str = ""  # the title of a map, cut to its width
    # the labels of the queries; ``None`` if the panel has none, or the panel at its left has them
    rows: Labels | None = None
    columns: Labels | None = None  # the labels of the keys; ``None`` if the panel has none, or the panel below has them


@dataclass(frozen=True, eq=False)
class Content:
    """The content between title and remarks; its upper left corner is (0, 0), and y decreases downwards."""

    width: float
    height: float
    points: float  # the font size of tokens and of the labels of maps
    panels: tuple[PlacedPanel, ...] = ()  # those that are drawn as maps, thumbnails, images or sounds
    words: tuple[Word, ...] = ()  # the tokens of arcs and texts
    strokes: tuple[Strokes, ...] = ()  # the lines between tokens, one item per head
    lines: tuple[TextLine, ...] = ()  # the lines of titles and other text
    title_points: float = 0.0  # the font size of the maps' titles
    number_points: float = 0.0  # the font size of numbers in cells; 0 if there are none
    column_points: float = 0.0  # the font size of numbers of heads over columns of thumbnails; 0 if there are none
    # the font size of the axes' names, which that of the legend does not exceed; 0 without axes
    name_points: float = 0.0
    x: float = 0.0  # its left edge
    y: float = 0.0  # its upper edge

    def moved(self, x: float, y: float) -> "Content":
        """Returns the content with everything in it ``x`` inches further to the right and ``y`` further up."""
        return replace(
            self,
            x=self.x + x,
            y=self.y + y,
            panels=tuple(replace(placed, box=placed.box.moved(x, y)) for placed in self.panels),
            words=tuple(
                replace(word, x=word.x + x, y=word.y + y, box=None if word.box is None else word.box.moved(x, y))
                for word in self.words
            ),
            strokes=tuple(replace(strokes, ends=strokes.ends + np.array([x, y])) for strokes in self.strokes),
            lines=_moved_lines(self.lines, x, y),
        )


@dataclass(frozen=True)
class Bar:
    """A colour bar with its ticks and its name; a bar that is wider than high is horizontal."""

    scale: ColorScale  # the colours and their limits
    name: tuple[str, ...]  # the lines of its name, which stand above it
    ticks: tuple[tuple[float, str], ...]  # the values and texts of its ticks
    # the quantity of its numbers, which chooses as many ticks as fit; ``None`` to keep the ticks
    quantity: Quantity | None = None
    points: float = 0.0  # the font size of its ticks and its name
    box: Box = Box(0, 0, 0, 0)  # of a bar that is not placed yet, only its width with its ticks and its name

    def name_lines(self, scale: float) -> list[TextLine]:
        """Returns the lines of its name above it, by their lower left corners."""
        line_height, bottom = self.points * LINE_HEIGHT / POINTS_PER_INCH, self.box.y + self.box.height
        return [
            TextLine(self.box.x, bottom + 2 * LABEL_PADDING * scale + lines_below * line_height, text, self.points)
            for lines_below, text in enumerate(reversed(self.name))
        ]

    def with_ticks(self, max_ticks: int) -> tuple[tuple[float, str], ...]:
        """Returns at most so many ticks."""
        return self.ticks if self.quantity is None else self.quantity.ticks(self.scale, max_ticks)


@dataclass(frozen=True, eq=False)
class Page:
    """A page with everything on it in its place."""

    width: float
    height: float
    scale: float  # the size of fonts relative to those of a slide
    content: Content  # the content
    bars: tuple[Bar, ...]  # the legend, one bar per colour scale
    lines: tuple[TextLine, ...]  # the lines of the title, the summary and the remarks


Fill = Callable[[DrawnReport, PageSize, Ruler], Content]


def arrange_page(
    picture: DrawnReport, size: PageSize, fill: Fill, ruler: Ruler, legend: Sequence[Bar] | None = None
) -> Page:
    """Returns the page of a picture, with the content that ``fill`` makes for the area between title and remarks.

    The legend stands at the right of the content, or lies under it on a column of a journal, and if the content is
    lower than `LOW_CONTENT`; its bars are those of the panels' scales, unless others are given. The page's width and
    height fit the content unless ``size`` gives them.
    """
    width, height, scale, margin = size.width, size.height, size.scale, size.margin
    dpi = picture.look.pixels_per_inch
    bars = []
    bar_points = AXIS_NAME_POINTS * scale
    for bar in _bars_of(picture) if legend is None else legend:
        name = tuple(ruler.wrap(" ".join(bar.name), bar_points, MAX_BAR_NAME_WIDTH * scale))
        tick_width = ruler.longest_width((text for _, text in bar.ticks), bar_points)
        bar_width = max((BAR_WIDTH + LABEL_PADDING) * scale + tick_width, ruler.longest_width(name, bar_points))
        bars.append(replace(bar, name=name, points=bar_points, box=Box(0, 0, bar_width, 0)))
    title, title_height = _title_block(picture, width - 2 * margin, scale, ruler)
    foot, foot_height = _remarks_block(picture, width - 2 * margin, scale, ruler, MAX_REMARKS_SHARE * height)
    # A column of a paper is as high as its content, so texts take no space from the panels.
    area_height = height if size.is_column else height - 2 * margin - title_height - foot_height
    legend_points = (COLUMN_LEGEND_POINTS if size.is_column else AXIS_NAME_POINTS) * scale

    def filled(is_legend_below: bool) -> tuple[Content, float, float]:
        """Returns the content, the width of a legend beside it, and the height of a legend below it."""
        legend_width = legend_height = 0.0
        if bars and is_legend_below:
            legend_height = _bars_below(bars, width - 2 * margin, legend_points, scale, ruler)[1]
        elif bars:
            legend_width = max(bar.box.width for bar in bars) + BAR_GAP * scale
        area = replace(size, width=width - 2 * margin - legend_width, height=area_height - legend_height)
        return fill(picture, area, ruler), legend_width, legend_height

    content, legend_width, legend_height = filled(is_legend_below=size.is_column)
    if legend_width and content.height < LOW_CONTENT * scale:
        content, legend_width, legend_height = filled(is_legend_below=True)
    if size.grows:
        title_width = min(ruler.width(picture.title, MIN_TITLE_POINTS, bold=True), MAX_TITLE_WIDTH)
        width = max(content.width + legend_width, title_width, MIN_PAGE_WIDTH) + 2 * margin
        if legend_height:  # on the narrower page
            legend_height = _bars_below(bars, width - 2 * margin, legend_points, scale, ruler)[1]
    if not size.is_fixed:
        title, title_height = _title_block(picture, width - 2 * margin, scale, ruler)
        foot, foot_height = _remarks_block(picture, width - 2 * margin, scale, ruler, height)
        min_height = MIN_BAR_HEIGHT * scale * len(bars) if legend_width else 0.0
        content_height = max(content.height + legend_height, min_height)
        height = content_height + title_height + foot_height + 2 * margin
    free_height = height - 2 * margin - title_height - foot_height - legend_height - content.height
    is_text = content.words and (not content.strokes or picture.charts)  # which begins where its title does
    left = margin + (0.0 if is_text else max(width - 2 * margin - content.width - legend_width, 0) / 2)
    top = height - margin - title_height - (0.0 if picture.charts else max(free_height, 0) / 2)
    placed_content = content.moved(left, top)
    panels = [replace(placed, box=placed.box.on_pixels(dpi)) for placed in placed_content.panels]  # for sharp edges
    placed_content = replace(placed_content, panels=tuple(panels))
    # A legend is no larger than the names of the axes.
    bars = [replace(bar, points=content.name_points or bar.points) for bar in bars]
    if legend_height:
        points = legend_points if size.is_column else bars[0].points
        bars, _ = _bars_below(bars, width - 2 * margin, points, scale, ruler)
        bars = [replace(bar, box=bar.box.moved(margin, top - content.height - legend_height)) for bar in bars]
    elif bars:
        boxes = [placed.box for placed in placed_content.panels] or [
            Box(left, top - content.height, content.width, content.height)
        ]
        bars = _bars_beside(bars, boxes, left + content.width + BAR_GAP * scale, margin + foot_height, scale)
    return Page(
        width=width,
        height=height,
        scale=scale,
        content=placed_content,
        bars=tuple(bars),
        lines=(
            *_moved_lines(title, margin, height - margin),
            *_moved_lines(foot, margin, margin + foot_height),
        ),
    )


def arrange_tokens(
    picture: DrawnReport,
    content: Callable[[DrawnReport, float, PageSize, Ruler], Content],
    ruler: Ruler,
    legend: Sequence[Bar] | None = None,
    token_sizes: Sequence[float] = TOKEN_SIZES,
) -> Page:
    """Returns a page whose tokens have the largest font size at which their content fits."""

    def fill(picture: DrawnReport, area: PageSize, ruler: Ruler) -> Content:
        chosen_size = picture.look.font_size
        largest = math.inf if area.is_fixed else MAX_DEFAULT_TOKEN_POINTS
        max_height = area.height if area.is_fixed else math.inf
        sizes = (chosen_size,) if chosen_size else tuple(size * area.scale for size in token_sizes if size <= largest)
        for points in sizes:
            body = content(picture, points, area, ruler)
            if body.width <= area.width + ROUNDING_INCHES and body.height <= max_height + ROUNDING_INCHES:
                break
        return body

    return arrange_page(picture, page_size(picture.look), fill, ruler, legend)


def _moved_lines(lines: Sequence[TextLine], x: float, y: float) -> tuple[TextLine, ...]:
    return tuple(replace(line, x=line.x + x, y=line.y + y) for line in lines)


def _title_block(picture: DrawnReport, width: float, scale: float, ruler: Ruler) -> tuple[list[TextLine], float]:
    """Returns the lines of title and source, from (0, 0) downwards, and their height.

    A long title becomes smaller, then takes two lines, then is cut.
    """
    points = ruler.largest_points((picture.title,), width, TITLE_POINTS * scale, MIN_TITLE_POINTS * scale, bold=True)
    max_lines = 1 if picture.kind == "thumbnails" else MAX_TITLE_LINES
    texts = ruler.clamp(picture.title, points, width + ROUNDING_INCHES, max_lines, bold=True)
    line_height = points * LINE_HEIGHT / POINTS_PER_INCH
    title_lines = [
        TextLine(0, -line_index * line_height, text, points, bold=True, faint=False)
        for line_index, text in enumerate(texts)
    ]
    title_height, source_points = len(texts) * line_height, SOURCE_POINTS * scale
    sources = ruler.clamp(picture.source, source_points, width, max_lines=1)
    source_lines = [TextLine(0, -title_height, text, source_points) for text in sources]
    height = title_height + len(sources) * source_points * LINE_HEIGHT / POINTS_PER_INCH + LABEL_PADDING * scale
    return [*title_lines, *source_lines], height


def _remarks_block(
    picture: DrawnReport, width: float, scale: float, ruler: Ruler, max_height: float
) -> tuple[list[TextLine], float]:
    """Returns the lines of the summary, and under it of the remarks, from (0, 0) downwards, and their height.

    As many lines of remarks stay as fit the height, at least one. Without any line the height is 0.
    """
    points = REMARK_POINTS * scale
    line_height = points * LINE_HEIGHT / POINTS_PER_INCH
    cells: list[TextLine] = []
    table_remarks: list[str] = []
    rows = () if picture.summary is None else (picture.summary.header, *picture.summary.rows)
    if len(rows) > MAX_SUMMARY_ROWS + 1:
        table_remarks = [f"The table of {len(rows) - 1} heads is left out here."]
    elif rows:
        gap = 2 * points * SUMMARY_SIZE / POINTS_PER_INCH
        widths = [ruler.longest_width(column, points * SUMMARY_SIZE) + gap for column in zip(*rows, strict=True)]
        factor = min(1.0, width / sum(widths))
        cell_points = points * SUMMARY_SIZE * factor
        lefts = [0.0, *accumulate(column_width * factor for column_width in widths[:-1])]
        cell_height = cell_points * LINE_HEIGHT / POINTS_PER_INCH
        for row, row_texts in enumerate(rows):
            y = -(row + 0.5) * cell_height  # half a line under the panels
            cells += [
                TextLine(left, y, text, cell_points, faint=row == 0)
                for left, text in zip(lefts, row_texts, strict=True)
            ]
    remarks_top = 0.6 * line_height  # a gap between the panels and the remarks
    if cells:
        remarks_top = max(-cell.y for cell in cells) + 1.6 * line_height  # under the last row and a gap
    text = " ".join((*table_remarks, *picture.remarks))
    texts = ruler.clamp(text, points, width, max(int((max_height - remarks_top) / line_height), 1))
    lines = [TextLine(0, -remarks_top - index * line_height, line, points) for index, line in enumerate(texts)]
    height = remarks_top + len(texts) * line_height if cells or texts else 0.0
    return [*cells, *lines], height


def _bars_of(picture: DrawnReport) -> list[Bar]:
    """Returns a colour bar for each scale of the panels, or none for more than `MAX_BARS` scales.

    Thumbnails have one bar, whose ticks are words if each thumbnail has a scale of its own.
    """
    scales = list(dict.fromkeys((panel.color_quantity, panel.scale) for panel in picture.panels))
    if picture.kind != "thumbnails":
        shown_scales = scales if len(scales) <= MAX_BARS else []
        return [Bar(colors, (quantity.name,), quantity.ticks(colors), quantity) for quantity, colors in shown_scales]
    quantity, colors = scales[0]
    ticks = quantity.ticks(colors)
    if all(replace(scale, clipped=colors.clipped) == colors for _, scale in scales):
        return [Bar(colors, (quantity.name,), ticks, quantity)]
    have_one_low = all(scale.low == colors.low for _, scale in scales)
    own_ticks = (colors.low, ticks[0][1] if have_one_low else OWN_LOW), (colors.high, OWN_HIGH)
    return [Bar(colors, (quantity.name,), own_ticks)]


def _bars_beside(bars: list[Bar], panels: list[Box], x: float, lowest: float, scale: float) -> list[Bar]:
    """Returns the bars placed one below another, each under its name, from the upper edge of the panels downwards.

    The bars may reach below the panels.
    """
    top = max(box.y + box.height for box in panels)
    bottom = min(box.y for box in panels)
    space = max(top - bottom, min(MIN_BAR_HEIGHT * scale * len(bars), top - lowest))
    letter_height = AXIS_NAME_POINTS * scale / POINTS_PER_INCH
    name_heights = [len(bar.name) * letter_height * LINE_HEIGHT + 2 * LABEL_PADDING * scale for bar in bars]
    gap = letter_height / 2 + TICK_GAP * scale  # half a tick of the bar above, and free space
    height_for_bars = space - sum(name_heights) - gap * (len(bars) - 1)
    height = max(min(height_for_bars / len(bars), MAX_BAR_HEIGHT * scale), MIN_CROWDED_BAR_HEIGHT * scale)
    max_ticks = min(max(int(MIN_TICK_SHARE / (letter_height / height)), 1), MAX_LEGEND_TICKS)  # more would touch
    placed_bars, top_of_bar = [], top
    for bar, name_height in zip(bars, name_heights, strict=True):
        top_of_bar -= name_height
        box = Box(x, top_of_bar - height, BAR_WIDTH * scale, height)
        placed_bars.append(replace(bar, box=box, ticks=bar.with_ticks(max_ticks)))
        top_of_bar -= height + gap
    return placed_bars


def _bars_below(bars: list[Bar], width: float, points: float, scale: float, ruler: Ruler) -> tuple[list[Bar], float]:
    """Returns the bars side by side, each horizontal and under its name, from (0, 0) upwards, and their height."""
    placed_bars = []
    share_of_width, tick_height = width / len(bars), points * LINE_HEIGHT / POINTS_PER_INCH
    for bar_index, bar in enumerate(bars):
        tick_width = ruler.longest_width((text for _, text in bar.ticks), points)
        length = min(share_of_width - tick_width - BAR_GAP * scale, MAX_FLAT_BAR_WIDTH * scale)
        x = bar_index * share_of_width + (share_of_width - length) / 2
        box = Box(x, tick_height + 2 * LABEL_PADDING * scale, length, BAR_WIDTH * scale)
        name = tuple(ruler.wrap(" ".join(bar.name), points, NAME_SHARE * share_of_width))
        ticks = bar.with_ticks(min(max(int(length / tick_width / MIN_TICK_GAP), 1), MAX_LEGEND_TICKS))
        placed_bars.append(replace(bar, box=box, name=name, ticks=ticks, points=points))
    name_lines = max(len(bar.name) for bar in placed_bars)
    height = (name_lines + 1) * tick_height + (BAR_WIDTH + LEGEND_PADDINGS * LABEL_PADDING) * scale
    return placed_bars, height


def fitting_title(heading: Heading, points: float, max_lines: int, width: float, ruler: Ruler) -> str:
    """Returns the first form of a title that fits: whole, without "head ", in lines, cut after a word, or within it."""
    forms = heading, heading.shortened()
    for form in forms:
        if ruler.width(form.text, points) <= width + ROUNDING_INCHES:
            return form.text
    if max_lines > 1:
        for form in forms:
            # The note on its own line if possible.
            for lines in (form.lines, tuple(ruler.wrap(form.text, points, width))):
                if len(lines) <= max_lines and ruler.longest_width(lines, points) <= width + ROUNDING_INCHES:
                    return "\n".join(lines)

        # The title and its note in a line each, both cut; the title alone if no word of the note fits.
        shortest = forms[-1]
        line, *notes = shortest.lines
        note = notes[0] if notes else ""
        if ruler.width(line, points) > width + ROUNDING_INCHES:
            name = shortest.name if shortest.noun else shortest.subject  # "text 0.3" without its tower
            line = ruler.cut(name, points, width + ROUNDING_INCHES)
        first_word = note.partition(" ")[0]
        if not note or ruler.width(first_word + ELLIPSIS, points) > width + ROUNDING_INCHES:
            return line
        return f"{line}\n{_cut_after_word(note, points, width, ruler)}"
    return _cut_after_word(forms[-1].text, points, width, ruler, min_words=2)


def _cut_after_word(text: str, points: float, width: float, ruler: Ruler, min_words: int = 1) -> str:
    """Returns a text unchanged if it fits, else cut after as many words as fit; within a word if they are too few."""
    words = text.split(" ")
    counts = range(len(words) - 1, min_words - 1, -1)
    texts = (text, *(" ".join(words[:count]).rstrip(" ·,") + ELLIPSIS for count in counts))
    fitting_texts = (each for each in texts if ruler.width(each, points) <= width + ROUNDING_INCHES)
    return next(fitting_texts, None) or ruler.cut(text, points, width)
