"""Represents groups of tokens, and finds the characters at which words, sentences, lines and paragraphs begin.

A token belongs to the unit of its first visible character, so that no unit is blank, and it does not matter whether a
tokenizer puts a space, or a line end, into the token before it or after it.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import IntArray

WORDS, SENTENCES, LINES, PARAGRAPHS = "words", "sentences", "lines", "paragraphs"
BLANKS = np.array([ord(character) for character in map(chr, range(0x3001)) if character.isspace()], dtype=np.uint32)
LINE_ENDS = np.array([ord(character) for character in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"], dtype=np.uint32)
CLOSING = "\"'”’»)\\]」』）】》〉"
# A period needs a space after it; an ideographic one does not. A run is tried from its first mark alone, so that the
# time is linear.
SENTENCE_END = re.compile(
    rf"(?<![.!?…؟۔։।॥።፧။។])[.!?…؟۔։।॥።፧။។]+[{CLOSING}]*(?=\s)|[。！？｡][。！？｡]*[{CLOSING}]*|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
)


def visible_characters(text: str) -> IntArray:
    """Returns the indices of the characters that are not white space, ``(visible characters,)``."""
    return np.flatnonzero(~np.isin(_code_points(text), BLANKS))


def line_numbers(text: str) -> IntArray:
    """Returns the number of line ends before each character, and before the end: ``(characters + 1,)``."""
    codes = _code_points(text)
    ends_line = np.isin(codes, LINE_ENDS)
    ends_line[:-1] &= ~((codes[:-1] == ord("\r")) & (codes[1:] == ord("\n")))  # the two are one line end
    return np.concatenate([[0], np.cumsum(ends_line)])


def unit_starts(text: str, name: str, owners: IntArray | None = None) -> IntArray:
    """Returns the index of the first visible character of each word, sentence, line or paragraph, in ascending
    order.
    """
    visible = visible_characters(text)
    if name == WORDS:
        begins = np.diff(visible) > 1
    elif name == SENTENCES:
        ends = [match.end() for match in SENTENCE_END.finditer(text)]
        begins = np.diff(np.searchsorted(ends, visible, side="right")) > 0
    else:
        begins = np.diff(line_numbers(text)[visible]) > (1 if name == PARAGRAPHS else 0)
    begins = np.concatenate([np.ones(min(1, len(visible)), dtype=bool), begins])
    if owners is not None:
        begins[1:] |= np.diff(owners[visible]) != 0
        begins &= owners[visible] >= 0
    return visible[begins]


def first_visible(text: str, spans: IntArray) -> IntArray:
    """Returns the index of the first visible character of each span, ``(spans,)``; -1 for a blank or empty one."""
    visible = visible_characters(text)
    starts, stops = spans[:, 0], np.minimum(spans[:, 1], len(text))
    candidates = np.append(visible, len(text))[np.searchsorted(visible, starts)]
    return np.where(candidates < stops, candidates, -1).astype(np.int64)


def unit_numbers(starts: IntArray, characters: IntArray) -> IntArray:
    """Returns the index of the unit of each character; -1 before the first start, and for the character -1."""
    return np.where(characters < 0, -1, np.searchsorted(starts, characters, side="right") - 1).astype(np.int64)


def _code_points(text: str) -> IntArray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


class Runs(NamedTuple):
    """The runs of consecutive tokens that belong to the same group, in the order of the tokens."""

    starts: IntArray  # ``(runs,)``, the first token of each run
    stops: IntArray  # ``(runs,)``, the token after the last one of each run
    groups: IntArray  # ``(runs,)``, the number of each run's group


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of tokens of an axis, each token in at most one; a group may consist of several runs of tokens.

    Attributes:
        numbers: ``(tokens,)``, the number of each token's group; -1 for a token without a group.
        labels: the label of each group; empty if the labels follow from the tokens.
        first: the token at index 0 of ``numbers``, above 0 for a part of an axis.
    """

    numbers: IntArray
    labels: tuple[str, ...] = ()
    first: int = 0

    def __post_init__(self) -> None:
        self.numbers.setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels) or int(self.numbers.max(initial=-1)) + 1

    def take(self, indices: IntArray | slice) -> Self:
        """Returns the groups of the tokens at these indices, in their order; the groups keep their numbers."""
        return type(self)(self.numbers[indices], self.labels)

    def joined(self, next_groups: Self) -> Self:
        """Returns the groups of these tokens and of the tokens after them; keeps the longer list of labels."""
        return type(self)(
            np.concatenate([self.numbers, next_groups.numbers]), max(self.labels, next_groups.labels, key=len)
        )

    @cached_property
    def runs(self) -> Runs:
        """The runs of tokens that belong to the same group; tokens without a group are in none."""
        # No group has the number -2, so that the first run starts, and the last one stops, at an edge.
        edges = np.flatnonzero(np.diff(self.numbers, prepend=-2, append=-2))
        starts, stops = edges[:-1], edges[1:]
        has_group = self.numbers[starts] >= 0
        return Runs(starts[has_group] + self.first, stops[has_group] + self.first, self.numbers[starts[has_group]])

    @cached_property
    def in_order(self) -> bool:
        """True if each group is one run, and the runs are in the order of their groups."""
        return np.array_equal(self.runs.groups, np.arange(len(self)))

    @cached_property
    def starts(self) -> IntArray:
        """The first token of each group, ``(groups,)``; for a group without tokens, the end of ``numbers``."""
        if self.in_order:
            return self.runs.starts
        starts = np.full(len(self), self.first + len(self.numbers), dtype=np.int64)
        np.minimum.at(starts, self.runs.groups, self.runs.starts)
        return starts

    @cached_property
    def stops(self) -> IntArray:
        """The token after the last one of each group, ``(groups,)``; of a group without tokens ``first``."""
        if self.in_order:
            return self.runs.stops
        stops = np.full(len(self), self.first, dtype=np.int64)
        np.maximum.at(stops, self.runs.groups, self.runs.stops)
        return stops

    @cached_property
    def sizes(self) -> IntArray:
        """The number of tokens of each group, ``(groups,)``."""
        return np.bincount(self.numbers[self.numbers >= 0], minlength=len(self)).astype(np.int64)

    @property
    def token_span(self) -> slice:
        """The span from the first to the last token that belongs to a group."""
        return slice(int(self.starts.min()), int(self.stops.max()))

    @property
    def has_only_single_tokens(self) -> bool:
        """True if each token of ``token_span`` is a group with no other token, and the groups are in order."""
        span = self.token_span
        return self.in_order and len(self) == span.stop - span.start

    def part(self, span: slice) -> Self:
        """Returns the groups whose numbers are in a span, renumbered from 0.

        They cover the shortest span of tokens that contains them; other tokens in it belong to no group.
        """
        start, stop, _ = span.indices(len(self))
        tokens = slice(int(self.starts[start:stop].min()), int(self.stops[start:stop].max()))
        numbers = self.numbers[tokens.start - self.first : tokens.stop - self.first] - start
        numbers = np.where((numbers >= 0) & (numbers < stop - start), numbers, -1)
        return replace(self, numbers=numbers, labels=self.labels[start:stop], first=tokens.start)

    def reduce(self, ufunc: np.ufunc, cells: NDArray[Any], axis: int) -> NDArray[Any]:
        """Returns the cells of the tokens of ``token_span`` reduced to one cell for each group."""
        if self.in_order:
            return _reduce_runs(ufunc, cells, axis, self.starts - self.starts[0], self.stops - self.starts[0])
        span = self.token_span
        numbers = self.numbers[span.start - self.first : span.stop - self.first]
        order = np.argsort(numbers, kind="stable")[np.count_nonzero(numbers < 0) :]  # group by group
        stops = np.cumsum(self.sizes)
        return _reduce_runs(ufunc, cells.take(order, axis), axis, stops - self.sizes, stops)


def _reduce_runs(ufunc: np.ufunc, cells: NDArray[Any], axis: int, starts: IntArray, stops: IntArray) -> NDArray[Any]:
    """Returns the cells from each start to its stop reduced to one cell, along an axis."""
    # reduceat reduces from each edge to the next, so that every second result is a gap between two runs. It refuses
    # an edge at the end of the axis, where the last run may stop.
    edges = np.stack([starts, stops], axis=1).ravel()
    edges_before_end = edges[:-1] if edges[-1] == cells.shape[axis] else edges
    reduced_cells = ufunc.reduceat(cells, edges_before_end, axis=axis)
    without_gaps = [slice(None)] * cells.ndim
    without_gaps[axis] = slice(None, None, 2)
    return np.asarray(reduced_cells[tuple(without_gaps)])
