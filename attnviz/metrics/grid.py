"""Grid: queries with the keys they see, the same for all heads of a call: of it a metric says which cells count.

There is a grid for each engine: arrays are numpy's of one text, or torch's of several texts, whose axis then comes
first. What is written with operators, with ``any``, ``argmax`` and ``clip``, works on both, with one definition.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

NEAR = 3  # tokens to either side that count as local
NO_NUMBER = -(2**62)  # equal to no token's number
Array = Any  # numpy's or torch's
Cells = Any  # some cells of a grid, as its engine sums weights over them


class Grid(ABC):
    """Some queries with their keys.

    Attributes:
        cross: whether the keys come from another text, so that positions cannot be compared.
        in_sequence: whether the keys follow one another.
    """

    cross: bool
    in_sequence: bool
    visible: Array  # (..., queries, keys): of one text, or of several along an axis before
    keys: Array  # (keys,): the number of each key
    positions: Array  # (queries,): where each query stands among the keys

    @property
    @abstractmethod
    def choices(self) -> Array:
        """How many keys each query sees, ``(queries,)``; of several texts ``(texts, 1, queries)``, as below."""

    @property
    @abstractmethod
    def most_bits(self) -> Array:
        """The largest entropy that each query can have, of at least two keys, ``(queries,)``."""

    @property
    @abstractmethod
    def has_later(self) -> Array:
        """Whether a later key is hidden from the query whose score may be known, ``(queries,)``."""

    @property
    @abstractmethod
    def first_key(self) -> Array:
        """True for the first key that is not padding, ``(..., 1, keys)``."""

    @abstractmethod
    def query(self, name: str) -> Array:
        """The numbers of that name of each query's token, ``(..., queries, 1)``."""

    @abstractmethod
    def key(self, name: str) -> Array:
        """The numbers of that name of each key's token, ``(..., 1, keys)``."""

    @abstractmethod
    def all_keys(self, name: str) -> Array:
        """The numbers of that name of all keys of a text, ``(..., 1, all keys)``, even where the grid has fewer."""

    @abstractmethod
    def cells(self, counted: Array) -> Cells:
        """The visible ones of some cells, ``(..., queries, keys)``; of keys for all queries, ``(..., 1, keys)``."""

    @abstractmethod
    def at_keys(self, keys: Array) -> Cells:
        """One key of each query, ``(..., queries)``, if it is visible; none for a number that no key has."""

    @abstractmethod
    def at_offsets(self, first: int, last: int) -> Cells:
        """The visible keys whose position less that of the query is from ``first`` to ``last``."""

    @abstractmethod
    def next_keys(self, cells: Array) -> Array:
        """The cells of the keys after some cells, ``(..., queries, keys)``."""

    def same(self, name: str, among: Array = True) -> Array:
        """True where query and key have the same number of that name, ``(..., queries, keys)``; never where none.

        Args:
            name: of whole numbers.
            among: the queries that are asked, ``(..., queries or 1, 1)``; no key has the number of another query.
        """
        numbers = self.query(name)
        known = (numbers >= 0) & among
        return self.key(name) == numbers * known + NO_NUMBER * ~known  # one pass over all cells

    @cached_property
    def is_pair(self) -> bool:
        """True if some keys are of the second text of a pair."""
        return bool((self.all_keys("segments") > 0).any())

    @cached_property
    def earlier(self) -> Array:
        """True for keys before the query, ``(queries, keys)``."""
        return self.keys < self.positions[:, None]

    @cached_property
    def elsewhere(self) -> Array:
        """True for keys that are not the query itself, ``(queries, keys)``."""
        return self.keys != self.positions[:, None]

    @cached_property
    def earlier_copies(self) -> Array:
        """True for earlier copies of the query's own token, visible or not, ``(..., queries, keys)``."""
        return self.same("ids") & self.earlier

    @cached_property
    def _found(self) -> dict[Any, Cells]:
        return {}

    def counted_by(self, function: "Callable[[Grid], Cells]") -> Cells:
        """What the function counts of this grid, asked once."""
        if function not in self._found:
            self._found[function] = function(self)
        return self._found[function]
