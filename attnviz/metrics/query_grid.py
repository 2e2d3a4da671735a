"""The numpy engine's grid: some queries of one layer's maps with the keys they see."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.metrics.grid import Grid
from attnviz.metrics.token_numbers import NumberedTokens

MAX_PICKED = 1 / 8  # the share of cells up to which picking them out is quicker than multiplying all of them


@dataclass(frozen=True, eq=False)
class CountedCells:
    """Visible cells of a grid that count for a metric.

    Attributes:
        counted: ``(queries, keys)``.
    """

    counted: BoolArray

    @cached_property
    def picked(self) -> tuple[IntArray, IntArray] | None:
        """The query and the key of each, in order of the queries; ``None`` where they are many."""
        if np.count_nonzero(self.counted) > MAX_PICKED * self.counted.size:
            return None
        width = self.counted.shape[1]
        queries = self.flat // width  # of numpy quicker than `divmod`
        return queries, self.flat - queries * width

    @cached_property
    def starts(self) -> IntArray:
        """Where the first picked cell of each query that has one stands among the picked."""
        return first_of_each(self.picked)

    @cached_property
    def numbers(self) -> FloatArray:
        """The same as numbers, 1 or 0."""
        return self.counted.astype(np.float32)

    @cached_property
    def flat(self) -> IntArray:
        """Where each picked cell stands in the grid's cells, one row after another."""
        return np.flatnonzero(self.counted)

    @cached_property
    def present(self) -> BoolArray:
        """Whether there is one, ``(queries,)``."""
        return np.asarray(self.counted.any(axis=-1))


@dataclass(frozen=True, eq=False)
class PickedCells:
    """The same of few cells, whose places are known.

    Attributes:
        picked: the query and the key of each, in order of the queries.
        shape: how many queries and keys the grid has.
        alone: true if no query has two.
    """

    picked: tuple[IntArray, IntArray]
    shape: tuple[int, int]
    alone: bool = False

    @cached_property
    def counted(self) -> BoolArray:
        """The cells, ``(queries, keys)``."""
        counted = np.zeros(self.shape, dtype=bool)
        counted[self.picked] = True
        return counted

    @cached_property
    def starts(self) -> IntArray:
        """Where the first cell of each query that has one stands among them."""
        return np.arange(len(self.picked[0])) if self.alone else first_of_each(self.picked)

    @cached_property
    def numbers(self) -> FloatArray:
        """The same as numbers, 1 or 0."""
        return self.counted.astype(np.float32)

    @cached_property
    def flat(self) -> IntArray:
        """Where each cell stands in the grid's cells, one row after another."""
        queries, keys = self.picked
        return queries * self.shape[1] + keys

    @cached_property
    def present(self) -> BoolArray:
        """Whether there is one, ``(queries,)``."""
        present = np.zeros(self.shape[0], dtype=bool)
        present[self.picked[0]] = True
        return present


def first_of_each(picked: tuple[IntArray, IntArray] | None) -> IntArray:
    """Where the first cell of each query that has one stands among picked cells."""
    if picked is None:
        return np.zeros(0, dtype=np.int64)
    is_first = np.ones(len(picked[0]), dtype=bool)
    np.not_equal(picked[0][1:], picked[0][:-1], out=is_first[1:])
    return np.flatnonzero(is_first)


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryGrid(Grid):
    """Some queries of one layer's maps with their keys.

    Attributes:
        visible: ``(queries, keys)``, of the keys up to the last that any of these queries sees.
        seen: ``(all keys,)``, whether any query of the whole maps sees the key; padding is what none sees.
        start: the number of the first query.
        query_tokens: the tokens of all queries of the maps.
        key_tokens: the tokens of all keys.
        cross: whether the keys come from another text, so that positions cannot be compared.
        in_sequence: whether the keys follow one another.
    """

    visible: BoolArray
    seen: BoolArray
    start: int
    query_tokens: NumberedTokens
    key_tokens: NumberedTokens
    cross: bool
    in_sequence: bool = True

    @cached_property
    def keys(self) -> IntArray:
        """The number of each key, ``(keys,)``."""
        return np.arange(self.visible.shape[1], dtype=np.int64)

    @cached_property
    def queries(self) -> IntArray:
        """The number of each query, ``(queries,)``."""
        return self.start + np.arange(len(self.visible), dtype=np.int64)

    @cached_property
    def positions(self) -> IntArray:
        """Where each query stands among the keys, ``(queries,)``; with earlier keys cached, queries are the last."""
        return self.queries + len(self.key_tokens) - len(self.query_tokens)

    @property
    def span(self) -> slice:
        """The queries, with both ends."""
        return slice(self.start, self.start + len(self.visible))

    @cached_property
    def later(self) -> BoolArray:
        """Whether a later key is hidden from the query that others see, ``(queries, all keys)``."""
        count, width = len(self.seen), self.visible.shape[1]
        first, stop = (int(np.clip(place + 1, 0, count)) for place in self.positions[[0, -1]])
        later = np.zeros((len(self.visible), count), dtype=bool)
        later[:, first:stop] = self.seen[first:stop] & (np.arange(first, stop) > self.positions[:, None])
        later[:, stop:] = self.seen[stop:]
        later[:, first:width] &= ~self.visible[:, first:]
        return later

    @cached_property
    def has_later(self) -> BoolArray:
        """Whether any later key is hidden from the query, ``(queries,)``."""
        return np.asarray(self.later.any(axis=-1))

    @cached_property
    def all_later(self) -> bool:
        """Whether every key after the grid's is a later one that is hidden from all queries."""
        return bool(self.later[:, self.visible.shape[1] :].all())

    @cached_property
    def first_hidden(self) -> int:
        """The first key that is hidden from some query; as many as there are keys where none is."""
        seen = np.asarray(self.visible.all(axis=0))
        return len(seen) if seen.all() else int(seen.argmin())

    @cached_property
    def before(self) -> int:
        """How many of the keys lie before the position of the first query."""
        return int(np.clip(self.positions[0], 0, self.visible.shape[1]))

    @cached_property
    def after(self) -> int:
        """The first of the keys that lie after the position of the last query."""
        return int(np.clip(self.positions[-1] + 1, 0, self.visible.shape[1]))

    @cached_property
    def near_distances(self) -> FloatArray:
        """The distances of the keys between ``before`` and ``after``, ``(queries, those keys)``."""
        steps = np.abs(self.positions[:, None] - self.keys[self.before : self.after])
        return np.asarray(steps.astype(np.float32))

    def powers(self, keys: slice, origin: int) -> FloatArray:
        """Each key's place, counted from an origin, to the powers of 0, 1 and 2, ``(keys, 3)``."""
        places = (self.keys[keys] - origin).astype(np.float32)
        return np.stack([np.ones_like(places), places, places**2], axis=1)

    @cached_property
    def choices(self) -> IntArray:
        """How many keys each query sees, ``(queries,)``."""
        return np.asarray(np.count_nonzero(self.visible, axis=-1))

    @cached_property
    def has_choice(self) -> BoolArray:
        """Whether each query sees two keys or more, ``(queries,)``."""
        return np.asarray(self.choices > 1)

    @cached_property
    def distances(self) -> FloatArray:
        """How many tokens lie between query and key, ``(queries, keys)``."""
        gaps = self.positions.astype(np.float32)[:, None] - self.keys.astype(np.float32)
        return np.abs(gaps, out=gaps)

    @cached_property
    def squares(self) -> FloatArray:
        """The distances squared, ``(queries, keys)``."""
        return self.distances**2

    @cached_property
    def most_bits(self) -> Float64Array:
        """The largest entropy that each query can have, of at least two keys, ``(queries,)``."""
        return np.asarray(np.log2(np.maximum(self.choices, 2)))

    @cached_property
    def first_key(self) -> BoolArray:
        """True for the first key that any query sees, ``(1, keys)``."""
        return np.asarray(self.keys == np.argmax(self.seen))[None]

    def query(self, name: str) -> NDArray[Any]:
        """The numbers of each query's token, ``(queries, 1)``."""
        return self.query_tokens.of(name)[self.queries, None]

    def key(self, name: str) -> NDArray[Any]:
        """The numbers of each key's token, ``(1, keys)``."""
        return self.key_tokens.of(name)[None, self.keys]

    def all_keys(self, name: str) -> NDArray[Any]:
        """The numbers of the tokens of all keys, ``(1, all keys)``."""
        return self.key_tokens.of(name)[None]

    def cells(self, counted: NDArray[Any]) -> CountedCells | PickedCells:
        """The visible ones of some cells, ``(queries, keys)``, or of some keys for all queries, ``(1, keys)``."""
        if len(counted) == len(self.visible):
            return CountedCells(self.visible & counted)
        keys = np.flatnonzero(counted)
        queries, places = np.nonzero(self.visible[:, keys])
        if len(queries) > MAX_PICKED * self.visible.size:
            return CountedCells(self.visible & counted)
        return PickedCells((queries, keys[places]), self._size, len(keys) == 1)

    def at_keys(self, keys: IntArray) -> PickedCells:
        """One key of each query, ``(queries,)``, if it is visible; none for a number that no key has."""
        return self._picked(np.asarray(keys)[:, None])

    def next_keys(self, cells: BoolArray) -> BoolArray:
        """The cells of the keys after some cells, ``(queries, keys)``."""
        following = np.zeros_like(cells)
        following[:, 1:] = cells[:, :-1]
        return following

    def at_offsets(self, first: int, last: int) -> CountedCells | PickedCells:
        """The visible keys whose position less that of the query is from ``first`` to ``last``."""
        found = self._picked(self.positions[:, None] + np.arange(first, last + 1))
        if first == last or len(found.picked[0]) <= MAX_PICKED * self.visible.size:
            return found
        return CountedCells(found.counted)

    @property
    def _size(self) -> tuple[int, int]:
        count, width = self.visible.shape
        return count, width

    def _picked(self, keys: IntArray) -> PickedCells:
        """The visible ones of some keys of each query, ``(queries, those)``, in their order."""
        there = (keys >= 0) & (keys < self.visible.shape[1])
        rows = np.arange(len(keys))[:, None]
        queries, places = np.nonzero(there & self.visible[rows, np.where(there, keys, 0)])
        return PickedCells((queries, keys[queries, places]), self._size, keys.shape[1] == 1)
