"""What a user may choose about a report."""

from dataclasses import dataclass, field, replace

from attnviz.base.errors import AttnvizError
from attnviz.report.look import Look
from attnviz.text.selection import Selection

TABLES = ("scores", "weights", "both")


@dataclass(frozen=True, kw_only=True)
class Medium:
    """What a report has to know about where it will be drawn.

    Attributes:
        max_cells: the most rows or columns of one map; longer ones are pooled.
        thumbnail_cells: the same for each head where many are drawn as an overview.
        one_page: whether all maps share that room.
        draws_maps: whether maps are drawn at all; else the medium takes the exact numbers of every head.
        lists_heads: whether a table of heads is a row a head, and not the atlas.
    """

    max_cells: int = 1024
    thumbnail_cells: int = 64
    one_page: bool = False
    draws_maps: bool = True
    lists_heads: bool = False


@dataclass(frozen=True, eq=False)
class ReportOptions:
    """What a user may choose about a report.

    Attributes:
        selection: which layers, heads, queries and keys.
        table: ``scores``, ``weights`` or ``both`` as numbers; ``None`` draws heatmaps of the weights.
        sort: the metric that orders the heads, the largest first (with a minus before it, the smallest).
        top: how many heads are shown.
        look: how it is drawn.
        medium: where it is drawn.
    """

    selection: Selection = field(default_factory=Selection)
    table: str | None = None
    sort: str | None = None
    top: int | None = None
    look: Look = field(default_factory=Look)
    medium: Medium = field(default_factory=Medium)

    def __post_init__(self) -> None:
        if self.table is not None and self.table not in TABLES:
            raise AttnvizError(f"unknown table {self.table!r}; {', '.join(TABLES)} work")


def with_cells(options: ReportOptions, max_cells: int) -> ReportOptions:
    """The options with room for so many rows or columns of each map."""
    return replace(options, medium=replace(options.medium, max_cells=max_cells))
