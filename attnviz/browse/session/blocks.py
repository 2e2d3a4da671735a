"""Computes the cells of a block of one head, one for each pair of units or for several pairs, and caches results."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.state import View
from attnviz.maps.grouped import Units
from attnviz.maps.layer_maps import CellMaps, Window
from attnviz.streaming.overview import bands_of_queries, block_edges, pool_weights

MAX_POOLED_CELLS = 1_000_000  # pairs of tokens; a larger block is sampled first and refined later
MAX_BAND_CELLS = 1_000_000  # cells of a band of queries, so that memory stays bounded
MAX_SAMPLED_CELLS = 200_000  # cells that are read for a preview, which shows a sample of the queries
MIN_SAMPLED_QUERIES, MAX_SAMPLED_QUERIES = 2, 64
Side = tuple[Units, slice]  # the units of an axis, and the span of them that is shown
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class CellBlock:
    """The cells of a block of one head, ``(rows, columns)``: their values, and False where they are masked."""

    values: FloatArray
    visible: BoolArray


@dataclass(frozen=True, eq=False)
class InspectedHead:
    """A head, by its attention call and its number there, and the attention call that it is compared with."""

    maps: CellMaps
    number: int
    partner: CellMaps | None = None  # the call whose values minus the head's are the change
    cost: int = 1  # heads that are read for each cell: more than 1 for a combination of heads


def unit_cells(head: InspectedHead, view: View, rows: Side, columns: Side) -> CellBlock:
    """Returns the cells of a block, one for each pair of units: weights or scores, or their change to the partner.

    A unit's weights are summed over its keys and averaged over its queries.
    """
    cells = unit_values(head.maps, head.number, view.scores, rows, columns)
    if not view.difference or head.partner is None:
        return cells
    partner_cells = unit_values(head.partner, head.number, view.scores, rows, columns)
    return CellBlock(partner_cells.values - cells.values, cells.visible | partner_cells.visible)


def unit_values(maps: CellMaps, number: int, scores: bool, rows: Side, columns: Side) -> CellBlock:
    """Returns the weights or scores between units; a unit of several tokens has no score (NaN)."""
    window = unit_window(maps, number, rows, columns)
    return CellBlock((window.scores if scores else window.weights)[0], window.visible)


def unit_window(maps: CellMaps, number: int, rows: Side, columns: Side) -> Window:
    """Returns the weights and scores between units of one head."""
    from attnviz.maps.grouped import join_window

    (row_units, row_span), (column_units, column_span) = rows, columns
    row_part, column_part = row_units.part(row_span), column_units.part(column_span)
    return join_window(maps.window((number,), row_part.token_span, column_part.token_span), row_part, column_part)


def pool(cells: CellBlock, height: int, width: int, mean: bool) -> CellBlock:
    """Returns a block pooled to at most ``height`` x ``width`` cells; only visible cells count."""
    rows, columns = cells.values.shape
    if rows <= height and columns <= width:
        return cells
    pooled_weights = pool_weights(cells.values[None], cells.visible, min(rows, height), min(columns, width))
    return CellBlock((pooled_weights.mean if mean else pooled_weights.maximum)[0], pooled_weights.visible)


def pooled_blocks(
    heads: list[InspectedHead], view: View, queries: slice, keys: slice, height: int, width: int
) -> list[CellBlock]:
    """Returns a block for each head, pooled to at most ``height`` x ``width`` cells: weights, changes or scores.

    A change is the mean weight of the partner minus that of the head; without partners it is the head's mean weight.
    Scores are pooled to their mean, and have no change. An axis with fewer tokens than cells has a cell for each token.
    """
    if view.scores:
        return [_mean_scores(head, queries, keys, height, width) for head in heads]
    shape = (min(height, queries.stop - queries.start), min(width, keys.stop - keys.start))
    numbers = tuple(head.number for head in heads)
    overview = heads[0].maps.overview(numbers, *shape, queries, keys)
    values = overview.mean if view.mean or view.difference else overview.maximum
    visible = overview.visible
    if view.difference and heads[0].partner is not None:
        partner_overview = heads[0].partner.overview(numbers, *shape, queries, keys)
        values, visible = partner_overview.mean - values, visible | partner_overview.visible
    return [CellBlock(*cells) for cells in zip(values, np.broadcast_to(visible, values.shape), strict=True)]


def _preview_block(head: InspectedHead, view: View, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
    """Returns a block whose rows of cells, or several of them in long maps, show one query instead of pooling all."""
    query_count, key_count = queries.stop - queries.start, keys.stop - keys.start
    rows = min(height, query_count)
    affordable_count = MAX_SAMPLED_CELLS // head.cost // key_count
    sample_count = min(rows, MAX_SAMPLED_QUERIES, max(MIN_SAMPLED_QUERIES, affordable_count))
    edges = queries.start + block_edges(query_count, sample_count)
    middle_queries = ((edges[:-1] + edges[1:]) // 2).tolist()
    partner = head.partner if view.difference else None
    calls = [head.maps] if partner is None else [head.maps, partner]
    values, visible = list[FloatArray](), list[BoolArray]()
    for query in middle_queries:
        windows = [maps.window((head.number,), slice(query, query + 1), keys) for maps in calls]
        numbers = [(window.scores if view.scores else window.weights)[0] for window in windows]
        values.append(numbers[0] if partner is None else numbers[1] - numbers[0])
        visible.append(np.logical_or.reduce([window.visible for window in windows]))
    exact_rows = CellBlock(np.concatenate(values), np.concatenate(visible))
    cells = pool(exact_rows, sample_count, width, mean=view.mean or view.difference or view.scores)
    sample_of_row = np.arange(rows) * sample_count // rows
    return CellBlock(cells.values[sample_of_row], cells.visible[sample_of_row])


def _mean_scores(head: InspectedHead, queries: slice, keys: slice, height: int, width: int) -> CellBlock:
    """Returns the mean score of the visible pairs in each cell of a block; a cell without any is masked."""
    edges = queries.start + block_edges(queries.stop - queries.start, min(height, queries.stop - queries.start))
    first_keys = block_edges(keys.stop - keys.start, min(width, keys.stop - keys.start))[:-1]  # of each column
    totals = np.zeros((len(edges) - 1, len(first_keys)))
    counts = np.zeros(totals.shape, dtype=np.int64)
    for row, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        for band in bands_of_queries(slice(start, stop), keys.stop - keys.start, MAX_BAND_CELLS):
            window = head.maps.window((head.number,), band, keys)
            sums = np.where(window.visible, window.scores[0], 0).sum(axis=0, dtype=np.float64)
            totals[row] += np.add.reduceat(sums, first_keys)
            counts[row] += np.add.reduceat(window.visible.sum(axis=0), first_keys)
    return CellBlock((totals / np.maximum(counts, 1)).astype(np.float32), counts > 0)


@dataclass(eq=False)
class RefinedBlock:
    """The cells of a large block: a preview whose rows are replaced one by one with rows pooled from all queries.

    Queries and keys are spans of tokens; height and width are the most rows and columns of cells.
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
        self.cells: CellBlock = _preview_block(self.head, self.view, self.queries, self.keys, self.height, self.width)
        self.refined_count = 0  # rows, from the first, that are pooled from all their queries

    @property
    def is_finished(self) -> bool:
        """True if every row of cells is pooled from all its queries."""
        return self.refined_count == len(self._edges) - 1

    @property
    def refined_share(self) -> float:
        """The share of the rows that are pooled from all their queries, from 0 to 1."""
        return self.refined_count / (len(self._edges) - 1)

    @property
    def queries_a_row(self) -> int:
        """The number of queries per row of cells, rounded up."""
        return int(-(-(self.queries.stop - self.queries.start) // (len(self._edges) - 1)))

    def advance(self) -> None:
        """Replaces the next row of the preview with cells pooled from all its queries."""
        rows = slice(self._edges[self.refined_count], self._edges[self.refined_count + 1])
        [cells] = pooled_blocks([self.head], self.view, rows, self.keys, 1, self.width)
        values, visible = self.cells.values.copy(), self.cells.visible.copy()
        values[self.refined_count], visible[self.refined_count] = cells.values[0], cells.visible[0]
        self.cells = CellBlock(values, visible)  # replaced, not changed: another thread may be drawing the old one
        self.refined_count += 1


@dataclass(frozen=True, eq=False)
class TokenRow:
    """The row of a query or the column of a key in one head, ``(units,)``: values, and False where they are masked."""

    values: FloatArray
    visible: BoolArray
    remainder: int = -1  # the unit that `Units.remainder` is
    is_change: bool = False

    @classmethod
    def mean(cls, rows: CellBlock, remainder: int) -> "TokenRow":
        """Returns the mean of the rows of a block, over those that see each unit; a unit that none sees is masked."""
        counts = rows.visible.sum(axis=0)
        totals = np.where(rows.visible, rows.values, 0).sum(axis=0)
        return cls((totals / np.maximum(counts, 1)).astype(np.float32), counts > 0, remainder)

    @staticmethod
    def stacked(rows: "Sequence[TokenRow]") -> CellBlock:
        """Returns a block of the rows, the first at the top."""
        return CellBlock(np.stack([row.values for row in rows]), np.stack([row.visible for row in rows]))

    @cached_property
    def strengths(self) -> FloatArray:
        """The numbers by which units are ranked: of a change its size; what belongs to no turn comes after all others.

        Masked units come last.
        """
        numbers = np.abs(self.values) if self.is_change else self.values
        strengths = np.where(self.visible, np.nan_to_num(numbers), -np.inf)
        if self.remainder >= 0 and self.visible[self.remainder]:
            strengths[self.remainder] = np.finfo(np.float32).min
        return strengths

    @cached_property
    def strongest_unit(self) -> int:
        """The strongest unit; the first one if every cell is masked."""
        return int(np.argmax(self.strengths))

    @cached_property
    def strongest_units(self) -> list[int]:
        """The visible units, the strongest first."""
        order = np.argsort(-self.strengths, kind="stable")
        units: list[int] = order[self.visible[order]].tolist()
        return units

    @cached_property
    def largest_value(self) -> float:
        """The largest absolute value among the visible ones; 0 if every cell is masked."""
        return float(np.max(np.abs(np.nan_to_num(self.values)), where=self.visible, initial=0.0))


@dataclass(frozen=True, eq=False)
class QueryRow:
    """The numbers of one query, one for each key, ``(keys,)`` in units."""

    weights: FloatArray  # after the softmax
    scores: FloatArray  # before the mask
    change: FloatArray | None  # the other recording's weights minus these, if there is one
    visible: BoolArray  # False for masked keys
    remainder: int = -1  # the key that `Units.remainder` is

    def shown(self, view: View) -> TokenRow:
        """Returns the numbers that the view shows: changes, scores or weights; no changes without another recording."""
        if view.difference and self.change is not None:
            return TokenRow(self.change, self.visible, self.remainder, is_change=True)
        return TokenRow(self.scores if view.scores else self.weights, self.visible, self.remainder)


class LruCache(Generic[Value]):
    """A cache that keeps the ``limit`` most recently used values."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: dict[Hashable, Value] = {}

    def __contains__(self, key: Hashable) -> bool:
        """True if a value of the key is cached; this does not count as a use."""
        return key in self._values

    def find(self, key: Hashable) -> Value | None:
        """Returns the cached value of a key, which counts as a use of it; ``None`` if the key is not cached."""
        return self.get(key, lambda: self._values[key]) if key in self._values else None

    def keep(self, key: Hashable, value: Value) -> None:
        """Caches a value in place of an earlier value of the key."""
        self._values.pop(key, None)
        self.get(key, lambda: value)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Returns the cached value of a key; computes and caches it if there is none."""
        value = self._values.pop(key) if key in self._values else compute()
        self._values[key] = value
        if len(self._values) > self.limit:
            del self._values[next(iter(self._values))]  # the least recently used one
        return value

    def clear(self) -> None:
        """Empties the cache."""
        self._values.clear()
