"""Defines what is streamed, queries, keys and rules, and the overview that comes of it; and plans the tiles between.

An axis is cut into blocks, and neighbouring blocks are a tile. A tile is ``(keys, queries)``, and neighbouring columns
are queries of different pixels: both axes are then reduced by adding whole runs of numbers element-wise, several times
faster than sums within a run.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.base.errors import AttnvizError


class FactorArray(Protocol):
    """An array in memory or in a file; indexing reads only the indexed part."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""

    def __getitem__(self, index: Any) -> Any:
        """Reads the indexed part."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreFactors:
    """Queries and keys of one attention call, whose scaled products are the scores before a soft cap and a bias."""

    queries: FactorArray  # ``(heads, queries, features)``
    keys: FactorArray  # ``(key heads, keys, features)``; heads of grouped-query attention share a key head, stored once
    key_heads: tuple[int, ...]  # ``(heads,)``, index of the key head that each head reads
    scale: float  # factor of q·k

    def refuse_mismatch(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError if the shape of an array or the length of ``key_heads`` does not fit the maps."""
        features = self.queries.shape[-1]
        # There may be more key heads than the heads read, but not fewer.
        key_heads = max(1 + max(self.key_heads, default=-1), self.keys.shape[0])
        expected_shapes = {"queries": (heads, queries, features), "keys": (key_heads, keys, features)}
        for name, expected_shape in expected_shapes.items():
            shape = tuple(getattr(self, name).shape)
            if shape != expected_shape:
                raise AttnvizError(f"{name} has shape {shape}, not {expected_shape}")
        if len(self.key_heads) != heads:
            raise AttnvizError(f"{heads} heads, but key_heads has {len(self.key_heads)} entries; give one per head")


@dataclass(frozen=True, eq=False, kw_only=True)
class Factors(ScoreFactors):
    """Queries, keys and the rules of one attention call, from which any part of its maps can be computed.

    A score is ``q·k · scale``, then ``softcap · tanh(score / softcap)`` if there is a soft cap, plus the bias.
    A weight is ``exp(score − logsumexp)`` if the mask shows the cell, else 0.
    """

    # ``(heads, queries)``, natural logarithm of the softmax's denominator, including the sink; −inf if a query sees no
    # key
    logsumexp: FactorArray
    mask: Mask = field(default_factory=Mask)  # rules that decide which cells are visible
    bias: Bias = field(default_factory=Bias)  # term that is added to the scores
    softcap: float | None = None  # soft limit of the scores; ``None`` for none
    # ``(heads,)``, an extra score in every row's softmax that takes weight but is no key; ``None`` for none
    sink: FloatArray | None = None
    # the torch device of the model, which also computes overviews and metrics; ``None`` for numpy, as for maps from a
    # file
    device: str | None = None

    def __post_init__(self) -> None:
        for array in (self.queries, self.keys, self.logsumexp, self.sink):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def refuse_mismatch(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError if the shape of an array or of the bias, or the length of ``key_heads``, does not fit."""
        super().refuse_mismatch(heads, queries, keys)
        if tuple(self.logsumexp.shape) != (heads, queries):
            raise AttnvizError(f"logsumexp has shape {tuple(self.logsumexp.shape)}, not {(heads, queries)}")
        self.bias.refuse_mismatch(heads, queries, keys)

    def logsumexp_or_inf(self, head_index: int, queries: slice) -> FloatArray:
        """Returns one head's log-sum-exp, ``(queries, 1)``; +inf if a query sees no key, so its weights are 0."""
        logsumexp = np.asarray(self.logsumexp[head_index, queries], dtype=np.float32)
        return np.where(np.isneginf(logsumexp), np.float32(np.inf), logsumexp).astype(np.float32)[:, None]


MAX_BAND_CELLS = 2**22  # cells that are pooled at once


@dataclass(frozen=True, eq=False)
class Overview:
    """Weights pooled to pixels, each over the visible cells of its block."""

    mean: FloatArray  # ``(heads, height, width)``
    maximum: FloatArray  # ``(heads, height, width)``; all 0 if it was not computed
    # ``(height, width)``, true if any cell of the block is visible; ``(heads, height, width)`` if heads see different
    # cells
    visible: BoolArray


def block_edges(count: int, blocks: int) -> IntArray:
    """Returns the starts of ``blocks`` nearly equal blocks of ``count`` cells, and the last end: ``(blocks + 1,)``."""
    return np.arange(blocks + 1, dtype=np.int64) * count // blocks


def bands_of_queries(queries: slice, keys: int, cells: int) -> Iterator[slice]:
    """Yields the queries in runs of at most ``cells`` cells, or of one query if it has more cells."""
    step = max(1, cells // keys)
    return (slice(start, min(start + step, queries.stop)) for start in range(queries.start, queries.stop, step))


def pool_weights(weights: FloatArray, visible: BoolArray, height: int, width: int) -> Overview:
    """Returns the mean and the maximum of the visible weights in each of ``height`` x ``width`` pixels.

    Args:
        weights: ``(heads, queries, keys)``.
        visible: bool, ``(queries, keys)``, or ``(heads, queries, keys)`` if heads see different cells.
    """
    row_edges = block_edges(weights.shape[-2], height)
    rows_at_once = max(1, MAX_BAND_CELLS * height // max(weights.size, 1))
    bands = []
    for first in range(0, height, rows_at_once):
        edges = row_edges[first : first + rows_at_once + 1]
        rows = slice(edges[0], max(edges[-1], edges[-2] + 1))
        visible_weights = np.where(visible[..., rows, :], weights[..., rows, :], np.float32(0))
        counted = visible[..., rows, :].astype(np.int32)
        sources = ((np.add, visible_weights), (np.maximum, visible_weights), (np.add, counted))
        bands.append([reduce_blocks(ufunc, cells, edges - edges[0], width) for ufunc, cells in sources])
    sums, maxima, counts = (np.concatenate(parts, axis=-2) for parts in zip(*bands, strict=True))
    return Overview(
        mean=(sums / np.maximum(counts, 1)).astype(np.float32),
        maximum=maxima,
        visible=counts > 0,
    )


def reduce_blocks(ufunc: np.ufunc, cells: NDArray[Any], row_edges: IntArray, width: int) -> NDArray[Any]:
    """Returns cells, ``(..., rows, columns)``, reduced over blocks to ``(..., height, width)``.

    Args:
        row_edges: the starts of the blocks of rows, and the last end; see `block_edges`.
    """
    row_count, column_count = cells.shape[-2:]
    column_starts = block_edges(column_count, width)[:-1]
    if row_count == len(row_edges) - 1:
        return ufunc.reduceat(cells, column_starts, axis=-1)
    # at least one row each
    row_blocks = [cells[..., start : max(stop, start + 1), :] for start, stop in pairwise(row_edges.tolist())]
    # On the axis of the rows this is faster than reduceat.
    reduced_rows = np.stack([ufunc.reduce(block, axis=-2) for block in row_blocks], axis=-2)
    return ufunc.reduceat(reduced_rows, column_starts, axis=-1)


TILE = {"cpu": (512, 1024), "cuda": (2048, 4096)}  # queries and keys; the shared cache holds each core's tile
MAX_RUN = 64  # tokens that are reduced in one step
HIDDEN = np.float32(-1e30)  # the score of a hidden cell; with −inf, products with 0 would be NaN
LOG2_E = math.log2(math.e)  # exp2 is faster than exp, so exponents are scaled by this
BITS = np.float32(LOG2_E)
MASK_CACHE_SIZE = 128  # tiles whose hidden cells are cached, since all heads have the same


@dataclass(frozen=True, eq=False)
class Tile:
    """Neighbouring blocks of an axis that are computed at once.

    Blocks differ in length by one token at most; the shorter ones repeat their last token to be as long as the others.
    """

    blocks: slice  # the numbers of the blocks
    tokens: slice  # the tokens of all blocks
    grid: IntArray  # ``(blocks, block_length)``, the tokens of each block
    # ``(blocks,)``, true if the last entry of a block repeats the one before; ``None`` if none does
    repeats: BoolArray | None

    @property
    def count(self) -> int:
        """The number of blocks."""
        return len(self.grid)

    @property
    def block_length(self) -> int:
        """The number of tokens of the longest block, to which the others are padded."""
        return len(self.grid[0])

    @property
    def place(self) -> slice:
        """The slice of this tile's tokens among the tokens of all tiles of the axis, repeated tokens included."""
        return slice(self.blocks.start * self.block_length, self.blocks.stop * self.block_length)

    def part(self, blocks: slice) -> "Tile":
        """Returns the tile of some of this tile's blocks, by their numbers.

        This tile must begin with block 0 of its axis, so that the numbers are also indices.
        """
        grid = self.grid[blocks]
        repeats = None if self.repeats is None else self.repeats[blocks]
        has_repeats = repeats is not None and repeats.any()
        tokens = slice(int(grid[0, 0]), int(grid[-1, -1]) + 1)
        return Tile(blocks, tokens, grid, repeats if has_repeats else None)

    @property
    def interleaved_tokens(self) -> IntArray:
        """The first token of each block, then the second of each, and so on: blocks are then reduced element-wise."""
        return self.grid.T.ravel()


@dataclass(frozen=True, eq=False)
class BlockAxis:
    """An axis cut into blocks, each of which is cut into the same number of parts."""

    edges: IntArray  # ``(blocks * parts + 1,)``, the start of each part, and the end
    parts: int  # number of parts of a block

    @classmethod
    def from_span(cls, span: slice, blocks: int, max_tokens: int) -> "BlockAxis":
        """Returns a span of tokens cut into blocks, and each block into parts of at most about ``max_tokens`` tokens.

        A block never has more parts than tokens.
        """
        count = span.stop - span.start
        parts = max(1, min(-(-count // (blocks * max_tokens)), count // blocks))
        return cls(span.start + block_edges(count, blocks * parts), parts)

    def tiles(self, size: int) -> Iterator[Tile]:
        """Yields the parts in tiles of at most ``size`` tokens, or of one part if it is longer.

        A part is a block of its tile. All are as long as the longest part of the axis: a shorter one repeats its last
        token, and is marked in the tile's ``repeats``.
        """
        lengths = np.diff(self.edges)
        block_length = int(lengths.max())
        step = max(1, size // block_length)
        for first in range(0, len(lengths), step):
            stop = min(first + step, len(lengths))
            last_tokens = self.edges[first + 1 : stop + 1, None] - 1
            grid = np.minimum(self.edges[first:stop, None] + np.arange(block_length), last_tokens)
            repeats = lengths[first:stop] < block_length
            yield Tile(
                blocks=slice(first, stop),
                tokens=slice(int(self.edges[first]), int(self.edges[stop])),
                grid=grid,
                repeats=repeats if repeats.any() else None,
            )


@dataclass(frozen=True, eq=False)
class LoadedHead:
    """A head's queries and keys in the order of the tiles, extended so that one product gives its log2 weights.

    The weight of query q on key k is ``2 ** (BITS · (scale · q·k − logsumexp + term))``. With two more features each,
    ``q' = (BITS · scale · q, −BITS · logsumexp, 1)`` and ``k' = (k, 1, BITS · term)``, the exponent is ``q'·k'``.
    Tokens that pad a shorter block are repeated.
    """

    head_index: int  # index of the head in the arrays of the factors
    queries: FloatArray  # ``(rows, features + 2)``
    keys: FloatArray  # ``(columns, features + 2)``


@dataclass(frozen=True, eq=False)
class Band:
    """A run of queries, and the tiles of keys that they see."""

    row: Tile  # the tile of the queries
    columns: list[Tile]  # the tiles of the keys
    is_cut: list[bool]  # one flag per tile of keys, true if the mask may hide some of its cells


class TilePlan:
    """The tiles of an overview, with the cells that the mask hides in each.

    Attributes:
        row_axis: the queries, cut into parts of pixels.
        column_axis: the keys, cut into parts of pixels.
        bands: the queries, each band with the tiles of keys that it sees.
        column: all keys as one tile.
        rules: the mask without padding, which `load` adds to the scores of the keys.
        bias: the bias without that of each key, which `load` adds too.
        step: the number of blocks of keys in a tile.
        largest_tile: the number of cells of the largest tile.
        row_order: the indices of the queries in the order of the tiles.
        column_order: the indices of the keys in the order of the tiles.
    """

    def __init__(
        self,
        factors: Factors,
        queries: slice,
        keys: slice,
        size: tuple[int, int],
        maximum: bool,
        tile: tuple[int, int] = TILE["cpu"],
    ) -> None:
        self.factors, self.maximum = factors, maximum
        max_queries, max_keys = tile
        self.row_axis, self.column_axis = (
            BlockAxis.from_span(span, pixels, MAX_RUN) for span, pixels in zip((queries, keys), size, strict=True)
        )
        rows = list(self.row_axis.tiles(max_queries))
        [self.column] = self.column_axis.tiles(sys.maxsize)
        self.queries, self.keys = queries, keys
        self.rules, self.bias = replace(factors.mask, padding=None), replace(factors.bias, by_key=None)
        self.step = max(1, max_keys // self.column.block_length)
        self.largest_tile = max(row.grid.size for row in rows) * self.step * self.column.block_length
        self.row_order = np.concatenate([row.interleaved_tokens for row in rows]) - queries.start
        self.column_order = self.column.grid.ravel() - keys.start
        self._hidden: dict[tuple[int, ...], FloatArray] = {}
        self._tiles: dict[tuple[int, int], Tile] = {}
        self.bands: list[Band] = []
        for row in rows:
            # Tiles of exactly the blocks of keys that any of the queries may see.
            reach = self.rules.reach(row.tokens, self.keys.stop)
            first = max(int(np.searchsorted(self.column_axis.edges, reach.start, side="right")) - 1, 0)
            stop = min(int(np.searchsorted(self.column_axis.edges, reach.stop)), self.column.count)
            columns = []
            for start in range(first, stop, self.step):
                blocks = start, min(start + self.step, stop)
                if blocks not in self._tiles:  # bands share tiles
                    self._tiles[blocks] = self.column.part(slice(*blocks))
                column = self._tiles[blocks]
                if self.rules.tail is None or self.rules.coverage(row.tokens, column.tokens) is not False:
                    columns.append(column)
            is_cut = [self.rules.coverage(row.tokens, column.tokens) is not True for column in columns]
            self.bands.append(Band(row, columns, is_cut))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of parts of pixels along the keys and along the queries."""
        return len(self.column_axis.edges) - 1, len(self.row_axis.edges) - 1

    def load(self, head_index: int) -> LoadedHead:
        """Returns queries and keys of the head at this index of the factors' arrays, extended as `LoadedHead` says."""
        factors, key_head = self.factors, self.factors.key_heads[head_index]
        features = factors.queries.shape[-1]
        queries, keys = (
            np.ones((len(order), features + 2), np.float32) for order in (self.row_order, self.column_order)
        )
        # The last two features of each are the terms of `LoadedHead`; those that stay 1 are set by np.ones.
        rows = np.asarray(factors.queries[head_index, self.queries])[self.row_order]
        np.multiply(rows, np.float32(factors.scale) * BITS, out=queries[:, :-2])
        negative_logsumexp = np.maximum(-factors.logsumexp_or_inf(head_index, self.queries)[:, 0], HIDDEN)
        queries[:, -2] = negative_logsumexp[self.row_order] * BITS
        columns = np.asarray(factors.keys[key_head, self.keys])
        keys[:, :-2] = columns if self.column.repeats is None else columns[self.column_order]
        # The term that is added to all scores of a key: its bias, or HIDDEN for padding.
        terms = np.zeros(self.keys.stop - self.keys.start, dtype=np.float32)
        if factors.bias.by_key is not None:
            terms += factors.bias.by_key[head_index, self.keys]
        if factors.mask.padding is not None:
            terms[~factors.mask.padding[self.keys]] = HIDDEN
        keys[:, -1] = terms[self.column_order] * BITS
        return LoadedHead(head_index, queries, keys)

    def hidden(self, row: Tile, column: Tile) -> FloatArray:
        """Returns ``HIDDEN`` for each cell that the mask hides, else 0, ``(keys, queries)`` in the order of the tile.

        Results are cached; if visibility depends only on the distance key − query, tiles on a diagonal share one. A
        full cache is emptied.
        """
        is_shared = self.rules.depends_on_distance and row.repeats is None and column.repeats is None
        offset = row.tokens.start - column.tokens.start
        place = (offset,) if is_shared else (row.blocks.start, column.blocks.start)
        cache_key = (*place, *row.grid.shape, *column.grid.shape)
        hidden_mask = self._hidden.get(cache_key)
        if hidden_mask is None:
            visible = self.rules.sees(row.interleaved_tokens, column.grid.reshape(-1, 1))
            hidden_mask = np.where(visible, np.float32(0), HIDDEN)
            if len(self._hidden) >= MASK_CACHE_SIZE:
                self._hidden.clear()
            self._hidden[cache_key] = hidden_mask
        return hidden_mask

    def tile_bias(self, head_index: int, row: Tile, column: Tile) -> FloatArray:
        """Returns the relative and explicit bias of a tile's exponents, ``(keys, queries)`` in the order of the
        tile.
        """
        block = self.bias.block([head_index], row.tokens, column.tokens)[0].T
        cells = block[np.ix_(column.grid.ravel() - column.tokens.start, row.interleaved_tokens - row.tokens.start)]
        return np.asarray(cells * BITS)

    def joined_parts(self, ufunc: np.ufunc, parts: NDArray[Any]) -> NDArray[Any]:
        """Returns parts of pixels, ``(heads, *shape)``, reduced by a ufunc to pixels, ``(heads, height, width)``."""
        key_parts, query_parts = self.column_axis.parts, self.row_axis.parts  # of one pixel
        width, height = self.shape[0] // key_parts, self.shape[1] // query_parts
        blocks = parts.reshape(len(parts), width, key_parts, height, query_parts)
        return np.asarray(ufunc.reduce(blocks, axis=(2, 4))).swapaxes(1, 2)
