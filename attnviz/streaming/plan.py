"""How maps are cut into tiles that stay in the cache: rows, columns, and what hides cells of a tile.

Tiles hold keys before queries, and the queries of a pixel apart, so that both axes are reduced by adding whole runs of
numbers, and a tile of keys may begin and end with any pixel.
"""

import sys
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.mask import Mask
from attnviz.base.arrays import BoolArray, IntArray
from attnviz.streaming.device_factors import DeviceFactors
from attnviz.streaming.tiles import Axis, Tile

TILE = {"cpu": (384, 256), "cuda": (2048, 4096), "mps": (2048, 4096)}  # queries and keys of a tile
LONGEST = 16  # keys that are pooled in one step; torch's maximum over more is ten times slower
HIDDEN = -1e30  # the score of a cell that is not seen: its power is 0, and 0 times it is 0, as of −inf it is not
SAMPLED = 32  # keys, evenly spread from the first on, whose scores say how high a row is


class Row:
    """A band of queries and the tiles of keys that it sees, made once for all heads.

    Attributes:
        tile: its blocks.
        place: where its rows stand among those of all bands, repeated ones included.
        count: how many rows there are.
        order: ``(rows,)``, the query of each row, first queries of all pixels first.
        real: which rows are no repeats; ``None`` where all are.
        columns: the tiles of keys that it sees.
        pixels: from the first pixel along the keys that it sees to the last.
        cut: for each tile, whether the rules hide some of its cells.
        middle: the position among the keys of its first query.
        before: how many of the tiles lie before all its queries, or hold no key after any.
        after: the first tile from which on all lie after all its queries.
    """

    def __init__(self, tile: Tile, columns: list[Tile], rules: Mask, device: torch.device) -> None:
        self.tile, self.place, self.count, self.columns = tile, tile.place, tile.grid.size, columns
        self.order = torch.from_numpy(tile.interleaved).to(device)
        self.real = None if tile.repeats is None else torch.from_numpy(_real(tile)).to(device)
        self.pixels = slice(columns[0].blocks.start, columns[-1].blocks.stop) if columns else slice(0, 0)
        self.cut = [rules.coverage(tile.tokens, column.tokens) is not True for column in columns]
        self.middle = tile.tokens.start + rules.offset
        starts = [column.tokens.start for column in columns]
        ends = [column.tokens.stop for column in columns]
        one_sided = rules.causal and not rules.prefix
        self.before = len(columns) if one_sided else sum(end <= self.middle for end in ends)
        last = tile.tokens.stop + rules.offset
        self.after = max(self.before, len(columns) - sum(start >= last for start in starts))

    def edge(self, place: int) -> int:
        """The pixel where the tile at this place begins."""
        return self.columns[place].blocks.start if place < len(self.columns) else self.pixels.stop


def _real(tile: Tile) -> BoolArray:
    real = np.ones(tile.grid.shape, dtype=bool)
    real[tile.repeats, -1] = False
    return real.T.ravel()


class Plan:
    """How the maps are cut into tiles, and what all heads have in common."""

    def __init__(self, factors: DeviceFactors, height: int, width: int, maximum: bool, numbers: frozenset[str]) -> None:
        self.factors, self.maximum, self.numbers = factors, maximum, numbers
        self.device, self.dtype = factors.queries.device, factors.dtype
        self.rules = Mask(**{**vars(factors.mask), "padding": None})
        self.queries, self.keys = factors.queries.shape[1], factors.keys.shape[1]
        size = TILE[self.device.type]
        self.row_axis = Axis.of(slice(0, self.queries), min(height, self.queries), size[0])
        self.column_axis = Axis.of(slice(0, self.keys), min(width, self.keys), LONGEST)
        [self.column] = self.column_axis.tiles(sys.maxsize)
        self.step = max(1, size[1] // self.column.longest)
        self.rows = [
            Row(tile, self._columns_of(tile), self.rules, self.device) for tile in self.row_axis.tiles(size[0])
        ]
        self.widest = max(row.count for row in self.rows), self.step * self.column.longest
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
    def query_order(self) -> Tensor:
        """A row of each query, ``(queries,)``."""
        rows = torch.empty(self.queries, dtype=torch.int64, device=self.device)
        rows[self.row_order] = torch.arange(len(self.row_order), device=self.device)
        return rows

    @cached_property
    def order(self) -> Tensor:
        """The key of each column of all tiles, ``(columns,)``."""
        return torch.from_numpy(self.column.grid.ravel()).to(self.device)

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
        if self.column.repeats is not None:
            hidden.reshape(self.column.grid.shape)[self.column.repeats, -1] = True
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

    def _columns_of(self, tile: Tile) -> list[Tile]:
        """The tiles of keys that a band of rows sees, and no more pixels than these."""
        reach = self.rules.reach(tile.tokens, self.keys)
        if reach.start >= reach.stop:
            return []
        first = int(np.searchsorted(self.column_axis.edges, reach.start, side="right")) - 1
        stop = int(np.searchsorted(self.column_axis.edges, reach.stop))
        starts = range(first, stop, self.step)
        return [self.column.part(slice(start, min(start + self.step, stop))) for start in starts]

    def hidden_cells(self, row: Row, column: Tile) -> Tensor:
        """What to add to the scores of a tile that the rules cut, ``(keys, rows)``."""
        if not self.rules.moves_along:
            return self._hidden_cells(row, column)
        return self._remembered(self._hidden_cells, row, column)

    def distances(self, row: Row, column: Tile) -> Tensor:
        """How many tokens lie between the queries and the keys of a tile, ``(keys, rows)``."""
        return self._remembered(self._distances, row, column)

    def _remembered(self, make: Callable[[Row, Tile], Tensor], row: Row, column: Tile) -> Tensor:
        """What is alike wherever two tiles lie as far apart as these, made once unless an edge is ragged."""
        if row.tile.repeats is not None or column.repeats is not None:
            return make(row, column)
        key = (make.__name__, row.tile.tokens.start - column.tokens.start, row.count, *column.grid.shape)
        if key not in self._memory:
            self._memory[key] = make(row, column)
        return self._memory[key]

    def _distances(self, row: Row, column: Tile) -> Tensor:
        queries = (row.order + self.rules.offset).to(self.dtype)
        return (self.positions[column.place, None] - queries).abs_()

    def _hidden_cells(self, row: Row, column: Tile) -> Tensor:
        if self.rules.explicit is not None or self.rules.prefix:
            seen = self.rules.sees(row.tile.interleaved, column.grid.reshape(-1, 1))
            return torch.from_numpy(~seen).to(self.device, self.dtype) * HIDDEN
        keys = self.positions[column.place, None]
        first, last = (end[row.order] for end in self.spans)
        outside = (last - keys).clamp_(max=0)
        if self.rules.window is not None or self.rules.chunk is not None:
            outside += (keys - first).clamp_(max=0)
        return outside.mul_(-HIDDEN)
