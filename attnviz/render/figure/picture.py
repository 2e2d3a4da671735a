"""What one figure shows, whichever kind of report it is of: its maps or texts, and the words around them."""

from dataclasses import dataclass

from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import DrawnReport, HeadAtlas, Heatmaps, NumberTables, Summary, Thumbnails
from attnviz.report.words.captions import HATCHED, MASKED, source_line


@dataclass(frozen=True, eq=False, kw_only=True)
class Picture:
    """What one figure shows.

    Attributes:
        title: over it; nothing where something else says it.
        source: the model, under the title.
        caption: the picture in one sentence, for its metadata.
        remarks: under it.
        panels: in the order in which they are drawn.
        look: its size, its colours and its letters.
        across: how many panels belong side by side; ``None`` where any number may.
        summary: a table under the panels, if there is one.
        numbers: whether numbers are written into the cells.
        filled: True if the panels fill rows in their order; else thumbnails begin a row at each group.
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
    """The whole report as one picture."""
    match report:
        case NumberTables():
            numbers = True
        case Heatmaps() | HeadAtlas():
            numbers = report.look.annotate
        case _:
            numbers = False
    bare = report.look.bare
    return Picture(
        title="" if bare else report.title,
        source="" if bare else source_line(report),
        caption=" ".join((report.title, report.caption, *report.remarks)) if bare else report.caption,
        remarks=() if bare else tuple(HATCHED if remark == MASKED else remark for remark in report.remarks),
        panels=report.panels,
        look=report.look,
        across=report.across,
        summary=None if bare else report.summary,
        numbers=numbers,
        filled=isinstance(report, Thumbnails) and report.filled,
    )
