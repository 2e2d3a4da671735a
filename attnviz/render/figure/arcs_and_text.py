"""Lays out arcs (tokens in two columns, joined by lines) and texts shaded by what one query attends to."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from attnviz.base.arrays import ByteArray, Float64Array
from attnviz.render.figure.bars import BAR_WIDTH, Bar, Box, plain_bars
from attnviz.render.figure.picture import Picture, page_size
from attnviz.render.figure.ruler import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.render.figure.text_blocks import TextLine, remarks_block, title_block
from attnviz.report.picture.overlays import HUES, mixed_hues, overlaid_strengths
from attnviz.report.picture.panels import Heading, Panel

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
FLAT_BAR_INDENT, FLAT_BAR_GAP = 0.15, 0.3  # inches at the left of such a bar, and above it
FLAT_BAR_WITH_NAME = 1.6  # width of such a bar with the name beside it, in widths of the bar
MIN_CONTENT_WIDTH = 5.0  # inches, of a page whose width the content chooses
MIN_HEIGHT_BESIDE_BAR = 2.5  # inches, of a content with a bar at its right
MAX_REMARKS_SHARE = 0.25  # of the height of a page of a given size
BAR_NAME_HEIGHT, BAR_BOTTOM_SPACE = 0.7, 0.3  # inches above a bar for its name, and free space under the bar
MIN_TEXT_BAR_HEIGHT = 0.5  # inches
COLUMN_PADDING = 0.1  # inches between a column of tokens and the ends of its lines
TITLE_ROWS, AXIS_NAME_ROW = 2.2, 1.1  # rows from a head's top to its first token, and to the names of its columns
HEAD_BOTTOM_SPACE = 0.3  # inches under the tokens of a head
AXIS_NAME_SIZE = 0.8  # font size of the columns' names and of the legend, relative to that of tokens
LEGEND_ROWS = 1.5  # height of the legend of strengths, in rows of tokens
STROKE_ROWS, STROKE_GAP_ROWS = 1.5, 0.4  # length of a line in the legend, and the space around it, in rows
LINE_SPACING = 1.15  # height of a line of text, relative to a row of arcs
PANEL_TITLE_SIZE = 0.85  # font size of a head's title over its text, relative to that of tokens
PARAGRAPH_STEP = 1.4  # rows from the last line of a text to the title of the next
WORD_HEIGHT = 0.9  # height of the rectangle behind a token, in rows
ROUNDING = 1e-6  # inches by which a sum of widths may exceed the width that it was computed from


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
class _Strokes:
    """The lines of one head: their ends in inches, ``(lines, 2, 2)``, and their strengths from 0 to 1, ``(lines,)``.

    The hue is that of the head if several share a picture, else ``None``.
    """

    ends: Float64Array
    strengths: Float64Array
    hue: tuple[int, int, int] | None = None


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
    strokes: tuple[_Strokes, ...]
    lines: tuple[TextLine, ...]
    bars: tuple[Bar, ...]
    images: tuple[PlacedImage, ...] = ()


@dataclass(frozen=True, eq=False)
class Content:
    """The content between title and remarks; its upper left corner is (0, 0), and y decreases downwards."""

    width: float
    height: float
    words: tuple[Word, ...]
    strokes: tuple[_Strokes, ...] = ()
    lines: tuple[TextLine, ...] = ()
    images: tuple[PlacedImage, ...] = ()

    def moved(self, x: float, y: float) -> "Content":
        """Returns the content with everything in it ``x`` inches further to the right and ``y`` further up."""

        def moved_box(box: Box) -> Box:
            return replace(box, x=box.x + x, y=box.y + y)

        return replace(
            self,
            words=tuple(
                replace(word, x=word.x + x, y=word.y + y, box=None if word.box is None else moved_box(word.box))
                for word in self.words
            ),
            strokes=tuple(replace(strokes, ends=strokes.ends + np.array([x, y])) for strokes in self.strokes),
            lines=tuple(replace(line, x=line.x + x, y=line.y + y) for line in self.lines),
            images=tuple(replace(image, box=moved_box(image.box)) for image in self.images),
        )


Fill = Callable[[Picture, float, float, float, Ruler], Content]


def arrange_arcs(picture: Picture, ruler: Ruler) -> TokenLayout:
    """Returns the layout of arcs: two columns of tokens for each head, or for all heads if the look overlays them."""
    return token_layout(picture, _overlaid_arcs if picture.look.overlaid else _arcs_content, ruler, has_bar=False)


def arrange_text(picture: Picture, ruler: Ruler) -> TokenLayout:
    """Returns the layout of a text for each head, with tokens as large as the page allows, and the colour bar.

    If the look overlays heads, they share one text, without a bar.
    """
    if picture.look.overlaid:
        return token_layout(picture, _overlaid_text, ruler, has_bar=False)
    return token_layout(picture, _text_content, ruler)


def token_layout(picture: Picture, fill: Fill, ruler: Ruler, has_bar: bool = True) -> TokenLayout:
    """Returns the layout of a page with title, content, remarks and colour bar; the content is as large as fits.

    The bar stands at the right of the content, or lies under it if the content is lower than ``LOW_TEXT``. The
    page's width and height fit the content unless the look gives them.
    """
    page = page_size(picture.look)
    page_width, page_height, scale, margin = page.width, page.height, page.scale, page.margin
    bars = plain_bars(picture, scale, ruler) if has_bar else []
    bar_space = max((bar.box.width + HEAD_GAP * scale for bar in bars), default=0.0)
    title = title_block(picture, page_width - 2 * margin, scale, ruler)
    remarks_height = MAX_REMARKS_SHARE * page_height if page.is_fixed else page_height
    remarks = remarks_block(picture, page_width - 2 * margin, scale, ruler, remarks_height)
    free_height = page_height - 2 * margin - title.height - remarks.height if page.is_fixed else math.inf
    flat_bar_space = FLAT_BAR[1] * scale if bars else 0.0
    area = page_width - 2 * margin, free_height - flat_bar_space
    points, content = _largest_content(picture, fill, area, scale, ruler)
    if bars and content.height < LOW_TEXT * scale:
        bar_space = 0.0
        width_with_name = FLAT_BAR_WITH_NAME * FLAT_BAR[0] * scale
        content = replace(content, height=content.height + flat_bar_space, width=max(content.width, width_with_name))
    elif bars:
        area = page_width - 2 * margin - bar_space, free_height
        points, content = _largest_content(picture, fill, area, scale, ruler)
    if page.grows:
        page_width = max(content.width + bar_space, MIN_CONTENT_WIDTH) + 2 * margin
    if not page.is_fixed:
        title = title_block(picture, page_width - 2 * margin, scale, ruler)
        remarks = remarks_block(picture, page_width - 2 * margin, scale, ruler, page_height)
        min_content_height = MIN_HEIGHT_BESIDE_BAR * scale if bar_space else 0.0
        page_height = max(content.height, min_content_height) + title.height + remarks.height + 2 * margin
    left = margin + max(page_width - 2 * margin - content.width - bar_space, 0) / 2
    free_height = page_height - 2 * margin - title.height - remarks.height - content.height
    top = page_height - margin - title.height - (max(free_height, 0) / 2 if page.is_fixed else 0)
    if bars and bar_space:
        # The bar with its name is centred at the content, within the space between title and remarks.
        highest, name_height = page_height - margin - title.height, BAR_NAME_HEIGHT * scale
        free_height = highest - remarks.height - margin - name_height - BAR_BOTTOM_SPACE * scale
        bar_height = min(MAX_TEXT_BAR_HEIGHT * scale, max(free_height, MIN_TEXT_BAR_HEIGHT))
        bar_top = min(max(top, top - content.height / 2 + (bar_height + name_height) / 2), highest)
        x, y = left + content.width + HEAD_GAP * scale, bar_top - name_height - bar_height
        bars = [replace(bars[0], box=Box(x, y, BAR_WIDTH * scale, bar_height))]
    elif bars:
        x, y = left + FLAT_BAR_INDENT * scale, top - content.height + flat_bar_space - FLAT_BAR_GAP * scale
        box, name = Box(x, y, FLAT_BAR[0] * scale, BAR_WIDTH * scale), (" ".join(bars[0].name),)
        bars = [replace(bars[0], box=box, name=name, name_beside=True)]
    placed = content.moved(left, top)
    return TokenLayout(
        width=page_width,
        height=page_height,
        points=points,
        scale=scale,
        words=placed.words,
        strokes=placed.strokes,
        lines=(
            *title.lines_at(margin, page_height - margin),
            *placed.lines,
            *remarks.lines_at(margin, margin + remarks.height),
        ),
        bars=tuple(bars),
        images=placed.images,
    )


def _largest_content(
    picture: Picture, fill: Fill, area: tuple[float, float], scale: float, ruler: Ruler
) -> tuple[float, Content]:
    """Returns the largest font size of tokens at which the content fits an area, and the content at this size."""
    width, height = area
    chosen_size = picture.look.font_size
    largest = math.inf if page_size(picture.look).is_fixed else MAX_DEFAULT_TOKEN_POINTS
    sizes = (chosen_size,) if chosen_size else tuple(size * scale for size in TOKEN_POINTS if size <= largest)
    for points in sizes:
        content = fill(picture, points, width, scale, ruler)
        if content.width <= width + ROUNDING and content.height <= height:
            break
    return points, content


def _arcs_content(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    """Returns the arcs of heads: queries at the left, keys at the right, and lines for the weights between them."""
    row_height, max_label_width = points * ROW_HEIGHT / POINTS_PER_INCH, MAX_TOKEN_WIDTH * scale
    axes = [axis for panel in picture.panels for axis in (panel.rows, panel.columns)]
    label_width = min(max(ruler.longest_width(axis.labels, points) for axis in axes), max_label_width)
    page_grows, titles = page_size(picture.look).grows, tuple(panel.title for panel in picture.panels)
    arc_width = ARC_WIDTH if page_grows else FITTED_ARC_SHARE * ARC_WIDTH
    head_width = 2 * label_width + (arc_width + 2 * COLUMN_PADDING) * scale
    head_width = max(head_width, min(ruler.longest_width(titles, points * MIN_TITLE_SHARE), width))
    head_height = (max(len(axis.labels) for axis in axes) + TITLE_ROWS) * row_height + HEAD_BOTTOM_SPACE * scale
    across = min(max(int((width + HEAD_GAP * scale) / (head_width + HEAD_GAP * scale)), 1), len(picture.panels))
    rows_of_panels = math.ceil(len(picture.panels) / across)
    across = math.ceil(len(picture.panels) / rows_of_panels)  # about as many in each row
    if not page_grows:
        head_width += min(
            max(width - head_width * across - HEAD_GAP * scale * (across - 1), 0) / across,
            EXTRA_ARC_SHARE * ARC_WIDTH * scale,
        )
    # Titles may be empty; 1e-6 avoids a division by 0.
    title_points = points * max(min(head_width / max(ruler.longest_width(titles, points), 1e-6), 1.0), MIN_TITLE_SHARE)
    name_points, padding = points * AXIS_NAME_SIZE, COLUMN_PADDING * scale
    words: list[Word] = []
    strokes, lines = [], []
    for panel_index, panel in enumerate(picture.panels):
        row_of_heads, column = divmod(panel_index, across)
        x, y = column * (head_width + HEAD_GAP * scale), -row_of_heads * head_height
        first_y, left, right = y - TITLE_ROWS * row_height, x + label_width, x + head_width - label_width
        title = ruler.cut(panel.title, title_points, head_width + ROUNDING)
        lines.append(
            TextLine(x + (head_width - ruler.width(title, title_points)) / 2, y, title, title_points, faint=False)
        )
        for align, axis, x_of_words in (("right", panel.rows, left), ("left", panel.columns, right)):
            lines.append(
                TextLine(
                    x_of_words - (ruler.width(axis.name, name_points) if align == "right" else 0),
                    y - AXIS_NAME_ROW * row_height,
                    axis.name,
                    name_points,
                )
            )
            words += [
                Word(x_of_words, first_y - index * row_height, ruler.cut(text, points, max_label_width), align)
                for index, text in enumerate(axis.labels)
            ]
        strokes.append(_strokes_of_panel(panel, left + padding, right - padding, first_y, row_height))
    height = head_height * math.ceil(len(picture.panels) / across)
    total_width = head_width * across + HEAD_GAP * scale * (across - 1)
    first_panel = picture.panels[0]
    first_scale = first_panel.scale, first_panel.color_quantity
    if all((panel.scale, panel.color_quantity) == first_scale for panel in picture.panels):
        legend, legend_strokes = _legend_of_strengths(
            first_panel, total_width, -height - row_height / 2, name_points, row_height, ruler
        )
        words += legend
        strokes.append(legend_strokes)
        height += LEGEND_ROWS * row_height
    return Content(total_width, height, tuple(words), tuple(strokes), tuple(lines))


def _overlaid_arcs(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    """Returns the arcs of several heads between the same two columns of tokens, each head in its hue."""
    row_height = points * ROW_HEIGHT / POINTS_PER_INCH
    names, depth = _hue_names(picture, points, ruler)
    first_panel = replace(picture.panels[0], heading=Heading())
    content = _arcs_content(replace(picture, panels=(first_panel,)), points, width, scale, ruler)
    first_strokes, *legend = content.strokes
    left, right = 0.0, content.width  # x of both columns, if no line tells it
    if len(first_strokes.ends):
        left, right = first_strokes.ends[0, :, 0].tolist()
    first_y = content.words[0].y
    strokes = [
        replace(_strokes_of_panel(panel, left, right, first_y, row_height), hue=hue)
        for panel, hue in zip(picture.panels, HUES, strict=False)  # there are more hues than panels
    ]
    moved = replace(content, strokes=(*strokes, *legend)).moved(0, -depth)
    width = max(content.width, *(name.x + ruler.width(name.text, points) for name in names))
    return replace(moved, width=width, height=content.height + depth, words=(*names, *moved.words))


def _overlaid_text(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    """Returns one paragraph under the heads' names; a token's colour mixes the hues of the heads that look at it."""
    row_height = points * ROW_HEIGHT * LINE_SPACING / POINTS_PER_INCH
    names, depth = _hue_names(picture, points, ruler)
    colors = mixed_hues(overlaid_strengths(picture.panels))
    paragraph = list(_paragraph(picture.panels[0], -depth - row_height / 2, points, width, row_height, ruler, colors))
    right = max(word.box.x + word.box.width for word in paragraph if word.box)
    names_end = max(name.x + ruler.width(name.text, points) for name in names)
    return Content(max(right, names_end), -(paragraph[-1].y - row_height), (*names, *paragraph))


def _hue_names(picture: Picture, points: float, ruler: Ruler) -> tuple[list[Word], float]:
    """Returns the title of each head with the end of its scale, on the head's hue, and the height of all titles."""
    row_height, padding = points * ROW_HEIGHT * LINE_SPACING / POINTS_PER_INCH, WORD_PADDING * points / POINTS_PER_INCH
    names = []
    for panel_index, (panel, hue) in enumerate(zip(picture.panels, HUES, strict=False)):
        *_, (_, highest_label) = panel.quantity.ticks(panel.scale)
        text, y = f"{panel.title}, up to {highest_label}", -(panel_index + 0.5) * row_height
        box = _box_around(0, y, ruler.width(text, points) + 2 * padding, row_height)
        names.append(Word(padding, y, text, box=box, fill=hue))
    return names, (len(names) + 0.5) * row_height


def _box_around(x: float, y: float, width: float, row_height: float) -> Box:
    """Returns the rectangle behind a token, from ``x`` to the right; its middle is at height ``y``, in inches."""
    return Box(x, y - row_height * WORD_HEIGHT / 2, width, row_height * WORD_HEIGHT)


def _legend_of_strengths(
    panel: Panel, width: float, y: float, points: float, row_height: float, ruler: Ruler
) -> tuple[list[Word], _Strokes]:
    """Returns the words and lines of the legend of strengths: weights side by side, each with a line of its
    strength.
    """
    stroke_length, gap = STROKE_ROWS * row_height, STROKE_GAP_ROWS * row_height
    ticks = panel.color_quantity.ticks(panel.scale, LEGEND_LINES)
    strengths_of_ticks = [(text, float(panel.scale.fraction(value))) for value, text in ticks]
    items = [(text, strength) for text, strength in strengths_of_ticks if strength > MIN_LEGEND_STRENGTH]
    item_width = stroke_length + gap + max((ruler.width(text, points) for text, _ in items), default=0.0)
    max_items = max(int((width + 2 * gap) / (item_width + 2 * gap)), 1)
    shown_items = items[-max_items:]  # the largest weights
    start = (width - item_width * len(shown_items) - 2 * gap * (len(shown_items) - 1)) / 2
    lefts = [start + item_index * (item_width + 2 * gap) for item_index in range(len(shown_items))]
    words = [
        Word(left + stroke_length + gap, y, text, points=points)
        for left, (text, _) in zip(lefts, shown_items, strict=True)
    ]
    ends = np.array([[[left, y], [left + stroke_length, y]] for left in lefts]).reshape(-1, 2, 2)
    return words, _Strokes(ends, np.array([strength for _, strength in shown_items]))


def _strokes_of_panel(panel: Panel, left: float, right: float, top: float, row_height: float) -> _Strokes:
    """Returns a line for each visible weight whose strength is above `MIN_STRENGTH`; the strongest is last, on top."""
    strengths_of_cells = np.where(panel.visible, np.nan_to_num(panel.scale.fraction(panel.levels)), 0)
    pairs = np.argwhere(strengths_of_cells > MIN_STRENGTH)
    strengths = strengths_of_cells[pairs[:, 0], pairs[:, 1]]
    order = np.argsort(strengths, kind="stable")
    pairs = pairs[order]
    starts = np.column_stack([np.full(len(pairs), left), top - pairs[:, 0] * row_height])
    stops = np.column_stack([np.full(len(pairs), right), top - pairs[:, 1] * row_height])
    return _Strokes(np.stack([starts, stops], axis=1), strengths[order])


def _text_content(picture: Picture, points: float, width: float, scale: float, ruler: Ruler) -> Content:
    """Returns a paragraph of all tokens for each head, under its title, each token on the colour of its weight."""
    row_height = points * ROW_HEIGHT * LINE_SPACING / POINTS_PER_INCH
    title_points = points * PANEL_TITLE_SIZE
    words: list[Word] = []
    lines = []
    y = 0.0
    for panel in picture.panels:
        for text in ruler.wrap(panel.title, title_points, width):
            lines.append(TextLine(0, y, text, title_points))
            y -= points * LINE_HEIGHT / POINTS_PER_INCH
        paragraph = list(_paragraph(panel, y - row_height / 2, points, width, row_height, ruler))
        words += paragraph
        y = paragraph[-1].y - row_height * PARAGRAPH_STEP
    right = max(word.box.x + word.box.width for word in words if word.box)
    content_width = max((right, *(ruler.width(line.text, line.points) for line in lines)))
    return Content(content_width, -y, tuple(words), lines=tuple(lines))


def _paragraph(
    panel: Panel,
    y: float,
    points: float,
    width: float,
    row_height: float,
    ruler: Ruler,
    colors: ByteArray | None = None,
) -> Iterator[Word]:
    """Yields the tokens of a paragraph, placed in lines of at most ``width`` inches, from ``y`` downwards."""
    token_colors = panel.scale.rgb(panel.levels)[0] if colors is None else colors
    padding, space = WORD_PADDING * points / POINTS_PER_INCH, WORD_SPACE * points / POINTS_PER_INCH
    first_token, x = panel.columns.edges[0], 0.0
    for index, label in enumerate(panel.columns.labels):
        text = ruler.cut(label, points, width - 2 * padding)
        word_width = ruler.width(text, points) + 2 * padding
        if x > 0 and x + word_width > width:
            x, y = 0.0, y - row_height
        red, green, blue = token_colors[index].tolist()
        is_query = first_token + index == panel.rows.edges[0] and label == panel.rows.labels[0]
        yield Word(
            x=x + padding,
            y=y,
            text=text,
            box=_box_around(x, y, word_width, row_height),
            fill=(red, green, blue) if panel.visible[0, index] else None,
            marked=is_query,
        )
        x += word_width + space
