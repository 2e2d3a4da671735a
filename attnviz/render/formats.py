"""A Report to a file: the table of formats, one row each, every renderer imported when it is used."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, known_names, nearest, option
from attnviz.base.options import declared_options
from attnviz.report.picture.look import STYLES, Look
from attnviz.report.picture.options import Medium

if TYPE_CHECKING:
    from attnviz.report.picture.report import Report

TERMINAL, JSON, PAGE = ".txt", ".json", ".html"
KINDS = {
    "terminal": "the terminal",
    "figure": "a figure",
    "page": "a page",
    "slides": "slides",
    "data": "a file of numbers",
}
THUMBNAIL_CELLS = 128  # of one head among many, in a figure or on a slide


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file that reports are written as: a row of the table.

    Attributes:
        suffix: of such files.
        kind: of medium, as options say where they are seen.
        module: whose ``write(report, suffix, file)`` writes them.
        max_cells: the most rows or columns of one map, or what gives it for a look; ``None`` where the file takes the
            exact numbers of every head instead of maps.
        thumbnail_cells: the same for one head among many.
        styles: of ``STYLES``, those that can be drawn.
        one_page: whether all maps share one picture.
        marks: whether landmarks can label the axes.
        lists_heads: whether ``attnviz heads`` writes a row a head there, and not the atlas.
        has_atlas: whether it writes there at all.
        sorts_heads: True if a reader orders heads there, so that they are written as recorded.
    """

    suffix: str
    kind: str
    module: str
    max_cells: "int | Callable[[Look], int] | None" = None
    thumbnail_cells: "int | Callable[[Look], int]" = THUMBNAIL_CELLS
    styles: tuple[str, ...] = ("heatmap",)
    one_page: bool = False
    marks: bool = False
    lists_heads: bool = False
    has_atlas: bool = True
    sorts_heads: bool = False

    def medium(self, look: Look) -> Medium:
        """What a report with this look has to know about such a file."""
        return Medium(
            draws_maps=self.max_cells is not None,
            max_cells=_for_look(self.max_cells or 0, look),
            thumbnail_cells=_for_look(self.thumbnail_cells, look),
            one_page=self.one_page,
            lists_heads=self.lists_heads,
            sorts_heads=self.sorts_heads,
            fits=None if look.height is None or self.suffix != TERMINAL else _fits_screen,
        )


def _fits_screen(report: "Report") -> bool:
    """Whether the report leaves a line of its terminal for what is typed next."""
    from attnviz.render.terminal.draw import report_lines

    return len(report_lines(report)) < (report.look.height or 0)


def _for_look(cells: "int | Callable[[Look], int]", look: Look) -> int:
    return cells if isinstance(cells, int) else cells(look)


def _terminal_cells(look: Look) -> int:
    from attnviz.render.terminal.draw import max_cells

    return max_cells(look)


def _terminal_thumbnail(look: Look) -> int:
    from attnviz.render.terminal.thumbnails import thumbnail_cells

    return thumbnail_cells(look)


def _figure_cells(look: Look) -> int:
    from attnviz.render.figure.draw import max_cells

    return max_cells(look)


def _slide_cells(look: Look) -> int:
    from attnviz.render.figure.slides import max_cells

    return max_cells(look)


def _figure(suffix: str) -> Format:
    return Format(
        suffix=suffix,
        kind="figure",
        module="attnviz.render.figure.draw",
        max_cells=_figure_cells,
        styles=STYLES,
        one_page=True,
        marks=True,
    )


FORMATS = {
    row.suffix: row
    for row in (
        Format(
            suffix=TERMINAL,
            kind="terminal",
            module="attnviz.render.terminal.draw",
            max_cells=_terminal_cells,
            thumbnail_cells=_terminal_thumbnail,
            styles=("heatmap", "text"),  # a terminal has no lines to join tokens by
            marks=True,
            lists_heads=True,
        ),
        _figure(".png"),
        _figure(".svg"),
        _figure(".pdf"),
        Format(suffix=PAGE, kind="page", module="attnviz.render.page.draw", styles=STYLES, sorts_heads=True),
        Format(
            suffix=".pptx",
            kind="slides",
            module="attnviz.render.figure.slides",
            max_cells=_slide_cells,
            styles=STYLES,
            marks=True,
        ),
        Format(suffix=".csv", kind="data", module="attnviz.render.data", lists_heads=True),
        Format(suffix=JSON, kind="data", module="attnviz.render.data", lists_heads=True),
        Format(suffix=".npz", kind="data", module="attnviz.render.data", has_atlas=False),
    )
}


def write(report: "Report", suffix: str, file: IO[bytes]) -> None:
    """Writes the report to an open file, which is of the kind that ``suffix`` names.

    Raises:
        AttnvizError: if no renderer makes such files.
    """
    import_module(format_of(suffix).module).write(report, suffix, file)


def draw(report: "Report", suffix: str) -> bytes:
    """The bytes that ``write`` writes.

    Raises:
        AttnvizError: if no renderer makes such files.
    """
    with io.BytesIO() as file:
        write(report, suffix, file)
        return file.getvalue()


def medium_of(suffix: str, look: Look) -> Medium:
    """What a report with this look has to know about such a file.

    Raises:
        AttnvizError: if no renderer makes such files, or not with this look.
    """
    chosen = format_of(suffix)
    style = look.drawn_style
    if style not in chosen.styles:
        pictures = " ".join(row.suffix for row in FORMATS.values() if style in row.styles and row.suffix != TERMINAL)
        raise AttnvizError(f"{option('style', style)} draws a picture; -o {style}.svg works ({pictures})")
    if look.mark is not None and not chosen.marks:
        raise AttnvizError(
            f"{option('mark')} labels axes, and {suffix} has none of ours; -o map.png or the terminal works"
        )
    return chosen.medium(look)


def refuse_unseen(names: Iterable[str], suffix: str) -> None:
    """Raises AttnvizError where an option of the look was chosen that such files do not show, naming what does."""
    kind, looks = FORMATS[suffix].kind if suffix in FORMATS else "", declared_options(Look)
    for name in names:
        media = looks[name].option.media if name in looks else ()
        if kind and media and kind not in media:
            shows = next(row.suffix for row in FORMATS.values() if row.kind in media)
            remedy = "the terminal" if shows == TERMINAL else f"-o picture{shows}"
            raise AttnvizError(f"{option(name)} is not seen in {KINDS[kind]}; {remedy} shows it, or leave it out")


def format_of(suffix: str) -> Format:
    """The row of the table for such files.

    Raises:
        AttnvizError: if no renderer makes them.
    """
    if suffix not in FORMATS:
        raise AttnvizError(f"unknown suffix {suffix!r}; {nearest(suffix, FORMATS)}{known_names(FORMATS)} works")
    return FORMATS[suffix]
