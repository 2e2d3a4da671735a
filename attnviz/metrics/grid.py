"""Defines the grid of queries and keys from which a metric selects cells; all heads of an attention call share it.

Each engine has its grid: arrays are numpy's for one text, or torch's for a batch of texts, whose axis comes first.
A metric uses operators, ``any``, ``argmax`` and ``clip`` alone, which both have, so that one definition serves both.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray

NEAR = 3  # the largest distance in tokens that counts as local
NO_NUMBER = -(2**62)  # no token has this number
Array = Any  # of numpy or torch
Cells = Any  # a set of cells of a grid, in the form in which its engine sums weights over them


class Grid(ABC):
    """A range of queries and the keys that they may see."""

    cross: bool  # True if the keys come from another input, so that positions cannot be compared
    in_sequence: bool  # True if the keys are in a sequence, like words and unlike the patches of a picture
    visible: Array  # (queries, keys), or (texts, 1, queries, keys) of a batch
    keys: Array  # (keys,): the index of each key
    positions: Array  # (queries,): the index of the key that is the query's own token

    @property
    @abstractmethod
    def visible_counts(self) -> Array:
        """The number of keys that each query sees, ``(queries,)``, or ``(texts, 1, queries)`` in a batch."""

    @property
    @abstractmethod
    def max_entropy(self) -> Array:
        """The entropy in bits of a uniform row over a query's visible keys, ``(queries,)``; 1 for fewer than two."""

    @property
    @abstractmethod
    def has_hidden_later(self) -> Array:
        """True for queries from which the mask hides a later key that is not padding, ``(queries,)``."""

    @property
    @abstractmethod
    def first_key(self) -> Array:
        """True for the first key that is not padding, ``(..., 1, keys)``."""

    @abstractmethod
    def query_numbers(self, name: str) -> Array:
        """Returns `token_numbers` of the queries' tokens, ``(..., queries, 1)``."""

    @abstractmethod
    def key_numbers(self, name: str) -> Array:
        """Returns `token_numbers` of the keys' tokens, ``(..., 1, keys)``."""

    @abstractmethod
    def all_key_numbers(self, name: str) -> Array:
        """Returns `token_numbers` of all keys of the text, in this grid or not, ``(..., 1, all keys)``."""

    @abstractmethod
    def cells(self, is_counted: Array) -> Cells:
        """Returns the visible cells where ``is_counted``, ``(..., queries, keys)`` or ``(..., 1, keys)``, is True."""

    @abstractmethod
    def at_keys(self, keys: Array) -> Cells:
        """Returns one cell per query, given the index of its key, ``(..., queries)``.

        A query has no cell if it does not see that key, or if the index is out of range.
        """

    @abstractmethod
    def at_offsets(self, first: int, last: int) -> Cells:
        """Returns the visible cells whose key is ``first`` to ``last`` positions after the query (negative: before)."""

    @abstractmethod
    def next_keys(self, cells: Array) -> Array:
        """Returns the cells shifted by one key to the right, ``(..., queries, keys)``."""

    def same_numbers(self, name: str, allowed: Array = True) -> Array:
        """True where query and key have equal numbers, ``(..., queries, keys)``; negative ones never match."""
        numbers = self.query_numbers(name)
        # Arithmetic serves numpy and torch alike: queries without a number get NO_NUMBER, which no key has.
        has_number = (numbers >= 0) & allowed
        return self.key_numbers(name) == numbers * has_number + NO_NUMBER * ~has_number  # one pass over all cells

    @property
    def patches(self) -> Any:
        """The `ImagePatches` of the queries and of the keys; ``None`` if no key is a patch of an image."""
        return None

    @cached_property
    def is_pair(self) -> bool:
        """True if the keys include tokens of the second text of a pair."""
        return bool((self.all_key_numbers("segments") > 0).any())

    @cached_property
    def is_earlier(self) -> Array:
        """True for keys before the query, ``(queries, keys)``."""
        return self.keys < self.positions[:, None]

    @cached_property
    def is_other_token(self) -> Array:
        """True for keys that are not the query itself, ``(queries, keys)``."""
        return self.keys != self.positions[:, None]

    @cached_property
    def earlier_copies(self) -> Array:
        """True for earlier copies of the query's token, visible to it or not, ``(..., queries, keys)``."""
        return self.same_numbers("ids") & self.is_earlier

    @cached_property
    def _cells_by_function(self) -> dict[Any, Cells]:
        """The cells that `cells_of` has computed, by the function that selects them."""
        return {}

    def cells_of(self, function: "Callable[[Grid], Cells]") -> Cells:
        """Returns the visible cells that ``function`` selects in this grid; calls it once, and caches its cells."""
        if function not in self._cells_by_function:
            self._cells_by_function[function] = function(self)
        return self._cells_by_function[function]


class Rows(ABC):
    """The rows of some heads over a grid, with the sums over keys that metrics need; each engine has a subclass.

    Arrays are ``(heads, queries)``, or ``(texts, heads, queries)`` of a batch.
    """

    grid: Grid  # the queries and keys

    @property
    @abstractmethod
    def entropy(self) -> Array:
        """The entropy of each row in bits."""

    @property
    @abstractmethod
    def peak(self) -> Array:
        """The largest weight of each row."""

    @property
    @abstractmethod
    def distance(self) -> Array:
        """The mean distance from query to key, in tokens."""

    @property
    @abstractmethod
    def distance_moments(self) -> tuple[Array, Array, Array]:
        """The sums Σ w, Σ w·x and Σ w·x², where x is the distance less a number of the row.

        An engine that sums in float32 chooses a number near the mean distance, so that a small spread is not lost.
        """

    @property
    @abstractmethod
    def hidden(self) -> Array:
        """The share of hidden later keys in Σ exp(score) over hidden later and visible keys; NaN without scores."""

    @property
    @abstractmethod
    def key_weights(self) -> Array:
        """The weight on each key of the grid, ``(heads, queries, keys)``; 0 where not visible."""

    @abstractmethod
    def mass(self, cells: Cells) -> Array:
        """Returns the weight on some cells of the grid; NaN for queries without any of them."""

    @abstractmethod
    def where(self, defined: Array, numbers: Array) -> Array:
        """Returns the numbers of the queries where ``defined``, ``(queries,)``, is True; NaN for the others."""

    @abstractmethod
    def not_applicable(self) -> Array:
        """Returns NaN for every query: the numbers of a metric that does not apply."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The weight that the keys of an attention call receive."""

    # ``(..., heads, keys)``, the mean weight on each key, over the queries that see two keys or more
    received: Float64Array
    visible_keys: BoolArray  # ``(..., keys)``, True for keys that any query sees; the others receive nothing

    @property
    def keys(self) -> IntArray:
        """The number of keys that any query sees, ``(..., 1)``."""
        return np.asarray(self.visible_keys.sum(axis=-1, keepdims=True))
