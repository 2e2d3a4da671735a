"""Draws a composed screen as lines of spans."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, zip_longest

from rich.cells import cell_len, set_cell_size

from attnviz.base.printable import printable
from attnviz.browse.drawing.images import image_lines
from attnviz.browse.drawing.pixels import cell_lines, text_lines
from attnviz.browse.drawing.sounds import over_sound_lines
from attnviz.browse.drawing.themes import themed_line
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.session.state import State
from attnviz.browse.view.boxes import (
    Box,
    BoxColumn,
    BoxRow,
    Cells,
    FixedBox,
    OverImage,
    OverSound,
    Paragraph,
    ScreenView,
    ShareBar,
    StyledText,
    WrappedText,
)
from attnviz.browse.view.screen import compose
from attnviz.render.terminal.lines import ASCII_FOR, Line, Span, bar, fit, right_aligned, wrap

IN_ASCII = ASCII_FOR | str.maketrans("▸▾▴│└░▒▓█•●◆─→↑▏▎▍▌▋▊▉▁▂▃▄▅▆▇", ">v^|+-+#@*oO->^.::-=+#.:-=+*#")
HALF_BLOCKS = frozenset("▀▄ ")  # the texts of most spans; their width is 1, so cell_len need not be called


def draw_screen(screen: Screen, state: State, ascii: bool = False) -> list[Line]:
    """Returns the lines of the screen for a state, each exactly as wide as the terminal."""
    return draw(compose(screen, state), ascii)


def draw(view: ScreenView, ascii: bool = False) -> list[Line]:
    """Returns the lines of a composed screen, each exactly as wide as the terminal."""
    size = view.size
    lines = _box_lines(FixedBox(BoxColumn(view.boxes), height=size.height), view.colors)
    padded_lines = [padded_line(line, size.width) for line in lines]
    if ascii:
        return [[_ascii_span(span) for span in line] for line in padded_lines]
    return padded_lines if view.colors <= ANSI_COLORS else [themed_line(line, view.theme) for line in padded_lines]


def padded_line(line: Iterable[Span], width: int) -> Line:
    """Returns a line filled with blanks or cut to exactly ``width`` columns, with visible control characters."""
    spans: Line = []
    free_columns = width
    for span in line:
        printable_span = span if span.text.isprintable() else replace(span, text=printable(span.text))
        span_width = _width(printable_span)
        if span_width > free_columns:
            spans.append(replace(printable_span, text=set_cell_size(printable_span.text, free_columns)))
            return spans
        spans.append(printable_span)
        free_columns -= span_width
    return [*spans, Span(" " * free_columns)] if free_columns else spans


def _box_lines(box: Box, colors: int) -> list[Line]:
    """Returns the lines of a box, drawn for a terminal of ``colors`` colours."""
    match box:
        case BoxColumn():
            return [line for part in box.boxes for line in _box_lines(part, colors)]
        case BoxRow():
            parts_of_line = zip_longest(*(_box_lines(part, colors) for part in box.boxes), fillvalue=())
            return [list(chain(*parts)) for parts in parts_of_line] or [[]]
        case FixedBox():
            return _fixed_lines(_box_lines(box.box, colors), box)
        case _:
            return _leaf_lines(box, colors)


def _leaf_lines(
    box: StyledText | WrappedText | ShareBar | Cells | Paragraph | OverImage | OverSound, colors: int
) -> list[Line]:
    """Returns the lines of a box that contains no other box, drawn for a terminal of ``colors`` colours."""
    match box:
        case Cells():
            return cell_lines(box, colors)
        case Paragraph():
            return text_lines(box, colors)
        case OverImage():
            return image_lines(box, colors)
        case OverSound():
            return over_sound_lines(box, colors)
        case _:
            return _text_box_lines(box)


def _text_box_lines(box: StyledText | WrappedText | ShareBar) -> list[Line]:
    """Returns one line for a bar or a text, or the lines of a wrapped text, each with a blank before it."""
    if isinstance(box, ShareBar):
        return [[Span(bar(box.value, box.most, box.width), style=box.style)]]
    if isinstance(box, WrappedText):
        return [[Span(f" {line}", style=box.style)] for line in wrap(box.text, box.width)]
    text = box.text
    if box.width is not None:
        text = right_aligned(text, box.width) if box.right else fit(text, box.width)
    return [[Span(text, style=box.style)]]


def _fixed_lines(lines: list[Line], box: FixedBox) -> list[Line]:
    """Returns the lines cut or filled to the height of the box, and filled with blanks to its width."""
    fixed_lines = lines
    if box.height is not None:
        fixed_lines = [*lines[: box.height], *([] for _ in range(box.height - len(lines)))]
    if box.width is None:
        return fixed_lines
    return [[*line, Span(" " * max(0, box.width - sum(map(_width, line))))] for line in fixed_lines]


def _width(span: Span) -> int:
    """Returns the width of a span in terminal columns."""
    return 1 if span.text in HALF_BLOCKS else cell_len(span.text)


def _ascii_span(span: Span) -> Span:
    """Returns a span of the same width in ASCII; a character without a counterpart becomes question marks."""
    characters = span.text.translate(IN_ASCII)
    text = "".join(character if character.isascii() else "?" * cell_len(character) for character in characters)
    return replace(span, text=text)
