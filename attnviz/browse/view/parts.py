"""Describes what we draw ourselves: lines of text in colours, and what stands at each point of them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from attnviz.base.printable import printable
from attnviz.browse.session.state import Theme
from attnviz.render.terminal.lines import ASCII_FOR, Line, Span, fit, right_aligned
from attnviz.report.picture.colors import Rgb

IN_ASCII = ASCII_FOR | str.maketrans("▸▾▴│└░▒▓█•●◆─→↑▏▎▍▌▋▊▉▁▂▃▄▅▆▇", ">v^|+-+#@*oO->^.::-=+#.:-=+*#")
HALF_BLOCKS = frozenset("▀▄ ")  # the texts of most spans; their width is 1, so cell_len need not be called
CURSOR_COLOR: Rgb = (255, 0, 170)


class Paper(NamedTuple):
    """The default colours of a theme: of text, of dim text, and of the background."""

    ink: Rgb
    dim: Rgb
    paper: Rgb


PAPERS = {
    "light": Paper((28, 30, 34), (96, 102, 112), (252, 252, 250)),
    "dark": Paper((222, 225, 230), (148, 154, 164), (20, 22, 27)),
}


class Hit(NamedTuple):
    """What stands at a point of the screen: a click makes the changes to the state, and may open the head."""

    changes: Mapping[str, Any]
    opens: bool = False  # the chosen head, which a click opens
    cell: tuple[int, int, int] | None = None  # head, query and key
    address: str = ""  # an address to which a click leads


@dataclass(frozen=True, eq=False)
class Drawing:
    """Lines of a part of the screen, and what stands at a column and a line of it."""

    lines: list[Line]
    hit: Callable[[int, int], Hit | None] = lambda x, y: None


@dataclass(frozen=True, eq=False)
class Listed:
    """Rows of a list with the changes to the state that a click on each makes, and the number of the row in use."""

    rows: Sequence[tuple[Line, Mapping[str, Any]]] = ()
    chosen: int | None = None


@dataclass(frozen=True, eq=False)
class Side:
    """The pane beside the map of an open head."""

    heads: Listed
    numbers: list[Line]  # at the cursor, or why they are so
    keys: Drawing  # the strongest ones of the cursor's query
    minimap: Drawing
    legend: Line


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of the screen."""

    title: Line
    main: Drawing  # the overview, a map, or one token in all heads
    text: Drawing  # below
    status: Line
    side: Side | None = None


def beside(*columns: tuple[Drawing, int]) -> Drawing:
    """Returns parts next to each other, each in its width; those with fewer lines are filled with blanks."""
    starts = [0, *accumulate(width for _, width in columns)]
    lines = [
        list(chain(*(padded_line(part.lines[y] if y < len(part.lines) else [], width) for part, width in columns)))
        for y in range(max(len(part.lines) for part, _ in columns))
    ]

    def hit(x: int, y: int) -> Hit | None:
        for (part, width), start in zip(columns, starts, strict=False):
            if start <= x < start + width and y < len(part.lines):
                return part.hit(x - start, y)
        return None

    return Drawing(lines, hit)


def below(*parts: Drawing) -> Drawing:
    """Returns parts below each other."""
    starts = [0, *accumulate(len(part.lines) for part in parts)]

    def hit(x: int, y: int) -> Hit | None:
        index = bisect_right(starts, y) - 1
        return parts[index].hit(x, y - starts[index]) if index < len(parts) else None

    return Drawing([line for part in parts for line in part.lines], hit)


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


def styled(line: Line, theme: Theme = "terminal", ascii: bool = False) -> Iterator[tuple[str, Style]]:
    """Yields the runs of a line with their styles in the colours of the theme, in ASCII if that is asked for.

    The text keeps its width: a character without a counterpart in ASCII becomes question marks.
    """
    for colors, run in groupby(line, key=lambda span: (span.ink, span.paper, span.style)):
        text = "".join(span.text for span in run)
        if ascii:
            translated = text.translate(IN_ASCII)
            text = "".join(character if character.isascii() else "?" * cell_len(character) for character in translated)
        yield text, style_of(*colors, theme)


def rich_text(lines: Iterable[Line], theme: Theme = "terminal", ascii: bool = False) -> Text:
    """Returns lines as a text of the library Rich, in which nothing of a token is markup."""
    printable_lines = ([replace(span, text=printable(span.text)) for span in line] for line in lines)
    return Text("\n", no_wrap=True).join(Text.assemble(*styled(line, theme, ascii)) for line in printable_lines)


@lru_cache(maxsize=65_536)
def style_of(ink: Rgb | None, paper: Rgb | None, style: str, theme: Theme = "terminal") -> Style:
    """Returns a style of the library Rich; colours that are not given are those of the theme."""
    attributes = style.split()
    if theme != "terminal":
        default = PAPERS[theme]
        ink, paper = ink or (default.dim if "dim" in attributes else default.ink), paper or default.paper
        attributes = [attribute for attribute in attributes if attribute != "dim"]
    ink_name, paper_name = (None if color is None else "rgb({},{},{})".format(*color) for color in (ink, paper))
    return Style(color=ink_name, bgcolor=paper_name, **dict.fromkeys(attributes, True))  # type: ignore[arg-type]
