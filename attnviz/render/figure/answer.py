"""Lays out an answer of `why`: sentences, the shaded text, picture or sound, routes, and tables drawn as bars."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import ByteArray
from attnviz.render.figure.page import Box, Content, Strokes, TextLine, Word
from attnviz.render.figure.picture import THEME_COLORS, PageSize, Theme, rgb
from attnviz.render.figure.words import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.report import DrawnReport, RouteGraph, RouteLine, Summary

WORD_SIZE, TITLE_SIZE = 0.75, 0.85  # font sizes of words on the graph and of its title, relative to that of tokens
TABLE_SIZE = 0.8  # font size of tables, relative to that of tokens
LEGEND_SIZE = WORD_SIZE / TITLE_SIZE  # font size of the scale's numbers, relative to that of the title beside them
MAX_WIDTH = 10.0  # inches of an answer that chooses its width: letters stay legible in a column of text
GAP = 1.2  # between the parts of an answer, in lines of tokens
ROW_LINES = 1.55  # height of a row of a table, in font sizes
CELL_GAP = 0.9  # between the columns of a table, in font sizes
LEAST_BAR, LARGEST_BAR = 6.0, 16.0  # space for the bars of a table, in font sizes
BAR_HEIGHT = 0.68  # of a bar, in rows
MIDDLE = 0.55  # from the upper edge of a title to the middle of its letters, in font sizes
LINE_ROWS = 1.4  # height of a line of words, in their font size
MIN_ROW_LINES = 2.2  # least height of a row of layers, in lines of words
SOURCE_PADDING = 0.3  # beside the words of a source, in lines
COLUMN_GAP = 1.5  # between names of layers, tokens and the words at the right, in lines
SIGN_SHIFT = 0.3  # of lines of negative amounts, to the right and downwards, in lines of words
LINE_POINTS = (0.8, 4.2)  # width of the weakest line, and what the strongest has more, where tokens have 14 points
MAX_STEP = 9.0  # largest distance of two tokens, in lines
AXIS_POINTS = 0.8  # width of the line at which bars begin

ContentOf = Callable[[DrawnReport, float, PageSize, Ruler], Content]


def answer_content(body_of: ContentOf, picture: DrawnReport, points: float, area: PageSize, ruler: Ruler) -> Content:
    """Returns the first sentences, below them what ``body_of`` lays out, and below that two tables and the routes.

    Tables stand side by side over the routes. Where that is too high for the page, they stand beside them, and in a
    journal's column all is stacked.
    """
    if area.grows:
        area = replace(area, width=min(area.width, MAX_WIDTH * area.scale))
    line_height = points * LINE_HEIGHT / POINTS_PER_INCH
    gap, scale = GAP * line_height, picture.panels[0].scale
    wrapped = [text for sentence in picture.answer.splitlines() for text in ruler.wrap(sentence, points, area.width)]
    lines = [TextLine(0, -row * line_height, text, points, faint=False) for row, text in enumerate(wrapped)]
    sentences = Content(ruler.longest_width(wrapped, points), len(lines) * line_height, points, lines=tuple(lines))
    body = body_of(picture, points, area, ruler)
    if body.words:
        titles = tuple(replace(line, bold=True, faint=False) for line in body.lines)
        body = replace(body, words=(*body.words, *_legend(picture, titles[0], ruler)), lines=titles)
    theme = THEME_COLORS[picture.look.drawn_theme]

    def tables(width: float) -> list[Content]:
        return [_table(chart, points * TABLE_SIZE, width, scale, theme, ruler) for chart in picture.charts]

    def routes(width: float) -> list[Content]:
        return [] if picture.routes is None else [_graph(picture.routes, scale, points, width, theme, ruler)]

    side_by_side = _joined(tables((area.width - gap) / max(len(picture.charts), 1)), gap, across=True)
    width = max(side_by_side.width, body.width) if area.grows else area.width
    below = _joined([side_by_side, *routes(width)], gap)
    if area.is_fixed and below.height + body.height + sentences.height + gap > area.height:
        narrowest = max((table.width for table in tables(0.0)), default=0.0)
        graph = routes(area.width - narrowest - gap)
        left = sum(each.width + gap for each in graph)
        below = _joined([*graph, _joined(tables(area.width - left), gap)], gap, across=True)
    if area.is_column and below.width > area.width:  # other pages take smaller letters
        below = _joined([*tables(area.width), *routes(area.width)], gap)
    parts = [body, below]
    beside = _joined([body, _joined(tables(area.width - body.width - gap), gap)], gap, across=True)
    if body.panels and beside.width <= area.width:  # a picture with space at its right
        parts = [beside, *routes(max(beside.width, width))]
    content = _joined(parts if picture.answer == "" else [sentences, *parts], gap / 2)
    return replace(content, points=points, title_points=body.title_points, name_points=body.name_points)


def _joined(parts: Sequence[Content], gap: float, across: bool = False) -> Content:
    """Returns contents below one another, or side by side, as one."""
    placed, x, y = list[Content](), 0.0, 0.0
    for part in parts:
        placed.append(part.moved(x, y))
        x, y = (x + part.width + gap, y) if across else (x, y - part.height - gap)
    return Content(
        width=max((part.x + part.width for part in placed), default=0.0),
        height=max((part.height - part.y for part in placed), default=0.0),
        points=parts[0].points if parts else 0.0,
        panels=tuple(panel for part in placed for panel in part.panels),
        words=tuple(word for part in placed for word in part.words),
        strokes=tuple(strokes for part in placed for strokes in part.strokes),
        lines=tuple(line for part in placed for line in part.lines),
    )


def _legend(picture: DrawnReport, title: TextLine, ruler: Ruler) -> list[Word]:
    """Returns the ticks of the scale in their colours, at the right of the first title of a text."""
    panel, height, points = picture.panels[0], title.points * ROW_LINES / POINTS_PER_INCH, title.points * LEGEND_SIZE
    x = title.x + ruler.width(title.text, title.points, bold=True) + height
    y = title.y - title.points * MIDDLE / POINTS_PER_INCH
    words = []
    for value, text in panel.color_quantity.ticks(panel.scale):
        width = ruler.width(text, points) + height / 2
        red, green, blue = panel.scale.rgb(value).tolist()
        box = Box(x, y - height * BAR_HEIGHT / 2, width, height * BAR_HEIGHT)
        words.append(Word(x + height / 4, y, text, box=box, fill=(red, green, blue), points=points))
        x += width
    return words


def _table(table: Summary, points: float, width: float, scale: ColorScale, theme: Theme, ruler: Ruler) -> Content:
    """Returns a table without its header, whose bars take what texts leave of a width; controls are grey."""
    em, title_points = points / POINTS_PER_INCH, points * TITLE_SIZE / TABLE_SIZE
    row, gap, line_height = ROW_LINES * em, CELL_GAP * em, title_points * LINE_HEIGHT / POINTS_PER_INCH
    bars = [next((length for length in lengths if length is not None), None) for lengths in table.bars]
    controls = table.controls or (False,) * len(table.rows)
    lowest = min(0.0, *(length for length in bars if length is not None))

    # Columns of text, and beside the one with bars the space for them: from the lowest number to 1.
    widths = [ruler.longest_width(texts, points) + gap for texts in zip(*table.rows, strict=True)]
    bar_space = min(max(width - sum(widths) - gap, LEAST_BAR * em), LARGEST_BAR * em)
    unit, lefts, axis, right = bar_space / (1 - lowest), list[float](), 0.0, 0.0
    for cell_width, lengths in zip(widths, zip(*table.bars, strict=True), strict=True):
        lefts.append(right)
        right += cell_width
        if any(length is not None for length in lengths):
            axis = right + gap / 2 - lowest * unit
            right += bar_space + 2 * gap
    titles = ruler.wrap(table.title, title_points, max(right - gap, width), bold=True)
    lines = [
        TextLine(0, -number * line_height, text, title_points, bold=True, faint=False)
        for number, text in enumerate(titles)
    ]
    top = -len(lines) * line_height
    words = list[Word]()
    for number, (texts, is_control) in enumerate(zip(table.rows, controls, strict=True)):
        y = top - (number + 0.5) * row
        for column, text in enumerate(texts):
            is_right = (table.align or ">" * len(texts))[column] == ">"
            place = lefts[column] + (widths[column] - gap if is_right else 0.0)
            words.append(Word(place, y, text, "right" if is_right else "left", points=points, faint=is_control))
        length = bars[number]
        if length is not None:
            start, end = sorted((axis, axis + length * unit))
            box = Box(start, y - BAR_HEIGHT * row / 2, end - start, BAR_HEIGHT * row)
            fill = rgb(theme["faint"]) if is_control else _scale_color(scale, float(np.sign(length)))
            words.append(Word(start, y, "", box=box, fill=fill))
    bottom = top - len(table.rows) * row
    ends = np.array([[[axis, top], [axis, bottom]]])
    strokes = [Strokes(ends, np.ones(1), rgb(theme["faint"]), (AXIS_POINTS, 0.0))]
    return Content(
        max(right - gap, *(ruler.width(line.text, title_points, bold=True) for line in lines)),
        -bottom,
        points,
        words=tuple(words),
        strokes=tuple(strokes),
        lines=tuple(lines),
    )


def _graph(graph: RouteGraph, scale: ColorScale, points: float, width: float, theme: Theme, ruler: Ruler) -> Content:
    """Returns the graph from (0, 0) downwards, with the words of its moves at the right, the largest of a row first."""
    small, line = points * WORD_SIZE, points * WORD_SIZE * LINE_ROWS / POINTS_PER_INCH
    title_points, y, lines = points * TITLE_SIZE, 0.0, list[TextLine]()
    for text in ruler.wrap(f"Routes: {graph.share}", title_points, width, bold=True):
        lines.append(TextLine(0, y, text, title_points, bold=True, faint=False))
        y -= title_points * LINE_HEIGHT / POINTS_PER_INCH

    # Each row of layers is as high as the words of its moves; tokens share the width that the words leave.
    numbers = range(len(graph.rows))
    moves = [[move for move in reversed(graph.lines) if move.row == number] for number in numbers]
    heights = [max(MIN_ROW_LINES, len(moves[number]) + 0.5) * line for number in numbers]
    bottom = y - line - sum(heights)
    levels = bottom + np.concatenate([[0.0], np.cumsum(heights)])
    left = ruler.longest_width((*graph.rows, "layer"), small) + COLUMN_GAP * line
    move_texts = [[_move_text(graph, move) for move in moves[number]] for number in numbers]
    longest = ruler.longest_width([text for texts in move_texts for text in texts], small)
    sources_width = ruler.longest_width([source.text for source in graph.sources], small)
    least_step = max(ruler.longest_width(graph.columns, points), sources_width) + COLUMN_GAP * line
    step = max(min((width - left - longest) / len(graph.columns), MAX_STEP * line), least_step)
    middles = [left + (column + 0.5) * step for column in range(len(graph.columns))]
    right = left + len(graph.columns) * step

    words = [Word(0, bottom - line, "layer", points=small)]
    for x, label in zip(middles, graph.columns, strict=True):
        words.append(Word(x - ruler.width(label, points) / 2, bottom - line, label))
    for number in numbers:
        words.append(Word(0, float(levels[number] + levels[number + 1]) / 2, graph.rows[number], points=small))
        for place, text in enumerate(move_texts[number]):
            words.append(Word(right, float(levels[number + 1]) - (place + 0.75) * line, text, points=small))
    for source in graph.sources:
        source_width = ruler.width(source.text, small) + 2 * SOURCE_PADDING * line
        x, middle = middles[source.column] - source_width / 2, float(levels[source.row] + heights[source.row] / 2)
        fill = _scale_color(scale, source.strength)
        box = Box(x, middle - line / 2, source_width, line)
        words.append(Word(x + SOURCE_PADDING * line, middle, source.text, box=box, fill=fill, points=small))

    columns = np.array([[[x, levels[0]], [x, levels[-1]]] for x in middles])  # of the tokens, from layer to layer
    strokes = [Strokes(columns, np.ones(len(middles)), rgb(theme["hatch"]), (AXIS_POINTS, 0.0))]
    for sign in (-1, 1):
        signed = [each for each in graph.lines if each.strength * sign > 0]
        ends = np.array(
            [[[middles[each.start], levels[each.row]], [middles[each.end], levels[each.row + 1]]] for each in signed]
        ).reshape(-1, 2, 2)
        if sign < 0:  # so that two lines of one way are both seen
            ends += np.array([SIGN_SHIFT * line, -SIGN_SHIFT * line])
        strengths = np.array([abs(each.strength) for each in signed])
        strokes.append(Strokes(ends, strengths, hue=_scale_color(scale, sign), widths=LINE_POINTS))
    return Content(
        width=max(right + longest, *(ruler.width(each.text, each.points, bold=True) for each in lines)),
        height=-(bottom - 2 * line),
        points=points,
        words=tuple(words),
        strokes=tuple(strokes),
        lines=tuple(lines),
    )


def _move_text(graph: RouteGraph, move: RouteLine) -> str:
    start, end = graph.columns[move.start], graph.columns[move.end]
    return f"{start if start == end else f'{start} → {end}'}: {move.text}"


def _scale_color(scale: ColorScale, strength: float) -> tuple[int, int, int]:
    """Returns the colour of a strength, -1 to 1, on a scale around zero."""
    color: ByteArray = scale.rgb(scale.value((1 + strength) / 2))
    red, green, blue = color.tolist()
    return red, green, blue
