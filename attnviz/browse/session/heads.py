"""Holds the heads that the inspector shows: the heads of a recording, and combinations of several heads."""

from dataclasses import replace
from functools import cached_property
from typing import Literal

from rich.cells import cell_len

from attnviz.browse.session.blocks import InspectedHead, LruCache
from attnviz.browse.session.state import View
from attnviz.maps.heads import cell_heads, chosen_heads, head_name
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.report.picture.structure import LeftOutKeys, left_out_keys
from attnviz.text.head_name import parse_head_name
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, is_padding
from attnviz.text.units import Units

MAX_JOINED_CELLS = 4_000_000  # larger maps show single tokens only: joining reads every cell
MAX_KEPT_UNITS = 1_024  # axes in the cache
Combination = Literal["difference", "mean", "max", "rollout"]
MAX_LINES = 5  # of text under a map
MEAN_GAP = 4  # columns that stay free at the end of a line


class InspectedHeads:
    """The selected heads of a recording, and combinations of several heads.

    Elsewhere a head is an index into ``heads``, which has the attention call and the number of each: first of the
    ``recorded_count`` recorded heads, then of combinations. Names are ``layer.head``, with the number of the text if
    the recording has several texts.

    Raises:
        AttnvizError: if the heads, queries or keys of the two recordings differ, or a selected head does not exist.
    """

    def __init__(self, recording: Recording, other: Recording | None, selection: Selection, unit_name: str) -> None:
        self.chosen_heads = chosen_heads(recording, selection)
        self.heads: list[tuple[CellMaps, int]] = cell_heads(self.chosen_heads)
        self._partners: dict[CellMaps, CellMaps] = {}
        if other is not None:
            from attnviz.metrics.change import refuse_mismatch

            refuse_mismatch(recording, other)
            layers = {maps.layer for maps, _ in self.heads}
            pairs = zip(recording.maps, other.maps, strict=True)
            self._partners = {
                cell_maps(maps_of_this): cell_maps(maps_of_other)
                for maps_of_this, maps_of_other in pairs
                if maps_of_this.layer in layers
            }
        self.recorded_count = len(self.heads)
        has_several_texts = len({maps.item for maps, _ in self.heads}) > 1
        self.names = [
            head_name(maps, head) + (f" text {maps.item}" if has_several_texts else "") for maps, head in self.heads
        ]
        self._heads_over_tokens_of: dict[CellMaps, list[int]] = {}
        self._head_of_combination: dict[tuple[str, tuple[int, ...]], int] = {}
        self._text_lines: dict[int, int] = {}
        self._units, self._unit_name = LruCache[Units](MAX_KEPT_UNITS), unit_name

    def view_of(self, head: int, view: View) -> View:
        """Returns the view with its toggles changed to those that apply to the head.

        A combination has no scores, and shows a difference only if it is one. A recorded head shows a difference only
        if it has a partner. A map that is too large to join shows single tokens.
        """
        has_partner = self.heads[head][0] in self._partners
        if not self.can_join(head):
            view = replace(view, words=False, special=True)
        if head >= self.recorded_count:
            return replace(view, difference=has_partner, scores=False)
        return view if has_partner or not view.difference else replace(view, difference=False)

    def heads_called(self, name: str) -> list[int]:
        """Returns the heads with a name, or else all recorded heads that its numbers and its part of the model fit."""
        if name in self.names:
            return [self.names.index(name)]
        parsed = parse_head_name(name)
        if parsed is None:
            return []
        known_heads = [maps.known_head(number) for maps, number in self.heads[: self.recorded_count]]
        return [
            index
            for index, known in enumerate(known_heads)
            if (known.layer, known.head) == parsed[:2] and known.fits(parsed.part)
        ]

    def title(self, head: int) -> str:
        """Returns the name of a head after the word "head"; the name alone of a combination."""
        return self.names[head] if head >= self.recorded_count else f"head {self.names[head]}"

    def combine(self, heads: tuple[int, ...], combination: Combination) -> int:
        """Returns the index of a combination of heads; adds the combination to ``heads`` and ``names`` if it is new."""
        if (combination, heads) not in self._head_of_combination:
            from attnviz.metrics.combine import combined_name, reduce_heads

            names, pairs = [self.names[head] for head in heads], [self.heads[head] for head in heads]
            if combination == "difference":
                name = f"{names[1]} − {names[0]}"
                combined_maps, partner = (reduce_heads([pair], "mean") for pair in pairs)
                self._partners[combined_maps] = partner
            else:
                name = combined_name(combination, names)
                combined_maps = reduce_heads(sorted(pairs, key=lambda pair: pair[0].layer), combination)
            self.heads.append((combined_maps, 0))  # these maps have one head only
            self.names.append(name)
            self._head_of_combination[combination, heads] = len(self.heads) - 1
        return self._head_of_combination[combination, heads]

    def combination_of(self, head: int) -> tuple[str, tuple[int, ...]]:
        """Returns the name of the combination that a head is, such as ``mean``, and its heads.

        For a recorded head, these are "" and the head itself.
        """
        return next((key for key, index in self._head_of_combination.items() if index == head), ("", (head,)))

    def heads_over_same_tokens(self, head: int) -> list[int]:
        """Returns the recorded heads with the same query and key tokens as this one, grouped by attention call."""
        maps = self.heads[head][0]
        if maps not in self._heads_over_tokens_of:
            tokens = _tokens_key(maps)
            calls: dict[int, list[int]] = {}
            for index, (other_maps, _) in enumerate(self.heads[: self.recorded_count]):
                if _tokens_key(other_maps) == tokens:
                    calls.setdefault(id(other_maps), []).append(index)
            self._heads_over_tokens_of[maps] = [index for call in calls.values() for index in call]
        return self._heads_over_tokens_of[maps]

    def can_join(self, head: int) -> bool:
        """True if the head's map is small enough to join tokens or to hide special ones."""
        maps, _ = self.heads[head]
        return len(maps.query_tokens) * len(maps.key_tokens) <= MAX_JOINED_CELLS

    def units(self, head: int, view: View) -> tuple[Units, Units]:
        """Returns the units of a head's rows and columns: tokens, joined or without special ones if the view says so.

        A map that is too large to join always has single tokens, special ones included.
        """
        maps, _ = self.heads[head]
        words, special = (view.words, view.special) if self.can_join(head) else (False, True)
        return self._units_of(maps.query_tokens, words, special), self._units_of(maps.key_tokens, words, special)

    def _units_of(self, tokens: Tokens, words: bool, special: bool) -> Units:
        special = special and not (isinstance(tokens.canvas, Sound) and is_padding(tokens, len(tokens) - 1))
        unit_name = self._unit_name if words else "tokens"
        return self._units.get((tokens, words, special), lambda: Units.of(tokens, unit_name, special))

    def text_lines(self, columns: int) -> int:
        """Returns an estimate of the lines that the longest text of a recorded head needs, at most `MAX_LINES`."""
        if columns not in self._text_lines:
            maps_of_heads = [maps for maps, _ in self.heads[: self.recorded_count]]
            axes = {id(tokens): tokens for maps in maps_of_heads for tokens in (maps.query_tokens, maps.key_tokens)}
            used_columns, lines = max(1, columns - 2 - MEAN_GAP), 0
            for tokens in axes.values():
                text_columns = sum(1 + cell_len(label) for label in tokens.labels[: MAX_LINES * columns])
                lines = max(lines, min(MAX_LINES, -(-text_columns // used_columns)))
            self._text_lines[columns] = lines
        return self._text_lines[columns]

    @cached_property
    def left_out(self) -> LeftOutKeys | None:
        """The keys that thumbnails leave out at first, since most heads rest on them; ``None`` if there are none."""
        return left_out_keys(self.chosen_heads)

    @cached_property
    def has_images(self) -> bool:
        """True if keys of a recorded head are patches of images."""
        keys = {id(maps.key_tokens): maps.key_tokens for maps, _ in self.heads[: self.recorded_count]}
        return any(isinstance(medium, Image) for tokens in keys.values() for medium in tokens.media)

    def inspected_head(self, head: int) -> InspectedHead:
        """Returns the attention call and number of a head, its partner, and the number of heads that it combines."""
        maps, number = self.heads[head]
        return InspectedHead(maps, number, self._partners.get(maps), len(self.combination_of(head)[1]))


def _tokens_key(maps: CellMaps) -> tuple[object, ...]:
    """Returns values that are equal for two attention calls over the same queries and keys."""
    return maps.kind, maps.item, maps.query_tokens.labels, maps.key_tokens.labels
