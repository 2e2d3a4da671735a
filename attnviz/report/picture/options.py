"""The options of a report, and one table of those that change nothing in a picture, which refuses them if given."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

from attnviz.base.errors import AttnvizError, option
from attnviz.base.options import OneOf, Option, below_one, check_options, declared_options, not_blank
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.maps.recording import Recording
    from attnviz.report.picture.report import Report

REDUCTIONS = ("mean", "max", "rollout")
STEPS = "steps"
TABLES = ("scores", "weights", "both", "pairs", STEPS)
Table = Annotated[
    str | None,
    Option(
        "Or print scores, weights or both as numbers; steps: what a model looked at for each token that it wrote; for "
        "a survey, pairs: which token looks at which.",
        OneOf(TABLES),
        panel="Look",
    ),
]

CONTRIBUTIONS = "contributions"
QUANTITIES_DRAWN = ("weights", CONTRIBUTIONS)
Of = Annotated[
    str,
    Option(
        "Draw weights, or contributions: the norm of what a key moves into a query, ‖α f(x)‖ (Kobayashi et al. 2020).",
        OneOf(QUANTITIES_DRAWN),
        panel="Look",
    ),
]

Axes = Annotated[
    str | None,
    Option(
        "points:previous,special draws the heads of a survey as points by two metrics; two more set size and colour.",
        panel="Look",
        media=("figure", "page"),
    ),
]

All = Annotated[bool, Option("Show all heads, not only the clearest: as thumbnails, or one row each.", panel="Select")]


GREY = "Grey"  # how masked cells look on a page


@dataclass(frozen=True, kw_only=True)
class Medium:
    """The properties of a medium on which a report's choices depend.

    Attributes:
        max_cells: the largest number of rows or columns of a map; longer maps are pooled.
        thumbnail_cells: the same limit for each head of an overview.
        one_page: True if all maps together share ``max_cells``.
        draws_maps: True if the medium draws maps; else it takes the exact numbers of every head.
        lists_heads: True if a table of heads has one row per head; else it is drawn as an atlas.
        sorts_heads: True if readers can sort heads there; exact numbers then stay in the recorded order.
        has_colors: True if colours show numbers; False in a terminal that shows them as characters.
        has_lines: True if lines between cells can be drawn; False in a terminal.
        masked_look: how masked cells look there, the first word of the remark on them.
        has_slides: True if heads have slides of their own, after one of all of them.
        fits: returns True if a report fits on one screen; ``None`` where the medium has no limit.
    """

    max_cells: int = 1024
    thumbnail_cells: int = 64
    one_page: bool = False
    draws_maps: bool = True
    lists_heads: bool = False
    sorts_heads: bool = False
    has_colors: bool = True
    has_lines: bool = True
    masked_look: str = "Blank"
    has_slides: bool = False
    fits: "Callable[[Report], bool] | None" = None


def _metrics() -> dict[str, str]:
    """Returns the names of all metrics, each with its meaning, to suggest."""
    from attnviz.metrics.metrics import METRICS

    return {metric.name: metric.meaning for metric in METRICS.values()}


def _refuse_no_head(name: str, count: int) -> None:
    """Raises AttnvizError if a list of sorted heads would keep none."""
    if count < 1:
        raise AttnvizError(f"{option(name, count)} leaves no head; give 1 or more")


@dataclass(frozen=True, eq=False)
class Rank:
    """Options that sort and filter heads."""

    sort: Annotated[
        str | None,
        Option(
            "Order heads by a metric, largest first; -METRIC puts the smallest first.",
            brief="Order heads by previous, induction, entropy, …",
            names=_metrics,
        ),
    ] = None
    top: Annotated[int | None, Option("Keep only this many heads.", _refuse_no_head, needs=("sort", "previous"))] = None
    filter: Annotated[
        str | None, Option("Keep the heads that pass every test, such as 'sink>0.5 layer:3-5'.", not_blank)
    ] = None


@dataclass(frozen=True, eq=False)
class Reduction:
    """Options that combine all heads into one map."""

    reduce: Annotated[
        str | None, Option("Combine all heads into one map: mean, max or rollout.", OneOf(REDUCTIONS))
    ] = None
    residual: Annotated[
        float,
        Option(
            "rollout:0.3 sets the residual stream's share of a row, else 0.5.",
            below_one,
            needs=("reduce", "rollout"),
        ),
    ] = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportOptions(Reduction, Rank):
    """All options of a report.

    Attributes:
        selection: the layers, heads, queries and keys to show.
        grouping: the tokens to leave out, and the units to join them into.
        table: print ``scores``, ``weights`` or ``both`` as numbers, or ``pairs`` of tokens of a survey; ``None`` draws
            heatmaps of the weights.
        of: the quantity to draw: ``weights``, or the ``contributions`` they make with values and output projection.
        all: show every head, where a screen would show only the clearest.
        axes: for a survey, the numbers by which heads are drawn as points; ``None`` draws no points.
        look: the options of how it is drawn.
        medium: the properties of the medium that it is drawn in.
        sort: the metric that orders heads, the largest first; ``-METRIC`` puts the smallest first.
        top: the number of heads to keep, of a sorted list.
        filter: the tests that a head must pass, such as ``previous>0.5 layer:3-5``.
        reduce: ``mean``, ``max`` or ``rollout``, which combines all heads into one map.
        residual: the share of the residual stream in each row of rollout, 0 to 1.

    Raises:
        AttnvizError: for an unknown quantity or table.

    Example:
        >>> import attnviz
        >>> options = attnviz.ReportOptions(selection=attnviz.Selection(heads=(0, 1)), table="weights")
        >>> options.selection.heads, options.of
        ((0, 1), 'weights')
    """

    selection: Selection = field(default_factory=Selection)
    grouping: Grouping = field(default_factory=Grouping)
    table: Table = None
    all: All = False
    of: Of = "weights"
    axes: Axes = None
    look: Look = field(default_factory=Look)
    medium: Medium = field(default_factory=Medium)

    def __post_init__(self) -> None:
        check_options(self)
        if self.residual != Reduction.residual and self.reduce in ("mean", "max"):
            raise AttnvizError(f"{option('residual')} has no effect on {option('reduce', self.reduce)}; leave it out")
        if self.table in ("scores", "both") and self.grouping.units != "tokens":
            raise AttnvizError(
                f"{option('by', self.grouping.units)} joins tokens, and only tokens have scores; "
                f"use {option('table', 'weights')}"
            )
        if self.table not in (None, STEPS, "weights") and self.reduce is not None:
            raise AttnvizError(
                f"{option('reduce')} combines weights, and {option('table', self.table)} asks for scores; "
                f"use {option('table', 'weights')}"
            )
        if self.table is not None and self.look.drawn_style != "heatmap":
            style = option("style", self.look.style or self.look.drawn_style)
            raise AttnvizError(
                f"{style} draws no numbers, and a table needs {option('style', 'heatmap')}; use one of them"
            )
        if self.of == CONTRIBUTIONS and self.look.color_scale == "lift":
            raise AttnvizError(
                f"{option('color_scale', 'lift')} needs weights, whose rows sum to 1; "
                f"use {option('color_scale', 'log')}"
            )

    @property
    def chooses_heads(self) -> bool:
        """True if the user chose heads by their numbers."""
        return self.selection.heads is not None or self.selection.pairs is not None

    @property
    def chooses_keys(self) -> bool:
        """True if the user chose keys, or to show or hide special tokens, so that overviews leave out no others."""
        return self.grouping.special is not None or self.selection.keys != (None, None)


def refuse_tables_of_surveys(options: ReportOptions) -> None:
    """Raises AttnvizError for what only a survey has: heads as points, and counts of pairs of tokens."""
    if options.table == "pairs":
        raise AttnvizError(
            f"{option('table', 'pairs')} counts pairs over the texts of a survey, and this is no survey; "
            f"use {option('table', 'weights')}"
        )
    if options.axes is not None:
        raise AttnvizError(
            f"{option('axes', options.axes)} needs a survey (attnviz survey); to order heads use "
            f"{option('sort', 'previous')}"
        )


def refuse_for_implicit(recording: "Recording", options: ReportOptions) -> None:
    """Raises AttnvizError for what implicit attention has not: scores, a softmax, or numbers of one sign."""
    if recording.maps[0].quantity != "implicit":
        return
    look, unread = options.look, ""
    if options.table in ("scores", "both"):
        unread = f"{option('table', options.table)} needs the scores of a softmax; use {option('table', 'weights')}"
    elif options.reduce in ("max", "rollout"):
        unread = f"{option('reduce', options.reduce)} needs numbers of one sign; use {option('reduce', 'mean')}"
    elif look.color_scale == "lift":
        unread = f"{option('color_scale', 'lift')} needs rows that sum to 1; use {option('color_scale', 'log')}"
    if unread:
        raise AttnvizError(f"implicit attention has either sign and no softmax, and {unread}")


def limit_cells(options: ReportOptions, max_cells: int) -> ReportOptions:
    """Returns the options with at most ``max_cells`` rows or columns in each map."""
    return replace(options, medium=replace(options.medium, max_cells=max_cells))


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
# Options of the look for single maps, which an atlas lacks; a list or an atlas of results names no heads either.
OF_SINGLE_MAPS = "per_slide style query pool mark annotate max_size effects"
OF_SINGLE_PICTURES = "per_slide query annotate max_size effects notes"
UNREAD = (
    _Row("an atlas", OF_SINGLE_MAPS, kinds=EVERYWHERE),
    _Row("results of heads", f"{OF_SINGLE_MAPS} names", kinds=EVERYWHERE),
    _Row("a film", OF_SINGLE_PICTURES, kinds=EVERYWHERE),
    _Row(
        STEPS,
        f"{OF_SINGLE_PICTURES} style pool mark names of reduce residual sort top filter all words special renormalize "
        "keys",
        kinds=EVERYWHERE,
        reason=f"has no effect in {option('table', STEPS)}; leave it out",
    ),
    _Row(
        "a survey",
        "of table reduce by words special renormalize queries keys style query mark pool notes effects",
        kinds=EVERYWHERE,
        reason="needs the maps of one input, but a survey holds means over all of them; the card of a head has "
        "commands that draw its examples",
    ),
    _Row("an explained prediction", f"{OF_SINGLE_PICTURES} style pool mark names", kinds=EVERYWHERE),
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
    from attnviz.report.picture.report import DrawnReport, HeadList, SurveyedHeads

    match report:
        case DrawnReport(kind="arcs" | "text"):
            pictures = [picture_of_style(report.look.style, report.look.query)]
        case DrawnReport(kind="tables"):
            pictures = ["a table of numbers"]
        case DrawnReport(kind="thumbnails"):
            pictures = ["an overview"]
        case DrawnReport(kind="atlas"):
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
