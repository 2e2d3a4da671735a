"""Draws a decided screen as lines of spans, each kind of box in one way."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, zip_longest

from rich.cells import cell_len, set_cell_size

from attnviz.base.printable import printable
from attnviz.browse.drawing.pixels import cell_lines, text_lines
from attnviz.browse.drawing.themes import on_paper
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import (
    Below,
    Beside,
    Box,
    Cells,
    Paragraph,
    ScreenView,
    ShareBar,
    Sized,
    Words,
    Wrapped,
)
from attnviz.browse.view.screen import compose
from attnviz.render.terminal.bars import bar
from attnviz.render.terminal.lines import ASCII_FOR, Line, Span, fit, right, wrap

IN_ASCII = ASCII_FOR | str.maketrans("▸▾▴│└░▒▓█•●◆─→↑▏▎▍▌▋▊▉", ">v^|+-+#@*oO->^.::-=+#")
HALF_BLOCKS = frozenset("▀▄ ")  # most spans of a screen are one of these, and need no cell_len


def draw_screen(screen: Screen, state: State, ascii: bool = False) -> list[Line]:
    """Returns every line of the terminal, each exactly as wide as the terminal.

    Args:
        screen: the recording and the terminal.
        state: the state to draw.
        ascii: draw with ASCII characters only.
    """
    return draw(compose(screen, state), ascii)


def draw(view: ScreenView, ascii: bool = False) -> list[Line]:
    """Returns every line of the terminal, each exactly as wide as the terminal."""
    size = view.size
    lines = _drawn(Sized(Below(view.boxes), height=size.height), view.colors)
    whole = [padded(line, size.width) for line in lines]
    if ascii:
        return [[_plain(span) for span in line] for line in whole]
    return whole if view.colors <= ANSI_COLORS else [on_paper(line, view.theme) for line in whole]


def padded(line: Iterable[Span], width: int) -> Line:
    """Returns a line of exactly ``width`` columns, filled or cut, without control characters."""
    fitted: Line = []
    free = width
    for span in line:
        span = span if span.text.isprintable() else replace(span, text=printable(span.text))
        length = _columns(span)
        if length > free:
            fitted.append(replace(span, text=set_cell_size(span.text, free)))
            return fitted
        fitted.append(span)
        free -= length
    return [*fitted, Span(" " * free)] if free else fitted


def _drawn(box: Box, colors: int) -> list[Line]:
    """Returns the lines of a box."""
    match box:
        case Below():
            return [line for each in box.boxes for line in _drawn(each, colors)]
        case Beside():
            columns = zip_longest(*(_drawn(each, colors) for each in box.boxes), fillvalue=())
            return [list(chain(*line)) for line in columns] or [[]]
        case Sized():
            return _sized(_drawn(box.box, colors), box)
        case Cells():
            return cell_lines(box, colors)
        case Paragraph():
            return text_lines(box, colors)
        case _:
            return _written(box)


def _written(box: Words | Wrapped | ShareBar) -> list[Line]:
    """Returns the lines of a run of text, a wrapped text or a bar."""
    if isinstance(box, ShareBar):
        return [[Span(bar(box.value, box.most, box.width), style=box.style)]]
    if isinstance(box, Wrapped):
        return [[Span(f" {line}", style=box.style)] for line in wrap(box.text, box.width)]
    text = box.text if box.width is None else (right if box.right else fit)(box.text, box.width)
    return [[Span(text, style=box.style)]]


def _sized(lines: list[Line], box: Sized) -> list[Line]:
    """Returns as many lines as the box is high, each filled to its width."""
    if box.height is not None:
        lines = [*lines[: box.height], *([] for _ in range(box.height - len(lines)))]
    if box.width is None:
        return lines
    return [[*line, Span(" " * max(0, box.width - sum(map(_columns, line))))] for line in lines]


def _columns(span: Span) -> int:
    """Returns the terminal columns of a span."""
    return 1 if span.text in HALF_BLOCKS else cell_len(span.text)


def _plain(span: Span) -> Span:
    """Returns a span in ASCII with as many columns."""
    text = span.text.translate(IN_ASCII)
    return replace(span, text="".join(c if c.isascii() else "?" * cell_len(c) for c in text))
