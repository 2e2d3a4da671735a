"""What a user may choose about a report."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, TypedDict

from attnviz.base.errors import AttnvizError, known_names, nearest, option
from attnviz.base.options import OneOf, Option, listed
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.report.picture.report import Report

TABLES = ("scores", "weights", "both")
Table = Annotated[str | None, Option("Print the numbers: scores, weights or both.", panel="Look", names=listed(TABLES))]

CONTRIBUTIONS = "contributions"
QUANTITIES_DRAWN = ("weights", CONTRIBUTIONS)
Of = Annotated[
    str,
    Option(
        "Draw weights, or contributions: the norm of what a key moves into a query, ‖α f(x)‖ (Kobayashi et al. 2020).",
        OneOf(QUANTITIES_DRAWN, lambda _: "quantity"),
        panel="Look",
    ),
]

Axes = Annotated[
    str | None,
    Option(
        "Draw the heads of a survey as points of two numbers, as previous,special; two more set size and colour.",
        panel="Look",
        media=("figure", "page"),
    ),
]

All = Annotated[bool, Option("Show all heads, not only the clearest: as thumbnails, or one row each.", panel="Select")]


@dataclass(frozen=True, kw_only=True)
class Medium:
    """What a report has to know about where it will be drawn.

    Attributes:
        max_cells: the most rows or columns of one map; longer ones are pooled.
        thumbnail_cells: the same for each head where many are drawn as an overview.
        one_page: whether all maps share that room.
        draws_maps: whether maps are drawn at all; else the medium takes the exact numbers of every head.
        lists_heads: whether a table of heads is a row a head, and not the atlas.
        sorts_heads: True if a reader orders heads there, so that the exact numbers are in the order recorded.
        fits: whether a report is seen at once; ``None`` where there is room for all.
    """

    max_cells: int = 1024
    thumbnail_cells: int = 64
    one_page: bool = False
    draws_maps: bool = True
    lists_heads: bool = False
    sorts_heads: bool = False
    fits: "Callable[[Report], bool] | None" = None


def _metrics() -> dict[str, str]:
    from attnviz.metrics.metrics import METRICS

    return {metric.name: metric.meaning for metric in METRICS.values()}


@dataclass(frozen=True, eq=False)
class Rank:
    """Which heads come first."""

    sort: Annotated[
        str | None,
        Option(
            "Order heads by a metric, largest first; -METRIC puts the smallest first.",
            brief="Order heads by previous, induction, entropy, …",
            names=_metrics,
        ),
    ] = None
    top: Annotated[int | None, Option("Keep only this many heads.", needs=("sort", "previous"))] = None
    filter: Annotated[str | None, Option("Keep the heads that pass every test, as 'previous>0.5 layer:3-5'.")] = None


def _reductions() -> dict[str, str]:
    from attnviz.metrics.combine import REDUCTIONS

    return dict.fromkeys(REDUCTIONS, "")


@dataclass(frozen=True, eq=False)
class Reduction:
    """Whether all heads become one map, and how."""

    reduce: Annotated[
        str | None, Option("Combine all heads into one map: mean, max or rollout.", names=_reductions)
    ] = None
    residual: Annotated[
        float, Option("Share of the residual stream in each row of rollout.", needs=("reduce", "rollout"))
    ] = 0.5


class TableOptions(TypedDict, total=False):
    """The fields of ``Rank`` and ``Reduction``, and the table, for the type checker."""

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
    """What a user may choose about a report.

    Attributes:
        selection: which layers, heads, queries and keys.
        grouping: which tokens.
        table: ``scores``, ``weights`` or ``both`` as numbers; ``None`` draws heatmaps of the weights.
        of: what is drawn: ``weights``, or the ``contributions`` that they make with values and output projection.
        all: every head, where a screen would show the clearest.
        axes: of a survey, the numbers that heads are drawn as points of; ``None`` draws no points.
        look: how it is drawn.
        medium: where it is drawn.
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
        if self.of not in QUANTITIES_DRAWN:
            raise AttnvizError(f"unknown {option('of')} {self.of!r}; {known_names(QUANTITIES_DRAWN)} works")
        if self.table is not None and self.table not in TABLES:
            raise AttnvizError(
                f"unknown table {self.table!r}; {nearest(self.table, TABLES)}{known_names(TABLES)} works"
            )


def refuse_axes(options: ReportOptions) -> None:
    """Raises AttnvizError where heads are to be drawn as points, and what is drawn is no survey."""
    if options.axes is not None:
        raise AttnvizError(
            f"{option('axes')} is of a survey; attnviz survey makes one, and {option('sort', 'previous')} orders heads"
        )


def with_cells(options: ReportOptions, max_cells: int) -> ReportOptions:
    """The options with room for so many rows or columns of each map."""
    return replace(options, medium=replace(options.medium, max_cells=max_cells))
