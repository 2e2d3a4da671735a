"""The options of a report: heads and tokens to show, tables, ranking, look and medium."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, TypedDict

from attnviz.base.errors import AttnvizError, option
from attnviz.base.options import OneOf, Option, below_one, check_options, not_blank
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.report.picture.report import Report

REDUCTIONS = ("mean", "max", "rollout")
TABLES = ("scores", "weights", "both", "pairs")
Table = Annotated[
    str | None,
    Option(
        "Or print scores, weights or both as numbers; for a survey, pairs: which token looks at which.",
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


class TableOptions(TypedDict, total=False):
    """The fields of ``Rank`` and ``Reduction``, with those of the table, for the type checker."""

    sort: str | None
    top: int | None
    filter: str | None
    reduce: str | None
    residual: float
    table: str | None
    all: bool
    of: str


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
        if self.table is not None and self.reduce is not None and self.table != "weights":
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


def limit_cells(options: ReportOptions, max_cells: int) -> ReportOptions:
    """Returns the options with at most ``max_cells`` rows or columns in each map."""
    return replace(options, medium=replace(options.medium, max_cells=max_cells))
