"""A block of one head as the cells that are shown of it: each unit its own, or many pooled to one."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.state import View
from attnviz.maps.layer_maps import CellMaps, Window
from attnviz.streaming.overview import bands, block_edges, pool_weights
from attnviz.text.units import Units

MAX_POOLED_CELLS = 1_000_000  # cells of a block that are pooled before the screen is drawn
MAX_BAND_CELLS = 1_000_000  # cells that are computed at once where a block has no bound
MAX_SAMPLED_CELLS = 200_000  # cells of the queries that stand for the others at first
MIN_SAMPLED_QUERIES, MAX_SAMPLED_QUERIES = 2, 64  # queries
Side = tuple[Units, slice]


@dataclass(frozen=True, eq=False)
class CellBlock:
    """A block of one head as it is shown: values and which of them are visible, ``(rows, columns)``."""

    values: FloatArray
    visible: BoolArray


@dataclass(frozen=True, eq=False)
class InspectedHead:
    """One head's maps, and those of the other recording.

    Attributes:
        maps: the attention call.
        number: the head's number in it.
        partner: the call that it differs from; ``None`` where there is no other recording.
        cost: how many heads are read for one cell.
    """

    maps: CellMaps
    number: int
    partner: CellMaps | None = None
    cost: int = 1


def unit_cells(head: InspectedHead, view: View, rows: Side, columns: Side) -> CellBlock:
    """Every unit of the block a cell: weights to a unit summed over its keys and averaged over its queries."""
    cells = joined(head.maps, head.number, view.scores, rows, columns)
    if not view.difference or head.partner is None:
        return cells
    theirs = joined(head.partner, head.number, view.scores, rows, columns)
    return CellBlock(theirs.values - cells.values, cells.visible | theirs.visible)


def joined(maps: CellMaps, number: int, scores: bool, rows: Side, columns: Side) -> CellBlock:
    """Weights of units, or scores, of which a unit of several tokens has none."""
    window = joined_window(maps, number, rows, columns)
    return CellBlock((window.scores if scores else window.weights)[0], window.visible)


def joined_window(maps: CellMaps, number: int, rows: Side, columns: Side) -> Window:
    """Weights and scores of units of one head."""
    from attnviz.maps.grouped import join

    (row_units, row_span), (column_units, column_span) = rows, columns
    row_part, column_part = row_units.part(row_span), column_units.part(column_span)
    return join(maps.window((number,), row_part.token_span, column_part.token_span), row_part, column_part)


def pool(cells: CellBlock, height: int, width: int, mean: bool) -> CellBlock:
    """The block in at most ``height`` x ``width`` cells, over the visible of each."""
    rows, columns = cells.values.shape
    if rows <= height and columns <= width:
        return cells
    found = pool_weights(cells.values[None], cells.visible, min(rows, height), min(columns, width))
    return CellBlock((found.mean if mean else found.maximum)[0], found.visible)


def pooled(
    heads: list[InspectedHead], view: View, queries: slice, keys: slice, height: int, width: int
) -> list[CellBlock]:
    """The block of each of several heads of one call, in at most ``height`` x ``width`` cells."""
    if view.scores:
        return [_mean_scores(head, queries, keys, height, width) for head in heads]
    shape = (min(height, queries.stop - queries.start), min(width, keys.stop - keys.start))
    numbers = tuple(head.number for head in heads)
    overview = heads[0].maps.overview(numbers, *shape, queries, keys)
    values = overview.mean if view.mean or view.difference else overview.maximum
    visible = overview.visible
    if view.difference and heads[0].partner is not None:
        theirs = heads[0].partner.overview(numbers, *shape, queries, keys)
        values, visible = theirs.mean - values, visible | theirs.visible
    return [CellBlock(*of_head) for of_head in zip(values, np.broadcast_to(visible, values.shape), strict=True)]


def sampled(head: InspectedHead, view: View, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
    """The block where each row of cells is one query of its own, or in the longest maps of its neighbour's, exactly."""
    count = queries.stop - queries.start
    rows, columns = min(height, count), keys.stop - keys.start
    few = min(rows, MAX_SAMPLED_QUERIES, max(MIN_SAMPLED_QUERIES, MAX_SAMPLED_CELLS // head.cost // columns))
    edges = queries.start + block_edges(count, few)
    read = [_query(head, view, query, keys) for query in ((edges[:-1] + edges[1:]) // 2).tolist()]
    lines = CellBlock(np.concatenate([line.values for line in read]), np.concatenate([line.visible for line in read]))
    cells = pool(lines, few, width, view.mean or view.difference or view.scores)
    nearest = np.arange(rows) * few // rows
    return CellBlock(cells.values[nearest], cells.visible[nearest])


def _query(head: InspectedHead, view: View, query: int, keys: slice) -> CellBlock:
    """One query's row, ``(1, keys)``."""
    windows = [
        maps.window((head.number,), slice(query, query + 1), keys)
        for maps in (head.maps, head.partner if view.difference else None)
        if maps is not None
    ]
    tables = [(window.scores if view.scores else window.weights)[0] for window in windows]
    visible = np.logical_or.reduce([window.visible for window in windows])
    return CellBlock(tables[1] - tables[0] if len(tables) > 1 else tables[0], visible)


def _mean_scores(head: InspectedHead, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
    """The mean score of each cell's visible pairs, in bands of queries, so that memory stays bounded."""
    edges = queries.start + block_edges(queries.stop - queries.start, min(height, queries.stop - queries.start))
    columns = block_edges(keys.stop - keys.start, min(width, keys.stop - keys.start))[:-1]
    total = np.zeros((len(edges) - 1, len(columns)))
    seen = np.zeros(total.shape, dtype=np.int64)
    for row, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        for band in bands(slice(start, stop), keys.stop - keys.start, MAX_BAND_CELLS):
            window = head.maps.window((head.number,), band, keys)
            summed = np.where(window.visible, window.scores[0], 0).sum(axis=0, dtype=np.float64)
            total[row] += np.add.reduceat(summed, columns)
            seen[row] += np.add.reduceat(window.visible.sum(axis=0), columns)
    return CellBlock((total / np.maximum(seen, 1)).astype(np.float32), seen > 0)


@dataclass(eq=False)
class RefinedBlock:
    """The cells of a block, of which the first ``done`` rows are of all their queries, the others of one each.

    Attributes:
        head: the head.
        view: what is shown of it.
        queries: the rows of the block, in tokens.
        keys: its columns, in tokens.
        height: the most rows of cells.
        width: the most columns of cells.
    """

    head: InspectedHead
    view: View
    queries: slice
    keys: slice
    height: int
    width: int

    def __post_init__(self) -> None:
        count = self.queries.stop - self.queries.start
        self._edges: list[int] = (self.queries.start + block_edges(count, min(self.height, count))).tolist()
        self.cells: CellBlock = sampled(self.head, self.view, self.queries, self.keys, self.height, self.width)
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
        self.cells = CellBlock(values, visible)  # whole at any moment, for whoever draws it meanwhile
        self.done += 1
