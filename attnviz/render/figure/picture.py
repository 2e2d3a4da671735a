"""Defines what a figure shows of a report, the size of its page, and its light and dark colours."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from attnviz.render.figure.words import Fonts, missing_remark
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Axis
from attnviz.report.picture.report import DrawnReport
from attnviz.report.words.captions import source_line

THEME_COLORS = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1a1a1a",
        "faint": "#5c5c5c",
        "absent": "#f0f0ec",
        "hatch": "#c9c9c4",
        "line": "#2a30a0",
        "mark": "#d1480f",
    },
    "dark": {
        "paper": "#16191f",
        "ink": "#f2f2f2",
        "faint": "#a8a8b0",
        "absent": "#262930",
        "hatch": "#4a4d58",
        "line": "#9aa8ff",
        "mark": "#ff9d5c",
    },
}
Theme = dict[str, str]
PAGE_INCHES = (13.333, 7.5)  # a slide; without a size given, the content fills at most this
FULL_SCALE_INCHES = (10.0, 7.5)  # the smallest page of a given size on which fonts have the scale 1
FONT_SCALE_RANGE = (0.5, 6.0)  # limits between which fonts scale with the page
COLUMN_SCALE = 0.67  # font scale in a journal: the names of axes then have 8 points
COLUMN_HEIGHTS = (4.5, 0.75)  # greatest height in a journal: so many inches or times the width, whichever is more
PAGE_MARGIN = 0.35  # inches, of a slide
BARE_COLUMN_MARGIN, COLUMN_MARGIN = 0.06, 0.14  # of a figure in a journal, without a title and with one
FRAME_MARGIN = 0.12  # of a picture on a slide, which has free space around it


def picture_of(report: DrawnReport) -> DrawnReport:
    """Returns a report as it is drawn in a figure: with its source, with numbers if they are written into cells.

    A bare figure has no title, source, remarks or summary; its caption then has the words of title and remarks too.
    """
    is_bare, has_maps = report.look.bare, report.kind in ("maps", "atlas")
    return replace(
        report,
        title="" if is_bare else report.title,
        source="" if is_bare else source_line(report),
        caption=" ".join((report.title, report.caption, *report.remarks)) if is_bare else report.caption,
        remarks=() if is_bare else report.remarks,
        answer="" if is_bare else report.answer,
        summary=None if is_bare or report.kind == "thumbnails" else report.summary,
        numbers=report.look.annotate if has_maps else report.kind == "tables",
    )


@dataclass(frozen=True)
class PageSize:
    """A page, or the area of its content, in inches."""

    width: float  # the width, or the greatest width if the content chooses it
    height: float  # the height, or the greatest height if the content chooses it
    scale: float  # the size of fonts relative to those of a slide
    margin: float  # the free space at every edge
    is_fixed: bool = False  # True if the user gave width and height
    is_column: bool = False  # True if the user gave only the width, such as that of a journal's column

    @property
    def grows(self) -> bool:
        """True if the content chooses width and height."""
        return not (self.is_fixed or self.is_column)


def page_size(look: Look, factor: float = 1.0) -> PageSize:
    """Returns the page that a look asks for.

    With a width and a height it is fixed; with a width alone it is a column, whose content chooses the height. Without
    a width, the content chooses the size, up to that of a slide times ``factor``.
    """
    if look.inches is not None:
        width, height = look.inches
        scale = min(
            max(min(width / FULL_SCALE_INCHES[0], height / FULL_SCALE_INCHES[1]), FONT_SCALE_RANGE[0]),
            FONT_SCALE_RANGE[1],
        )
        margin = PAGE_MARGIN if look.frame is None else FRAME_MARGIN
        return PageSize(width, height, scale, margin * scale, is_fixed=True)
    if look.column_inches is not None:
        width = look.column_inches
        height = max(COLUMN_HEIGHTS[0], COLUMN_HEIGHTS[1] * width)
        scale = min(max(width / PAGE_INCHES[0], COLUMN_SCALE), FONT_SCALE_RANGE[1])
        margin = BARE_COLUMN_MARGIN if look.bare else COLUMN_MARGIN
        return PageSize(width, height, scale, margin, is_column=True)
    return PageSize(PAGE_INCHES[0] * factor, PAGE_INCHES[1] * factor, 1.0, PAGE_MARGIN)


def with_readable_texts(picture: DrawnReport, fonts: Fonts) -> DrawnReport:
    """Returns a picture with code points (⟨U+1F600⟩) for characters that no font has, and a remark that names them.

    Returns the picture unchanged if no character is missing.
    """
    if not fonts.missing:
        return picture
    code_points = fonts.code_points

    def readable_axis(axis: Axis) -> Axis:
        marks = tuple((token, label.translate(code_points)) for token, label in axis.marks)
        return replace(axis, labels=tuple(label.translate(code_points) for label in axis.labels), marks=marks)

    return replace(
        picture,
        title=picture.title.translate(code_points),
        source=picture.source.translate(code_points),
        panels=tuple(
            replace(
                panel,
                heading=panel.heading.with_words(lambda words: words.translate(code_points)),
                rows=readable_axis(panel.rows),
                columns=readable_axis(panel.columns),
            )
            for panel in picture.panels
        ),
        remarks=(*(remark.translate(code_points) for remark in picture.remarks), missing_remark(fonts.missing)),
    )


def shown_texts(picture: DrawnReport, *, labels: bool = True) -> Iterable[str]:
    """Returns the title, source, remarks and panel titles of a figure, with or without labels and landmarks."""
    axes = (axis for panel in picture.panels for axis in (panel.rows, panel.columns)) if labels else ()
    label_texts = {label for axis in axes for label in (*axis.labels, *(text for _, text in axis.marks))}
    return (picture.title, picture.source, *picture.remarks, *(panel.title for panel in picture.panels), *label_texts)


def rgb(color: str) -> tuple[int, int, int]:
    """Returns the red, green and blue of ``#rrggbb``, each from 0 to 255."""
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return red, green, blue
