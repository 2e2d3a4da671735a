"""What is measured of every head: the order that it gives them, and what each head does in plain words."""

import numpy as np

from attnviz.browse.state import View
from attnviz.maps.layer_maps import CellMaps

MAX_UNREQUESTED_CELLS = 4_000_000  # cells of a head that is measured before its numbers are asked for


class Ranking:
    """The numbers of heads, by their places in the recording.

    Attributes:
        heads: the attention call and the number of each.
        layers: the heads of each call.
        numbers: by metric, those of every head, where it is measured.
        patterns: what a head does, such as ``previous token 0.98``, where it is measured.
    """

    def __init__(self, heads: list[tuple[CellMaps, int]]) -> None:
        self.heads = heads
        groups: dict[int, list[int]] = {}
        for place, (maps, _) in enumerate(heads):
            groups.setdefault(id(maps), []).append(place)
        self.layers = list(groups.values())
        self.numbers: dict[str, dict[int, float]] = {}
        self.patterns: dict[int, str] = {}
        self._values: dict[int, dict[str, float]] = {}

    def order(self, view: View) -> list[int]:
        """All heads, those with the most of the view's metric first; as recorded until it is measured."""
        everyone = list(range(len(self.heads)))
        if not self.is_sorted(view):
            return everyone
        numbers = self.numbers[str(view.order)]
        sign = 1 if view.ascending else -1
        return sorted(everyone, key=lambda head: (np.isnan(numbers[head]), sign * numbers[head]))

    def is_sorted(self, view: View) -> bool:
        """Whether heads are to be sorted and what they are sorted by is measured."""
        return view.order in self.numbers

    def measure(self, name: str) -> None:
        """Measures a metric of every head; a thread may do it."""
        from attnviz.metrics.metrics import measure_heads

        measured = measure_heads(self.heads, (name,))
        self.numbers[name] = {place: each.values[name] for place, each in enumerate(measured)}

    def unnamed(self) -> list[int] | None:
        """The next attention call whose heads have no pattern yet, those of long maps left out."""
        small = (group for group in self.layers if _cells(self.heads[group[0]][0]) <= MAX_UNREQUESTED_CELLS)
        return next((group for group in small if group[0] not in self._values), None)

    def name(self, group: list[int]) -> None:
        """Measures every metric of the heads of one call, and says what they do; a thread may do it."""
        from attnviz.metrics.metrics import METRICS, measure_heads
        from attnviz.metrics.patterns import name_pattern

        for place, numbers in zip(group, measure_heads(self.heads[place] for place in group), strict=True):
            self._values[place] = numbers.values
            self.patterns[place] = name_pattern(numbers)
        if len(self._values) == len(self.heads):
            self.numbers |= {name: {place: each[name] for place, each in self._values.items()} for name in METRICS}


def _cells(maps: CellMaps) -> int:
    return len(maps.query_tokens) * len(maps.key_tokens)
