"""What a user may choose about a report."""

from dataclasses import dataclass, field

from attnviz.base.errors import AttnvizError
from attnviz.report.look import Look
from attnviz.text.selection import Selection

TABLES = ("scores", "weights", "both")


@dataclass(frozen=True, eq=False)
class ReportOptions:
    """What a user may choose about a report.

    Attributes:
        selection: which layers, heads, queries and keys.
        table: ``scores``, ``weights`` or ``both`` as numbers; ``None`` draws heatmaps of the weights.
        max_cells: the most rows or columns that the medium can draw; longer maps are pooled. 0 draws no panels,
            for a medium that takes the numbers themselves.
        one_page: whether all panels share that room.
        thumbnail: the most rows or columns of each head where many are drawn as an overview.
        sort: the metric that orders the heads, the largest first (with a minus before it, the smallest).
        top: how many heads are shown.
        look: how it is drawn.
    """

    selection: Selection = field(default_factory=Selection)
    table: str | None = None
    max_cells: int = 1024
    one_page: bool = False
    thumbnail: int = 64
    sort: str | None = None
    top: int | None = None
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        if self.table is not None and self.table not in TABLES:
            raise AttnvizError(f"unknown table {self.table!r}; {', '.join(TABLES)} work")
