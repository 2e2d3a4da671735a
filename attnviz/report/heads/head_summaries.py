"""What the heads of a recording do, as headings and captions say it; nothing where weights are random."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attnviz.maps.heads import ChosenHead, choose
from attnviz.maps.recording import Recording
from attnviz.report.picture.options import ReportOptions
from attnviz.report.words.captions import Notes
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_NAMED = 4  # clearest heads in a sentence


@dataclass(frozen=True, eq=False)
class HeadSummaries:
    """What each chosen head does.

    Attributes:
        heads: in the order chosen.
        frame: their numbers and patterns, in this order.
    """

    heads: list[ChosenHead]
    frame: "HeadFrame"

    @cached_property
    def notes(self) -> Notes:
        """What each head's heading says; heads that do nothing clear are left out."""
        return {head.key: row.note for head, row in zip(self.heads, self.frame.rows, strict=True) if row.note}

    @cached_property
    def clearest(self) -> list[ChosenHead]:
        """The heads in the order in which a reader should meet them."""
        from attnviz.metrics.patterns import clearest_first

        patterns = (row.first_pattern for row in self.frame.rows)
        return clearest_first(zip(self.heads, patterns, strict=True))

    @property
    def names(self) -> set[str]:
        """The names of all clearest patterns."""
        return {row.first_pattern.name for row in self.frame.rows}

    @property
    def summary(self) -> str:
        """How many heads do what: ``2 previous token, 31 sinks on [CLS], 38 mixed``."""
        from attnviz.metrics.patterns import summed_up

        every = self.frame.every
        sampled = f" (measured over one in {every} blocks of queries)" if every > 1 else ""
        return summed_up(row.first_pattern for row in self.frame.rows) + sampled

    @property
    def sentence(self) -> str:
        """The summary as a remark, with the clearest heads."""
        clearest = [head for head in self.clearest[:MAX_NAMED] if head.key in self.notes]
        named = ", ".join(f"{head.name} ({self.notes[head.key]})" for head in clearest)
        return f"What they do: {self.summary}{'; the clearest: ' if named else ''}{named}."


def summarize_heads(recording: Recording, options: ReportOptions) -> HeadSummaries | None:
    """What the chosen heads do; ``None`` where nobody asks, weights are random, or it would take long to find out."""
    asked = options.table is None and options.sort is None and options.look.drawn_style != "text"
    if not asked or recording.untrained or len({maps.item for maps in recording.maps}) > 1:
        return None
    selection = Selection(options.selection.layers, options.selection.heads, options.selection.pairs)
    heads = choose(recording, selection)
    from attnviz.metrics.measured_heads import patterns_of

    frame = patterns_of(heads)
    return None if frame is None or not heads else HeadSummaries(heads, frame)
