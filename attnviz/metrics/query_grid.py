"""Defines the numpy engine's grid of queries and keys, with the sets of cells that metrics select in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, choices
from attnviz.metrics.grid import Grid, ImagePatches
from attnviz.text.groups import SENTENCES
from attnviz.text.named_groups import named_groups
from attnviz.text.tokens import Tokens

MAX_PICKED = 1 / 8  # up to this share of a grid's cells, gathering them is faster than multiplying all by 0 or 1

BLOCK_KEYS = 64  # keys whose distances are summed as offsets from the middle of their block


def sentences_of(tokens: Tokens) -> IntArray:
    """Returns the index of each token's sentence, ``(tokens,)``, from 0; -1 for special tokens.

    All tokens are in one sentence if the sentences are unknown.
    """
    sentences = named_groups(tokens, SENTENCES)
    return np.where(tokens.special, -1, 0 if sentences is None else sentences.numbers).astype(np.int64)


def is_sequence(tokens: Tokens) -> bool:
    """True if the tokens are in a sequence, so that before, after and near are defined."""
    return tokens.order == "sequence"


# Each function returns ``(tokens,)``: integers, negative for tokens without a number, or booleans.
TOKEN_NUMBERS: Mapping[str, Callable[[Tokens], NDArray[Any]]] = {
    "ids": lambda tokens: tokens.ids,
    "words": lambda tokens: tokens.words,
    "segments": lambda tokens: tokens.segments,
    "special": lambda tokens: tokens.special,
    "sentences": sentences_of,
}


def token_numbers(tokens: Tokens, name: str) -> NDArray[Any]:
    """Returns the column of `TOKEN_NUMBERS` with this name, or the numbers of the tokens' own groups, ``(tokens,)``."""
    if name in TOKEN_NUMBERS:
        return TOKEN_NUMBERS[name](tokens)
    if name not in tokens.groups:
        known = [*TOKEN_NUMBERS, *(group for group in tokens.groups if group not in TOKEN_NUMBERS)]
        raise AttnvizError(f"the tokens have no numbers {name!r}; {choices(name, known)}")
    return tokens.groups[name].numbers


class NumberedTokens:
    """Tokens with the columns of `TOKEN_NUMBERS`, each computed once."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._columns: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def patches(self) -> ImagePatches:
        """The patches of images among the tokens."""
        return ImagePatches.of(self.tokens)

    def column(self, name: str) -> NDArray[Any]:
        """Returns `token_numbers` of this name, ``(tokens,)``."""
        if name not in self._columns:
            self._columns[name] = token_numbers(self.tokens, name)
        return self._columns[name]


@dataclass(frozen=True, eq=False)
class CountedCells:
    """The visible cells that count for a metric: an array of all cells, or the indices of a few."""

    shape: tuple[int, int]  # ``(queries, keys)`` of the grid
    # ``(queries, keys)``, True for cells that count; ``None`` if they are given as ``picked``
    array: BoolArray | None = None
    # the row and column indices of the cells, row by row; ``None`` if they are given as ``array``
    picked: tuple[IntArray, IntArray] | None = None
    one_per_query: bool = False  # True if it is known that no query has two cells

    @cached_property
    def is_counted(self) -> BoolArray:
        """The cells as a boolean array, ``(queries, keys)``."""
        if self.array is not None:
            return self.array
        is_counted = np.zeros(self.shape, dtype=bool)
        is_counted[self.picked] = True
        return is_counted

    @cached_property
    def indices(self) -> tuple[IntArray, IntArray] | None:
        """The row and column indices of the cells, row by row; ``None`` above a share `MAX_PICKED` of the grid."""
        if self.picked is not None:
            return self.picked
        if np.count_nonzero(self.is_counted) > MAX_PICKED * self.is_counted.size:
            return None
        queries = self.flat_indices // self.shape[1]  # faster in numpy than `divmod`
        return queries, self.flat_indices - queries * self.shape[1]

    @cached_property
    def starts(self) -> IntArray:
        """The index in ``indices`` of the first cell of each query that has one; empty if ``indices`` is ``None``."""
        if self.indices is None:
            return np.zeros(0, dtype=np.int64)
        queries, _ = self.indices
        if self.one_per_query:
            return np.arange(len(queries))
        is_first = np.ones(len(queries), dtype=bool)
        np.not_equal(queries[1:], queries[:-1], out=is_first[1:])
        return np.flatnonzero(is_first)

    @cached_property
    def numbers(self) -> FloatArray:
        """The cells as numbers, 1 or 0, ``(queries, keys)``."""
        return self.is_counted.astype(np.float32)

    @cached_property
    def flat_indices(self) -> IntArray:
        """The index of each counted cell in the flattened grid."""
        if self.picked is None:
            return np.flatnonzero(self.is_counted)
        queries, keys = self.picked
        return queries * self.shape[1] + keys

    @cached_property
    def has_cell(self) -> BoolArray:
        """True for queries with at least one cell, ``(queries,)``."""
        if self.picked is None:
            return np.asarray(self.is_counted.any(axis=-1))
        has_cell = np.zeros(self.shape[0], dtype=bool)
        has_cell[self.picked[0]] = True
        return has_cell


class BlockCells(NamedTuple):
    """The cells of one block of keys in each of some rows."""

    starts: IntArray  # ``(rows,)``, the column of the first cell
    distances: Float64Array  # ``(rows, cells)``, in tokens
    is_inside: BoolArray  # ``(rows, cells)``, False for cells before a block that is not whole


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryGrid(Grid):
    """A range of queries of one attention call, with the keys up to the last that any of them sees."""

    visible: BoolArray  # ``(queries, keys)``, True where the query sees the key
    visible_keys: BoolArray  # ``(all keys,)``, True for keys that any query of the maps sees; the others are padding
    start: int  # the index of the first query
    query_tokens: NumberedTokens  # the tokens of all queries of the maps
    key_tokens: NumberedTokens  # the tokens of all keys of the maps
    cross: bool  # True if the keys come from another input, so that positions cannot be compared
    in_sequence: bool = True  # True if the keys are in a sequence
    first_column: int = 0  # the index of the first key of ``visible``
    first_position: int | None = None  # the place of the first query among all keys; ``None`` if queries are the last

    @cached_property
    def keys(self) -> IntArray:
        """The index of each key, ``(keys,)``."""
        return self.first_column + np.arange(self.visible.shape[1], dtype=np.int64)

    @cached_property
    def queries(self) -> IntArray:
        """The index of each query among all queries, ``(queries,)``."""
        return self.start + np.arange(len(self.visible), dtype=np.int64)

    @cached_property
    def positions(self) -> IntArray:
        """The index of each query among all keys, ``(queries,)``; with a key/value cache, queries are the last keys.

        A cache of a fixed size ends with keys that nobody sees, which come after the queries.
        """
        earlier_keys = len(self.key_tokens) - len(self.query_tokens)
        return self.queries + (earlier_keys if self.first_position is None else self.first_position)

    @property
    def span(self) -> slice:
        """The range of the queries."""
        return slice(self.start, self.start + len(self.visible))

    @cached_property
    def patches(self) -> tuple[ImagePatches, ImagePatches] | None:
        """The patches of the queries and of the keys; ``None`` if no key is a patch of an image."""
        if not self.key_tokens.patches.is_patch.any():
            return None
        return self.query_tokens.patches.take(self.queries), self.key_tokens.patches.take(self.keys)

    @cached_property
    def hidden_later(self) -> BoolArray:
        """True for later keys that the query cannot see and another query can, ``(queries, all keys)``."""
        count, width = len(self.visible_keys), self.visible.shape[1]
        # Keys before `start` are later than no query, keys from `stop` on are later than every query of the grid.
        start, stop = (int(np.clip(position + 1, 0, count)) for position in self.positions[[0, -1]])
        is_hidden = np.zeros((len(self.visible), count), dtype=bool)
        is_hidden[:, start:stop] = self.visible_keys[start:stop] & (np.arange(start, stop) > self.positions[:, None])
        is_hidden[:, stop:] = self.visible_keys[stop:]
        is_hidden[:, start:width] &= ~self.visible[:, start:]
        return is_hidden

    @cached_property
    def has_hidden_later(self) -> BoolArray:
        """True for queries from which the mask hides a later key that another query sees, ``(queries,)``."""
        return np.asarray(self.hidden_later.any(axis=-1))

    @cached_property
    def all_hidden_later(self) -> bool:
        """True if ``hidden_later`` is True for every query and every key after the grid's last key."""
        return bool(self.hidden_later[:, self.visible.shape[1] :].all())

    @cached_property
    def first_hidden(self) -> int:
        """The index of the first key that some query of the grid cannot see; the number of keys if there is none."""
        visible_to_all = np.asarray(self.visible.all(axis=0))
        return len(visible_to_all) if visible_to_all.all() else int(visible_to_all.argmin())

    @cached_property
    def block_gaps(self) -> Float64Array:
        """The distance from each query back to the middle of each block of keys, ``(queries, blocks)``."""
        gaps = np.subtract.outer(self.positions, self.keys[::BLOCK_KEYS] + BLOCK_KEYS // 2)
        return np.asarray(gaps.astype(np.float64))

    def cells_of_blocks(self, queries: IntArray, blocks: IntArray) -> BlockCells:
        """Returns the cells of a block of keys for each of some queries, given the index of the block."""
        width = min(BLOCK_KEYS, len(self.keys))
        starts = np.minimum(blocks * BLOCK_KEYS, len(self.keys) - width)
        columns = starts[:, None] + np.arange(width)
        distances = np.abs(self.positions[queries, None] - self.keys[columns]).astype(np.float64)
        return BlockCells(starts, distances, columns >= blocks[:, None] * BLOCK_KEYS)

    @cached_property
    def own_cells(self) -> tuple[IntArray, IntArray, BlockCells]:
        """The queries whose own key is in the grid, the index of its block, and the cells of the block."""
        blocks = (self.positions - self.first_column) // BLOCK_KEYS
        queries = np.flatnonzero((blocks >= 0) & (blocks < self.block_gaps.shape[1]))
        return queries, blocks[queries], self.cells_of_blocks(queries, blocks[queries])

    @cached_property
    def visible_counts(self) -> IntArray:
        """The number of keys that each query sees, ``(queries,)``."""
        return np.asarray(np.count_nonzero(self.visible, axis=-1))

    @cached_property
    def has_choice(self) -> BoolArray:
        """True for queries that count: they are no padding and see two keys or more, ``(queries,)``."""
        return np.asarray((self.visible_counts > 1) & ~self.is_padding)

    @cached_property
    def is_padding(self) -> BoolArray:
        """True for queries of self-attention before the first key that any query sees, or after the last."""
        seen = np.flatnonzero(self.visible_keys)
        if self.cross or not len(seen):
            return np.zeros(len(self.visible), dtype=bool)
        # The key of a query may be outside of a part of the keys.
        is_known = (self.positions >= 0) & (self.positions < len(self.visible_keys))
        return np.asarray(is_known & ((self.positions < seen[0]) | (self.positions > seen[-1])))

    @cached_property
    def max_entropy(self) -> Float64Array:
        """The entropy in bits of a uniform row over a query's visible keys, ``(queries,)``; 1 for fewer than two."""
        return np.asarray(np.log2(np.maximum(self.visible_counts, 2)))

    @cached_property
    def first_key(self) -> BoolArray:
        """True for the first key that any query of the maps sees, ``(1, keys)``."""
        return np.asarray(self.keys == np.argmax(self.visible_keys))[None]

    def query_numbers(self, name: str) -> NDArray[Any]:
        """Returns `token_numbers` of the queries' tokens, ``(queries, 1)``."""
        return self.query_tokens.column(name)[self.queries, None]

    def key_numbers(self, name: str) -> NDArray[Any]:
        """Returns `token_numbers` of the keys' tokens, ``(1, keys)``."""
        return self.key_tokens.column(name)[None, self.keys]

    def all_key_numbers(self, name: str) -> NDArray[Any]:
        """Returns `token_numbers` of all keys of the maps, ``(1, all keys)``."""
        return self.key_tokens.column(name)[None]

    def cells(self, is_counted: NDArray[Any]) -> CountedCells:
        """Returns the visible cells where ``is_counted``, ``(queries, keys)`` or ``(1, keys)``, is True.

        They are given as indices if ``is_counted`` has one row for all queries and selects few visible cells.
        """
        if len(is_counted) < len(self.visible):
            keys = np.flatnonzero(is_counted)
            queries, key_indices = np.nonzero(self.visible[:, keys])
            if len(queries) <= MAX_PICKED * self.visible.size:
                return CountedCells(self._shape, picked=(queries, keys[key_indices]), one_per_query=len(keys) == 1)
        return CountedCells(self._shape, self.visible & is_counted)

    def at_keys(self, keys: IntArray) -> CountedCells:
        """Returns one cell per query, given the index of its key, ``(queries,)``.

        A query has no cell if it does not see that key, or if the index is out of range.
        """
        return CountedCells(self._shape, picked=self._seen_among(np.asarray(keys)[:, None]), one_per_query=True)

    def next_keys(self, cells: BoolArray) -> BoolArray:
        """Returns the cells shifted by one key to the right, ``(queries, keys)``."""
        shifted_cells = np.zeros_like(cells)
        shifted_cells[:, 1:] = cells[:, :-1]
        return shifted_cells

    def at_offsets(self, first: int, last: int) -> CountedCells:
        """Returns the visible cells whose key is ``first`` to ``last`` positions after the query (negative: before).

        They are given as indices if they are few or at most one for each query.
        """
        queries, keys = self._seen_among(self.positions[:, None] + np.arange(first, last + 1))
        cells = CountedCells(self._shape, picked=(queries, keys), one_per_query=first == last)
        if first == last or len(queries) <= MAX_PICKED * self.visible.size:
            return cells
        return CountedCells(self._shape, cells.is_counted)

    @property
    def _shape(self) -> tuple[int, int]:
        count, width = self.visible.shape
        return count, width

    def _seen_among(self, keys: IntArray) -> tuple[IntArray, IntArray]:
        """Returns the indices of the visible cells among a few keys of each query, ``(queries, few)``."""
        keys = keys - self.first_column
        in_grid = (keys >= 0) & (keys < self.visible.shape[1])
        rows = np.arange(len(keys))[:, None]
        queries, columns = np.nonzero(in_grid & self.visible[rows, np.where(in_grid, keys, 0)])
        return queries, keys[queries, columns]
