"""Measures heads, to sort and filter them and to name what each head does."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.browse.session.state import View
from attnviz.maps.layer_maps import CellMaps

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_UNREQUESTED_CELLS = 4_000_000  # a head with more cells is measured only when its numbers are asked for


class Ranking:
    """The metrics of heads; a head is an index into ``heads``.

    Attributes:
        heads: the attention call and the number of each head.
        layers: the heads of each attention call.
        added: numbers from a file, such as effects, that heads can be sorted and filtered by too.
        ready: the names of the numbers that are measured, or added, for every head.
        finished: the heads with all metrics and their pattern.
    """

    def __init__(self, heads: list[tuple[CellMaps, int]], added: "Sequence[HeadFrame]" = ()) -> None:
        self.heads = list(heads)
        self.added = tuple(each.select(each.names[:1]) for each in added)
        groups: dict[int, list[int]] = {}
        for place, (maps, _) in enumerate(heads):
            groups.setdefault(id(maps), []).append(place)
        self.layers = list(groups.values())
        self.ready = {each.names[0] for each in self.added}
        self.finished: set[int] = set()

    @cached_property
    def frame(self) -> "HeadFrame":
        """A column for each added number, then for each metric; NaN for a head that is not measured yet."""
        from attnviz.metrics.head_frame import HeadFrame, HeadRow
        from attnviz.metrics.metrics import METRICS

        rows = tuple(HeadRow(((maps.layer, head),), maps.kind, maps.module) for maps, head in self.heads)
        values = np.full((len(rows), len(METRICS)), np.nan)
        frame = HeadFrame(rows=rows, measures=tuple(METRICS.values()), values=values)
        for each in reversed(self.added):
            frame = frame.beside(each)
        return frame

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers that heads can be sorted by."""
        return self.frame.names

    def order(self, view: View) -> list[int]:
        """Returns the filtered and sorted heads; filter and order wait until their numbers are measured."""
        kept = self.filtered(view.filter)
        if not self.is_sorted(view):
            return kept
        return self.frame.sorted(kept, f"{'-' if view.ascending else ''}{view.order}")

    def is_sorted(self, view: View) -> bool:
        """True if heads are sorted by a metric that is already measured."""
        return view.order in self.ready

    def by_layer(self, heads: list[int]) -> list[list[int]]:
        """Groups the heads by call, in the order of the calls."""
        left = set(heads)
        groups = ([head for head in group if head in left] for group in self.layers)
        return [group for group in groups if group]

    def filtered(self, words: str) -> list[int]:
        """Returns the heads for which every word of a filter holds; all heads if none does or numbers are missing."""
        kept = self.frame.filtered(words) if words and self.knows(words) else []
        return kept or list(range(len(self.heads)))

    def knows(self, words: str) -> bool:
        """True if every number that a filter needs is measured."""
        return not asks_for_numbers(words) or len(self.finished) == len(self.heads)

    def refuse_filter(self, words: str) -> None:
        """Raises AttnvizError if the words are not a filter, or if it surely leaves no head."""
        kept = self.frame.filtered(words)
        if self.knows(words) and not kept:
            raise AttnvizError(f"{words!r} leaves none of {len(self.heads)} heads")

    def number(self, head: int, name: str | None) -> float | None:
        """Returns a number of a head; ``None`` until all heads have it, and for a head combined from others."""
        measured = name in self.ready and head < len(self.heads)
        return float(self.frame.column(str(name))[head]) if measured else None

    def pattern(self, head: int) -> str:
        """Returns what a head does, such as ``previous token 0.98``; "" until it is measured."""
        return self.frame.rows[head].pattern if head in self.finished else ""

    def measure(self, name: str) -> None:
        """Measures a metric of every head; may run in a thread."""
        from attnviz.metrics.measured_heads import measured_frame

        self._add(range(len(self.heads)), measured_frame(self.heads, (name,)))
        self.ready.add(name)

    def unnamed(self, view: View | None = None) -> list[int] | None:
        """Returns the heads of the next attention call without patterns; long maps only if the filter needs them."""
        asked = view is not None and bool(view.filter) and asks_for_numbers(view.filter)
        groups = (group for group in self.layers if asked or _cells(self.heads[group[0]][0]) <= MAX_UNREQUESTED_CELLS)
        return next((group for group in groups if group[0] not in self.finished), None)

    def name(self, group: list[int]) -> None:
        """Measures every metric of the heads of one call and names their patterns; may run in a thread."""
        from attnviz.metrics.measured_heads import measured_frame

        measured = measured_frame(self.heads[place] for place in group)
        self._add(group, measured)
        found = dict(zip(group, measured.rows, strict=True))
        rows = tuple(found.get(place, row) for place, row in enumerate(self.frame.rows))
        self.frame = replace(self.frame, rows=rows)
        self.finished.update(group)
        if len(self.finished) == len(self.heads):
            self.ready.update(self.names)

    def _add(self, places: Sequence[int], measured: "HeadFrame") -> None:
        """Replaces the frame by one that has these numbers of the heads at these places."""
        values = self.frame.values.copy()
        values[np.ix_(places, [self.names.index(name) for name in measured.names])] = measured.values
        self.frame = replace(self.frame, values=values)


def asks_for_numbers(words: str) -> bool:
    """True if a filter has a word that needs a metric or a pattern, not only the layer, head or kind."""
    return any(not re.fullmatch(r"-?((layers?|heads?|kind):\S*|\d+\.\d+)", word) for word in words.lower().split())


def _cells(maps: CellMaps) -> int:
    return len(maps.query_tokens) * len(maps.key_tokens)
