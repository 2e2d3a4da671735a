"""The heads that the inspector shows: those of a recording, and those that several of them make together."""

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

MAX_JOINED_CELLS = 4_000_000  # of a head whose words are joined
MAX_KEPT_UNITS = 1_024  # axes, by what their units are
MAX_NAMED = 6  # heads in the name of what they make
Together = Literal["difference", "mean", "max", "rollout"]
TOGETHER_WORDS = {"mean": "mean", "max": "maximum", "rollout": "rollout"}


class InspectedHeads:
    """The chosen heads of a recording, and what may be made of them.

    Attributes:
        heads: each head's attention call and its number there, then heads that are made of these; the place in this
            list stands for a head elsewhere.
        recorded: how many of them are the recording's.
        names: every head as ``layer.head``, told apart by its text where there are several.

    Raises:
        AttnvizError: if the two recordings' heads, queries or keys do not correspond, or what is selected is not there.
    """

    def __init__(self, recording: Recording, other: Recording | None, selection: Selection, by: str) -> None:
        self.heads: list[tuple[CellMaps, int]] = cell_heads(choose(recording, selection))
        self._partners: dict[CellMaps, CellMaps] = {}
        if other is not None:
            from attnviz.metrics.change import refuse_unlike

            refuse_unlike(recording, other)
            layers = {maps.layer for maps, _ in self.heads}
            pairs = zip(recording.maps, other.maps, strict=True)
            self._partners = {cell_maps(a): cell_maps(b) for a, b in pairs if a.layer in layers}
        self.recorded = len(self.heads)
        batch = len({maps.item for maps, _ in self.heads}) > 1
        self.names = [head_name(maps, head) + (f" text {maps.item}" if batch else "") for maps, head in self.heads]
        self._alike: dict[CellMaps, list[int]] = {}
        self._made: dict[tuple[str, tuple[int, ...]], int] = {}
        self._units, self._by = LruCache[Units](MAX_KEPT_UNITS), by

    def view_of(self, head: int, view: View) -> View:
        """What of the view a head can show: a difference where there is something that it differs from."""
        differs = self._differs(head)
        if head >= self.recorded:
            return replace(view, difference=differs, scores=False)
        return view if differs or not view.difference else replace(view, difference=False)

    def combine(self, heads: tuple[int, ...], how: Together) -> int:
        """The place of the head that several make together; it is made once.

        Raises:
            AttnvizError: if they cannot be combined so.
        """
        if (how, heads) not in self._made:
            name = self._named(heads, how)
            pairs = [self.heads[head] for head in heads]
            made = self._difference(pairs) if how == "difference" else self._reduced(sorted(pairs, key=_layer), how)
            self.heads.append((made, 0))
            self.names.append(name)
            self._made[how, heads] = len(self.heads) - 1
        return self._made[how, heads]

    def made_of(self, head: int) -> tuple[str, tuple[int, ...]]:
        """How a head was made of others, and of which; of itself where it is recorded."""
        return next((made for made, place in self._made.items() if place == head), ("", (head,)))

    def alike(self, head: int) -> list[int]:
        """The recorded heads over the same tokens as this one, call by call."""
        maps = self.heads[head][0]
        if maps not in self._alike:
            tokens = _texts(maps)
            same = (place for place in range(self.recorded) if _texts(self.heads[place][0]) == tokens)
            self._alike[maps] = list(_call_by_call(same, self.heads))
        return self._alike[maps]

    def joins(self, head: int) -> bool:
        """Whether the head is small enough for words to be joined and tokens hidden."""
        maps, _ = self.heads[head]
        return len(maps.query_tokens) * len(maps.key_tokens) <= MAX_JOINED_CELLS

    def units(self, head: int, view: View) -> tuple[Units, Units]:
        """What the rows and the columns of a head stand for."""
        maps, _ = self.heads[head]
        words, special = (view.words, view.special) if self.joins(head) else (False, True)
        return self._units_of(maps.query_tokens, words, special), self._units_of(maps.key_tokens, words, special)

    def shape(self, head: int, view: View) -> MapShape:
        """How many units a head has on each axis, and how wide their labels are."""
        rows, columns = self.units(head, view)
        return MapShape(len(rows), len(columns), rows.widest, columns.widest)

    def partner(self, maps: CellMaps) -> CellMaps | None:
        """The call that an attention call differs from, if there is one."""
        return self._partners.get(maps)

    def inspected(self, head: int) -> InspectedHead:
        """The maps of a head, and those that it differs from."""
        maps, number = self.heads[head]
        return InspectedHead(maps, number, self._partners.get(maps), len(self.made_of(head)[1]))

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
    """The heads of the first call, then those of the next."""
    calls: dict[int, list[int]] = {}
    for place in places:
        calls.setdefault(id(heads[place][0]), []).append(place)
    return (place for call in calls.values() for place in call)
