"""States in one table which options change nothing in a picture, and refuses those that a user gave."""

from collections.abc import Collection
from typing import NamedTuple

from attnviz.base.errors import AttnvizError, option
from attnviz.report.picture.report import (
    Arcs,
    HeadAtlas,
    HeadList,
    NumberTables,
    Report,
    ShadedText,
    SurveyedHeads,
    Thumbnails,
)

FIGURES = ("figure", "slides")  # kinds of media
SHEETS = ("terminal", *FIGURES)  # a page lets its reader choose another view of the same heads


class _Row(NamedTuple):
    picture: str
    unread: str  # names of options
    advice: str = "leave it out"
    kinds: tuple[str, ...] = SHEETS  # of media


AS_HEATMAP = f"leave it out, or use {option('style', 'heatmap')}"
UNREAD = (
    _Row("arcs", "cmap mark annotate", AS_HEATMAP),
    _Row("a shaded text", "mark annotate", AS_HEATMAP, FIGURES),
    _Row("a shaded text", "names", AS_HEATMAP),
    _Row("a shaded text of several heads", "cmap mark annotate", AS_HEATMAP, FIGURES),
    _Row("a shaded text of several heads", "names", AS_HEATMAP),
    _Row("a table of numbers", "annotate names", "leave it out, or draw a heatmap"),
    _Row("an overview", "mark names", f"choose heads, such as {option('heads', '0.0')}", ("terminal",)),
    _Row("a map of layers by heads", "names", kinds=FIGURES),
    _Row("a map of layers by heads", "notes", kinds=("page",)),
    _Row("a picture of changes, whose colours are centred on 0", "cmap limits"),
    _Row("cards of heads", "color_scale limits annotate font_size", kinds=FIGURES),
    _Row("a picture of points", "color_scale limits annotate font_size names", kinds=FIGURES),
    _Row("the page of a survey", "color_scale limits", kinds=("page",)),
    _Row("a comparison of surveys", "names"),
    _Row("a page of changes", "color_scale limits cmap names", kinds=("page",)),
)


def refuse_unread(report: Report, kind: str, names: Collection[str]) -> None:
    """Raises AttnvizError for the first of the options that changes nothing in a report."""
    match report:
        case Arcs() | ShadedText():
            pictures = [picture_of_style(report.look.style, report.look.query)]
        case NumberTables():
            pictures = ["a table of numbers"]
        case Thumbnails():
            pictures = ["an overview"]
        case HeadAtlas():
            pictures = ["a map of layers by heads"]
        case SurveyedHeads():
            pictures = ["the page of a survey", "cards of heads" if report.cards else "a picture of points"]
        case HeadList():
            pictures = ["a page of changes"]
        case _:
            pictures = []
    panels = getattr(report, "panels", ())
    if panels and all(panel.scale.signed for panel in panels):
        pictures.append("a picture of changes, whose colours are centred on 0")
    for picture in pictures:
        refuse_unread_of(picture, kind, names)


def picture_of_style(style: str | None, query: str | None) -> str:
    """Returns the picture in the table that a style and a query alone decide; "" for any other."""
    if style in ("arcs", "overlay") and query is None:
        return "arcs"
    if style == "overlay":
        return "a shaded text of several heads"
    return "a shaded text" if style == "text" or (style is None and query is not None) else ""


def refuse_unread_of(picture: str, kind: str, names: Collection[str]) -> None:
    """Raises AttnvizError for the first of the options that changes nothing in a picture of the table."""
    for row in UNREAD:
        unread_name = next((name for name in row.unread.split() if name in names), None)
        if row.picture == picture and kind in row.kinds and unread_name is not None:
            raise AttnvizError(f"{option(unread_name)} has no effect in {picture}; {row.advice}")
