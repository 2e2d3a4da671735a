"""Units: what a row or a column of a map stands for, a token or a word, with special tokens or without."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from attnviz.base.arrays import IntArray
from attnviz.text.tokens import Tokens, readable_label, visible_label

MAX_WORD_CHARACTERS = 1000  # of a word, that are looked at for its label


@dataclass(frozen=True, eq=False)
class Units:
    """Runs of tokens along one axis, in order; tokens of no run are left out.

    Attributes:
        tokens: the whole text.
        starts: ``(units,)``, the first token of each.
        stops: ``(units,)``, the token after its last.
    """

    tokens: Tokens
    starts: IntArray
    stops: IntArray

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, tokens: Tokens, words: bool = False, special: bool = True) -> Self:
        """The units of a text; never none: where every token is special, leaving them out keeps them.

        Args:
            tokens: the text.
            words: whether the tokens of a word are one unit.
            special: whether special tokens are units; left out otherwise.
        """
        return cls(tokens, *_unit_ends(tokens, words, special or bool(tokens.special.all())))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What each is called, safe to print."""
        if self.plain:
            return self.tokens.labels
        ends = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return tuple(_unit_label(self.tokens, start, stop) for start, stop in ends)

    def is_spaced(self, place: int) -> bool:
        """Whether a space follows a unit in the text, or the text is not known."""
        tokens, stop = self.tokens, int(self.stops[place])
        if stop >= len(tokens):
            return False
        if not tokens.text or tokens.special[stop - 1] or tokens.special[stop]:
            return True
        return tokens.text[tokens.offsets[stop - 1, 1] : tokens.offsets[stop, 0]].isspace()

    @cached_property
    def widest(self) -> int:
        """Columns of the widest label."""
        columns = len if "".join(self.labels).isascii() else cell_len
        return max(map(columns, self.labels), default=1)

    @property
    def plain(self) -> bool:
        """Whether every token of the text is a unit of its own."""
        return len(self) == len(self.tokens)

    @property
    def token_span(self) -> slice:
        """The tokens from the first unit to the end of the last."""
        return slice(int(self.starts[0]), int(self.stops[-1]))

    @property
    def single(self) -> bool:
        """Whether every token of the span is a unit of its own."""
        return bool(self.stops[-1] - self.starts[0] == len(self))

    def part(self, span: slice) -> Self:
        """Some of the units."""
        return replace(self, starts=self.starts[span], stops=self.stops[span])

    def unit_of(self, token: int) -> int:
        """The unit that a token is in, or the one before it."""
        return max(0, int(np.searchsorted(self.starts, token, side="right")) - 1)

    def span(self, tokens: slice) -> slice:
        """The units from that of the first token to that of the last."""
        return slice(self.unit_of(tokens.start), self.unit_of(tokens.stop - 1) + 1)

    def reduce(self, reduce: np.ufunc, cells: NDArray[Any], axis: int) -> NDArray[Any]:
        """The cells of the span's tokens reduced to one for each unit along an axis."""
        edges = np.stack([self.starts, self.stops], axis=1).ravel() - self.starts[0]
        inner = edges[:-1] if edges[-1] == cells.shape[axis] else edges
        reduced = reduce.reduceat(cells, inner, axis=axis)
        every_other = [slice(None)] * cells.ndim
        every_other[axis] = slice(None, None, 2)
        return np.asarray(reduced[tuple(every_other)])

    def as_tokens(self) -> Tokens:
        """A text of which each unit is one token; the id of several is -1."""
        first = self.starts
        return Tokens(
            text=self.tokens.text,
            ids=np.where(self.stops - first == 1, self.tokens.ids[first], -1),
            labels=self.labels,
            offsets=np.stack([self.tokens.offsets[first, 0], self.tokens.offsets[self.stops - 1, 1]], axis=1),
            words=self.tokens.words[first],
            special=self.tokens.special[first],
            segments=self.tokens.segments[first],
        )


def _unit_ends(tokens: Tokens, words: bool, special: bool) -> tuple[IntArray, IntArray]:
    """Where each unit begins, and the token after its last, both ``(units,)``; what is left out is in none."""
    kept = np.ones(len(tokens), dtype=bool) if special else ~tokens.special
    begins = kept.copy()
    if words:
        apart = tokens.special[1:] | tokens.special[:-1]
        begins[1:] &= (tokens.words[1:] < 0) | (tokens.words[1:] != tokens.words[:-1]) | apart
    starts = np.flatnonzero(begins)
    left_out = np.append(np.flatnonzero(~kept), len(kept))
    stops: IntArray = np.minimum(np.append(starts[1:], len(kept)), left_out[np.searchsorted(left_out, starts)])
    return starts, stops


def _unit_label(tokens: Tokens, start: int, stop: int) -> str:
    """The token's label, or what the text has from the first token to the last, or else their labels joined."""
    if stop - start == 1:
        return tokens.labels[start]
    text = tokens.text[tokens.offsets[start, 0] : tokens.offsets[stop - 1, 1]]
    return readable_label(visible_label(text.strip()[:MAX_WORD_CHARACTERS]) or "".join(tokens.labels[start:stop]))
