"""Computes the cells of a block of one head: one per pair of units, or many pooled to one."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.state import View
from attnviz.maps.layer_maps import CellMaps, Window
from attnviz.streaming.overview import bands, block_edges, pool_weights
from attnviz.text.units import Units

MAX_POOLED_CELLS = 1_000_000  # a block with more is sampled first and refined later
MAX_BAND_CELLS = 1_000_000  # cells of a band of queries, so that memory stays bounded
MAX_SAMPLED_CELLS = 200_000  # cells of the sampled queries that stand for the others at first
MIN_SAMPLED_QUERIES, MAX_SAMPLED_QUERIES = 2, 64
Side = tuple[Units, slice]


@dataclass(frozen=True, eq=False)
class CellBlock:
    """The cells of a block of one head.

    Attributes:
        values: the values, ``(rows, columns)``.
        visible: False in masked cells, ``(rows, columns)``.
    """

    values: FloatArray
    visible: BoolArray


@dataclass(frozen=True, eq=False)
class InspectedHead:
    """One head, and its partner in the other recording.

    Attributes:
        maps: the attention call of the head.
        number: the head's number in the call.
        partner: the call to subtract from; ``None`` if there is no other recording.
        cost: the number of heads that are read for one cell, more than 1 for a combined head.
    """

    maps: CellMaps
    number: int
    partner: CellMaps | None = None
    cost: int = 1


def unit_cells(head: InspectedHead, view: View, rows: Side, columns: Side) -> CellBlock:
    """Returns one cell per pair of units: weights are summed over a unit's keys and averaged over its queries.

    Args:
        head: the head.
        view: the toggles.
        rows: the units of the queries, and the span of them that is shown.
        columns: the units of the keys, and the span of them that is shown.
    """
    cells = unit_values(head.maps, head.number, view.scores, rows, columns)
    if not view.difference or head.partner is None:
        return cells
    theirs = unit_values(head.partner, head.number, view.scores, rows, columns)
    return CellBlock(theirs.values - cells.values, cells.visible | theirs.visible)


def unit_values(maps: CellMaps, number: int, scores: bool, rows: Side, columns: Side) -> CellBlock:
    """Returns the weights or scores between units; a unit of several tokens has no score (NaN).

    Args:
        maps: the attention call.
        number: the head's number in the call.
        scores: return scores instead of weights.
        rows: the units of the queries, and the span of them that is shown.
        columns: the units of the keys, and the span of them that is shown.
    """
    window = unit_window(maps, number, rows, columns)
    return CellBlock((window.scores if scores else window.weights)[0], window.visible)


def unit_window(maps: CellMaps, number: int, rows: Side, columns: Side) -> Window:
    """Returns the weights and scores between units of one head.

    Args:
        maps: the attention call.
        number: the head's number in the call.
        rows: the units of the queries, and the span of them that is shown.
        columns: the units of the keys, and the span of them that is shown.
    """
    from attnviz.maps.grouped import join

    (row_units, row_span), (column_units, column_span) = rows, columns
    row_part, column_part = row_units.part(row_span), column_units.part(column_span)
    return join(maps.window((number,), row_part.token_span, column_part.token_span), row_part, column_part)


def pool(cells: CellBlock, height: int, width: int, mean: bool) -> CellBlock:
    """Pools a block to at most ``height`` x ``width`` cells, over visible cells only.

    Args:
        cells: the block.
        height: the most rows.
        width: the most columns.
        mean: take the mean instead of the maximum.
    """
    rows, columns = cells.values.shape
    if rows <= height and columns <= width:
        return cells
    found = pool_weights(cells.values[None], cells.visible, min(rows, height), min(columns, width))
    return CellBlock((found.mean if mean else found.maximum)[0], found.visible)


def pooled_blocks(
    heads: list[InspectedHead], view: View, queries: slice, keys: slice, height: int, width: int
) -> list[CellBlock]:
    """Returns a block of each of several heads of one call, in at most ``height`` x ``width`` cells.

    Args:
        heads: the heads, all of one attention call.
        view: the toggles.
        queries: the rows of the block, in tokens.
        keys: the columns of the block, in tokens.
        height: the most rows of cells.
        width: the most columns of cells.
    """
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


def preview_block(head: InspectedHead, view: View, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
    """Returns a preview of a block: each row of cells shows one query exactly; in the longest maps rows share a query.

    Args:
        head: the head.
        view: the toggles.
        queries: the rows of the block, in tokens.
        keys: the columns of the block, in tokens.
        height: the most rows of cells.
        width: the most columns of cells.
    """
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
    """Returns one query's row, ``(1, keys)``."""
    windows = [
        maps.window((head.number,), slice(query, query + 1), keys)
        for maps in (head.maps, head.partner if view.difference else None)
        if maps is not None
    ]
    tables = [(window.scores if view.scores else window.weights)[0] for window in windows]
    visible = np.logical_or.reduce([window.visible for window in windows])
    return CellBlock(tables[1] - tables[0] if len(tables) > 1 else tables[0], visible)


def _mean_scores(head: InspectedHead, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
    """Returns the mean score of the visible pairs in each cell, band by band of queries to bound memory."""
    edges = queries.start + block_edges(queries.stop - queries.start, min(height, queries.stop - queries.start))
    columns = block_edges(keys.stop - keys.start, min(width, keys.stop - keys.start))[:-1]
    total = np.zeros((len(edges) - 1, len(columns)))
    counts = np.zeros(total.shape, dtype=np.int64)
    for row, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        for band in bands(slice(start, stop), keys.stop - keys.start, MAX_BAND_CELLS):
            window = head.maps.window((head.number,), band, keys)
            summed = np.where(window.visible, window.scores[0], 0).sum(axis=0, dtype=np.float64)
            total[row] += np.add.reduceat(summed, columns)
            counts[row] += np.add.reduceat(window.visible.sum(axis=0), columns)
    return CellBlock((total / np.maximum(counts, 1)).astype(np.float32), counts > 0)


@dataclass(eq=False)
class RefinedBlock:
    """The cells of a large block: the first ``done`` rows are pooled from all their queries, the others from one each.

    Attributes:
        head: the head.
        view: the toggles.
        queries: the rows of the block, in tokens.
        keys: the columns of the block, in tokens.
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
        self.cells: CellBlock = preview_block(self.head, self.view, self.queries, self.keys, self.height, self.width)
        self.done = 0

    @property
    def finished(self) -> bool:
        """True if every row of cells is pooled from all its queries."""
        return self.done == len(self._edges) - 1

    @property
    def share(self) -> float:
        """The share of the rows that are pooled from all their queries, from 0 to 1."""
        return self.done / (len(self._edges) - 1)

    @property
    def queries_a_row(self) -> int:
        """The number of queries per row of cells, rounded up."""
        return int(-(-(self.queries.stop - self.queries.start) // (len(self._edges) - 1)))

    def advance(self) -> None:
        """Pools the next row of cells from all its queries."""
        rows = slice(self._edges[self.done], self._edges[self.done + 1])
        [cells] = pooled_blocks([self.head], self.view, rows, self.keys, 1, self.width)
        values, visible = self.cells.values.copy(), self.cells.visible.copy()
        values[self.done], visible[self.done] = cells.values[0], cells.visible[0]
        self.cells = CellBlock(values, visible)  # replaced, not changed: another thread may be drawing the old one
        self.done += 1
