"""Represents units: the groups of tokens that the rows and columns of a map stand for, each with a label."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.media.text import Text
from attnviz.text.groups import Groups
from attnviz.text.named_groups import MAX_LABEL_CHARACTERS, TOKENS, named_groups
from attnviz.text.tokens import WORDS, Tokens, first_words, readable_label, visible_label

MAX_WORD_CHARACTERS = 1000  # of a word that are read for its label


@dataclass(frozen=True, eq=False, kw_only=True)
class Units(Groups):
    """Groups with labels, numbered in the order of their first tokens; a token without a unit is not drawn.

    Attributes:
        tokens: the tokens of the whole axis.
    """

    tokens: Tokens

    @classmethod
    def of(cls, tokens: Tokens, by: str = TOKENS, special: bool = True) -> Self:
        """Returns the units of an axis: the groups of a name, and each token outside them as a unit by itself.

        Special tokens belong to no group. There is always at least one unit: if every token is special, all are kept.

        Args:
            tokens: the tokens of the axis.
            by: name of the groups, as in `named_groups`; ``tokens`` for each token by itself.
            special: if true, special tokens are units; otherwise they have no unit.
        """
        included = np.ones(len(tokens), dtype=bool) if special else ~tokens.special
        included = included if included.any() else ~included
        groups = None if by == TOKENS else named_groups(tokens, by)
        if groups is None:
            labels = (
                tokens.labels if included.all() else tuple(tokens.labels[place] for place in np.flatnonzero(included))
            )
            return cls(numbers=np.where(included, np.cumsum(included) - 1, -1), labels=labels, tokens=tokens)
        numbers = np.where(tokens.special, -1, groups.numbers)
        unit_numbers, firsts = _numbered(numbers, included)
        units = Groups(unit_numbers)
        names = [groups.labels[number] if groups.labels and number >= 0 else "" for number in numbers[firsts].tolist()]
        parts = zip(names, units.starts.tolist(), units.stops.tolist(), units.sizes.tolist(), strict=True)
        labels = tuple(name or _label(tokens, start, stop, size, by) for name, start, stop, size in parts)
        return cls(numbers=unit_numbers, labels=labels, tokens=tokens)

    @property
    def plain(self) -> bool:
        """True if every token of the axis is a unit by itself."""
        return len(self) == len(self.tokens)

    @cached_property
    def widest(self) -> int:
        """The width of the widest label, in terminal columns."""
        columns = len if "".join(self.labels).isascii() else cell_len
        return max(map(columns, self.labels), default=1)

    def unit_of(self, token: int) -> int:
        """Returns the unit of a token; for a token without one, the unit before it."""
        unit = int(self.numbers[token - self.first])
        return unit if unit >= 0 else max(0, int(np.searchsorted(self.starts, token, side="right")) - 1)

    def span(self, tokens: slice) -> slice:
        """Returns the units from the one of the first token to the one of the last."""
        return slice(self.unit_of(tokens.start), self.unit_of(tokens.stop - 1) + 1)

    def is_spaced(self, place: int) -> bool:
        """True if a space follows the unit in the text, or the text is unknown."""
        tokens, stop = self.tokens, int(self.stops[place])
        if stop >= len(tokens):
            return False
        if not tokens.text or tokens.special[stop - 1] or tokens.special[stop]:
            return True
        return tokens.text[tokens.offsets[stop - 1, 1] : tokens.offsets[stop, 0]].isspace()

    def as_tokens(self) -> Tokens:
        """Returns the axis with each unit as one token; a unit of several tokens has the id -1."""
        ids = np.where(self.sizes == 1, self.tokens.ids[self.starts], -1)
        medium, places = _hulls(self.tokens, self)
        return replace(self.tokens.at(self.starts), labels=self.labels, ids=ids, medium=medium, places=places)


def _hulls(tokens: Tokens, units: Units) -> tuple[IntArray, IntArray]:
    """Returns the medium of each unit, ``(units,)``, and the smallest place around its tokens, ``(units, place size)``.

    White space at the ends of a unit of several tokens is left out.
    """
    unit, several = units.numbers, units.sizes > 1
    medium, places = tokens.medium[units.starts], tokens.places[units.starts].copy()
    counted = np.flatnonzero((unit >= 0) & several[unit] & (tokens.medium >= 0) & ~_blank(tokens))
    medium[unit[counted[::-1]]] = tokens.medium[counted[::-1]]  # reversed, so that the first token's medium is kept
    for number, kind in enumerate(tokens.media):
        inside = counted[(tokens.medium[counted] == number) & (medium[unit[counted]] == number)]
        half = kind.place_size // 2
        for columns, reduce in ((slice(half), np.minimum), (slice(half, 2 * half), np.maximum)):
            places[unit[inside], columns] = tokens.places[inside, columns]
            reduce.at(places[:, columns], unit[inside], tokens.places[inside, columns])
    return medium, places


def _blank(tokens: Tokens) -> BoolArray:
    """Returns, per token, whether it is white space of a text whose words are known."""
    written = np.array([*(isinstance(medium, Text) for medium in tokens.media), False])[tokens.medium]
    return np.asarray(written & (tokens.words < 0) & (tokens.words.max(initial=-1) >= 0))


def _numbered(numbers: IntArray, included: BoolArray) -> tuple[IntArray, IntArray]:
    """Renumbers groups in the order of their first tokens; a token without a group becomes one by itself.

    Args:
        numbers: ``(tokens,)``, the number of each token's group; -1 for none.
        included: ``(tokens,)``, false for tokens that get no unit.

    Returns:
        The new number of each token, ``(tokens,)``, and the first token of each group, ``(groups,)``.
    """
    alone = -1 - np.arange(len(numbers))  # a different negative number for each token without a group
    keys = np.where(numbers < 0, alone, numbers)[included]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    renumbered = np.full(len(numbers), -1, dtype=np.int64)
    renumbered[included] = rank[inverse]
    return renumbered, np.flatnonzero(included)[first[order]]


def _label(tokens: Tokens, start: int, stop: int, size: int, by: str) -> str:
    """Returns the label of a unit: its token's label, its text from the first token to the last, or joined labels.

    Args:
        tokens: the tokens of the axis.
        start: the first token of the unit.
        stop: the token after the last.
        size: the number of tokens of the unit.
        by: name of the groups.
    """
    if size == 1:
        return tokens.labels[start]
    text = tokens.text[tokens.offsets[start, 0] : tokens.offsets[stop - 1, 1]].strip()
    if by == WORDS:
        return readable_label(visible_label(text[:MAX_WORD_CHARACTERS]) or "".join(tokens.labels[start:stop]))
    return readable_label(first_words(text or " ".join(tokens.labels[start:stop]), MAX_LABEL_CHARACTERS))
