"""How maps are cut into tiles that stay in the cache: rows, columns, and what hides cells of a tile."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from attnviz.masks import BoolArray, IntArray, Mask
from attnviz.streaming_factors import Factors
from attnviz.tiles import Axis, Tile

TILE = {"cpu": (256, 512), "cuda": (2048, 4096), "mps": (2048, 4096)}  # queries and keys of a tile
LONGEST = 16  # keys that are pooled in one step; torch's maximum over more is ten times slower
HIDDEN = -1e30  # the score of a cell that is not seen: its power is 0, and 0 times it is 0, as of −inf it is not
SAMPLED = 32  # keys, evenly spread from the first on, whose scores say how high a row is


@dataclass(frozen=True, eq=False)
class Column:
    """A tile of keys.

    Attributes:
        tile: its blocks.
        index: which of the tiles it is.
        place: where its keys stand among those of all tiles, repeated ones included.
        order: ``(count,)``, the key of each column of the tile.
    """

    tile: Tile
    index: int
    place: slice
    order: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Places within a block, and blocks: how the tile's keys lie."""
        return self.tile.longest, self.tile.count

    @property
    def count(self) -> int:
        """How many keys are computed, repeated ones included."""
        return len(self.order)


class Row:
    """A band of queries and the tiles of keys that it sees, made once for all heads.

    Attributes:
        tile: its blocks.
        place: where its rows stand among those of all bands, repeated ones included.
        order: ``(rows,)``, the query of each row.
        real: which rows are no repeats; ``None`` where all are.
        columns: the tiles that it sees.
        pixels: from the first pixel along the keys that it sees to the last.
        cut: for each tile, whether the rules hide some of its cells.
        middle: the position among the keys of its first query.
        before: how many of the tiles lie before all its queries, or hold no key after any.
        after: the first tile from which on all lie after all its queries.
    """

    def __init__(self, tile: Tile, place: slice, columns: list[Column], rules: Mask, device: torch.device) -> None:
        self.tile, self.place, self.columns = tile, place, columns
        self.order = torch.from_numpy(tile.grid.ravel()).to(device)
        self.real = None if tile.repeats is None else torch.from_numpy(_real(tile)).to(device)
        self.pixels = slice(columns[0].tile.blocks.start, columns[-1].tile.blocks.stop) if columns else slice(0, 0)
        self.cut = [rules.coverage(tile.tokens, column.tile.tokens) is not True for column in columns]
        self.middle = tile.tokens.start + rules.offset
        starts = [column.tile.tokens.start for column in columns]
        ends = [column.tile.tokens.stop for column in columns]
        one_sided = rules.causal and not rules.prefix
        self.before = len(columns) if one_sided else sum(end <= self.middle for end in ends)
        last = tile.tokens.stop + rules.offset
        self.after = max(self.before, len(columns) - sum(start >= last for start in starts))

    def edge(self, place: int) -> int:
        """The pixel where the tile at this place begins."""
        return self.columns[place].tile.blocks.start if place < len(self.columns) else self.pixels.stop


def _real(tile: Tile) -> BoolArray:
    real = np.ones(tile.grid.shape, dtype=bool)
    real[tile.repeats, -1] = False
    return real.ravel()


class Plan:
    """How the maps are cut into tiles, and what all heads have in common."""

    def __init__(self, factors: Factors, height: int, width: int, maximum: bool, numbers: frozenset[str]) -> None:
        self.factors, self.maximum, self.numbers = factors, maximum, numbers
        self.device, self.dtype = factors.queries.device, factors.dtype
        self.rules = Mask(**{**vars(factors.mask), "padding": None})
        self.queries, self.keys = factors.queries.shape[1], factors.keys.shape[1]
        size = TILE[self.device.type]
        self.row_axis = Axis.of(slice(0, self.queries), min(height, self.queries), size[0])
        self.column_axis = Axis.of(slice(0, self.keys), min(width, self.keys), LONGEST)
        self.columns: list[Column] = []
        for tile in self.column_axis.tiles(size[1]):
            first = self.columns[-1].place.stop if self.columns else 0
            order = torch.from_numpy(tile.interleaved).to(self.device)
            self.columns.append(Column(tile, len(self.columns), slice(first, first + len(order)), order))
        self.starts = np.array([column.tile.tokens.start for column in self.columns])
        self.rows: list[Row] = []
        for tile in self.row_axis.tiles(size[0]):
            first = self.rows[-1].place.stop if self.rows else 0
            place = slice(first, first + tile.grid.size)
            self.rows.append(Row(tile, place, self._columns_of(tile), self.rules, self.device))
        self.widest = max(len(row.order) for row in self.rows), max(column.count for column in self.columns)
        self._memory: dict[tuple[str | int, ...], Tensor] = {}

    def empty(self, *shape: int) -> Tensor:
        """Memory of this shape, not yet written."""
        return torch.empty(*shape, dtype=self.dtype, device=self.device)

    def numbered(self, positions: IntArray) -> Tensor:
        """Positions as numbers to reckon with on the device."""
        return torch.from_numpy(positions).to(self.device, self.dtype)

    @cached_property
    def row_order(self) -> Tensor:
        """The query of each row of all bands, ``(rows,)``."""
        return torch.cat([row.order for row in self.rows])

    @cached_property
    def real_rows(self) -> Tensor | None:
        """Which rows of all bands are no repeats, ``(rows,)``; ``None`` where all are."""
        if all(row.real is None for row in self.rows):
            return None
        return torch.cat(
            [torch.ones_like(row.order, dtype=torch.bool) if row.real is None else row.real for row in self.rows]
        )

    def by_row(self, values: Tensor) -> Tensor:
        """A value a query, ``(queries, ...)``, as one a row, ``(rows, ...)``."""
        return values if self.real_rows is None else values[self.row_order]

    def by_query(self, values: Tensor) -> Tensor:
        """A value a row, ``(rows, ...)``, as one a query, ``(queries, ...)``."""
        return values if self.real_rows is None else values[self.real_rows]

    @cached_property
    def order(self) -> Tensor:
        """The key of each column of all tiles, ``(columns,)``."""
        return torch.cat([column.order for column in self.columns])

    @cached_property
    def positions(self) -> Tensor:
        """The same as numbers to reckon with, ``(columns,)``."""
        return self.order.to(self.dtype)

    @cached_property
    def from_middle(self) -> Tensor:
        """How many tokens each row's query lies after the first of its band, ``(rows,)``."""
        return torch.cat([(row.order - row.tile.tokens.start).to(self.dtype) for row in self.rows])

    @cached_property
    def penalties(self) -> Tensor:
        """``HIDDEN`` for columns that repeat a key or hold padding, else 0, ``(columns,)``."""
        hidden = np.zeros(len(self.order), dtype=bool)
        for column in self.columns:
            if column.tile.repeats is not None:
                hidden[column.place].reshape(column.shape)[-1] = column.tile.repeats
        if self.factors.mask.padding is not None:
            hidden |= ~self.factors.mask.padding[self.order.cpu().numpy()]
        return torch.from_numpy(hidden).to(self.device, self.dtype) * HIDDEN

    @cached_property
    def blind(self) -> Tensor:
        """Which queries see no key at all, ``(queries,)``."""
        counts = self.factors.mask.counts(np.arange(self.queries + 1), np.array([0, self.keys]))
        return torch.from_numpy(counts[:, 0] == 0).to(self.device)

    @cached_property
    def sampled(self) -> Tensor:
        """The keys whose scores say how high a row is, ``(keys,)``."""
        return torch.arange(0, self.keys, -(-self.keys // SAMPLED), device=self.device)

    @cached_property
    def spans(self) -> tuple[Tensor, Tensor]:
        """First and last key that causal, window and chunk leave each query, both ``(queries,)``."""
        first, stop = self.rules.spans(slice(0, self.queries), self.keys)
        return self.numbered(first), self.numbered(stop - 1)

    def _columns_of(self, row: Tile) -> list[Column]:
        """The tiles of keys that a band of rows sees."""
        reach = self.rules.reach(row.tokens, self.keys)
        if reach.start >= reach.stop:
            return []
        first, last = (int(np.searchsorted(self.starts, end, side="right")) for end in (reach.start, reach.stop - 1))
        return self.columns[first - 1 : last]

    def hidden_cells(self, row: Row, column: Column) -> Tensor:
        """What to add to the scores of a tile that the rules cut, ``(rows, keys)``."""
        if not self.rules.moves_along:
            return self._hidden_cells(row, column)
        return self._remembered(self._hidden_cells, row, column)

    def distances(self, row: Row, column: Column) -> Tensor:
        """How many tokens lie between the queries and the keys of a tile, ``(rows, keys)``."""
        return self._remembered(self._distances, row, column)

    def _remembered(self, make: Callable[[Row, Column], Tensor], row: Row, column: Column) -> Tensor:
        """What is alike wherever two tiles lie as far apart as these, made once unless an edge is ragged."""
        if row.tile.repeats is not None or column.tile.repeats is not None:
            return make(row, column)
        key = (make.__name__, row.tile.tokens.start - column.tile.tokens.start, len(row.order), *column.shape)
        if key not in self._memory:
            self._memory[key] = make(row, column)
        return self._memory[key]

    def _distances(self, row: Row, column: Column) -> Tensor:
        queries = (row.order + self.rules.offset).to(self.dtype)
        return (queries[:, None] - self.positions[column.place]).abs_()

    def _hidden_cells(self, row: Row, column: Column) -> Tensor:
        if self.rules.explicit is not None or self.rules.prefix:
            seen = self.rules.sees(row.tile.grid.reshape(-1, 1), column.tile.interleaved)
            return torch.from_numpy(~seen).to(self.device, self.dtype) * HIDDEN
        keys = self.positions[column.place]
        first, last = (end[row.order, None] for end in self.spans)
        outside = (last - keys).clamp_(max=0)
        if self.rules.window is not None or self.rules.chunk is not None:
            outside += (keys - first).clamp_(max=0)
        return outside.mul_(-HIDDEN)
