"""Blocks of one layer's attention, queries with all their keys, and the sums over keys that metrics are made of."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.maps import LayerMaps
from attnviz.progress import track
from attnviz.tokens import Tokens

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BLOCK_CELLS = 2**18  # cells of a block of rows: what stays in a processor's cache
FEWEST_ROWS = 32  # where all heads of fewer queries fit the cache, some heads of so many are taken
TINY = np.finfo(np.float32).tiny
SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s)\s*|\n+")


@dataclass(frozen=True, eq=False, kw_only=True)
class Grid:
    """Some queries of one layer's maps with all its keys: what is the same for every head.

    Attributes:
        visible: ``(queries, keys)``.
        seen: ``(keys,)``, whether any query of the whole maps sees the key; padding is what none sees.
        start: the number of the first query.
        query_tokens: the tokens of all queries of the maps.
        key_tokens: the tokens of all keys.
        cross: whether the keys come from another text, so that positions cannot be compared.
    """

    visible: BoolArray
    seen: BoolArray
    start: int
    query_tokens: Tokens
    key_tokens: Tokens
    cross: bool

    @cached_property
    def queries(self) -> IntArray:
        """The number of each query, ``(queries,)``."""
        return self.start + np.arange(len(self.visible), dtype=np.int64)

    @cached_property
    def positions(self) -> IntArray:
        """Where each query stands among the keys, ``(queries,)``; with earlier keys cached, queries are the last."""
        return self.queries + len(self.key_tokens) - len(self.query_tokens)

    @cached_property
    def choices(self) -> IntArray:
        """How many keys each query sees, ``(queries,)``."""
        return np.asarray(np.count_nonzero(self.visible, axis=-1))

    @cached_property
    def copies(self) -> BoolArray:
        """Whether the key is an earlier copy of the query's own token, ``(queries, keys)``."""
        own = self.query_tokens.ids[self.queries, None]
        earlier = np.arange(len(self.key_tokens)) < self.positions[:, None]
        return np.asarray((self.key_tokens.ids == own) & (own >= 0) & earlier)

    @cached_property
    def distances(self) -> FloatArray:
        """How many tokens lie between query and key, ``(queries, keys)``."""
        return np.asarray(np.abs(self.positions[:, None] - np.arange(len(self.key_tokens))), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Rows:
    """Some heads' rows of a grid.

    Attributes:
        grid: the queries and keys.
        places: where these heads are among those of the maps.
        weights: ``(heads, queries, keys)``, 0 where not visible.
        scores: ``(heads, queries, keys)``, before the mask.
    """

    grid: Grid
    places: slice
    weights: FloatArray
    scores: NDArray[Any]

    @cached_property
    def entropy(self) -> FloatArray:
        """The entropy of each row in bits, ``(heads, queries)``."""
        return entropy_bits(self.weights)


@dataclass(frozen=True, eq=False)
class Columns:
    """What the keys of one layer's maps received.

    Attributes:
        received: ``(heads, keys)``, the weight on each key, as a mean over the queries that have a choice.
        seen: ``(keys,)``, whether any query sees the key.
    """

    received: FloatArray
    seen: BoolArray


def blocks_of_rows(maps: LayerMaps) -> Iterator[Rows]:
    """The maps in blocks of queries with all keys, each of as many heads as fit a processor's cache."""
    count, everything = len(maps.query_tokens), slice(0, len(maps.key_tokens))
    together = min(len(maps.heads), max(1, BLOCK_CELLS // (FEWEST_ROWS * everything.stop)))
    height = max(1, FEWEST_ROWS if together < len(maps.heads) else BLOCK_CELLS // (together * everything.stop))
    spans = [slice(start, min(start + height, count)) for start in range(0, count, height)]
    seen = np.logical_or.reduce([maps.visibility(span, everything).any(axis=0) for span in spans])
    for span in track(spans, f"measuring layer {maps.layer}"):
        grid = Grid(
            visible=maps.visibility(span, everything),
            seen=seen,
            start=span.start,
            query_tokens=maps.query_tokens,
            key_tokens=maps.key_tokens,
            cross=maps.kind == "cross",
        )
        for first in range(0, len(maps.heads), together):
            places = slice(first, first + together)
            window = maps.window(maps.heads[places], span, everything)
            yield Rows(grid, places, window.weights.astype(np.float64), window.scores)


def entropy_bits(weights: NDArray[Any]) -> FloatArray:
    """Entropy over keys in bits, ``(..., keys)`` to ``(...)``: −Σ w log2 w, with 0 log 0 = 0."""
    logarithms = np.log(np.maximum(weights, TINY, dtype=np.float32)).astype(np.float64)
    return np.asarray(np.maximum(-np.einsum("...k,...k->...", weights, logarithms, dtype=np.float64), 0) / np.log(2))


def weighted(rows: Rows, numbers: NDArray[Any]) -> FloatArray:
    """Σ w · number over keys, ``(queries, keys)`` to ``(heads, queries)``."""
    by_query = rows.weights.transpose(1, 0, 2)  # (queries, heads, keys)
    return np.asarray((by_query @ numbers.astype(np.float64, copy=False)[:, :, None])[:, :, 0].T)


def mass(rows: Rows, cells: BoolArray) -> FloatArray:
    """The weight on the cells that count, ``(queries, keys)`` to ``(heads, queries)``; NaN where none is visible."""
    counted = cells & rows.grid.visible
    return where(np.asarray(counted.any(axis=-1)), weighted(rows, counted))


def weight_at(rows: Rows, keys: IntArray) -> FloatArray:
    """The weight on one key for each query, ``(queries,)`` to ``(heads, queries)``; NaN where it is not visible."""
    there = (keys >= 0) & (keys < len(rows.grid.key_tokens))
    within = np.where(there, keys, 0)
    places = np.arange(len(keys))
    return where(there & rows.grid.visible[places, within], rows.weights[:, places, within])


def absent(rows: Rows) -> FloatArray:
    """NaN for every query, ``(heads, queries)``: the metric has no meaning here."""
    return np.full(rows.weights.shape[:2], np.nan)


def sentences_of(tokens: Tokens) -> IntArray:
    """Which sentence each token belongs to, ``(tokens,)``, from 0; -1 for special tokens."""
    starts = np.array([match.end() for match in SENTENCE_END.finditer(tokens.text)], dtype=np.int64)
    numbers = np.searchsorted(starts, tokens.offsets[:, 0], side="right")
    return np.where(tokens.special, -1, numbers).astype(np.int64)


def where(defined: BoolArray, numbers: FloatArray) -> FloatArray:
    """The numbers where they are defined, else NaN."""
    return np.asarray(np.where(defined, numbers, np.nan))
