"""Holds the table of file formats, and writes reports in them; renderers are imported when they are used."""

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, choices, option
from attnviz.base.options import declared_options
from attnviz.report.picture.look import LIMITS, STYLES, Look
from attnviz.report.picture.options import CONTRIBUTIONS, GREY, Medium, ReportOptions

if TYPE_CHECKING:
    from attnviz.report.picture.report import Report

TERMINAL, JSON, PAGE = ".txt", ".json", ".html"
FILMS = (".gif", ".apng")  # which `attnviz.render.film` writes, of several reports
KINDS = {
    "terminal": "the terminal",
    "figure": "a figure",
    "page": "a page",
    "slides": "slides",
    "data": "a file of numbers",
}
THUMBNAIL_CELLS = 128  # largest number of rows or columns of one head among many, in a figure or on a slide


@dataclass(frozen=True, kw_only=True)
class Format:
    """A row of the table: a file format, and what its files can show."""

    suffix: str  # the suffix of its files
    kind: str  # the kind of medium, a key of ``KINDS``; an option lists the kinds in which it has an effect
    module: str  # the module whose ``write(report, suffix, file)`` writes the files
    shows: Medium  # what its files can show, whatever the look
    cells: str = ""  # the module whose ``max_cells(look)`` is the limit of a map; "" if the look does not matter
    styles: tuple[str, ...] = ("heatmap",)  # the members of ``STYLES`` that can be drawn
    marks: bool = False  # True if landmarks can label the axes
    has_atlas: bool = True  # True if ``attnviz heads`` can write this format

    def medium(self, look: Look) -> Medium:
        """Returns the limits of this format for a report with this look, such as the largest number of cells."""
        if not self.cells:
            return self.shows
        module = import_module(self.cells)  # only now, since it may import much
        medium = replace(self.shows, max_cells=module.max_cells(look))
        if self.suffix != TERMINAL:
            return medium
        return replace(
            medium,
            thumbnail_cells=module.thumbnail_cells(look),
            has_colors=look.colors > 0 and not look.ascii,
            fits=None if look.height is None else module.fits_screen,
        )


FIGURE, SLIDES, SCREEN = "attnviz.render.figure.draw", "attnviz.render.figure.slides", "attnviz.render.terminal.draw"
DATA = "attnviz.render.data"
NUMBERS = Medium(draws_maps=False, lists_heads=True, max_cells=0)  # what files of numbers show
FORMATS = {
    row.suffix: row
    for row in (
        Format(
            suffix=TERMINAL,
            kind="terminal",
            module=SCREEN,
            cells=SCREEN,
            shows=Medium(lists_heads=True, has_lines=False, masked_look="Dotted"),
            styles=("heatmap", "text"),  # arcs need lines, which a terminal cannot draw
            marks=True,
        ),
        *(
            Format(
                suffix=suffix,
                kind="figure",
                module=FIGURE,
                cells=FIGURE,
                shows=Medium(one_page=True, thumbnail_cells=THUMBNAIL_CELLS, masked_look="Hatched"),
                styles=STYLES,
                marks=True,
            )
            for suffix in (".png", ".svg", ".pdf")
        ),
        Format(
            suffix=PAGE,
            kind="page",
            module="attnviz.render.page.draw",
            cells=FIGURE,  # whose colours it takes
            shows=Medium(draws_maps=False, sorts_heads=True, thumbnail_cells=THUMBNAIL_CELLS, masked_look=GREY),
            styles=STYLES,
        ),
        Format(
            suffix=".pptx",
            kind="slides",
            module=SLIDES,
            cells=SLIDES,
            shows=Medium(thumbnail_cells=THUMBNAIL_CELLS, masked_look="Hatched", has_slides=True),
            styles=STYLES,
            marks=True,
        ),
        Format(suffix=".csv", kind="data", module=DATA, shows=NUMBERS),
        Format(suffix=JSON, kind="data", module=DATA, shows=NUMBERS),
        Format(suffix=".npz", kind="data", module=DATA, shows=replace(NUMBERS, lists_heads=False), has_atlas=False),
    )
}


def write(report: "Report", suffix: str, file: IO[bytes]) -> None:
    """Writes a report to an open file, in the format of a suffix."""
    import_module(format_of(suffix).module).write(report, suffix, file)


def draw(report: "Report", suffix: str) -> bytes:
    """Returns the bytes of a report in the format of a suffix."""
    with io.BytesIO() as file:
        write(report, suffix, file)
        return file.getvalue()


def medium_of(suffix: str, look: Look) -> Medium:
    """Returns the limits of the format with this suffix for a report with this look."""
    file_format = format_of(suffix)
    style = look.drawn_style
    if style not in file_format.styles:
        rows = [row for row in FORMATS.values() if style in row.styles and row.suffix != TERMINAL]
        suffixes = " ".join(row.suffix for row in rows if row.kind != "page" or not look.overlaid)
        name = look.style or style
        place = "the terminal" if suffix == TERMINAL else f"{suffix} files"
        raise AttnvizError(
            f"{option('style', name)} draws a picture, which {place} cannot hold; use -o {name}.svg ({suffixes})"
        )
    if look.overlaid and file_format.kind == "page":
        raise AttnvizError(f"a page cannot draw {option('style', look.style)}; use -o overlay.svg (.png .pdf .pptx)")
    if look.mark is not None and not file_format.marks:
        raise AttnvizError(f"{option('mark')} cannot label axes in {suffix} files; use -o map.png or the terminal")
    return file_format.medium(look)


def options_for_medium(options: ReportOptions, suffix: str) -> ReportOptions:
    """Returns the options with the medium of files of this suffix, for which a report is then laid out.

    Raises:
        AttnvizError: for an unknown suffix, or a style, mark or limits that such files cannot show.
    """
    limits = options.look.limits
    if suffix == PAGE and options.of == CONTRIBUTIONS and limits not in LIMITS:
        raise AttnvizError(
            f"a page shows contributions in percent of the largest norm, so {option('limits', limits)} does not apply; "
            f"use {option('limits', 'shared')}"
        )
    return replace(options, medium=medium_of(suffix, options.look))


def refuse_ineffective(names: Iterable[str], suffix: str) -> None:
    """Raises AttnvizError if an option of the look has no effect in files of this suffix.

    Accepts options that are not of the look, options with an effect in every format, and unknown suffixes.
    """
    if suffix not in FORMATS and suffix not in FILMS:
        return
    kind = "figure" if suffix in FILMS else FORMATS[suffix].kind
    look_options = declared_options(Look)
    for name in names:
        media = look_options[name].option.media if name in look_options else ()
        if media and kind not in media:
            showing_suffix = next(row.suffix for row in FORMATS.values() if row.kind in media)
            advice = "the terminal" if showing_suffix == TERMINAL else f"-o picture{showing_suffix}"
            place = "a film" if suffix in FILMS else KINDS[kind]
            raise AttnvizError(f"{option(name)} has no effect in {place}; use {advice}, or leave it out")


def format_of(suffix: str) -> Format:
    """Returns the format of a suffix."""
    if suffix not in FORMATS:
        raise AttnvizError(f"unknown suffix {suffix!r}; {choices(suffix, FORMATS)}")
    return FORMATS[suffix]
