"""Exact rows: what one query looks at in a head, and one token in every head."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.blocks import joined, joined_window, unit_cells
from attnviz.browse.session.cache import LruCache
from attnviz.browse.session.heads import InspectedHeads
from attnviz.browse.session.state import Direction, View

MAX_KEPT_ROWS = 64  # rows of a query that are kept
MAX_KEPT_TOKENS = 4  # of which every head's row is kept
SECONDS_A_SLICE = 0.015  # of work between two keys


@dataclass(frozen=True, eq=False)
class QueryRow:
    """All keys of one query, ``(keys,)`` in units.

    Attributes:
        weights: after the softmax.
        scores: before the mask.
        change: how much the other recording's weights differ; ``None`` without one.
        visible: whether the query may look there.
    """

    weights: FloatArray
    scores: FloatArray
    change: FloatArray | None
    visible: BoolArray

    def shown(self, view: View) -> FloatArray:
        """What the map shows of the row."""
        if view.difference and self.change is not None:
            return self.change
        return self.scores if view.scores else self.weights

    def strongest(self, view: View) -> list[int]:
        """The keys by what is shown, the largest value or the largest change first."""
        shown = self.shown(view)
        values = np.where(self.visible, np.abs(shown) if view.difference else shown, -np.inf)
        order = np.argsort(-values, kind="stable")
        places: list[int] = order[self.visible[order]].tolist()
        return places


@dataclass(frozen=True, eq=False)
class TokenRow:
    """One token in one head: the keys of a query, or the queries of a key, ``(units,)``.

    Attributes:
        values: what is shown of each.
        visible: whether the query may look there.
    """

    values: FloatArray
    visible: BoolArray

    @cached_property
    def strongest(self) -> int:
        """Where the largest value is."""
        return int(np.argmax(np.where(self.visible, np.abs(np.nan_to_num(self.values)), -1)))

    @cached_property
    def largest(self) -> float:
        """The largest visible value of any sign, 0 where there is none."""
        return float(np.abs(np.nan_to_num(self.values[self.strongest]))) if self.visible[self.strongest] else 0.0


class QueryRows:
    """The rows of queries that were asked for last."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._kept = LruCache[QueryRow](MAX_KEPT_ROWS)

    def find(self, head: int, view: View, query: int) -> QueryRow:
        """One query's weights and scores over all keys, exactly."""
        key = (head, view.words, view.special, query)
        return self._kept.get(key, lambda: self._read(head, view, query))

    def _read(self, head: int, view: View, query: int) -> QueryRow:
        maps, number = self.heads.heads[head]
        rows, columns = self.heads.units(head, view)
        places = (rows, slice(query, query + 1)), (columns, slice(0, len(columns)))
        read = joined_window(maps, number, *places)
        change, partner = None, self.heads.partner(maps)
        if partner is not None:
            change = joined(partner, number, False, *places).values[0] - read.weights[0, 0]
        return QueryRow(read.weights[0, 0], read.scores[0, 0], change, read.visible[0])


class TokenRows:
    """The rows of tokens that were looked at last, in every head, computed a slice at a time."""

    def __init__(self, heads: InspectedHeads) -> None:
        self.heads = heads
        self._kept = LruCache[TokenRow](MAX_KEPT_TOKENS * heads.recorded)

    def find(self, head: int, view: View, token: int, direction: Direction) -> TokenRow | None:
        """What a head's query looks at, or who looks at its key, exactly, if it has been computed."""
        return self._kept.find(_token_key(head, view, token, direction))

    def compute(self, heads: Sequence[int], view: View, token: int, direction: Direction) -> list[int]:
        """Computes one slice of the rows of these heads, and returns those of the slice."""
        end = time.monotonic() + SECONDS_A_SLICE
        done: list[int] = []
        for head in heads:
            key = _token_key(head, view, token, direction)
            if key in self._kept:
                continue
            self._kept.keep(key, self._read(head, view, token, direction))
            done.append(head)
            if time.monotonic() > end:
                break
        return done

    def _read(self, head: int, view: View, token: int, direction: Direction) -> TokenRow:
        rows, columns = self.heads.units(head, view)
        one, every = slice(token, token + 1), slice(0, len(columns if direction == "to" else rows))
        spans = (one, every) if direction == "to" else (every, one)
        cells = unit_cells(
            self.heads.inspected(head), self.heads.view_of(head, view), (rows, spans[0]), (columns, spans[1])
        )
        return TokenRow(np.ravel(cells.values), np.ravel(cells.visible))


def _token_key(head: int, view: View, token: int, direction: Direction) -> tuple[object, ...]:
    return head, view.scores, view.difference, view.words, view.special, token, direction
