"""States in one table which options change nothing in a picture, and refuses those that a user gave."""

from collections.abc import Collection
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from attnviz.base.errors import AttnvizError, option
from attnviz.base.options import declared_options
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions

if TYPE_CHECKING:
    from attnviz.report.picture.report import Report

FIGURES = ("figure", "slides")  # kinds of media
SHEETS = ("terminal", *FIGURES)  # a page lets its reader choose another view of the same heads
EVERYWHERE = (*SHEETS, "page", "data")


class _Row(NamedTuple):
    picture: str
    unread: str  # names of options
    advice: str = "leave it out"
    kinds: tuple[str, ...] = SHEETS  # of media
    reason: str = ""  # stands after the option in the refusal; "" for "has no effect in" the picture and the advice


AS_HEATMAP = f"leave it out, or use {option('style', 'heatmap')}"
LOGITS, CHECK = option("logits", "TOKEN"), option("check")
# Options of the look for single maps, which an atlas lacks; a list or an atlas of results names no heads either.
OF_SINGLE_MAPS = "per_slide style query pool mark annotate max_size effects"
OF_SINGLE_PICTURES = "per_slide query annotate max_size effects notes"
UNREAD = (
    _Row("an atlas", OF_SINGLE_MAPS, kinds=EVERYWHERE),
    _Row("results of heads", f"{OF_SINGLE_MAPS} names", kinds=EVERYWHERE),
    _Row("a film", OF_SINGLE_PICTURES, kinds=EVERYWHERE),
    _Row("steps", f"{OF_SINGLE_PICTURES} style pool mark names", kinds=EVERYWHERE),
    _Row(
        "a survey",
        "of table reduce by words special renormalize queries keys style query mark pool notes effects",
        kinds=EVERYWHERE,
        reason="needs the maps of one input, but a survey holds means over all of them; the card of a head has "
        "commands that draw its examples",
    ),
    _Row(
        LOGITS,
        "of table reduce sort top filter axes by words special renormalize keys style query mark pool names",
        kinds=EVERYWHERE,
        reason=f"does not apply to {LOGITS}, which draws no maps; leave it out",
    ),
    _Row(
        CHECK,
        "of table reduce sort top filter axes keys style query mark pool names",
        kinds=EVERYWHERE,
        reason=f"does not apply to {CHECK}, which draws no maps; leave it out",
    ),
    _Row(
        CHECK,
        "special renormalize queries all",
        kinds=EVERYWHERE,
        reason=f"does not apply to {CHECK}, which lists units; leave it out",
    ),
    _Row(
        "tables of effects",
        "sort top filter reduce residual table all of axes layers heads queries keys tower layer_parts "
        "by words special renormalize query mark effects names pool",
        kinds=EVERYWHERE,
        reason="does not apply to tables of effects, which are compared whole; leave it out",
    ),
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


def look_of(picture: str) -> tuple[str, ...]:
    """Returns the options of the look that act in a picture of the table in at least one kind of media."""
    unread_names = {
        name for row in UNREAD if row.picture == picture and row.kinds == EVERYWHERE for name in row.unread.split()
    }
    return tuple(name for name in declared_options(Look) if name not in unread_names)


def refuse_unread(report: "Report", kind: str, names: Collection[str]) -> None:
    """Raises AttnvizError for the first of the options that changes nothing in a report."""
    from attnviz.report.picture.report import (
        Arcs,
        HeadAtlas,
        HeadList,
        NumberTables,
        ShadedText,
        SurveyedHeads,
        Thumbnails,
    )

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
            raise AttnvizError(f"{option(unread_name)} {row.reason or f'has no effect in {picture}; {row.advice}'}")


def refuse_changed(picture: str, options: ReportOptions) -> None:
    """Raises AttnvizError for the first option that changes nothing in a picture, if its value is not its default."""
    names = [
        "heads" if field.name == "pairs" else field.name  # the option --heads sets both
        for group in (options, options.selection, options.grouping, options.look)
        for field in fields(group)
        if getattr(group, field.name) != getattr(type(group)(), field.name)
    ]
    refuse_unread_of(picture, EVERYWHERE[0], names)  # the rows of such a picture hold in every kind of media
