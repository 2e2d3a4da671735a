"""Lays out arcs (tokens in two columns, joined by lines) and texts shaded by what one query attends to."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from attnviz.base.arrays import ByteArray
from attnviz.render.figure.answer import answer_content
from attnviz.render.figure.page import TOKEN_SIZES, Box, Content, Page, Strokes, TextLine, Word, arrange_tokens
from attnviz.render.figure.picture import PageSize
from attnviz.render.figure.words import LINE_HEIGHT, POINTS_PER_INCH, ROUNDING_INCHES, Ruler
from attnviz.report.picture.overlays import HUES, mixed_hues, overlaid_strengths
from attnviz.report.picture.panels import Heading, Panel
from attnviz.report.picture.report import DrawnReport

ROW_HEIGHT = 1.45  # of a row of tokens, in font sizes
ARC_WIDTH, HEAD_GAP = 1.8, 0.6  # inches between the two columns, and between heads
FITTED_ARC_SHARE = 0.55  # share of ARC_WIDTH that arcs keep on a page of a given size
EXTRA_ARC_SHARE = 2.0  # largest share of ARC_WIDTH that is added if such a page has space
MAX_TOKEN_WIDTH = 1.6  # inches
MIN_TITLE_SHARE = 0.75  # smallest font size of a head's title, relative to that of tokens
TEXT_SIZES = (56.0, 48.0, 40.0, 34.0, *TOKEN_SIZES)  # of a text alone, which fills a slide if it is short
WORD_SPACE, WORD_PADDING = 0.25, 0.18  # between tokens and around them, in font sizes
LEGEND_LINES, MIN_LEGEND_STRENGTH = 4, 0.05  # number of lines in the legend, and the least strength of one
MIN_STRENGTH = 0.01  # share of the scale; fainter lines would be invisible
COLUMN_PADDING = 0.1  # inches between a column of tokens and the ends of its lines
TITLE_ROWS, AXIS_NAME_ROW = 2.2, 1.1  # rows from a head's top to its first token, and to the names of its columns
HEAD_BOTTOM_SPACE = 0.3  # inches under the tokens of a head
AXIS_NAME_SIZE = 0.8  # font size of the columns' names and of the legend, relative to that of tokens
LEGEND_ROWS = 1.5  # height of the legend of strengths, in rows of tokens
STROKE_ROWS, STROKE_GAP_ROWS = 1.5, 0.4  # length of a line in the legend, and the space around it, in rows
LINE_SPACING = 1.15  # height of a line of text, relative to a row of arcs
PANEL_TITLE_SIZE = 0.85  # font size of a head's title over its text, relative to that of tokens
PARAGRAPH_STEP = 1.4  # rows from the last line of a text to the title of the next
LEGEND_GREY = (128, 128, 128)  # of the legend of several hues
SOURCE_GAP_ROWS = 0.4  # between the line with the model and the title of the first head
WORD_HEIGHT = 0.9  # height of the rectangle behind a token, in rows


def arrange_arcs(picture: DrawnReport, ruler: Ruler) -> Page:
    """Returns the page of arcs: two columns of tokens for each head, or for all heads if the look overlays them."""
    content = _overlaid_arcs if picture.look.overlaid else _arcs_content
    return arrange_tokens(picture, content, ruler, legend=())


def arrange_text(picture: DrawnReport, ruler: Ruler) -> Page:
    """Returns the page of a text for each head, or of one for all heads if the look overlays them."""
    if picture.look.overlaid:
        return arrange_tokens(picture, _overlaid_text, ruler, legend=())
    if picture.charts:
        return arrange_tokens(picture, partial(answer_content, _text_content), ruler, legend=())
    return arrange_tokens(picture, _text_content, ruler, token_sizes=TEXT_SIZES)


def _arcs_content(picture: DrawnReport, points: float, area: PageSize, ruler: Ruler) -> Content:
    """Returns the arcs of heads: queries at the left, keys at the right, and lines for the weights between them."""
    scale, width, page_grows = area.scale, area.width, area.grows
    row_height, max_label_width = points * ROW_HEIGHT / POINTS_PER_INCH, MAX_TOKEN_WIDTH * scale
    axes = [axis for panel in picture.panels for axis in (panel.rows, panel.columns)]
    name_points, padding = points * AXIS_NAME_SIZE, COLUMN_PADDING * scale
    label_width = min(max(ruler.longest_width(axis.labels, points) for axis in axes), max_label_width)
    label_width = max(label_width, ruler.longest_width({axis.name for axis in axes}, name_points))
    titles = tuple(panel.title for panel in picture.panels)
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
    title_points = ruler.largest_points(titles, head_width, points, points * MIN_TITLE_SHARE)
    source_gap = SOURCE_GAP_ROWS * row_height
    words: list[Word] = []
    strokes, lines = [], []
    for panel_index, panel in enumerate(picture.panels):
        row_of_heads, column = divmod(panel_index, across)
        x, y = column * (head_width + HEAD_GAP * scale), -row_of_heads * head_height - source_gap
        first_y, left, right = y - TITLE_ROWS * row_height, x + label_width, x + head_width - label_width
        title = ruler.cut(panel.title, title_points, head_width + ROUNDING_INCHES)
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
    height = head_height * math.ceil(len(picture.panels) / across) + source_gap
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
    return Content(total_width, height, points, words=tuple(words), strokes=tuple(strokes), lines=tuple(lines))


def _overlaid_arcs(picture: DrawnReport, points: float, area: PageSize, ruler: Ruler) -> Content:
    """Returns the arcs of several heads between the same two columns of tokens, each head in its hue."""
    row_height = points * ROW_HEIGHT / POINTS_PER_INCH
    names, depth = _hue_names(picture, points, ruler)
    first_panel = replace(picture.panels[0], heading=Heading())
    content = _arcs_content(replace(picture, panels=(first_panel,)), points, area, ruler)
    first_strokes, *legend = content.strokes
    legend = [replace(strokes, hue=LEGEND_GREY) for strokes in legend]  # it stands for the lines of all heads
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


def _overlaid_text(picture: DrawnReport, points: float, area: PageSize, ruler: Ruler) -> Content:
    """Returns one paragraph under the heads' names; a token's colour mixes the hues of the heads that look at it."""
    row_height = points * ROW_HEIGHT * LINE_SPACING / POINTS_PER_INCH
    names, depth = _hue_names(picture, points, ruler)
    colors = mixed_hues(overlaid_strengths(picture.panels))
    paragraph = list(
        _paragraph(picture.panels[0], -depth - row_height / 2, points, area.width, row_height, ruler, colors)
    )
    right = max(word.box.x + word.box.width for word in paragraph if word.box)
    names_end = max(name.x + ruler.width(name.text, points) for name in names)
    height = -(paragraph[-1].y - row_height)
    return Content(max(right, names_end), height, points, words=(*names, *paragraph))


def _hue_names(picture: DrawnReport, points: float, ruler: Ruler) -> tuple[list[Word], float]:
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
) -> tuple[list[Word], Strokes]:
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
    return words, Strokes(ends, np.array([strength for _, strength in shown_items]))


def _strokes_of_panel(panel: Panel, left: float, right: float, top: float, row_height: float) -> Strokes:
    """Returns a line for each visible weight whose strength is above `MIN_STRENGTH`; the strongest is last, on top."""
    strengths_of_cells = np.where(panel.visible, np.nan_to_num(panel.scale.fraction(panel.levels)), 0)
    pairs = np.argwhere(strengths_of_cells > MIN_STRENGTH)
    strengths = strengths_of_cells[pairs[:, 0], pairs[:, 1]]
    order = np.argsort(strengths, kind="stable")
    pairs = pairs[order]
    starts = np.column_stack([np.full(len(pairs), left), top - pairs[:, 0] * row_height])
    stops = np.column_stack([np.full(len(pairs), right), top - pairs[:, 1] * row_height])
    return Strokes(np.stack([starts, stops], axis=1), strengths[order])


def _text_content(picture: DrawnReport, points: float, area: PageSize, ruler: Ruler) -> Content:
    """Returns a paragraph of all tokens for each head, under its title, each token on the colour of its weight."""
    row_height = points * ROW_HEIGHT * LINE_SPACING / POINTS_PER_INCH
    usual_points = TOKEN_SIZES[0] * area.scale
    title_points = min(points, usual_points) * PANEL_TITLE_SIZE
    words: list[Word] = []
    lines = []
    y = -SOURCE_GAP_ROWS * row_height
    for panel in picture.panels:
        for text in ruler.wrap(panel.title, title_points, area.width):
            lines.append(TextLine(0, y, text, title_points))
            y -= title_points / PANEL_TITLE_SIZE * LINE_HEIGHT / POINTS_PER_INCH
        first_y = y - row_height / 2
        paragraph = list(_paragraph(panel, first_y, points, area.width, row_height, ruler))
        if points > usual_points and paragraph[-1].y != first_y:  # a text that fits one line stays on it
            line = list(_paragraph(panel, first_y, points, math.inf, row_height, ruler))
            length = line[-1].box.x + line[-1].box.width if line[-1].box else math.inf
            paragraph = line if length * usual_points / points <= area.width else paragraph
        words += paragraph
        y = paragraph[-1].y - row_height * PARAGRAPH_STEP
    right = max(word.box.x + word.box.width for word in words if word.box)
    content_width = max((right, *(ruler.width(line.text, line.points) for line in lines)))
    return Content(content_width, -y, points, words=tuple(words), lines=tuple(lines))


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
