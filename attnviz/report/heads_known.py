"""What the heads of a recording do, as headings and captions say it; nothing where weights are random."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attnviz.maps.heads import choose
from attnviz.maps.recording import Recording
from attnviz.report.captions import Notes
from attnviz.report.options import ReportOptions
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.metrics.head_patterns import HeadPattern

MAX_NAMED = 4  # clearest heads in a sentence


@dataclass(frozen=True, eq=False)
class HeadsKnown:
    """What each chosen head does.

    Attributes:
        patterns: one a head, in the order chosen.
        every: of how many blocks of queries one was measured.
    """

    patterns: "list[HeadPattern]"
    every: int

    @cached_property
    def notes(self) -> Notes:
        """What each head's heading says; heads that do nothing clear are left out."""
        return {one.head.key: one.note for one in self.patterns if one.note}

    @cached_property
    def clearest(self) -> "list[HeadPattern]":
        """The heads in the order in which a reader should meet them."""
        from attnviz.metrics.patterns import clearest_first

        return clearest_first((one, one.first) for one in self.patterns)

    @property
    def summary(self) -> str:
        """How many heads do what: ``2 previous token, 31 sinks on [CLS], 38 mixed``."""
        from attnviz.metrics.patterns import summed_up

        sampled = f" (measured over one in {self.every} blocks of queries)" if self.every > 1 else ""
        return summed_up(one.first for one in self.patterns) + sampled

    @property
    def sentence(self) -> str:
        """The summary as a remark, with the clearest heads."""
        named = [f"{one.head.name} ({one.note})" for one in self.clearest[:MAX_NAMED] if one.note]
        return f"What they do: {self.summary}{'; the clearest: ' if named else ''}{', '.join(named)}."


def what_heads_do(recording: Recording, options: ReportOptions) -> HeadsKnown | None:
    """What the chosen heads do; ``None`` where nobody asks, weights are random, or it would take long to find out."""
    asked = options.table is None and options.sort is None and options.look.drawn_style != "text"
    if not asked or recording.untrained or len({maps.item for maps in recording.maps}) > 1:
        return None
    selection = Selection(options.selection.layers, options.selection.heads, options.selection.pairs)
    heads = choose(recording, selection)
    from attnviz.metrics.head_patterns import patterns_of

    patterns, every = patterns_of(heads)
    return HeadsKnown(patterns, every) if patterns else None
