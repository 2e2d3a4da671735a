"""Lays out the graph of routes to a prediction: tokens across, layers upwards, lines as strong as what they carry."""

import numpy as np

from attnviz.base.arrays import ByteArray
from attnviz.render.figure.page import Box, Content, Strokes, TextLine, Word
from attnviz.render.figure.words import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.report import RouteGraph, RouteLine

WORD_SIZE, TITLE_SIZE = 0.75, 0.85  # font sizes of words on the graph and of its title, relative to that of tokens
LINE_ROWS = 1.4  # height of a line of words, in their font size
MIN_ROW_LINES = 2.2  # least height of a row of layers, in lines of words
SOURCE_PADDING = 0.3  # beside the words of a source, in lines
COLUMN_GAP = 1.5  # between names of layers, tokens and the words at the right, in lines
SIGN_SHIFT = 0.3  # of lines of negative amounts, to the right and downwards, in lines of words
LINE_POINTS = (0.8, 4.2)  # width of the weakest line, and what the strongest has more, where tokens have 14 points
MAX_STEP = 9.0  # largest distance of two tokens, in lines


def graph_content(graph: RouteGraph, scale: ColorScale, points: float, width: float, ruler: Ruler) -> Content:
    """Returns the graph from (0, 0) downwards, with the words of its moves at the right, the largest of a row first.

    Args:
        scale: the scale of what parts add, whose ends colour the lines.
        points: the font size of tokens.
        width: the width in inches that it may take, if its words fit into it.
    """
    small, line = points * WORD_SIZE, points * WORD_SIZE * LINE_ROWS / POINTS_PER_INCH
    title_points, y, lines = points * TITLE_SIZE, 0.0, list[TextLine]()
    for text in ruler.wrap(f"routes: {graph.share}", title_points, width, bold=True):
        lines.append(TextLine(0, y, text, title_points, bold=True, faint=False))
        y -= title_points * LINE_HEIGHT / POINTS_PER_INCH

    # Each row of layers is as high as the words of its moves; tokens share the width that the words leave.
    numbers = range(len(graph.rows))
    moves = [[move for move in reversed(graph.lines) if move.row == number and move.text] for number in numbers]
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
        fill = scale_color(scale, source.strength)
        box = Box(x, middle - line / 2, source_width, line)
        words.append(Word(x + SOURCE_PADDING * line, middle, source.text, box=box, fill=fill, points=small))

    strokes = []
    for sign in (-1, 1):
        signed = [each for each in graph.lines if each.strength * sign > 0]
        ends = np.array(
            [[[middles[each.start], levels[each.row]], [middles[each.end], levels[each.row + 1]]] for each in signed]
        ).reshape(-1, 2, 2)
        if sign < 0:  # so that two lines of one way are both seen
            ends += np.array([SIGN_SHIFT * line, -SIGN_SHIFT * line])
        strengths = np.array([abs(each.strength) for each in signed])
        strokes.append(Strokes(ends, strengths, hue=scale_color(scale, sign), widths=LINE_POINTS))
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


def scale_color(scale: ColorScale, strength: float) -> tuple[int, int, int]:
    """Returns the colour of a strength, -1 to 1, on a scale around zero."""
    color: ByteArray = scale.rgb(scale.value((1 + strength) / 2))
    red, green, blue = color.tolist()
    return red, green, blue
