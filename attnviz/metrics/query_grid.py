"""Some queries of one layer's maps with the keys they see: what the metrics of every head have in common."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.text.named_groups import SENTENCES, named_groups
from attnviz.text.tokens import Tokens

NEAR = 3  # tokens to either side that count as local
MAX_PICKED = 1 / 8  # the share of cells up to which picking them out is quicker than multiplying all of them


@dataclass(frozen=True, eq=False)
class CountedCells:
    """The visible cells of a grid that count for a metric.

    Attributes:
        counted: ``(queries, keys)``.
    """

    counted: BoolArray

    @cached_property
    def picked(self) -> tuple[IntArray, IntArray] | None:
        """The query and the key of each, in order of the queries; ``None`` where they are many."""
        if np.count_nonzero(self.counted) > MAX_PICKED * self.counted.size:
            return None
        queries, keys = np.divmod(self.flat, self.counted.shape[1])
        return queries, keys

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


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryGrid:
    """Some queries of one layer's maps with their keys.

    Attributes:
        visible: ``(queries, keys)``, of the keys up to the last that any of these queries sees.
        seen: ``(all keys,)``, whether any query of the whole maps sees the key; padding is what none sees.
        start: the number of the first query.
        query_tokens: the tokens of all queries of the maps.
        key_tokens: the tokens of all keys.
        query_sentences: ``(all queries,)``, which sentence each belongs to.
        key_sentences: ``(all keys,)``, the same of the keys.
        cross: whether the keys come from another text, so that positions cannot be compared.
    """

    visible: BoolArray
    seen: BoolArray
    start: int
    query_tokens: Tokens
    key_tokens: Tokens
    query_sentences: IntArray
    key_sentences: IntArray
    cross: bool

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

    def places_of(self, keys: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
        """For one key of each query: whether it is visible, the key or 0 where there is none, and the query's row."""
        there = (keys >= 0) & (keys < self.visible.shape[1])
        within, places = np.where(there, keys, 0), np.arange(len(keys))
        return there & self.visible[places, within], within, places

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
    def special(self) -> CountedCells:
        """Keys that the tokenizer added."""
        return CountedCells(self.visible & self.key_tokens.special[self.keys])

    @cached_property
    def near(self) -> CountedCells:
        """Keys within `NEAR` tokens of the query."""
        near, first = np.zeros_like(self.visible), int(self.positions[0])
        around = slice(max(0, first - NEAR), max(0, first + len(self.visible) + NEAR))
        near[:, around] = np.abs(self.positions[:, None] - self.keys[around]) <= NEAR
        return CountedCells(self.visible & near)

    @cached_property
    def copies(self) -> CountedCells:
        """Earlier copies of the query's own token."""
        return CountedCells(self.visible & self._earlier_copies)

    @cached_property
    def after_copies(self) -> CountedCells:
        """Tokens after earlier copies of the query's own, the query itself left out."""
        after = np.zeros_like(self.visible)
        after[:, 1:] = self._earlier_copies[:, :-1]
        within = self.positions < len(self.keys)
        after[np.flatnonzero(within), self.positions[within]] = False
        return CountedCells(self.visible & after)

    @cached_property
    def own_sentence(self) -> CountedCells:
        """Keys of the query's own sentence."""
        return CountedCells(self.visible & (self.key_sentences[self.keys] == self.query_sentences[self.queries, None]))

    @cached_property
    def other_text(self) -> CountedCells:
        """Keys of the other text of a pair, special tokens left out."""
        other = self.key_tokens.segments[self.keys] != self.query_tokens.segments[self.queries, None]
        return CountedCells(self.visible & other & ~self.key_tokens.special[self.keys])

    @cached_property
    def _earlier_copies(self) -> BoolArray:
        """Whether the key is an earlier copy of the query's own token, ``(queries, keys)``."""
        own = self.query_tokens.ids[self.queries, None]
        copies = self.key_tokens.ids[self.keys] == np.where(own >= 0, own, NO_ID)
        copies &= self.keys < self.positions[:, None]
        return np.asarray(copies)


NO_ID = -2  # equal to no token's id


def sentences_of(tokens: Tokens) -> IntArray:
    """Which sentence each token belongs to, ``(tokens,)``, from 0; -1 for special tokens."""
    found = named_groups(tokens, SENTENCES)
    return np.where(tokens.special, -1, 0) if found is None else found.numbers
