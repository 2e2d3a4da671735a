"""Overviews of factored maps: tiles of weights become pixels and are forgotten, in memory that grows with the tokens.

Tiles hold keys before queries, and the queries of a pixel apart: both axes are then reduced by adding whole runs of
numbers, several times quicker than sums within a run.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.maps import FloatArray
from attnviz.progress import track
from attnviz.tiles import Axis, Tile

if TYPE_CHECKING:
    from attnviz.maps_factored import FactoredMaps

IntArray = NDArray[np.int64]
ROWS, COLUMNS, LONGEST = 256, 512, 64  # tokens of a tile, and of the runs that are summed in it: they fit the cache
HIDDEN = np.float32(-np.inf)
MOST_SEEN = 128  # tiles whose hidden cells are remembered for the next head


def pixel_axes(queries: slice, keys: slice, height: int, width: int) -> tuple[Axis, Axis]:
    """The axes of a block cut into the runs that are summed at once."""
    return Axis.of(queries, height, LONGEST), Axis.of(keys, width, LONGEST)


def pool(
    maps: "FactoredMaps", places: Sequence[int], rows: Axis, columns: Axis
) -> tuple[NDArray[np.float64], FloatArray]:
    """The sum and the maximum of the weights in each pixel, ``(heads, height, width)``, of heads at these places."""
    tiles = _Tiles(maps, rows, columns)
    totals, highest = zip(*(_pool_head(tiles, place) for place in places), strict=True)
    return np.stack(totals), np.stack(highest)


def _pool_head(tiles: "_Tiles", place: int) -> tuple[NDArray[np.float64], FloatArray]:
    """The sum and the maximum of a head's weights in each pixel, both ``(height, width)``."""
    shape = (len(tiles.column_axis.edges) - 1, len(tiles.row_axis.edges) - 1)
    total, highest = np.zeros(shape, dtype=np.float64), np.zeros(shape, dtype=np.float32)
    head = _Head(tiles, place)
    for row_place, row in track(list(enumerate(tiles.rows)), "pooling"):
        for column_place, column in enumerate(tiles.columns):
            if tiles.maps.mask.coverage(row.tokens, column.tokens) is not False:
                weights = head.weights(row_place, column_place)
                pixels = (column.blocks, row.blocks)
                total[pixels], highest[pixels] = (_reduced(how, weights, row, column) for how in (np.add, np.maximum))
    parts = tiles.column_axis.parts, tiles.row_axis.parts
    cut = (shape[0] // parts[0], parts[0], shape[1] // parts[1], parts[1])
    return total.reshape(cut).sum(axis=(1, 3)).T, highest.reshape(cut).max(axis=(1, 3)).T


def _reduced(reduce: np.ufunc, weights: FloatArray, row: Tile, column: Tile) -> FloatArray:
    """A tile's weights reduced to its blocks, ``(blocks of keys, blocks of queries)``; repeated tokens count as 0."""
    blocks = weights.reshape(column.count, column.longest, -1)
    if column.repeats is not None:
        blocks[column.repeats, -1] = 0
    runs = reduce.reduce(blocks, axis=1).reshape(column.count, row.longest, row.count)
    if row.repeats is not None:
        runs[:, -1, row.repeats] = 0
    return np.asarray(reduce.reduce(runs, axis=1))


class _Tiles:
    """How the maps are cut, and what the mask hides in each tile."""

    def __init__(self, maps: "FactoredMaps", rows: Axis, columns: Axis) -> None:
        self.maps, self.row_axis, self.column_axis = maps, rows, columns
        self.rows, self.columns = list(rows.tiles(ROWS)), list(columns.tiles(COLUMNS))
        self.orders = [tile.interleaved for tile in self.rows], [tile.grid.ravel() for tile in self.columns]
        self.rules, self.bias = replace(maps.mask, padding=None), replace(maps.bias, by_key=None)
        self.seen: dict[tuple[int, ...], FloatArray] = {}
        longest = (max(order.size for order in orders) for orders in self.orders)
        self.memory = np.empty(math.prod(longest), dtype=np.float32)  # of every tile in turn

    @property
    def spans(self) -> tuple[slice, slice]:
        """The queries and keys covered."""
        queries, keys = (slice(int(axis.edges[0]), int(axis.edges[-1])) for axis in (self.row_axis, self.column_axis))
        return queries, keys

    def hidden(self, row_place: int, column_place: int) -> FloatArray | None:
        """−inf where the rules hide a cell, else 0, ``(keys, queries)`` in order; ``None`` where all is seen."""
        row, column = self.rows[row_place], self.columns[column_place]
        if self.rules.coverage(row.tokens, column.tokens):
            return None
        alike = self.rules.moves_along and row.repeats is None and column.repeats is None
        key = (row.tokens.start - column.tokens.start, *row.grid.shape, *column.grid.shape)
        key = key if alike else (row_place, column_place)
        if key not in self.seen:
            if len(self.seen) >= MOST_SEEN:
                self.seen.clear()
            self.seen[key] = self._penalty(row_place, column_place)
        return self.seen[key]

    def _penalty(self, row_place: int, column_place: int) -> FloatArray:
        queries, keys = self.orders[0][row_place], self.orders[1][column_place]
        return np.where(self.rules.sees(queries, keys[:, None]), np.float32(0), HIDDEN)


class _Head:
    """One head's queries, scaled, and its keys, in the order of each tile.

    Where nothing bends the product, more features of each query and key take the log-sum-exp off the score, add what
    depends on the key alone, and hide padding: a product of a few more features costs nothing.
    """

    def __init__(self, tiles: _Tiles, place: int) -> None:
        maps, (queries, keys) = tiles.maps, tiles.spans
        self.tiles, self.place = tiles, place
        self.bends = maps.softcap is not None
        query_rows = np.asarray(maps.queries[place, queries]) * np.float32(maps.scale or 0)
        key_rows = np.asarray(maps.keys[maps.key_heads[place], keys])
        reference, by_key = -maps.reference(place, queries), self._by_key(keys)
        ones = (np.ones((len(rows), 1), dtype=np.float32) for rows in (query_rows, key_rows))
        self.more = np.concatenate([reference, next(ones)], axis=1), np.concatenate([next(ones), by_key], axis=1)
        sides = (query_rows, key_rows) if self.bends else _beside((query_rows, key_rows), self.more)
        self.queries, self.keys = (
            [np.ascontiguousarray(rows[order - span.start]) for order in orders]
            for rows, span, orders in zip(sides, tiles.spans, tiles.orders, strict=True)
        )

    def weights(self, row_place: int, column_place: int) -> FloatArray:
        """The weights of a tile, ``(keys, queries)`` in order; hidden ones 0."""
        keys, queries = self.keys[column_place], self.queries[row_place]
        scores = self.tiles.memory[: len(keys) * len(queries)].reshape(len(keys), len(queries))
        product(keys, queries, scores)
        self._bend(scores, row_place, column_place)
        hidden = self.tiles.hidden(row_place, column_place)
        if hidden is not None:
            scores += hidden
        return np.exp(scores, out=scores)

    def _by_key(self, keys: slice) -> FloatArray:
        """What is added to each key's scores, ``(keys, 1)``: its bias, and −inf for padding."""
        maps = self.tiles.maps
        added = np.zeros(keys.stop - keys.start, dtype=np.float32)
        if maps.bias.by_key is not None:
            added += maps.bias.by_key[self.place, keys]
        if maps.mask.padding is not None:
            added[~maps.mask.padding[keys]] = HIDDEN
        return added[:, None]

    def _bend(self, scores: FloatArray, row_place: int, column_place: int) -> None:
        """Puts scores under the soft cap and adds the bias that is no product."""
        maps, (queries, keys) = self.tiles.maps, self.tiles.spans
        if maps.softcap is not None:
            scores /= np.float32(maps.softcap)
            np.tanh(scores, out=scores)
            scores *= np.float32(maps.softcap)
            rows, columns = self.tiles.orders[0][row_place], self.tiles.orders[1][column_place]
            scores += self.more[1][columns - keys.start] @ self.more[0][rows - queries.start].T
        if self.tiles.bias:
            row, column = self.tiles.rows[row_place], self.tiles.columns[column_place]
            block = self.tiles.bias.block([self.place], row.tokens, column.tokens)[0].T
            scores += block[np.ix_(column.grid.ravel() - column.tokens.start, row.interleaved - row.tokens.start)]


def product(keys: FloatArray, queries: FloatArray, out: FloatArray) -> None:
    """``keys @ queriesᵀ``, by torch where it is loaded anyway: its products are half again as quick."""
    torch = sys.modules.get("torch")
    if torch is None:
        np.matmul(keys, queries.T, out=out)
    else:
        keys, queries, out = (torch.from_numpy(array) for array in (keys, queries, out))
        torch.mm(keys, queries.T, out=out)


def _beside(sides: tuple[FloatArray, FloatArray], more: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, ...]:
    """Both sides of a product with more features."""
    return tuple(np.concatenate(each, axis=1) for each in zip(sides, more, strict=True))
