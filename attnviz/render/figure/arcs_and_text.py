"""Lays out arcs (tokens in two columns, joined by lines) and texts shaded by what one query attends to."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from attnviz.base.arrays import ByteArray, Float64Array
from attnviz.render.figure.bars import BAR_WIDTH, Bar, Box, plain_bars
from attnviz.render.figure.page_size import page_size
from attnviz.render.figure.picture import Picture
from attnviz.render.figure.ruler import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.render.figure.text_blocks import TextBlock, TextLine, foot_block, head_block
from attnviz.report.picture.panels import Panel

TOKEN_POINTS = (
    28.0,
    24.0,
    21.0,
    18.0,
    16.0,
    14.0,
    12.0,
    11.0,
    10.0,
    9.0,
    8.0,
    7.0,
    6.0,
    5.0,
    4.0,
)  # font sizes of tokens; the first that fits is used
MAX_DEFAULT_TOKEN_POINTS = 14.0  # if the content chooses the size of the page
ROW_HEIGHT = 1.45  # of a row of tokens, in font sizes
ARC_WIDTH, HEAD_GAP = 1.8, 0.6  # inches between the two columns, and between heads
FITTED_ARC_SHARE = 0.55  # share of ARC_WIDTH that arcs keep on a page of a given size
EXTRA_ARC_SHARE = 2.0  # largest share of ARC_WIDTH that is added if such a page has space
MAX_TOKEN_WIDTH = 1.6  # inches
MIN_TITLE_SHARE = 0.75  # smallest font size of a head's title, relative to that of tokens
WORD_SPACE, WORD_PADDING = 0.25, 0.18  # between tokens and around them, in font sizes
LEGEND_LINES, MIN_LEGEND_STRENGTH = 4, 0.05  # number of lines in the legend, and the least strength of one
MIN_STRENGTH = 0.01  # share of the scale; fainter lines would be invisible
MAX_TEXT_BAR_HEIGHT = 3.0  # inches
FLAT_BAR = (3.0, 0.75)  # inches: width of a bar below a text, and its height with its ticks
LOW_TEXT = 2.0  # inches; the bar of a text lower than this lies flat under it


@dataclass(frozen=True)
class Word:
    """A token at a place in inches from the lower left corner.

    Attributes:
        x: the horizontal place of its left or right end, as ``align`` says.
        y: the vertical place of its middle.
        text: its label.
        align: ``left`` or ``right``.
        box: the rectangle behind it, or ``None``.
        fill: the colour of the box; ``None`` draws the token as masked.
        marked: True if the box has an outline.
        points: its font size; ``None`` for that of all tokens.
    """

    x: float
    y: float
    text: str
    align: str = "left"
    box: Box | None = None
    fill: tuple[int, int, int] | None = None
    marked: bool = False
    points: float | None = None


@dataclass(frozen=True, eq=False)
class Strokes:
    """The lines of one head: their ends in inches, ``(lines, 2, 2)``, and their strengths from 0 to 1, ``(lines,)``."""

    ends: Float64Array
    strengths: Float64Array


@dataclass(frozen=True, eq=False)
class PlacedImage:
    """An image with weights over it, at a place in inches.

    Attributes:
        box: its place on the page.
        panel: the weights.
    """

    box: Box
    panel: Panel


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """The layout of a page of arcs, texts or images, in inches.

    Attributes:
        width: the width of the page.
        height: the height of the page.
        points: the font size of tokens.
        scale: the size of other fonts relative to those of a slide.
        words: the tokens.
        strokes: the lines between tokens, one item per head.
        lines: the lines of the title, the heads' titles and the remarks.
        bars: the colour bars.
        images: the images.
    """

    width: float
    height: float
    points: float
    scale: float
    words: tuple[Word, ...]
    strokes: tuple[Strokes, ...]
    lines: tuple[TextLine, ...]
    bars: tuple[Bar, ...]
    images: tuple[PlacedImage, ...] = ()


@dataclass(frozen=True, eq=False)
class Content:
    """The content between title and remarks; its upper left corner is (0, 0), and y decreases downwards."""

    width: float
    height: float
    words: tuple[Word, ...]
    strokes: tuple[Strokes, ...] = ()
    lines: tuple[TextLine, ...] = ()
    images: tuple[PlacedImage, ...] = ()


Fill = Callable[[Picture, float, float, float, Ruler], Content]


def arrange_arcs(picture: Picture, ruler: Ruler) -> TokenLayout:
    """Returns the layout of arcs: for each head two columns of tokens, as large as the page allows."""
    return token_layout(picture, _arcs, [], ruler)


def arrange_text(picture: Picture, ruler: Ruler) -> TokenLayout:
    """Returns the layout of texts: one per head, with tokens as large as the page allows, and the colour bar."""
    return token_layout(picture, _text, plain_bars(picture, page_size(picture.look).scale, ruler), ruler)


def token_layout(picture: Picture, fill: Fill, bars: list[Bar], ruler: Ruler) -> TokenLayout:
    """Returns the layout of a page whose content is as large as the page allows.

    Args:
        picture: the picture with its words.
        fill: lays out the content for a font size and a width.
        bars: the colour bars; only the first is drawn.
        ruler: measures the text.
    """
    page = page_size(picture.look)
    wide, high, scale, margin = page.width, page.height, page.scale, page.margin
    beside = max((bar.box.width + HEAD_GAP * scale for bar in bars), default=0.0)
    head = head_block(picture, wide - 2 * margin, scale, ruler)
    foot = foot_block(picture, wide - 2 * margin, scale, ruler, 0.25 * high if page.fixed else high)
    spare = high - 2 * margin - head.height - foot.height if page.fixed else math.inf
    below = FLAT_BAR[1] * scale if bars else 0.0
    points, content = _largest_content(picture, fill, (wide - 2 * margin, spare - below), scale, ruler)
    if bars and content.height < LOW_TEXT * scale:
        beside = 0.0
        content = replace(content, height=content.height + below, width=max(content.width, 1.6 * FLAT_BAR[0] * scale))
    elif bars:
        points, content = _largest_content(picture, fill, (wide - 2 * margin - beside, spare), scale, ruler)
    if page.grows:
        wide = max(content.width + beside, 5.0) + 2 * margin
    if not page.fixed:
        head, foot = (
            head_block(picture, wide - 2 * margin, scale, ruler),
            foot_block(picture, wide - 2 * margin, scale, ruler, high),
        )
        high = max(content.height, 2.5 * scale if beside else 0.0) + head.height + foot.height + 2 * margin
    left = margin + max(wide - 2 * margin - content.width - beside, 0) / 2
    spare = high - 2 * margin - head.height - foot.height - content.height
    top = high - margin - head.height - (max(spare, 0) / 2 if page.fixed else 0)
    placed = _layout_from(content, (wide, high), (left, top), margin, (head, foot), bars, points, scale)
    if not bars or beside:
        return placed
    flat = Box(left + 0.15 * scale, top - content.height + below - 0.3 * scale, FLAT_BAR[0] * scale, BAR_WIDTH * scale)
    return replace(placed, bars=(replace(bars[0], box=flat, name=(" ".join(bars[0].name),), name_beside=True),))


def _layout_from(
    content: Content,
    page: tuple[float, float],
    corner: tuple[float, float],
    margin: float,
    blocks: tuple[TextBlock, TextBlock],
    bars: list[Bar],
    points: float,
    scale: float,
) -> TokenLayout:
    left, top = corner
    head, foot = blocks
    lines = (replace(line, x=line.x + left, y=line.y + top) for line in content.lines)
    highest, names = page[1] - margin - head.height, 0.7 * scale
    height = min(MAX_TEXT_BAR_HEIGHT * scale, max(highest - foot.height - margin - names - 0.3 * scale, 0.5))
    upper = min(max(top, top - content.height / 2 + (height + names) / 2), highest)
    place = Box(left + content.width + HEAD_GAP * scale, upper - names - height, BAR_WIDTH * scale, height)
    return TokenLayout(
        width=page[0],
        height=page[1],
        points=points,
        scale=scale,
        words=tuple(_shifted(word, left, top) for word in content.words),
        strokes=tuple(Strokes(strokes.ends + corner, strokes.strengths) for strokes in content.strokes),
        lines=(*head.at(margin, page[1] - margin), *lines, *foot.at(margin, margin + foot.height)),
        bars=tuple(replace(bar, box=place) for bar in bars[:1]),
        images=tuple(
            replace(image, box=replace(image.box, x=image.box.x + left, y=image.box.y + top))
            for image in content.images
        ),
    )


def _shifted(word: Word, x: float, y: float) -> Word:
    box = word.box and replace(word.box, x=word.box.x + x, y=word.box.y + y)
    return replace(word, x=word.x + x, y=word.y + y, box=box)


def _largest_content(
    picture: Picture, fill: Fill, area: tuple[float, float], scale: float, ruler: Ruler
) -> tuple[float, Content]:
    """Returns the largest font size at which the content fits the area, and that content."""
    asked_size = picture.look.font_size
    largest = math.inf if page_size(picture.look).fixed else MAX_DEFAULT_TOKEN_POINTS
    sizes = (asked_size,) if asked_size else tuple(size * scale for size in TOKEN_POINTS if size <= largest)
    for points in sizes:
        content = fill(picture, points, area[0], scale, ruler)
        if content.width <= area[0] + 1e-6 and content.height <= area[1]:
            break
    return points, content


def _arcs(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    """Returns arcs of heads, as many side by side as the width allows: queries left, keys right, lines between them."""
    row, limit = points * ROW_HEIGHT / POINTS_PER_INCH, MAX_TOKEN_WIDTH * scale
    shown = [axis for panel in picture.panels for axis in (panel.rows, panel.columns)]
    label = min(max(ruler.longest(axis.labels, points) for axis in shown), limit)
    grows, titles = page_size(picture.look).grows, tuple(panel.title for panel in picture.panels)
    one = 2 * label + ((ARC_WIDTH if grows else FITTED_ARC_SHARE * ARC_WIDTH) + 0.2) * scale
    one = max(one, min(ruler.longest(titles, points * MIN_TITLE_SHARE), width))
    tall = (max(len(axis.labels) for axis in shown) + 2.2) * row + 0.3 * scale
    across = min(max(int((width + HEAD_GAP * scale) / (one + HEAD_GAP * scale)), 1), len(picture.panels))
    across = -(-len(picture.panels) // -(-len(picture.panels) // across))  # as many in each row
    if not grows:
        one += min(
            max(width - one * across - HEAD_GAP * scale * (across - 1), 0) / across, EXTRA_ARC_SHARE * ARC_WIDTH * scale
        )
    titled = points * max(min(one / max(ruler.longest(titles, points), 1e-6), 1.0), MIN_TITLE_SHARE)
    words: list[Word] = []
    strokes, lines = [], []
    for number, panel in enumerate(picture.panels):
        down, place = divmod(number, across)
        x, y = place * (one + HEAD_GAP * scale), -down * tall
        start, left, right = y - 2.2 * row, x + label, x + one - label
        title = ruler.cut(panel.title, titled, one + 1e-6)
        lines.append(TextLine(x + (one - ruler.width(title, titled)) / 2, y, title, titled, faint=False))
        for align, axis, at in (("right", panel.rows, left), ("left", panel.columns, right)):
            lines.append(
                TextLine(
                    at - (ruler.width(axis.name, points * 0.8) if align == "right" else 0),
                    y - 1.1 * row,
                    axis.name,
                    points * 0.8,
                )
            )
            words += [
                Word(at, start - index * row, ruler.cut(text, points, limit), align)
                for index, text in enumerate(axis.labels)
            ]
        strokes.append(_strokes(panel, left + 0.1 * scale, right - 0.1 * scale, start, row))
    height = tall * -(-len(picture.panels) // across)
    wide = one * across + HEAD_GAP * scale * (across - 1)
    first = picture.panels[0]
    if all((panel.scale, panel.level) == (first.scale, first.level) for panel in picture.panels):
        legend, drawn = _legend(first, (wide, -height - row / 2), points * 0.8, row, ruler)
        words, strokes, height = [*words, *legend], [*strokes, drawn], height + 1.5 * row
    return Content(wide, height, tuple(words), tuple(strokes), tuple(lines))


def _legend(
    panel: Panel, corner: tuple[float, float], points: float, row: float, ruler: Ruler
) -> tuple[list[Word], Strokes]:
    """Returns the legend of strengths, centred: one line for each of a few weights, as many as fit."""
    (wide, y), line, gap = corner, 1.5 * row, 0.4 * row
    ticks = panel.level.ticks(panel.scale, LEGEND_LINES)
    shown = [(text, float(panel.scale.fraction(value))) for value, text in ticks]
    shown = [(text, strength) for text, strength in shown if strength > MIN_LEGEND_STRENGTH]
    each = line + gap + max((ruler.width(text, points) for text, _ in shown), default=0.0)
    shown = shown[-max(int((wide + 2 * gap) / (each + 2 * gap)), 1) :]
    start = (wide - each * len(shown) - 2 * gap * (len(shown) - 1)) / 2
    lefts = [start + number * (each + 2 * gap) for number in range(len(shown))]
    words = [Word(left + line + gap, y, text, points=points) for left, (text, _) in zip(lefts, shown, strict=True)]
    ends = np.array([[[left, y], [left + line, y]] for left in lefts]).reshape(-1, 2, 2)
    return words, Strokes(ends, np.array([strength for _, strength in shown]))


def _strokes(panel: Panel, left: float, right: float, top: float, row: float) -> Strokes:
    """Returns a line for every weight that is not too faint, the strongest last so that it lies on top."""
    fraction = np.where(panel.visible, np.nan_to_num(panel.scale.fraction(panel.levels)), 0)
    pairs = np.argwhere(fraction > MIN_STRENGTH)
    strengths = fraction[pairs[:, 0], pairs[:, 1]]
    order = np.argsort(strengths, kind="stable")
    pairs = pairs[order]
    starts = np.column_stack([np.full(len(pairs), left), top - pairs[:, 0] * row])
    stops = np.column_stack([np.full(len(pairs), right), top - pairs[:, 1] * row])
    return Strokes(np.stack([starts, stops], axis=1), strengths[order])


def _text(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    """Returns one paragraph for each head, with tokens on the colours of their weights."""
    row = points * ROW_HEIGHT * 1.15 / POINTS_PER_INCH
    words: list[Word] = []
    lines = []
    y = 0.0
    for panel in picture.panels:
        for text in ruler.wrap(panel.title, points * 0.85, width):
            lines.append(TextLine(0, y, text, points * 0.85))
            y -= points * LINE_HEIGHT / POINTS_PER_INCH
        paragraph = list(_paragraph(panel, y - row / 2, points, width, row, ruler))
        words += paragraph
        y = paragraph[-1].y - row * 1.4
    right = max(word.box.x + word.box.width for word in words if word.box)
    widest = max((right, *(ruler.width(line.text, line.points) for line in lines)))
    return Content(widest, -y, tuple(words), lines=tuple(lines))


def _paragraph(panel: Panel, y: float, points: float, width: float, row: float, ruler: Ruler) -> Iterator[Word]:
    colors: ByteArray = panel.scale.rgb(panel.levels)[0]
    pad, space = WORD_PADDING * points / POINTS_PER_INCH, WORD_SPACE * points / POINTS_PER_INCH
    first, x = panel.columns.edges[0], 0.0
    for index, label in enumerate(panel.columns.labels):
        text = ruler.cut(label, points, width - 2 * pad)
        wide = ruler.width(text, points) + 2 * pad
        if x > 0 and x + wide > width:
            x, y = 0.0, y - row
        red, green, blue = colors[index].tolist()
        yield Word(
            x=x + pad,
            y=y,
            text=text,
            box=Box(x, y - row * 0.45, wide, row * 0.9),
            fill=(red, green, blue) if panel.visible[0, index] else None,
            marked=first + index == panel.rows.edges[0] and label == panel.rows.labels[0],
        )
        x += wide + space
