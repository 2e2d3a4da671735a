"""Report: every choice made, so that only drawing is left."""

from dataclasses import dataclass, field

from attnviz.metrics.head_table import HeadTable
from attnviz.report.look import Look
from attnviz.report.numbers import Numbers
from attnviz.report.panels import Panel, Style


@dataclass(frozen=True)
class Summary:
    """A small table of numbers already written out: a header and rows of equal length.

    Attributes:
        header: one a column.
        rows: one cell a column.
        bars: how long a bar each cell has, 0 to 1, or ``None`` for no bar; empty where no cell has one.
        align: ``<`` or ``>`` for each column: to the left or right; empty for all to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[tuple[float | None, ...], ...] = ()
    align: str = ""


@dataclass(frozen=True, eq=False)
class Report:
    """All that a renderer needs, every choice made.

    Attributes:
        title: the heading.
        panels: in the order in which they are drawn.
        caption: the picture in one sentence.
        remarks: what was pooled, cut or masked, and what else a reader must know.
        style: ``map`` (coloured cells), ``table`` (every number written out), or ``overview`` (thumbnails without
            labels, titled ``layer.head``, those of a ``group`` in one row).
        across: how many panels belong side by side; ``None`` where any number may; of an overview, the most of a group.
        summary: a table under the panels, if there is one.
        look: how it is drawn.
        numbers: the exact numbers, for a medium that takes them instead of a picture.
        table_of_heads: the exact numbers where the report is of heads and not of cells.
    """

    title: str
    panels: tuple[Panel, ...]
    caption: str
    remarks: tuple[str, ...]
    style: Style = "map"
    across: int | None = None
    summary: Summary | None = None
    look: Look = field(default_factory=Look)
    numbers: Numbers | None = None
    table_of_heads: HeadTable | None = None
