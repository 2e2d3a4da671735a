"""What the heads of a recording do, where that is found out in a moment: for headings, and for the clearest of many."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnviz.maps.heads import ChosenHead, can_be_measured, heads_with_cells, measurable_heads
from attnviz.maps.layer_maps import LayerMaps
from attnviz.metrics.metrics import measure_heads
from attnviz.metrics.patterns import MEASURED, MIXED, Pattern, find_patterns

MAX_MEASURED_CELLS = 2_000_000  # of all heads: half a second; of more, some of the queries are measured
MAX_LEFT_OUT = 16  # one block of queries in so many is the least that says what a head does


@dataclass(frozen=True)
class HeadPattern:
    """What one head does.

    Attributes:
        head: which one, in its recording.
        patterns: the clearest first; nothing where there are no numbers.
    """

    head: ChosenHead
    patterns: tuple[Pattern, ...]

    @property
    def first(self) -> Pattern:
        """The clearest."""
        return self.patterns[0] if self.patterns else MIXED

    @property
    def note(self) -> str:
        """What a heading says of the head; "" where nothing is clear."""
        return "" if self.first == MIXED else str(self.first)


def patterns_of(heads: Sequence[ChosenHead]) -> tuple[list[HeadPattern], int]:
    """What each head does, and of how many blocks of queries one was measured.

    Nothing where single cells are not known and were not measured, or all of them are too many to look at.
    """
    every = blocks_apart(heads_with_cells(heads), MAX_MEASURED_CELLS)
    known = all(can_be_measured(head.maps) for head in heads)
    if not known or every > MAX_LEFT_OUT:
        return [], every
    measured = measure_heads(measurable_heads(heads), MEASURED, every)
    return [HeadPattern(head, find_patterns(numbers)) for head, numbers in zip(heads, measured, strict=True)], every


def blocks_apart(heads: Iterable[tuple[LayerMaps, int]], most: int) -> int:
    """Of how many blocks of queries one is measured, so that at most so many cells of all heads are looked at."""
    cells = sum(len(maps.query_tokens) * len(maps.key_tokens) for maps, _ in heads)
    return max(1, -(-cells // most))
