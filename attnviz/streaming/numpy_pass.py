"""Overviews of factored maps: tiles of weights become pixels and are forgotten, in memory that grows with the tokens.

Tiles hold keys before queries, and the queries of a pixel apart: both axes are then reduced by adding whole runs of
numbers, several times quicker than sums within a run.
"""

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.base.progress import track
from attnviz.base.subnormal import taken_as_zero
from attnviz.streaming.factors import Factors
from attnviz.streaming.tiles import Axis, Tile

ROWS, COLUMNS, LONGEST = 256, 512, 64  # tokens of a tile, and of the runs that are summed in it: they fit the cache
HIDDEN = np.float32(-1e30)  # the score of a cell that is not seen: unlike −inf, 0 times it is 0
BITS = np.float32(math.log2(math.e))  # powers of two are quicker than those of e
MOST_SEEN = 128  # tiles whose hidden cells are remembered for the next head


def pixel_axes(queries: slice, keys: slice, height: int, width: int) -> tuple[Axis, Axis]:
    """The axes of a block cut into the runs that are summed at once."""
    return Axis.of(queries, height, LONGEST), Axis.of(keys, width, LONGEST)


def pool(
    factors: Factors, places: Sequence[int], rows: Axis, columns: Axis, maximum: bool
) -> tuple[Float64Array, FloatArray]:
    """The sum and the maximum of the weights in each pixel, ``(heads, height, width)``, of heads at these places.

    Where the maximum is not wanted, it is all zero.
    """
    tiles = _Tiles(factors, rows, columns, maximum)
    with taken_as_zero():
        totals, highest = zip(*(_pool_head(tiles, place) for place in places), strict=True)
    return np.stack(totals), np.stack(highest)


def _pool_head(tiles: "_Tiles", place: int) -> tuple[Float64Array, FloatArray]:
    """The sum and the maximum of a head's weights in each pixel, both ``(height, width)``."""
    shape = (len(tiles.column_axis.edges) - 1, len(tiles.row_axis.edges) - 1)
    total, highest = np.zeros(shape, dtype=np.float64), np.zeros(shape, dtype=np.float32)
    head = _Head(tiles, place)
    for row in track(tiles.rows, "pooling"):
        for column in tiles.columns_of(row):
            weights, pixels = head.weights(row, column), (column.blocks, row.blocks)
            total[pixels] = _reduced("sum", weights, row, column)
            if tiles.maximum:
                highest[pixels] = _reduced("amax", weights, row, column)
    parts = tiles.column_axis.parts, tiles.row_axis.parts
    cut = (shape[0] // parts[0], parts[0], shape[1] // parts[1], parts[1])
    return total.reshape(cut).sum(axis=(1, 3)).T, highest.reshape(cut).max(axis=(1, 3)).T


def _reduced(how: str, weights: FloatArray, row: Tile, column: Tile) -> FloatArray:
    """A tile's weights reduced to its blocks, ``(blocks of keys, blocks of queries)``; repeated tokens count as 0."""
    blocks = weights.reshape(column.count, column.longest, -1)
    if column.repeats is not None:
        blocks[column.repeats, -1] = 0
    runs = reduce_middle(how, blocks).reshape(column.count, row.longest, row.count)
    if row.repeats is not None:
        runs[:, -1, row.repeats] = 0
    return reduce_middle(how, runs)


class _Tiles:
    """How the maps are cut, and what the mask hides in each tile."""

    def __init__(self, factors: Factors, rows: Axis, columns: Axis, maximum: bool) -> None:
        self.factors, self.row_axis, self.column_axis, self.maximum = factors, rows, columns, maximum
        self.rows, [self.column] = list(rows.tiles(ROWS)), list(columns.tiles(sys.maxsize))
        self.rules, self.bias = replace(factors.mask, padding=None), replace(factors.bias, by_key=None)
        self.seen: dict[tuple[int, ...], FloatArray] = {}
        self.step = max(1, COLUMNS // self.column.longest)
        most = max(row.grid.size for row in self.rows) * self.step * self.column.longest
        self.memory = np.empty(most, dtype=np.float32)  # of every tile in turn
        queries, keys = self.spans
        self.row_order = np.concatenate([row.interleaved for row in self.rows]) - queries.start
        self.column_order = self.column.grid.ravel() - keys.start
        self.queries, self.keys = (  # of every head in turn
            np.ones((len(order), factors.queries.shape[-1] + 2), dtype=np.float32)
            for order in (self.row_order, self.column_order)
        )

    @property
    def spans(self) -> tuple[slice, slice]:
        """The queries and keys covered."""
        queries, keys = (slice(int(axis.edges[0]), int(axis.edges[-1])) for axis in (self.row_axis, self.column_axis))
        return queries, keys

    def columns_of(self, row: Tile) -> Iterator[Tile]:
        """Tiles of the blocks of keys that any query of the row may see, and no more of them than these."""
        reach = self.rules.reach(row.tokens, self.spans[1].stop)
        first = max(int(np.searchsorted(self.column_axis.edges, reach.start, side="right")) - 1, 0)
        stop = min(int(np.searchsorted(self.column_axis.edges, reach.stop)), self.column.count)
        for start in range(first, stop, self.step):
            yield self.column.part(slice(start, min(start + self.step, stop)))

    def hidden(self, row: Tile, column: Tile) -> FloatArray | None:
        """``HIDDEN`` where the rules hide a cell, else 0, ``(keys, queries)`` in order; ``None`` where all is seen."""
        if self.rules.coverage(row.tokens, column.tokens):
            return None
        alike = self.rules.moves_along and row.repeats is None and column.repeats is None
        offset = row.tokens.start - column.tokens.start
        key = (offset if alike else row.blocks.start, *row.grid.shape, *column.grid.shape)
        key = key if alike else (*key, column.blocks.start)
        if key not in self.seen:
            if len(self.seen) >= MOST_SEEN:
                self.seen.clear()
            seen = self.rules.sees(row.interleaved, column.grid.reshape(-1, 1))
            self.seen[key] = np.where(seen, np.float32(0), HIDDEN)
        return self.seen[key]


class _Head:
    """One head, whose queries, scaled, and keys stand in the order of the tiles.

    Two features beside their own take the log-sum-exp off the score, and add what depends on the key alone or hides it:
    where nothing bends the product, two more features of it cost nothing.
    """

    def __init__(self, tiles: _Tiles, place: int) -> None:
        factors, (queries, keys) = tiles.factors, tiles.spans
        self.tiles, self.place = tiles, place
        rows, columns = (
            np.asarray(factors.queries[place, queries]),
            np.asarray(factors.keys[factors.key_heads[place], keys]),
        )
        np.multiply(rows[tiles.row_order], np.float32(factors.scale) * BITS, out=tiles.queries[:, :-2])
        reference = np.maximum(-factors.reference(place, queries)[:, 0], HIDDEN)
        tiles.queries[:, -2] = reference[tiles.row_order] * BITS
        tiles.keys[:, :-2] = columns if tiles.column.repeats is None else columns[tiles.column_order]
        tiles.keys[:, -1] = self._by_key(keys)[tiles.column_order] * BITS

    def weights(self, row: Tile, column: Tile) -> FloatArray:
        """The weights of a tile, ``(keys, queries)`` in order; hidden ones 0."""
        keys, queries = self.tiles.keys[column.place], self.tiles.queries[row.place]
        scores = self.tiles.memory[: len(keys) * len(queries)].reshape(len(keys), len(queries))
        if self.tiles.factors.softcap is None:
            product(keys, queries, scores)
        else:
            product(keys[:, :-2], queries[:, :-2], scores)
            self._cap(scores, np.float32(self.tiles.factors.softcap) * BITS)
            scores += keys[:, -2:] @ queries[:, -2:].T
        if self.tiles.bias:
            scores += self._bias(row, column)
        hidden = self.tiles.hidden(row, column)
        if hidden is not None:
            scores += hidden
        return powers_of_two(scores)

    def _by_key(self, keys: slice) -> FloatArray:
        """What is added to each key's scores, ``(keys,)``: its bias, and ``HIDDEN`` for padding."""
        factors = self.tiles.factors
        added = np.zeros(keys.stop - keys.start, dtype=np.float32)
        if factors.bias.by_key is not None:
            added += factors.bias.by_key[self.place, keys]
        if factors.mask.padding is not None:
            added[~factors.mask.padding[keys]] = HIDDEN
        return added

    def _cap(self, scores: FloatArray, cap: np.float32) -> None:
        """Puts scores under the soft cap."""
        scores /= cap
        np.tanh(scores, out=scores)
        scores *= cap

    def _bias(self, row: Tile, column: Tile) -> FloatArray:
        """What the bias that is not the key's adds to a tile's scores, ``(keys, queries)`` in order."""
        block = self.tiles.bias.block([self.place], row.tokens, column.tokens)[0].T
        return np.asarray(
            block[np.ix_(column.grid.ravel() - column.tokens.start, row.interleaved - row.tokens.start)] * BITS
        )


def product(keys: FloatArray, queries: FloatArray, out: FloatArray) -> None:
    """``keys @ queriesᵀ``; this and the next two by torch where it is loaded anyway: it is half again as quick."""
    torch = sys.modules.get("torch")
    if torch is None:
        np.matmul(keys, queries.T, out=out)
    else:
        _take_read_only_arrays()
        keys, queries, out = (torch.from_numpy(array) for array in (keys, queries, out))
        torch.mm(keys, queries.T, out=out)


@cache
def _take_read_only_arrays() -> None:
    """Lets torch say unheard what it says once of read-only arrays: no product writes into its factors."""
    torch = sys.modules["torch"]
    array = np.zeros(1, dtype=np.float32)
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


def powers_of_two(exponents: FloatArray) -> FloatArray:
    """2 to the power of each, in their own memory."""
    torch = sys.modules.get("torch")
    if torch is None:
        return np.exp2(exponents, out=exponents)
    torch.from_numpy(exponents).exp2_()
    return exponents


def reduce_middle(how: str, values: FloatArray) -> FloatArray:
    """The ``sum`` or the largest (``amax``) along the middle of three axes."""
    torch = sys.modules.get("torch")
    if torch is None:
        return np.asarray(getattr(np, how)(values, axis=1))
    return np.asarray(getattr(torch.from_numpy(values), how)(1))
