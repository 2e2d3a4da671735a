"""Collects the texts of several forward passes: a pass reads a new batch, or is a step that continues the last one.

A pass continues a text if the keys that it did not compute equal keys that earlier passes computed, by their marks.
This holds for any cache, and without one. The rows of such a pass are appended to the maps; any other pass brings new
texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.captured_call import CapturedCall, KeyMarks, joined_cells, largest_known
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.dense import DenseMaps
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.layer_maps import LONG_MAP_TOKENS, Window
from attnviz.maps.pooled import PooledMaps
from attnviz.text.tokens import Tokens

EQUAL_WEIGHTS = 1e-2  # the largest difference between weights of a row that is computed twice


@dataclass(frozen=True, eq=False)
class MapPlace:
    """The place of a call's map in the map of its text."""

    row: int  # the row of its first query
    column: int  # the column of its first key
    keys: int  # the number of its keys that belong to the text; unused places of a cache follow them
    is_whole_map: bool = False  # True if the call computed the whole map, without a cache
    has_equal_keys: bool = True  # True if marks show that its keys equal the earlier ones; False if marks are unknown


@dataclass(eq=False)
class StepRows:
    """The calls of one module in the forward passes that read one text."""

    calls: list[tuple[CapturedCall, MapPlace]]  # the calls whose rows make up the map, each with its place
    marks: KeyMarks | None  # the marks of all keys so far; ``None`` if unknown

    @classmethod
    def begin(cls, call: CapturedCall) -> "StepRows":
        """Returns the rows of a text whose first call is this one."""
        keys = _used_keys(call)
        return cls([(call, MapPlace(0, 0, keys, is_whole_map=True))], call.marks and call.marks.first(keys))

    @property
    def last(self) -> CapturedCall:
        """The latest call."""
        return self.calls[-1][0]

    @property
    def rows(self) -> int:
        """The number of queries so far."""
        call, place = self.calls[-1]
        return place.row + call.shape[2]

    @property
    def keys(self) -> int:
        """The number of keys so far."""
        place = self.calls[-1][1]
        return place.column + place.keys

    @property
    def is_pooled(self) -> bool:
        """True if single cells of a call were not kept."""
        return any(call.map_type is PooledMaps for call, _ in self.calls)

    @property
    def first_past_keys(self) -> int:
        """The number of keys before the first query; a cache filled earlier, or the module itself, provides them."""
        call, place = self.calls[0]
        return max(place.keys - call.shape[2], 0)

    def may_begin_text(self, call: CapturedCall) -> bool:
        """True if a call may begin another text: it reads no cached keys that are unknown.

        That holds for cross-attention, for a call with no more past keys than the first call had, and for one whose
        keys are exactly the keys so far.
        """
        return call.site.kind == "cross" or _past_keys(call) <= self.first_past_keys or self._has_no_new_key(call)

    def places(self, call: CapturedCall) -> list[MapPlace]:
        """Returns the possible places of a call in the map; an empty list if it cannot continue this text.

        Cross-attention comes below the last row, over the same keys. A call that reads no cached keys of this text
        replaces the whole map. A call that reads cached keys is appended, or overwrites the rows after those keys.
        """
        if call.shape[0] != self.last.shape[0] or call.heads != self.last.heads:
            return []
        if call.site.kind == "cross":
            after_last_row = MapPlace(self.rows, 0, call.shape[3])
            return self._place_if_keys_match(call, after_last_row, self.keys) if call.shape[3] == self.keys else []
        if _past_keys(call) > self.first_past_keys:
            return self._places_after_cached_keys(call)
        used_count = _used_keys(call)
        if used_count < self.keys:
            return []
        # Earlier rows must not see the keys by which it extends this map.
        if used_count > self.keys and cells_of(call, 0).visible[..., : self.rows, self.keys :].any():
            return []
        return self._place_if_keys_match(call, MapPlace(0, 0, used_count, is_whole_map=True), self.keys)

    def _places_after_cached_keys(self, call: CapturedCall) -> list[MapPlace]:
        """Returns the possible places of a call that reads cached keys: after the last row, or earlier."""
        past_count, used_count = _past_keys(call), _used_keys(call)
        if past_count > self.keys:
            return []
        place_at_end = MapPlace(self.rows, self.keys - past_count, used_count)
        earlier_place = MapPlace(past_count - self.first_past_keys, 0, used_count)
        places = self._place_if_keys_match(call, place_at_end, past_count)
        if past_count == self.keys:
            return places
        # Without a new key, only a call that repeats the rows belongs at the earlier place.
        if self._has_no_new_key(call) and not self._has_rows_at(call, earlier_place.row):
            return places
        return places + self._place_if_keys_match(call, earlier_place, past_count)

    def add(self, call: CapturedCall, place: MapPlace) -> None:
        """Adds a call at a place, and drops all earlier calls that begin at the row of the place or later.

        The marks of the call's keys replace the marks from the column of the place on, if both are known.
        """
        if place.is_whole_map:
            self.calls.clear()
        earlier_calls = [pair for pair in self.calls if pair[1].row < place.row]
        self.calls = [*earlier_calls, (call, place)]
        if self.marks is not None and call.marks is not None:
            self.marks = self.marks.first(place.column).followed_by(call.marks.first(place.keys))

    def joined(self) -> CapturedCall:
        """Returns one call with the rows of all calls; a single call is returned unchanged if it has no unused keys.

        The scale is ``None`` if the calls differ in it; the fidelity of a text is the largest known one.
        """
        if len(self.calls) == 1 and self.calls[0][1].keys == self.last.shape[3]:
            return self.last
        if self.is_pooled or self.rows * self.keys > LONG_MAP_TOKENS**2:
            raise AttnvizError(
                f"maps of {self.rows} x {self.keys} tokens over several forward passes are too long to be joined; "
                "run one forward pass over the whole text"
            )
        batch, heads, *_ = self.last.shape
        all_calls = [call for call, _ in self.calls]
        scales = {call.scale for call in all_calls}
        first_rows, *later_rows = [call.shape[2] for call in all_calls]
        ids = np.full((batch, self.rows), -1)
        for call, place in self.calls:
            ids[:, place.row : place.row + call.shape[2]] = -1 if call.ids is None else call.ids
        return replace(
            self.last,
            shape=(batch, heads, self.rows, self.keys),
            scale=scales.pop() if len(scales) == 1 else None,
            fidelity=[largest_known(call.fidelity[item] for call in all_calls) for item in range(batch)],
            map_type=DenseMaps,
            prompt=first_rows if later_rows and set(later_rows) == {1} else None,
            fields=[self._fields(item) for item in range(batch)],
            norms=None,  # they are in the fields
            ids=ids,
        )

    def _has_no_new_key(self, call: CapturedCall) -> bool:
        """True if marks show that the keys of a call are exactly the keys so far; False if marks are unknown."""
        if self.marks is None or call.marks is None or _used_keys(call) != self.keys:
            return False
        return self.marks.has_equal_keys(0, call.marks, self.keys)

    def _has_rows_at(self, call: CapturedCall, row: int) -> bool:
        """True if the weights of a call equal those of the rows from ``row`` on, in every text."""
        if self.is_pooled or call.map_type is PooledMaps:
            return True
        rows = slice(row, row + call.shape[2])
        for item in range(call.shape[0]):
            known_weights = self._fields(item)["weights"][:, rows]
            weights = cells_of(call, item).weights[..., : self.keys]
            if not np.allclose(known_weights, weights, atol=EQUAL_WEIGHTS):
                return False
        return True

    def _place_if_keys_match(self, call: CapturedCall, place: MapPlace, count: int) -> list[MapPlace]:
        """Returns a list of the place if the first keys of the call equal the keys there; else an empty list."""
        if self.marks is None or call.marks is None:
            return [replace(place, has_equal_keys=False)]
        return [place] if self.marks.has_equal_keys(place.column, call.marks, count) else []

    def _fields(self, item: int) -> dict[str, Any]:
        parts = []
        for call, place in self.calls:
            cells = cells_of(call, item)
            used_keys = ..., slice(place.keys)
            used_cells = Window(cells.scores[used_keys], cells.weights[used_keys], cells.visible[used_keys])
            rows, columns = slice(place.row, place.row + call.shape[2]), slice(place.column, place.column + place.keys)
            parts.append(((rows, columns), used_cells))
        joined_fields = joined_cells((len(self.last.heads), self.rows, self.keys), parts)
        all_fields = [call.fields_of(item) for call, _ in self.calls]
        if not all("value_norms" in fields for fields in all_fields):
            return joined_fields
        norms = np.zeros((len(self.last.heads), self.keys), dtype=np.float32)
        for fields, (_, place) in zip(all_fields, self.calls, strict=True):
            norms[:, place.column : place.column + place.keys] = fields["value_norms"][:, : place.keys]
        fidelity = max(fields["value_norms_fidelity"] for fields in all_fields)
        return joined_fields | {"value_norms": norms, "value_norms_fidelity": fidelity}


def cells_of(call: CapturedCall, item: int) -> Window:
    """Returns the scores, weights and visible cells of one text of a call; computes them if it is kept as factors.

    The call must not be kept as blocks, since single cells of those are not known.
    """
    fields = call.fields[item]
    if call.map_type is not FactoredMaps:
        return Window(fields["scores"], fields["weights"], fields["visible"])
    _, _, queries, keys = call.shape
    maps = FactoredMaps(
        layer=call.site.layer,
        module=call.site.module,
        heads=call.heads,
        query_tokens=Tokens.numbered(queries),
        key_tokens=Tokens.numbered(keys),
        **fields,
    )
    return maps.window(call.heads, slice(0, queries), slice(0, keys))


def _used_keys(call: CapturedCall) -> int:
    """Returns the number of keys that belong to the text: those up to the last visible one, but not fewer than queries.

    A cache may have unused keys after them. All keys count if none is visible, or if the call is kept as factors or
    blocks.
    """
    _, _, queries, keys = call.shape
    if call.map_type is not DenseMaps:
        return keys
    visible = np.any([text["visible"].reshape(-1, keys).any(axis=0) for text in call.fields], axis=0)
    last_key = int(np.flatnonzero(visible)[-1]) + 1 if visible.any() else keys
    return max(last_key, min(queries, keys))


def _past_keys(call: CapturedCall) -> int:
    """Returns the number of used keys that come before the call's first query, such as cached keys."""
    return max(_used_keys(call) - call.shape[2], 0)


Key = tuple[CallSite, int]  # identifies a call in a pass: its site, and the number of earlier calls of that site


@dataclass(eq=False)
class _Batch:
    """The forward passes over the texts of one batch."""

    rows: dict[Key, StepRows]
    passes: int = 1

    @property
    def size(self) -> int:
        return max((site.run + 1) * rows.last.shape[0] for (site, _), rows in self.rows.items())

    def add_if_continued(self, calls: dict[Key, CapturedCall]) -> bool:
        """Adds the calls of another pass to the rows if the pass continues these texts; True if it does."""
        if not calls.keys() <= self.rows.keys():
            return False
        possible_places = {key: self.rows[key].places(call) for key, call in calls.items()}
        places = _consistent_places(possible_places, self.rows, calls)
        if places is None:
            return False
        self.passes += 1
        for key, place in places.items():
            self.rows[key].add(calls[key], place)
        return True


class TextCollector:
    """Collects the calls of forward passes, and joins those of one text."""

    def __init__(self) -> None:
        self.batches: list[_Batch] = []
        self.passes = 0
        self.refusal: AttnvizError | None = None

    def add(self, calls: Sequence[CapturedCall]) -> None:
        """Adds the calls of a pass to the last batch if the pass continues it, else as a new batch.

        A new batch that reads keys from a cache that no earlier pass computed sets ``refusal``, an error that
        `TextCollector.calls` raises; later passes are then ignored. A pass without calls adds nothing.
        """
        if not calls or self.refusal is not None:
            return
        self.passes += 1
        calls_by_key: dict[Key, CapturedCall] = {}
        for call in calls:
            number = sum(site == call.site for site, _ in calls_by_key)
            calls_by_key[call.site, number] = call
        if self.batches and self.batches[-1].add_if_continued(calls_by_key):
            return
        self.refusal = self._unknown_cache_error(calls_by_key)
        self.batches.append(_Batch({key: StepRows.begin(call) for key, call in calls_by_key.items()}))

    def calls(self) -> list[CapturedCall]:
        """Returns one call for each batch and call site, with the number of the batch's first text.

        A module that attends several times in a pass has several sites; the calls of several passes are joined.
        """
        if self.refusal is not None:
            raise self.refusal
        joined_calls, first_item = [], 0
        for batch in self.batches:
            for rows in batch.rows.values():
                call = rows.last if batch.passes == 1 else rows.joined()
                joined_calls.append(replace(call, first_item=first_item, passes=batch.passes))
            first_item += batch.size
        return joined_calls

    def remarks(self) -> tuple[str, ...]:
        """Returns one remark on the texts that the passes read; empty if there were fewer than two passes."""
        if self.passes < 2:
            return ()
        texts = sum(batch.size for batch in self.batches)
        steps = max(batch.passes for batch in self.batches)
        if steps == 1:
            return (f"{texts} texts from {self.passes} forward passes, in the order in which they ran.",)
        plural = "s" if texts > 1 else ""
        return (f"{texts} text{plural} from {self.passes} forward passes: each decoding step adds its rows.",)

    def _unknown_cache_error(self, calls: dict[Key, CapturedCall]) -> AttnvizError | None:
        """Returns the error for a pass that reads unknown cached keys; ``None`` if the pass may begin a text."""
        first_rows = self.batches[0].rows if self.batches else {}
        if all(first_rows[key].may_begin_text(call) for key, call in calls.items() if key in first_rows):
            return None
        return AttnvizError(
            f"forward pass {self.passes} reads keys from a cache that no forward pass before it computed in this "
            "order, as beam search does; use greedy decoding, sampling, or one forward pass over the whole text"
        )


def _consistent_places(
    possible_places: dict[Key, list[MapPlace]], rows: dict[Key, StepRows], calls: dict[Key, CapturedCall]
) -> dict[Key, MapPlace] | None:
    """Returns one place for each call of a pass: its whole map, or rows that begin at the same row in all calls."""
    is_proven = any(place.has_equal_keys for places in possible_places.values() for place in places)
    if not all(possible_places.values()) or not is_proven:
        return None
    self_places = {key: places for key, places in possible_places.items() if key[0].kind == "self"}
    step_places = [places for places in self_places.values() if not places[0].is_whole_map]
    first_call_rows = [place.row for place in step_places[0]] if step_places else []
    rows_of_calls = [{place.row for place in places} for places in step_places]
    common_rows = [row for row in first_call_rows if all(row in call_rows for call_rows in rows_of_calls)]
    if step_places and not common_rows:
        return None
    has_new_keys = any(places[0].keys > rows[key].keys for key, places in self_places.items() if places[0].is_whole_map)
    if self_places and not step_places and not has_new_keys:
        return None
    chosen_places = {}
    for key, places in possible_places.items():
        if key[0].kind != "cross":
            chosen_places[key] = next(place for place in places if place.is_whole_map or place.row == common_rows[0])
            continue
        row = rows[key].rows
        if common_rows:
            row = common_rows[0]
        elif self_places or calls[key].shape[2] > row:  # all rows are computed again
            row = 0
        chosen_places[key] = replace(places[0], row=row, is_whole_map=row == 0)
    return chosen_places
