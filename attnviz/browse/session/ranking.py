"""Measures heads, to sort and filter them and to name what each head does."""

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

MAX_UNREQUESTED_CELLS = 4_000_000  # a head with more cells is measured only when its numbers are asked for


class Ranking:
    """The metrics of heads; a head is an index into ``heads``.

    Attributes:
        heads: the attention call and the number of each head.
        layers: the heads of each attention call.
        numbers: by metric, the number of every head, once it is measured.
        patterns: what each head does, such as ``previous token 0.98``, once it is measured.
        added: numbers from a file, such as effects, that heads can be sorted and filtered by too.
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
        """The names of the numbers that heads can be sorted by."""
        from attnviz.metrics.metrics import METRICS

        return [*(each.names[0] for each in self.added), *METRICS]

    def _of_heads(self, added: "HeadFrame") -> dict[int, float]:
        """Returns an added number of each head; NaN for heads without one."""
        return {
            place: added.single.get((maps.layer, head), float("nan")) for place, (maps, head) in enumerate(self.heads)
        }

    def order(self, view: View) -> list[int]:
        """Returns the filtered and sorted heads; filter and order wait until their numbers are measured."""
        everyone = self.filtered(view.filter)
        if not self.is_sorted(view):
            return everyone
        numbers = self.numbers[str(view.order)]
        sign = 1 if view.ascending else -1
        return sorted(everyone, key=lambda head: (np.isnan(numbers[head]), sign * numbers[head]))

    def is_sorted(self, view: View) -> bool:
        """True if heads are sorted by a metric that is already measured."""
        return view.order in self.numbers

    def by_layer(self, heads: list[int]) -> list[list[int]]:
        """Returns the heads grouped by attention call."""
        left = set(heads)
        groups = ([head for head in group if head in left] for group in self.layers)
        return [group for group in groups if group]

    def filtered(self, words: str) -> list[int]:
        """Returns the heads for which every word of a filter holds; all heads if none does or numbers are missing."""
        everyone = list(range(len(self.heads)))
        if not words or not self.knows(words):
            return everyone
        kept = _parsed(words, tuple(self.names))
        return [head for head in everyone if kept.keeps(self.described(head))] or everyone

    def knows(self, words: str) -> bool:
        """True if every number that a filter needs is measured."""
        return not asks_for_numbers(words) or len(self._values) == len(self.heads)

    def refuse_filter(self, words: str) -> None:
        """Raises AttnvizError if the words are not a filter, or if it surely leaves no head."""
        kept = _parsed(words, tuple(self.names))
        if self.knows(words) and not any(kept.keeps(self.described(head)) for head in range(len(self.heads))):
            raise AttnvizError(f"{words!r} leaves none of {len(self.heads)} heads")

    def described(self, head: int) -> "DescribedHead":
        """Returns the facts of a head that a filter asks for."""
        from attnviz.metrics.head_filter import DescribedHead

        maps, number = self.heads[head]
        pattern, numbers = self.patterns.get(head, ""), self._values.get(head, {})
        return DescribedHead(maps.layer, number, maps.kind, pattern, numbers)

    def measured(self, head: int) -> dict[str, float]:
        """Returns every metric of a head; none until it is measured."""
        return self._values.get(head, {})

    def measure(self, name: str) -> None:
        """Measures a metric of every head; may run in a thread."""
        from attnviz.metrics.metrics import measure_heads

        measured = measure_heads(self.heads, (name,))
        self.numbers[name] = {place: each.values[name] for place, each in enumerate(measured)}

    def unnamed(self, view: View | None = None) -> list[int] | None:
        """Returns the heads of the next attention call without patterns; long maps only if the filter needs them."""
        asked = view is not None and bool(view.filter) and asks_for_numbers(view.filter)
        groups = (group for group in self.layers if asked or _cells(self.heads[group[0]][0]) <= MAX_UNREQUESTED_CELLS)
        return next((group for group in groups if group[0] not in self._values), None)

    def name(self, group: list[int]) -> None:
        """Measures every metric of the heads of one call and names their patterns; may run in a thread."""
        from attnviz.metrics.metrics import METRICS, measure_heads
        from attnviz.metrics.patterns import name_pattern

        for place, numbers in zip(group, measure_heads(self.heads[place] for place in group), strict=True):
            beside = {each.names[0]: self.numbers[each.names[0]][place] for each in self.added}
            self._values[place] = numbers.values | beside
            self.patterns[place] = name_pattern(numbers)
        if len(self._values) == len(self.heads):
            self.numbers |= {name: {place: each[name] for place, each in self._values.items()} for name in METRICS}


def asks_for_numbers(words: str) -> bool:
    """True if a filter has a word that needs a metric or a pattern, not only the layer, head or kind."""
    return any(not re.fullmatch(r"-?((layers?|heads?|kind):\S*|\d+\.\d+)", word) for word in words.lower().split())


@lru_cache(maxsize=64)
def _parsed(words: str, names: tuple[str, ...]) -> "HeadFilter":
    from attnviz.metrics.head_filter import parse_filter

    return parse_filter(words, names)


def _cells(maps: CellMaps) -> int:
    return len(maps.query_tokens) * len(maps.key_tokens)
