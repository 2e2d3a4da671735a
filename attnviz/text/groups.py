"""Groups of tokens: words, lines, the texts of a pair, and how cells are reduced over them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import IntArray


class Runs(NamedTuple):
    """The runs of tokens that groups are made of, in order of the tokens.

    Attributes:
        starts: ``(runs,)``, the first token of each.
        stops: ``(runs,)``, the token after its last.
        groups: ``(runs,)``, the group that each belongs to.
    """

    starts: IntArray
    stops: IntArray
    groups: IntArray


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each token of an axis is in; a group may be several runs of tokens.

    Attributes:
        numbers: ``(tokens,)``, the number of each token's group; -1 for none.
        labels: one a group; empty where groups are called by their tokens.
        first: the token that ``numbers`` begins with, in a part of an axis.
    """

    numbers: IntArray
    labels: tuple[str, ...] = ()
    first: int = 0

    def __post_init__(self) -> None:
        self.numbers.setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels) or int(self.numbers.max(initial=-1)) + 1

    def at(self, tokens: IntArray | slice) -> Self:
        """The groups of some of the tokens, with the same numbers."""
        return type(self)(self.numbers[tokens], self.labels)

    def joined(self, more: Self) -> Self:
        """These, followed by the groups of further tokens, which are numbered as these are."""
        return type(self)(np.concatenate([self.numbers, more.numbers]), max(self.labels, more.labels, key=len))

    @cached_property
    def runs(self) -> Runs:
        """The runs of all groups."""
        edges = np.flatnonzero(np.diff(self.numbers, prepend=-2, append=-2))
        starts, stops = edges[:-1], edges[1:]
        kept = self.numbers[starts] >= 0
        return Runs(starts[kept] + self.first, stops[kept] + self.first, self.numbers[starts[kept]])

    @cached_property
    def in_order(self) -> bool:
        """Whether each group is one run, and they follow each other."""
        return np.array_equal(self.runs.groups, np.arange(len(self)))

    @cached_property
    def starts(self) -> IntArray:
        """The first token of each group, ``(groups,)``."""
        if self.in_order:
            return self.runs.starts
        starts = np.full(len(self), self.first + len(self.numbers), dtype=np.int64)
        np.minimum.at(starts, self.runs.groups, self.runs.starts)
        return starts

    @cached_property
    def stops(self) -> IntArray:
        """The token after the last of each group, ``(groups,)``."""
        if self.in_order:
            return self.runs.stops
        stops = np.full(len(self), self.first, dtype=np.int64)
        np.maximum.at(stops, self.runs.groups, self.runs.stops)
        return stops

    @cached_property
    def sizes(self) -> IntArray:
        """How many tokens each group has, ``(groups,)``."""
        return np.bincount(self.numbers[self.numbers >= 0], minlength=len(self)).astype(np.int64)

    @property
    def token_span(self) -> slice:
        """The tokens from the first of any group to the last."""
        return slice(int(self.starts.min()), int(self.stops.max()))

    @property
    def single(self) -> bool:
        """Whether every token from the first of any group to the last is a group of its own."""
        span = self.token_span
        return self.in_order and len(self) == span.stop - span.start

    def part(self, span: slice) -> Self:
        """Some of the groups, over no more tokens than they need."""
        start, stop, _ = span.indices(len(self))
        tokens = slice(int(self.starts[start:stop].min()), int(self.stops[start:stop].max()))
        numbers = self.numbers[tokens.start - self.first : tokens.stop - self.first] - start
        numbers = np.where((numbers >= 0) & (numbers < stop - start), numbers, -1)
        return replace(self, numbers=numbers, labels=self.labels[start:stop], first=tokens.start)

    def reduce(self, reduce: np.ufunc, cells: NDArray[Any], axis: int) -> NDArray[Any]:
        """The cells of the tokens of ``token_span`` reduced to one for each group along an axis."""
        if self.in_order:
            return _reduce_runs(reduce, cells, axis, self.starts - self.starts[0], self.stops - self.starts[0])
        span = self.token_span
        of = self.numbers[span.start - self.first : span.stop - self.first]
        order = np.argsort(of, kind="stable")[np.count_nonzero(of < 0) :]  # group by group
        stops = np.cumsum(self.sizes)
        return _reduce_runs(reduce, cells.take(order, axis), axis, stops - self.sizes, stops)


def _reduce_runs(reduce: np.ufunc, cells: NDArray[Any], axis: int, starts: IntArray, stops: IntArray) -> NDArray[Any]:
    """The cells between each start and stop reduced to one along an axis."""
    edges = np.stack([starts, stops], axis=1).ravel()
    inner = edges[:-1] if edges[-1] == cells.shape[axis] else edges
    reduced = reduce.reduceat(cells, inner, axis=axis)
    every_other = [slice(None)] * cells.ndim
    every_other[axis] = slice(None, None, 2)
    return np.asarray(reduced[tuple(every_other)])
