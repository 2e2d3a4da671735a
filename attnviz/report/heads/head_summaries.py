"""Summarizes the patterns of a recording's heads for headings and captions, unless its weights are random."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from attnviz.maps.heads import ChosenHead, HeadKey, chosen_heads
from attnviz.maps.recording import Recording
from attnviz.report.picture.options import ReportOptions
from attnviz.report.words.captions import Notes

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_NAMED_HEADS = 4  # the most heads that a sentence names


@dataclass(frozen=True, eq=False)
class HeadSummaries:
    """The patterns of the selected heads.

    Attributes:
        heads: the heads, in the order of the selection.
        frame: their numbers and patterns, in the same order.
        first_heads: the keys of heads that ``clearest`` puts before all others; empty to order by patterns alone.
    """

    heads: list[ChosenHead]
    frame: "HeadFrame"
    first_heads: tuple[HeadKey, ...] = ()

    def with_first_heads(self, first_heads: Sequence[HeadKey]) -> Self:
        """Returns the summaries with these heads before all others, in this order."""
        return replace(self, first_heads=tuple(first_heads))

    @cached_property
    def notes(self) -> Notes:
        """The note on each head's pattern, by the head's key; a head without a clear pattern has none."""
        return {head.key: row.note for head, row in zip(self.heads, self.frame.rows, strict=True) if row.note}

    @cached_property
    def clearest(self) -> list[ChosenHead]:
        """The heads: those of ``first_heads`` in its order, then the others, the clearest patterns first."""
        from attnviz.metrics.patterns import clearest_first

        patterns = (row.first_pattern for row in self.frame.rows)
        clearest = clearest_first(zip(self.heads, patterns, strict=True))
        ranks = {key: rank for rank, key in enumerate(self.first_heads)}
        return sorted(clearest, key=lambda head: ranks.get(head.key, len(ranks)))

    @property
    def names(self) -> set[str]:
        """The names of the heads' clearest patterns."""
        return {row.first_pattern.name for row in self.frame.rows}

    @property
    def summary(self) -> str:
        """The number of heads per pattern, as ``2 previous token, 31 sinks on [CLS], 38 mixed``.

        If only some blocks of queries were measured, the text says so.
        """
        from attnviz.metrics.patterns import pattern_counts

        stride = self.frame.stride
        stride_note = f" (measured over one in {stride} blocks of queries)" if stride > 1 else ""
        return pattern_counts(row.first_pattern for row in self.frame.rows) + stride_note

    @property
    def sentence(self) -> str:
        """The summary as a remark, with up to `MAX_NAMED_HEADS` of the clearest heads if any is clear."""
        clearest = [head for head in self.clearest[:MAX_NAMED_HEADS] if head.key in self.notes]
        examples = ", ".join(f"{head.name} ({self.notes[head.key]})" for head in clearest)
        return f"Patterns: {self.summary}{'; the clearest: ' if examples else ''}{examples}."


def summarize_heads(recording: Recording, options: ReportOptions) -> HeadSummaries | None:
    """Returns the patterns of the selected heads; ``None`` if they are not shown, not useful or not measured.

    Tables, sorted heads and the text style do not show patterns. Patterns of random weights or of several texts in one
    recording are not useful. Heads with too many cells are not measured, since that would take long.
    """
    shows_patterns = options.table is None and options.sort is None and options.look.drawn_style != "text"
    if not shows_patterns or recording.untrained or len({maps.item for maps in recording.maps}) > 1:
        return None
    # Patterns are measured over all queries and keys, whichever part is drawn.
    selection = replace(options.selection, queries=(None, None), keys=(None, None))
    heads = chosen_heads(recording, selection)
    from attnviz.metrics.measured_heads import pattern_frame

    frame = pattern_frame(heads)
    return None if frame is None or not heads else HeadSummaries(heads, frame)
