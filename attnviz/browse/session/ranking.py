"""What is measured of every head: the order that it gives them, and what each head does in plain words."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.browse.session.state import View
from attnviz.maps.layer_maps import CellMaps

if TYPE_CHECKING:
    from attnviz.metrics.head_filter import DescribedHead, HeadFilter
    from attnviz.metrics.head_frame import HeadFrame

MAX_UNREQUESTED_CELLS = 4_000_000  # cells of a head that is measured before its numbers are asked for


class Ranking:
    """The numbers of heads, by their places in the recording.

    Attributes:
        heads: the attention call and the number of each.
        layers: the heads of each call.
        numbers: by metric, those of every head, where it is measured.
        patterns: what a head does, such as ``previous token 0.98``, where it is measured.
        added: numbers that are known beside what is measured.
    """

    def __init__(self, heads: list[tuple[CellMaps, int]], added: "Sequence[HeadFrame]" = ()) -> None:
        self.heads = list(heads)
        self.added = tuple(added)
        groups: dict[int, list[int]] = {}
        for place, (maps, _) in enumerate(heads):
            groups.setdefault(id(maps), []).append(place)
        self.layers = list(groups.values())
        self.numbers: dict[str, dict[int, float]] = {each.names[0]: self._of_heads(each) for each in self.added}
        self.patterns: dict[int, str] = {}
        self._values: dict[int, dict[str, float]] = {}

    @property
    def names(self) -> list[str]:
        """What heads can be sorted by."""
        from attnviz.metrics.metrics import METRICS

        return [*(each.names[0] for each in self.added), *METRICS]

    def _of_heads(self, added: "HeadFrame") -> dict[int, float]:
        """A number that is added, of each head by its place; NaN where there is none."""
        return {
            place: added.single.get((maps.layer, head), float("nan")) for place, (maps, head) in enumerate(self.heads)
        }

    def order(self, view: View) -> list[int]:
        """The heads that the filter leaves, those with the most of the metric first, as far as both are known."""
        everyone = self.filtered(view.filter)
        if not self.is_sorted(view):
            return everyone
        numbers = self.numbers[str(view.order)]
        sign = 1 if view.ascending else -1
        return sorted(everyone, key=lambda head: (np.isnan(numbers[head]), sign * numbers[head]))

    def is_sorted(self, view: View) -> bool:
        """Whether heads are to be sorted and what they are sorted by is measured."""
        return view.order in self.numbers

    def by_layer(self, heads: list[int]) -> list[list[int]]:
        """Those of the heads that are of one call, call by call."""
        left = set(heads)
        groups = ([head for head in group if head in left] for group in self.layers)
        return [group for group in groups if group]

    def filtered(self, words: str) -> list[int]:
        """The heads for which every word holds, in their order; all where none does, or it is not known yet."""
        everyone = list(range(len(self.heads)))
        if not words or not self.knows(words):
            return everyone
        kept = _parsed(words, tuple(self.names))
        return [head for head in everyone if kept.keeps(self.described(head))] or everyone

    def knows(self, words: str) -> bool:
        """Whether what the words of a filter ask for is measured."""
        return not asks_for_numbers(words) or len(self._values) == len(self.heads)

    def refuse_filter(self, words: str) -> None:
        """Raises AttnvizError where words are no filter, or one that is known to leave no head."""
        kept = _parsed(words, tuple(self.names))
        if self.knows(words) and not any(kept.keeps(self.described(head)) for head in range(len(self.heads))):
            raise AttnvizError(f"{words!r} leaves none of {len(self.heads)} heads")

    def described(self, head: int) -> "DescribedHead":
        """What a filter looks at of a head."""
        from attnviz.metrics.head_filter import DescribedHead

        maps, number = self.heads[head]
        pattern, numbers = self.patterns.get(head, ""), self._values.get(head, {})
        return DescribedHead(maps.layer, number, maps.kind, pattern, numbers)

    def measured(self, head: int) -> dict[str, float]:
        """Every number of a head; nothing until it is measured."""
        return self._values.get(head, {})

    def measure(self, name: str) -> None:
        """Measures a metric of every head; a thread may do it."""
        from attnviz.metrics.metrics import measure_heads

        measured = measure_heads(self.heads, (name,))
        self.numbers[name] = {place: each.values[name] for place, each in enumerate(measured)}

    def unnamed(self, view: View | None = None) -> list[int] | None:
        """The next attention call whose heads have no pattern yet; of long maps only where the filter needs it."""
        asked = view is not None and bool(view.filter) and asks_for_numbers(view.filter)
        groups = (group for group in self.layers if asked or _cells(self.heads[group[0]][0]) <= MAX_UNREQUESTED_CELLS)
        return next((group for group in groups if group[0] not in self._values), None)

    def name(self, group: list[int]) -> None:
        """Measures every metric of the heads of one call, and says what they do; a thread may do it."""
        from attnviz.metrics.metrics import METRICS, measure_heads
        from attnviz.metrics.patterns import name_pattern

        for place, numbers in zip(group, measure_heads(self.heads[place] for place in group), strict=True):
            beside = {each.names[0]: self.numbers[each.names[0]][place] for each in self.added}
            self._values[place] = numbers.values | beside
            self.patterns[place] = name_pattern(numbers)
        if len(self._values) == len(self.heads):
            self.numbers |= {name: {place: each[name] for place, each in self._values.items()} for name in METRICS}


def asks_for_numbers(words: str) -> bool:
    """Whether a filter has a word that asks for more than where a head is."""
    return any(not re.fullmatch(r"-?((layers?|heads?|kind):\S*|\d+\.\d+)", word) for word in words.lower().split())


@lru_cache(maxsize=64)
def _parsed(words: str, names: tuple[str, ...]) -> "HeadFilter":
    from attnviz.metrics.head_filter import parse_filter

    return parse_filter(words, names)


def _cells(maps: CellMaps) -> int:
    return len(maps.query_tokens) * len(maps.key_tokens)
