"""A block too large to be pooled between two keys: a few of its queries first, then all, row by row."""

from dataclasses import dataclass

from attnviz.browse.blocks import Cells, Head, pooled, sampled
from attnviz.browse.state import View
from attnviz.streaming.overview import block_edges

MOST_AT_ONCE = 1_000_000  # cells of a block that are pooled before the screen is drawn


@dataclass(eq=False)
class Refined:
    """The cells of a block, of which the first ``done`` rows are of all their queries, the others of one each.

    Attributes:
        head: the head.
        view: what is shown of it.
        queries: the rows of the block, in tokens.
        keys: its columns, in tokens.
        height: the most rows of cells.
        width: the most columns of cells.
    """

    head: Head
    view: View
    queries: slice
    keys: slice
    height: int
    width: int

    def __post_init__(self) -> None:
        count = self.queries.stop - self.queries.start
        self._edges: list[int] = (self.queries.start + block_edges(count, min(self.height, count))).tolist()
        self.cells: Cells = sampled(self.head, self.view, self.queries, self.keys, self.height, self.width)
        self.done = 0

    @property
    def finished(self) -> bool:
        """Whether every cell is of all its queries."""
        return self.done == len(self._edges) - 1

    @property
    def share(self) -> float:
        """How much of it is of all its queries, from 0 to 1."""
        return self.done / (len(self._edges) - 1)

    @property
    def queries_a_row(self) -> int:
        """How many queries a row of cells stands for."""
        return int(-(-(self.queries.stop - self.queries.start) // (len(self._edges) - 1)))

    def advance(self) -> None:
        """Pools the next row of cells from all its queries."""
        rows = slice(self._edges[self.done], self._edges[self.done + 1])
        [cells] = pooled([self.head], self.view, rows, self.keys, 1, self.width)
        values, visible = self.cells.values.copy(), self.cells.visible.copy()
        values[self.done], visible[self.done] = cells.values[0], cells.visible[0]
        self.cells = Cells(values, visible)  # whole at any moment, for whoever draws it meanwhile
        self.done += 1
