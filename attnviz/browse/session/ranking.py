"""Measures heads, sorts and filters them by their metrics, and names their patterns."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.browse.session.state import View
from attnviz.maps.layer_maps import CellMaps
from attnviz.maps.recording import head_name
from attnviz.text.head_name import parse_head_name

if TYPE_CHECKING:
    from attnviz.metrics.head_frame import HeadFrame

MAX_UNREQUESTED_CELLS = 4_000_000  # a head with more cells is measured only when its numbers are asked for


class Ranking:
    """The metrics of heads, and tables of numbers from files, by which heads can be sorted, too."""

    def __init__(
        self,
        heads: list[tuple[CellMaps, int]],
        added_frames: "Sequence[HeadFrame]" = (),
        given_names: Mapping[str, str] | None = None,
    ) -> None:
        self.heads = list(heads)
        self.given_names = dict(given_names or {})
        self.added_frames = tuple(frame.select(frame.names[:1]) for frame in added_frames)
        groups: dict[int, list[int]] = {}
        for index, (maps, _) in enumerate(heads):
            groups.setdefault(id(maps), []).append(index)
        self.calls = list(groups.values())  # the heads of each attention call
        self.measured_names = {frame.names[0] for frame in self.added_frames}  # of the numbers that every head has
        self.named_heads: set[int] = set()  # whose metrics are all measured and whose pattern is named

    @cached_property
    def frame(self) -> "HeadFrame":
        """The table of heads: added numbers, then metrics, which are NaN until `measure` or `name_patterns` runs."""
        from attnviz.metrics.head_frame import HeadFrame, HeadRow
        from attnviz.metrics.metrics import METRICS, metric_names

        rows = tuple(HeadRow.of(maps, head) for maps, head in self.heads)
        measures = tuple(METRICS[name] for name in metric_names(maps for maps, _ in self.heads))
        frame = HeadFrame(rows=rows, measures=measures, values=np.full((len(rows), len(measures)), np.nan))
        for added_frame in reversed(self.added_frames):  # each puts its column before the others
            frame = frame.with_columns_of(added_frame)
        return frame

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers that heads can be sorted by."""
        return self.frame.names

    def order(self, view: View) -> list[int]:
        """Returns the heads of `matching_heads` in the view's order; by layer until all have the number to sort by."""
        matches = self.frame.filtered_rows(view.filter) if view.filter and self.can_filter(view.filter) else []
        heads = matches or list(range(len(self.heads)))
        if not self.is_sorted(view):
            return heads
        return self.frame.sorted_rows(heads, f"{'-' if view.ascending else ''}{view.order}")

    def is_sorted(self, view: View) -> bool:
        """True if the view sorts heads by a number that every head has."""
        return view.order in self.measured_names

    def by_call(self, heads: list[int]) -> list[list[int]]:
        """Returns the heads as one list for each attention call, in the order of the calls."""
        remaining = set(heads)
        groups = ([head for head in group if head in remaining] for group in self.calls)
        return [group for group in groups if group]

    def can_filter(self, filter_text: str) -> bool:
        """True if the filter can be applied: it needs no numbers, or every head is measured."""
        return not _needs_numbers(filter_text) or len(self.named_heads) == len(self.heads)

    def refuse_filter(self, filter_text: str) -> None:
        """Raises AttnvizError if the text is not a filter, or if its numbers are measured and it matches no head."""
        matches = self.frame.filtered_rows(filter_text)
        if self.can_filter(filter_text) and not matches:
            raise AttnvizError(f"{filter_text!r} leaves none of {len(self.heads)} heads; give another filter")

    def number(self, head: int, name: str | None) -> float | None:
        """Returns a number of a head; ``None`` for a combined head, for no name, and until every head has it."""
        is_measured = name in self.measured_names and head < len(self.heads)
        return float(self.frame.column(str(name))[head]) if is_measured else None

    def description(self, head: int) -> str:
        """Returns the user's name for a head and its pattern, once measured: ``previous token 0.98``; "" for none."""
        if head >= len(self.heads):
            return ""
        name = self.given_names.get(head_name(*self.heads[head])) if self.given_names else None
        parts = [f"“{name}”"] if name else []
        if head in self.named_heads and self.frame.rows[head].pattern:
            parts.append(self.frame.rows[head].pattern)
        return ", ".join(parts)

    def measure(self, name: str) -> None:
        """Measures one metric of every head and adds it to the table; may run in a thread."""
        from attnviz.metrics.call_metrics import measured_frame

        self._store_numbers(range(len(self.heads)), measured_frame(self.heads, (name,)))
        self.measured_names.add(name)

    def next_unnamed_call(self, view: View | None = None) -> list[int] | None:
        """Returns the heads of the next attention call whose patterns are not named; ``None`` if there is none.

        Calls with long maps are left out, unless the view's filter needs their numbers.
        """
        filter_needs_numbers = view is not None and bool(view.filter) and _needs_numbers(view.filter)
        for group in self.calls:
            maps, _ = self.heads[group[0]]
            cell_count = len(maps.query_tokens) * len(maps.key_tokens)
            if group[0] not in self.named_heads and (filter_needs_numbers or cell_count <= MAX_UNREQUESTED_CELLS):
                return group
        return None

    def name_patterns(self, call_heads: list[int]) -> None:
        """Measures every metric of the heads of one attention call and names their patterns; may run in a thread."""
        from attnviz.metrics.call_metrics import measured_frame

        measured_rows = measured_frame(self.heads[head] for head in call_heads)
        self._store_numbers(call_heads, measured_rows)
        row_of_head = dict(zip(call_heads, measured_rows.rows, strict=True))
        rows = tuple(row_of_head.get(head, row) for head, row in enumerate(self.frame.rows))
        self.frame = replace(self.frame, rows=rows)
        self.named_heads.update(call_heads)
        if len(self.named_heads) == len(self.heads):
            self.measured_names.update(self.names)

    def _store_numbers(self, heads: Sequence[int], measured_rows: "HeadFrame") -> None:
        values = self.frame.values.copy()
        values[np.ix_(heads, [self.names.index(name) for name in measured_rows.names])] = measured_rows.values
        self.frame = replace(self.frame, values=values)


def _needs_numbers(filter_text: str) -> bool:
    """True if some word of a filter is about a metric or a pattern; words about layers, heads and kinds need none."""
    words = (word.lstrip("-") for word in filter_text.lower().split())
    return any(not re.match("(layers?|heads?|kind):", word) and parse_head_name(word) is None for word in words)
