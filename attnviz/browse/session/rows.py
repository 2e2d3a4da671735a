"""Computes exact rows of maps: all keys of one query, and the row or column of one token in every head."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.blocks import unit_cells, unit_values, unit_window
from attnviz.browse.session.cache import LruCache
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.state import Direction, View

MAX_KEPT_ROWS = 64  # rows of queries in the cache
MAX_KEPT_TOKENS = 4  # tokens whose rows in every head are cached
SLICE_SECONDS = 0.015  # of work before the next key press is answered


@dataclass(frozen=True, eq=False)
class QueryRow:
    """The numbers of one query, one for each key, ``(keys,)`` in units.

    Attributes:
        weights: the weights, after the softmax.
        scores: the scores, before the mask.
        change: the other recording's weights minus these; ``None`` without another recording.
        visible: False for masked keys.
    """

    weights: FloatArray
    scores: FloatArray
    change: FloatArray | None
    visible: BoolArray

    def numbers(self, view: View) -> FloatArray:
        """Returns the numbers that the view shows: changes, scores or weights; no changes without another recording."""
        if view.difference and self.change is not None:
            return self.change
        return self.scores if view.scores else self.weights

    def strongest_keys(self, view: View) -> list[int]:
        """Returns the visible keys by the number that the view shows, or the absolute change, largest first."""
        numbers = self.numbers(view)
        values = np.where(self.visible, np.abs(numbers) if view.difference else numbers, -np.inf)
        order = np.argsort(-values, kind="stable")
        keys: list[int] = order[self.visible[order]].tolist()
        return keys


@dataclass(frozen=True, eq=False)
class TokenRow:
    """The row of a query or the column of a key in one head, ``(units,)``.

    Attributes:
        values: the weights, scores or changes.
        visible: False in masked cells.
    """

    values: FloatArray
    visible: BoolArray

    @cached_property
    def strongest_unit(self) -> int:
        """The visible unit with the largest absolute value; the first unit if every cell is masked."""
        return int(np.argmax(np.where(self.visible, np.abs(np.nan_to_num(self.values)), -1)))

    @cached_property
    def largest_value(self) -> float:
        """The largest absolute value among the visible ones; 0 if every cell is masked."""
        unit = self.strongest_unit
        return float(np.abs(np.nan_to_num(self.values[unit]))) if self.visible[unit] else 0.0


class QueryRows:
    """Computes rows of queries, and caches the latest."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._cache = LruCache[QueryRow](MAX_KEPT_ROWS)

    def find(self, head: int, view: View, query: int) -> QueryRow:
        """Returns the exact numbers of one query over all keys."""
        key = (head, view.words, view.special, query)
        return self._cache.get(key, lambda: self._read(head, view, query))

    def _read(self, head: int, view: View, query: int) -> QueryRow:
        """Returns the row of a query, computed from the maps; its change is ``None`` if the head has no partner."""
        maps, number = self.heads.heads[head]
        rows, columns = self.heads.units(head, view)
        row_side, column_side = (rows, slice(query, query + 1)), (columns, slice(0, len(columns)))
        window = unit_window(maps, number, row_side, column_side)
        change, partner = None, self.heads.partner(maps)
        if partner is not None:
            partner_cells = unit_values(partner, number, scores=False, rows=row_side, columns=column_side)
            change = partner_cells.values[0] - window.weights[0, 0]
        # the window has one head and one query
        return QueryRow(window.weights[0, 0], window.scores[0, 0], change, window.visible[0])


class TokenRows:
    """Computes the row of a token in every head, one slice of time after another, and caches the latest."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._cache = LruCache[TokenRow](MAX_KEPT_TOKENS * heads.recorded_count)

    def find(self, head: int, view: View, token: int, direction: Direction) -> TokenRow | None:
        """Returns the cached row of a token in a head; ``None`` if it is not computed yet."""
        return self._cache.find(_token_key(head, view, token, direction))

    def compute(self, heads: Sequence[int], view: View, token: int, direction: Direction) -> list[int]:
        """Computes and caches the missing rows of some heads, and stops after the first row past ``SLICE_SECONDS``.

        Returns:
            The heads whose rows were computed by this call; empty if no row was missing.
        """
        deadline = time.monotonic() + SLICE_SECONDS
        computed_heads: list[int] = []
        for head in heads:
            key = _token_key(head, view, token, direction)
            if key in self._cache:
                continue
            self._cache.keep(key, self._read(head, view, token, direction))
            computed_heads.append(head)
            if time.monotonic() > deadline:
                break
        return computed_heads

    def _read(self, head: int, view: View, token: int, direction: Direction) -> TokenRow:
        """Returns the row of a query, or the column of a key if the direction is ``from``, computed from the maps."""
        rows, columns = self.heads.units(head, view)
        token_span = slice(token, token + 1)
        row_span = token_span if direction == "to" else slice(0, len(rows))
        column_span = token_span if direction == "from" else slice(0, len(columns))
        head_view = self.heads.view_of(head, view)
        cells = unit_cells(self.heads.inspected_head(head), head_view, (rows, row_span), (columns, column_span))
        return TokenRow(np.ravel(cells.values), np.ravel(cells.visible))


def _token_key(head: int, view: View, token: int, direction: Direction) -> tuple[object, ...]:
    """Returns the cache key of a token's row: everything on which its numbers depend."""
    return head, view.scores, view.difference, view.words, view.special, token, direction
