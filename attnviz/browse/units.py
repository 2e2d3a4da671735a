"""What a row or column of an inspected map stands for: a token, or a word, with special tokens or without."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import IntArray
from attnviz.text.tokens import Tokens
from attnviz.text.units import unit_ends, unit_label

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
        starts, stops = unit_ends(tokens, words, special or bool(tokens.special.all()))
        ends = zip(starts.tolist(), stops.tolist(), strict=True)
        return cls(
            starts=starts,
            stops=stops,
            labels=tuple(harmless(unit_label(tokens, start, stop)) for start, stop in ends),
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


def _spaced(tokens: Tokens, stops: list[int]) -> tuple[bool, ...]:
    """Whether the text has a space between the token before each of ``stops`` and the next, or has no text at all."""
    text, special, offsets = tokens.text, tokens.special.tolist(), tokens.offsets.tolist()

    def is_spaced(stop: int) -> bool:
        if stop >= len(special):
            return False
        no_text = special[stop - 1] or special[stop] or not text
        return no_text or text[offsets[stop - 1][1] : offsets[stop][0]].isspace()

    return tuple(is_spaced(stop) for stop in stops)
