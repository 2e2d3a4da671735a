"""Defines the content of a figure for every type of report: maps or texts, and the words around them."""

from dataclasses import dataclass

from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import DrawnReport, HeadAtlas, Heatmaps, NumberTables, Summary, Thumbnails
from attnviz.report.words.captions import HATCHED, MASKED, source_line


@dataclass(frozen=True, eq=False, kw_only=True)
class Picture:
    """The content of one figure.

    Attributes:
        title: the title above it; "" if the title stands elsewhere.
        source: the line under the title that names the model.
        caption: the picture in one sentence, for its metadata.
        remarks: the sentences below it.
        panels: the panels, in the order in which they are drawn.
        look: the options of its size, colours and fonts.
        across: the number of panels that belong side by side; ``None`` for any number.
        summary: a table under the panels, or ``None``.
        numbers: True if numbers are written into the cells.
        filled: True if the panels fill rows in their order; False if each group of thumbnails starts a row.
    """

    title: str
    source: str = ""
    caption: str
    remarks: tuple[str, ...]
    panels: tuple[Panel, ...]
    look: Look
    across: int | None = None
    summary: Summary | None = None
    numbers: bool = False
    filled: bool = False


def picture_of(report: DrawnReport) -> Picture:
    """Returns the content of the figure of a report.

    A bare figure has no title, source, remarks or summary; its caption then has the words of title and remarks too.
    """
    match report:
        case NumberTables():
            has_numbers = True
        case Heatmaps() | HeadAtlas():
            has_numbers = report.look.annotate
        case _:
            has_numbers = False
    is_bare = report.look.bare
    return Picture(
        title="" if is_bare else report.title,
        source="" if is_bare else source_line(report),
        caption=" ".join((report.title, report.caption, *report.remarks)) if is_bare else report.caption,
        remarks=() if is_bare else tuple(HATCHED if remark == MASKED else remark for remark in report.remarks),
        panels=report.panels,
        look=report.look,
        across=report.across,
        summary=None if is_bare else report.summary,
        numbers=has_numbers,
        filled=isinstance(report, Thumbnails) and report.filled,
    )
