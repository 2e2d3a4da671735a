"""What a row or column of an inspected map stands for: a token, or a word, with special tokens or without."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from attnviz.tokens import IntArray, Tokens, visible_label

# Control characters, line and paragraph separators, and marks that turn the direction of what follows.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, eq=False)
class Units:
    """Runs of tokens along one axis, in order; tokens of no run are left out.

    Attributes:
        starts: ``(units,)``, the first token of each.
        stops: ``(units,)``, the token after its last.
        labels: one a unit, safe to print.
        spaced: whether a space follows each in the text.
    """

    starts: IntArray
    stops: IntArray
    labels: tuple[str, ...]
    spaced: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, tokens: Tokens, words: bool = False, special: bool = True) -> Self:
        """The units of a text; where leaving out special tokens would leave nothing, they stay."""
        kept = np.ones(len(tokens), dtype=bool) if special or tokens.special.all() else ~tokens.special
        begins = kept.copy()
        if words:
            begins[1:] &= (tokens.words[1:] < 0) | (tokens.words[1:] != tokens.words[:-1]) | ~kept[:-1]
        starts = np.flatnonzero(begins)
        stops = _stops(starts, kept)
        joined = [slice(start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return cls(
            starts=starts,
            stops=stops,
            labels=tuple(_label(tokens, part) for part in joined),
            spaced=_spaced(tokens, stops.tolist()),
        )

    @cached_property
    def widest(self) -> int:
        """Columns of the widest label."""
        return max((len(label) if label.isascii() else cell_len(label) for label in self.labels), default=1)

    @property
    def plain(self) -> bool:
        """Whether every token is a unit of its own."""
        return bool(self.stops[-1] == len(self))

    def unit_of(self, token: int) -> int:
        """The unit that a token is in, or the one before it."""
        return max(0, int(np.searchsorted(self.starts, token, side="right")) - 1)

    def span(self, tokens: slice) -> slice:
        """The units from that of the first token to that of the last."""
        return slice(self.unit_of(tokens.start), self.unit_of(tokens.stop - 1) + 1)

    def tokens(self, span: slice) -> slice:
        """The tokens from the first of the span's units to the end of its last."""
        return slice(int(self.starts[span.start]), int(self.stops[span.stop - 1]))


def harmless(text: str) -> str:
    """The text with what would command the terminal written out."""
    return text if text.isprintable() else UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def reduce_units(reduce: np.ufunc, cells: NDArray[np.generic], units: Units, span: slice, axis: int) -> NDArray:  # type: ignore[type-arg]
    """Cells of the span's tokens reduced to one for each unit along an axis."""
    first = units.starts[span.start]
    edges = np.stack([units.starts[span], units.stops[span]], axis=1).ravel() - first
    inner = edges[:-1] if edges[-1] == cells.shape[axis] else edges
    reduced = reduce.reduceat(cells, inner, axis=axis)
    every_other = [slice(None)] * cells.ndim
    every_other[axis] = slice(None, None, 2)
    return np.asarray(reduced[tuple(every_other)])


def _stops(starts: IntArray, kept: NDArray[np.bool_]) -> IntArray:
    """Where each unit ends: at the next unit, or at the first token left out before it."""
    left_out = np.flatnonzero(~kept)
    ends = np.append(starts[1:], len(kept))
    after = np.append(left_out, len(kept))[np.searchsorted(left_out, starts)]
    stops: IntArray = np.minimum(ends, after)
    return stops


def _label(tokens: Tokens, part: slice) -> str:
    if part.stop - part.start == 1:
        return harmless(tokens.labels[part.start])
    start, stop = tokens.offsets[part.start, 0], tokens.offsets[part.stop - 1, 1]
    return visible_label(tokens.text[start:stop].strip()) or harmless("".join(tokens.labels[part]))


def _spaced(tokens: Tokens, stops: list[int]) -> tuple[bool, ...]:
    """Whether the text has a space between the token before each of ``stops`` and the next, or has no text at all."""
    text, special, offsets = tokens.text, tokens.special.tolist(), tokens.offsets.tolist()

    def is_spaced(stop: int) -> bool:
        if stop >= len(special):
            return False
        no_text = special[stop - 1] or special[stop] or not text
        return no_text or text[offsets[stop - 1][1] : offsets[stop][0]].isspace()

    return tuple(is_spaced(stop) for stop in stops)
