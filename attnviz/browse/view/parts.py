"""Sets parts of the screen beside and below each other: lines of text, and the areas that answer the mouse."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from attnviz.base.printable import printable
from attnviz.browse.session.state import Theme
from attnviz.render.terminal.lines import ASCII_FOR, Line, Span, fit, right_aligned
from attnviz.report.picture.colors import Rgb

IN_ASCII = ASCII_FOR | str.maketrans("▸▾▴│└░▒▓█•●◆─→↑▏▎▍▌▋▊▉▁▂▃▄▅▆▇", ">v^|+-+#@*oO->^.::-=+#.:-=+*#")
HALF_BLOCKS = frozenset("▀▄ ")  # the texts of most spans; their width is 1, so cell_len need not be called
CURSOR_COLOR: Rgb = (255, 0, 170)


class Hit(NamedTuple):
    """The answer to a click: changes of the state, then a key that is pressed; and the cell that stands there."""

    changes: Mapping[str, Any]
    key: str = ""  # textual's name; empty for none
    cell: tuple[int, int, int] | None = None  # head, query and key


class ClickArea(NamedTuple):
    """A rectangle of a part, in columns and lines, and what stands at a position in it."""

    x: int
    y: int
    width: int
    height: int
    hit: Callable[[int, int], Hit | None]


@dataclass(frozen=True, eq=False)
class ScreenPart:
    """A part of the screen: its lines, and the areas in it that answer the mouse."""

    lines: list[Line]
    areas: list[ClickArea] = field(default_factory=list)

    def hit(self, x: int, y: int) -> Hit | None:
        """Returns what stands at a position; ``None`` if nothing there answers the mouse."""
        for area in self.areas:
            if area.x <= x < area.x + area.width and area.y <= y < area.y + area.height:
                return area.hit(x - area.x, y - area.y)
        return None


def words(text: str, width: int | None = None, style: str = "", right: bool = False) -> Span:
    """Returns a text in a style of rich, filled or cut to a width if there is one."""
    if width is not None:
        text = right_aligned(text, width) if right else fit(text, width)
    return Span(text, style=style)


def short_name(name: str, width: int) -> str:
    """Returns the name of a head in at most ``width`` columns: the part of the model is cut, the numbers never are."""
    part, colon, numbers = name.rpartition(":")
    if not colon or cell_len(name) <= width:
        return name
    part_columns = width - cell_len(numbers) - 1
    return f"{fit(part, part_columns)}:{numbers}" if part_columns > 1 else numbers


def line_part(*spans: Span, hit: Hit | None = None, width: int = 0) -> ScreenPart:
    """Returns a line, whose first ``width`` columns answer the mouse if there is a hit."""
    return ScreenPart([list(spans)], [] if hit is None else [ClickArea(0, 0, width, 1, lambda x, y: hit)])


def below(*parts: ScreenPart) -> ScreenPart:
    """Returns parts under each other, from top to bottom."""
    lines, areas = list[Line](), list[ClickArea]()
    for part in parts:
        areas += [area._replace(y=area.y + len(lines)) for area in part.areas]
        lines += part.lines
    return ScreenPart(lines, areas)


def beside(*columns: tuple[ScreenPart, int]) -> ScreenPart:
    """Returns parts next to each other, each in its width; those with fewer lines are filled with blanks."""
    height, start = max(len(part.lines) for part, _ in columns), 0
    padded_columns, areas = list[list[Line]](), list[ClickArea]()
    for part, width in columns:
        padded_columns.append([padded_line(line, width) for line in sized(part, height).lines])
        areas += [area._replace(x=area.x + start) for area in part.areas]
        start += width
    return ScreenPart([list(chain(*parts)) for parts in zip(*padded_columns, strict=True)], areas)


def sized(part: ScreenPart, height: int) -> ScreenPart:
    """Returns a part cut or filled to a number of lines."""
    lines = [*part.lines[:height], *([] for _ in range(height - len(part.lines)))]
    return ScreenPart(lines, part.areas)


def padded_line(line: Iterable[Span], width: int) -> Line:
    """Returns a line filled with blanks or cut to exactly ``width`` columns, with visible control characters."""
    spans: Line = []
    free_columns = width
    for span in line:
        printable_span = span if span.text.isprintable() else replace(span, text=printable(span.text))
        span_width = 1 if printable_span.text in HALF_BLOCKS else cell_len(printable_span.text)
        if span_width > free_columns:
            spans.append(replace(printable_span, text=set_cell_size(printable_span.text, free_columns)))
            return spans
        spans.append(printable_span)
        free_columns -= span_width
    return [*spans, Span(" " * free_columns)] if free_columns else spans


def ascii_line(line: Line) -> Line:
    """Returns a line of the same width in ASCII; a character without a counterpart becomes question marks."""
    spans = []
    for span in line:
        characters = span.text.translate(IN_ASCII)
        text = "".join(character if character.isascii() else "?" * cell_len(character) for character in characters)
        spans.append(replace(span, text=text))
    return spans


class _Paper(NamedTuple):
    """The default colours of a theme: of text, of dim text, and of the background."""

    ink: Rgb
    dim: Rgb
    paper: Rgb


PAPERS = {
    "light": _Paper((28, 30, 34), (96, 102, 112), (252, 252, 250)),
    "dark": _Paper((222, 225, 230), (148, 154, 164), (20, 22, 27)),
}


def themed_line(line: Line, theme: Theme) -> Line:
    """Returns a line whose spans without colours have those of the theme; unchanged in the terminal's own colours."""
    if theme == "terminal":
        return line
    paper, spans = PAPERS[theme], []
    for span in line:
        styles = span.style.split()
        ink = span.ink or (paper.dim if "dim" in styles else paper.ink)
        style = " ".join(style for style in styles if style != "dim")
        spans.append(replace(span, ink=ink, paper=span.paper or paper.paper, style=style))
    return spans
