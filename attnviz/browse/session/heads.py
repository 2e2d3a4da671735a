"""Holds the heads that the inspector shows: those of a recording, and combinations of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from attnviz.browse.session.blocks import InspectedHead
from attnviz.browse.session.cache import LruCache
from attnviz.browse.session.state import MapShape, View
from attnviz.maps.heads import cell_heads, choose, head_name
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

MAX_JOINED_CELLS = 4_000_000  # larger maps show single tokens only: joining reads every cell
MAX_KEPT_UNITS = 1_024  # axes in the cache
MAX_NAMED = 6  # heads in the name of a combination
Together = Literal["difference", "mean", "max", "rollout"]
TOGETHER_WORDS = {"mean": "mean", "max": "maximum", "rollout": "rollout"}


class InspectedHeads:
    """The chosen heads of a recording, and combinations of them.

    Args:
        recording: the recording.
        other: a recording to compare it with; ``None`` for no comparison.
        selection: the heads to show.
        by: the units that tokens are joined to.

    Attributes:
        heads: the attention call and the number of each head, first the recorded heads, then combinations; elsewhere
            an index into this list stands for a head.
        recorded: the number of recorded heads.
        names: the name of each head, ``layer.head``, with the number of its text if there are several.

    Raises:
        AttnvizError: if the heads, queries or keys of the two recordings do not correspond, or a selected head is not
            there.
    """

    def __init__(self, recording: Recording, other: Recording | None, selection: Selection, by: str) -> None:
        self.heads: list[tuple[CellMaps, int]] = cell_heads(choose(recording, selection))
        self._partners: dict[CellMaps, CellMaps] = {}
        if other is not None:
            from attnviz.metrics.change import refuse_mismatch

            refuse_mismatch(recording, other)
            layers = {maps.layer for maps, _ in self.heads}
            pairs = zip(recording.maps, other.maps, strict=True)
            self._partners = {cell_maps(a): cell_maps(b) for a, b in pairs if a.layer in layers}
        self.recorded = len(self.heads)
        batch = len({maps.item for maps, _ in self.heads}) > 1
        self.names = [head_name(maps, head) + (f" text {maps.item}" if batch else "") for maps, head in self.heads]
        self._alike: dict[CellMaps, list[int]] = {}
        self._combined: dict[tuple[str, tuple[int, ...]], int] = {}
        self._units, self._by = LruCache[Units](MAX_KEPT_UNITS), by

    def view_of(self, head: int, view: View) -> View:
        """Returns the view without toggles that the head cannot show, such as a difference from nothing."""
        differs = self._differs(head)
        if head >= self.recorded:
            return replace(view, difference=differs, scores=False)
        return view if differs or not view.difference else replace(view, difference=False)

    def combine(self, heads: tuple[int, ...], how: Together) -> int:
        """Returns the index of a combination of heads, which is computed once.

        Raises:
            AttnvizError: if the heads cannot be combined in this way.
        """
        if (how, heads) not in self._combined:
            name = self._named(heads, how)
            pairs = [self.heads[head] for head in heads]
            combined = self._difference(pairs) if how == "difference" else self._reduced(sorted(pairs, key=_layer), how)
            self.heads.append((combined, 0))
            self.names.append(name)
            self._combined[how, heads] = len(self.heads) - 1
        return self._combined[how, heads]

    def combination_of(self, head: int) -> tuple[str, tuple[int, ...]]:
        """Returns how a head was combined and its sources; "" and the head itself for a recorded head."""
        return next((each for each, place in self._combined.items() if place == head), ("", (head,)))

    def alike(self, head: int) -> list[int]:
        """Returns the recorded heads over the same tokens as this one, call by call."""
        maps = self.heads[head][0]
        if maps not in self._alike:
            tokens = _texts(maps)
            same = (place for place in range(self.recorded) if _texts(self.heads[place][0]) == tokens)
            self._alike[maps] = list(_call_by_call(same, self.heads))
        return self._alike[maps]

    def joins(self, head: int) -> bool:
        """True if the head's map is small enough to join words and hide special tokens."""
        maps, _ = self.heads[head]
        return len(maps.query_tokens) * len(maps.key_tokens) <= MAX_JOINED_CELLS

    def units(self, head: int, view: View) -> tuple[Units, Units]:
        """Returns the units of a head's rows and columns: tokens or groups of them."""
        maps, _ = self.heads[head]
        words, special = (view.words, view.special) if self.joins(head) else (False, True)
        return self._units_of(maps.query_tokens, words, special), self._units_of(maps.key_tokens, words, special)

    def shape(self, head: int, view: View) -> MapShape:
        """Returns the number of units on each axis of a head, and the width of their labels."""
        rows, columns = self.units(head, view)
        return MapShape(len(rows), len(columns), rows.widest, columns.widest)

    def partner(self, maps: CellMaps) -> CellMaps | None:
        """Returns the attention call to subtract from; ``None`` if there is none."""
        return self._partners.get(maps)

    def inspected(self, head: int) -> InspectedHead:
        """Returns the maps of a head, with its partner in the other recording."""
        maps, number = self.heads[head]
        return InspectedHead(maps, number, self._partners.get(maps), len(self.combination_of(head)[1]))

    def _differs(self, head: int) -> bool:
        return self.heads[head][0] in self._partners

    def _named(self, heads: tuple[int, ...], how: Together) -> str:
        names = [self.names[head] for head in heads]
        if how == "difference":
            return f"{names[1]} − {names[0]}"
        return f"{TOGETHER_WORDS[how]} of {', '.join(names) if len(names) <= MAX_NAMED else f'{len(names)} heads'}"

    def _difference(self, pairs: list[tuple[CellMaps, int]]) -> CellMaps:
        before, after = (self._reduced([pair], "mean") for pair in pairs)
        self._partners[before] = after
        return before

    def _reduced(self, pairs: list[tuple[CellMaps, int]], how: str) -> CellMaps:
        from attnviz.metrics.combine import reduce_heads

        return reduce_heads(pairs, how)

    def _units_of(self, tokens: Tokens, words: bool, special: bool) -> Units:
        return self._units.get(
            (tokens, words, special), lambda: Units.of(tokens, self._by if words else "tokens", special)
        )


def _texts(maps: CellMaps) -> tuple[object, ...]:
    return maps.kind, maps.item, maps.query_tokens.labels, maps.key_tokens.labels


def _layer(pair: tuple[CellMaps, int]) -> int:
    return pair[0].layer


def _call_by_call(places: Iterable[int], heads: list[tuple[CellMaps, int]]) -> Iterable[int]:
    """Returns heads grouped by attention call: all of the first call, then all of the next."""
    calls: dict[int, list[int]] = {}
    for place in places:
        calls.setdefault(id(heads[place][0]), []).append(place)
    return (place for call in calls.values() for place in call)
