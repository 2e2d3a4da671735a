"""Units: the groups of tokens that the rows and columns of a map stand for, each called by its label or its tokens."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.media.text import Text
from attnviz.text.groups import Groups
from attnviz.text.named_groups import MAX_LABEL_CHARACTERS, TOKENS, named_groups
from attnviz.text.tokens import WORDS, Tokens, readable_label, start_of, visible_label

MAX_WORD_CHARACTERS = 1000  # of a word, that are looked at for its label


@dataclass(frozen=True, eq=False, kw_only=True)
class Units(Groups):
    """Groups with a label each, numbered by their first tokens; a token of no unit is left out.

    Attributes:
        tokens: of the whole axis.
    """

    tokens: Tokens

    @classmethod
    def of(cls, tokens: Tokens, by: str = TOKENS, special: bool = True) -> Self:
        """The groups of a name, and each token that is in none; never no unit.

        Special tokens are in no group. Where every token is special, leaving them out keeps them.

        Args:
            tokens: of the axis.
            by: the groups, as `named_groups` takes them; ``tokens`` for each token by itself.
            special: whether special tokens are units; left out otherwise.
        """
        kept = np.ones(len(tokens), dtype=bool) if special else ~tokens.special
        kept = kept if kept.any() else ~kept
        groups = None if by == TOKENS else named_groups(tokens, by)
        if groups is None:
            labels = tokens.labels if kept.all() else tuple(tokens.labels[place] for place in np.flatnonzero(kept))
            return cls(numbers=np.where(kept, np.cumsum(kept) - 1, -1), labels=labels, tokens=tokens)
        numbers = np.where(tokens.special, -1, groups.numbers)
        of, firsts = _numbered(numbers, kept)
        found = Groups(of)
        named = [groups.labels[number] if groups.labels and number >= 0 else "" for number in numbers[firsts].tolist()]
        ends = zip(named, found.starts.tolist(), found.stops.tolist(), found.sizes.tolist(), strict=True)
        labels = tuple(name or _label(tokens, start, stop, size, by) for name, start, stop, size in ends)
        return cls(numbers=of, labels=labels, tokens=tokens)

    @property
    def plain(self) -> bool:
        """Whether every token of the axis is a unit of its own."""
        return len(self) == len(self.tokens)

    @cached_property
    def widest(self) -> int:
        """Columns of the widest label."""
        columns = len if "".join(self.labels).isascii() else cell_len
        return max(map(columns, self.labels), default=1)

    def unit_of(self, token: int) -> int:
        """The unit that a token is in, or else the one before it."""
        unit = int(self.numbers[token - self.first])
        return unit if unit >= 0 else max(0, int(np.searchsorted(self.starts, token, side="right")) - 1)

    def span(self, tokens: slice) -> slice:
        """The units from that of the first token to that of the last."""
        return slice(self.unit_of(tokens.start), self.unit_of(tokens.stop - 1) + 1)

    def is_spaced(self, place: int) -> bool:
        """Whether a space follows a unit in the text, or the text is not known."""
        tokens, stop = self.tokens, int(self.stops[place])
        if stop >= len(tokens):
            return False
        if not tokens.text or tokens.special[stop - 1] or tokens.special[stop]:
            return True
        return tokens.text[tokens.offsets[stop - 1, 1] : tokens.offsets[stop, 0]].isspace()

    def as_tokens(self) -> Tokens:
        """The axis on which each unit is one token; the id of a unit of several tokens is -1."""
        ids = np.where(self.sizes == 1, self.tokens.ids[self.starts], -1)
        medium, places = _hulls(self.tokens, self)
        return replace(self.tokens.at(self.starts), labels=self.labels, ids=ids, medium=medium, places=places)


def _hulls(tokens: Tokens, units: Units) -> tuple[IntArray, IntArray]:
    """Where each unit stands: in which medium, ``(units,)``, and from where to where, ``(units, numbers)``.

    White space at the ends of a unit of several tokens is left out.
    """
    of, several = units.numbers, units.sizes > 1
    medium, places = tokens.medium[units.starts], tokens.places[units.starts].copy()
    counted = np.flatnonzero((of >= 0) & several[of] & (tokens.medium >= 0) & ~_blank(tokens))
    medium[of[counted[::-1]]] = tokens.medium[counted[::-1]]  # that of the first token counts
    for number, kind in enumerate(tokens.media):
        inside = counted[(tokens.medium[counted] == number) & (medium[of[counted]] == number)]
        half = kind.place_size // 2
        for columns, reduce in ((slice(half), np.minimum), (slice(half, 2 * half), np.maximum)):
            places[of[inside], columns] = tokens.places[inside, columns]
            reduce.at(places[:, columns], of[inside], tokens.places[inside, columns])
    return medium, places


def _blank(tokens: Tokens) -> BoolArray:
    """Which tokens are the white space of a text whose words are known."""
    written = np.array([*(isinstance(medium, Text) for medium in tokens.media), False])[tokens.medium]
    return np.asarray(written & (tokens.words < 0) & (tokens.words.max(initial=-1) >= 0))


def _numbered(numbers: IntArray, kept: BoolArray) -> tuple[IntArray, IntArray]:
    """The groups numbered by their first tokens, each token of none as one of its own, and these first tokens.

    Args:
        numbers: ``(tokens,)``, the number of each token's group; -1 for none.
        kept: ``(tokens,)``; the others are in no group.
    """
    alone = -1 - np.arange(len(numbers))
    _, first, inverse = np.unique(np.where(numbers < 0, alone, numbers)[kept], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    of = np.full(len(numbers), -1, dtype=np.int64)
    of[kept] = rank[inverse]
    return of, np.flatnonzero(kept)[first[order]]


def _label(tokens: Tokens, start: int, stop: int, size: int, by: str) -> str:
    """The token's label, or what the text has from the first token to the last, or else their labels joined."""
    if size == 1:
        return tokens.labels[start]
    text = tokens.text[tokens.offsets[start, 0] : tokens.offsets[stop - 1, 1]].strip()
    if by == WORDS:
        return readable_label(visible_label(text[:MAX_WORD_CHARACTERS]) or "".join(tokens.labels[start:stop]))
    return readable_label(start_of(text or " ".join(tokens.labels[start:stop]), MAX_LABEL_CHARACTERS))
