"""Joins the rows of one module's calls in several forward passes to the map of each text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.capture.assembly.captured_call import CapturedCall, joined_cells, largest_known
from attnviz.capture.assembly.key_marks import KeyMarks
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import LONG_MAP_TOKENS, Window
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.visibility import shared_or_per_head
from attnviz.text.tokens import Tokens

EQUAL_WEIGHTS = 1e-2  # the largest difference between weights of a row that is computed twice


@dataclass(frozen=True, eq=False)
class MapPlace:
    """The place of a call's rows and keys in the map of its text."""

    # The place of its first query among the tokens of the text; its row, in cross-attention
    position: int
    column: int  # the column of its first key, if its keys stand in the order of the text
    keys: int  # the number of its keys that belong to the text; unused places of a cache follow them
    # ``(texts, 1 or key heads, keys)``, the column of each key, -1 if it is hidden; ``None`` if they stand in order
    columns: IntArray | None = None
    changed_keys: int = 0  # the number of cached keys that differ a little from those computed
    is_whole_map: bool = False  # True if the call computed the whole map, without a cache
    is_earliest: bool = False  # True if dropped keys leave the position open: it is this one or a later one
    has_equal_keys: bool = True  # True if marks show that its keys equal the earlier ones; False if marks are unknown

    def moved_to(self, position: int) -> "MapPlace":
        """Returns the place with another position; its own keys move with it, as they are the last columns."""
        columns = self.columns
        if columns is not None:
            columns = np.where(columns >= self.position, columns + (position - self.position), columns)
        return replace(self, position=position, columns=columns, is_earliest=False)


@dataclass(frozen=True, eq=False)
class _RowsOfCall:
    """The rows of one call in the map of a text."""

    call: CapturedCall
    texts: tuple[int, ...]  # for each text, its number in the batch of the call
    place: MapPlace
    rows: int  # the number of its queries that count; the later ones were taken back

    def before(self, position: int, *, is_self: bool) -> "_RowsOfCall":
        """Returns the part without queries from a position on; self-attention also loses the keys from there on."""
        place, rows = self.place, min(self.rows, position - self.place.position)
        if is_self and place.columns is not None:
            place = replace(place, columns=np.where(place.columns < position, place.columns, -1))
        elif is_self:
            place = replace(place, keys=min(place.keys, position - place.column))
        return replace(self, place=place, rows=rows)


@dataclass(frozen=True, eq=False)
class StepRows:
    """The calls of one module in the forward passes that read one batch of texts."""

    parts: tuple[_RowsOfCall, ...]  # the calls whose rows make up the maps, in the order of their rows
    marks: KeyMarks | None  # the marks of all keys so far, as they were computed; ``None`` if unknown
    keys: int  # the number of keys so far
    changed_keys: int = 0  # the largest number of cached keys that differed from those computed

    @classmethod
    def begin(cls, call: CapturedCall) -> "StepRows":
        """Returns the rows of texts whose first call is this one."""
        keys = call.used_keys
        position = 0 if call.site.kind == "cross" else call.past_keys
        part = _RowsOfCall(
            call, tuple(range(call.shape[0])), MapPlace(position, 0, keys, is_whole_map=True), call.shape[2]
        )
        return cls((replace(part, call=replace(call, marks=None)),), call.marks and call.marks.first(keys), keys)

    @property
    def texts(self) -> int:
        """The number of texts."""
        return len(self.parts[-1].texts)

    @property
    def start(self) -> int:
        """The position of the first row: a cache that was filled earlier, or the module itself, has keys before it."""
        return self.parts[0].place.position

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.parts[-1].place.position + self.parts[-1].rows

    def of_texts(self, texts: Sequence[int]) -> "StepRows":
        """Returns the rows of these texts, each of which may be named several times."""
        parts = tuple(replace(part, texts=tuple(part.texts[text] for text in texts)) for part in self.parts)
        return replace(self, parts=parts, marks=self.marks and self.marks.of_texts(texts))

    def before(self, position: int, *, is_self: bool) -> "StepRows":
        """Returns the rows before a position; self-attention also loses the keys from there on."""
        parts = tuple(part.before(position, is_self=is_self) for part in self.parts if part.place.position < position)
        if not is_self:
            return replace(self, parts=parts)
        return replace(self, parts=parts, marks=self.marks and self.marks.first(position), keys=position)

    def places(self, call: CapturedCall) -> list[MapPlace]:
        """Returns the possible places of a call whose keys stand in the order of the text; empty if there are none.

        Cross-attention comes below the last row, over the same keys. A call that reads no cached keys of this text
        replaces the whole map. A call that reads cached keys is appended, or begins after some of the keys.
        """
        if call.shape[0] != self.texts or call.heads != self.parts[-1].call.heads:
            return []
        past_count = call.past_keys
        if call.site.kind == "cross" or past_count <= self.start:
            place = self._place_with_all_keys(call)
            return [] if place is None else [place]
        if past_count > self.keys:
            return []
        has_marks = self.marks is not None and call.marks is not None
        columns = [0, self.keys - past_count]
        if self.marks is not None and call.marks is not None:
            columns = self.marks.starts_of(call.marks, past_count)
        # Keys without positions may be alike: a window that has moved on stays at the end, other caches at the start.
        has_moved = self.parts[-1].place.column > 0
        places = [
            MapPlace(column + past_count, column, call.used_keys, has_equal_keys=has_marks)
            for column in sorted(dict.fromkeys(columns), reverse=has_moved)
        ]
        # Without a new key, only a call that computes the rows again belongs there.
        return [place for place in places if not self._has_keys_at(call, place) or self._has_rows_at(call, place)]

    def _place_with_all_keys(self, call: CapturedCall) -> MapPlace | None:
        """Returns the place of a call that has all keys so far: of cross-attention, or of a pass without a cache."""
        used_count, is_cross = call.used_keys, call.site.kind == "cross"
        has_marks = self.marks is not None and call.marks is not None
        if self.marks is not None and call.marks is not None and 0 not in self.marks.starts_of(call.marks, self.keys):
            return None
        if is_cross:
            fits = call.shape[3] == self.keys
            return MapPlace(self.end, 0, self.keys, has_equal_keys=has_marks) if fits else None
        # Earlier rows must not see the keys by which it extends this map.
        if used_count < self.keys or (used_count > self.keys and call.map_type is PooledMaps):
            return None
        position = call.past_keys
        if used_count > self.keys and cells_of(call, 0).visible[..., : self.end - position, self.keys :].any():
            return None
        return MapPlace(position, 0, used_count, is_whole_map=True, has_equal_keys=has_marks)

    def places_of_changed_cache(self, call: CapturedCall) -> list[MapPlace]:
        """Returns the possible place of a call whose cache dropped, reordered or rounded keys; empty without any."""
        used_count, past_count, queries = call.used_keys, call.past_keys, call.shape[2]
        if self.marks is None or call.marks is None or call.site.kind == "cross":
            return []
        visible = np.ones((queries, call.shape[3]), dtype=bool)
        if call.map_type is DenseMaps:
            visible = np.any([text["visible"].reshape(-1, *visible.shape).any(axis=0) for text in call.fields], axis=0)
        # Keys that more queries see come earlier, as in a ring, whose newest keys may stand before older ones.
        keys = [key for key in range(used_count) if visible[:, key].any()]
        keys.sort(key=lambda key: -int(visible[:, key].sum()))
        known_columns = self.marks.columns_of(call.marks, keys, queries)
        if known_columns is not None:
            new_numbers = (known_columns < 0).cumsum(axis=-1) - 1
            columns = np.full((*known_columns.shape[:2], call.shape[3]), -1)
            columns[..., keys] = np.where(known_columns < 0, self.keys + new_numbers, known_columns)
            earliest = int(known_columns.max()) + 1
            place = MapPlace(self.keys, 0, used_count, columns)
            return [replace(place.moved_to(earliest), is_earliest=True)]
        if past_count > self.keys:
            return []
        column = self.keys - past_count
        changed_keys = self.marks.changed_keys(column, call.marks, past_count)
        if changed_keys is None:
            return []
        return [MapPlace(self.keys, column, used_count, changed_keys=changed_keys)]

    def repeats_rows_in(self, call: CapturedCall, place: MapPlace) -> bool:
        """True if a call computes all rows from its place on again, by its keys."""
        return self._has_keys_at(call, place) and self.end - place.position <= call.shape[2]

    def _has_keys_at(self, call: CapturedCall, place: MapPlace) -> bool:
        """True if marks show that all keys of a call, its own among them, are known at a place before the end."""
        if place.columns is not None or self.marks is None or call.marks is None or place.position >= self.end:
            return False
        count = min(place.keys, self.keys - place.column)
        return place.column in self.marks.starts_of(call.marks, count)

    def _has_rows_at(self, call: CapturedCall, place: MapPlace) -> bool:
        """True if the weights of a call equal those of the rows from a place on, in every text."""
        if any(each.map_type is PooledMaps for each in (call, *(part.call for part in self.parts))):
            return True
        first, count = max(place.position, self.start), min(self.end - place.position, call.shape[2])
        keys = min(place.keys, self.keys - place.column)
        for text in range(self.texts):
            known_weights = self._fields(text)["weights"][:, first - self.start : place.position + count - self.start]
            known_weights = known_weights[..., place.column : place.column + keys]
            weights = cells_of(call, text).weights[:, first - place.position : count, :keys]
            if not np.allclose(known_weights, weights, atol=EQUAL_WEIGHTS):
                return False
        return True

    def can_join(self, call: CapturedCall, place: MapPlace) -> bool:
        """True if the map with the rows of a call is not too long to be joined, and all single cells are known."""
        if place.is_whole_map:
            return True
        rows = place.position + call.shape[2] - self.start
        keys = self.keys if call.site.kind == "cross" else place.position + call.shape[2]
        joined_calls = call, self.parts[0].call  # none of several parts is pooled, for they were joined
        return rows * keys <= LONG_MAP_TOKENS**2 and not any(each.map_type is PooledMaps for each in joined_calls)

    def followed_by(self, call: CapturedCall, place: MapPlace) -> "StepRows":
        """Returns the rows before a place, followed by those of a call."""
        is_self, queries = call.site.kind == "self", call.shape[2]
        if place.is_whole_map:
            return StepRows.begin(call)
        earlier = self if place.position >= self.end else self.before(place.position, is_self=is_self)
        part = _RowsOfCall(replace(call, marks=None), tuple(range(call.shape[0])), place, queries)
        marks = earlier.marks if call.marks is not None else None
        if is_self and marks is not None and call.marks is not None:
            numbers = call.marks.numbers
            if place.columns is None:
                numbers = numbers[:, :, max(place.keys - queries, 0) : place.keys]
            else:  # the new keys have the last columns
                groups = place.columns.shape[1]
                numbers = numbers if groups == 1 else numbers[:, :: numbers.shape[1] // groups]
                new_keys = place.columns.argsort(axis=-1)[..., -queries:]
                numbers = np.take_along_axis(numbers, new_keys[..., None], axis=2)
            marks = marks.followed_by(KeyMarks(numbers, call.marks.tolerance))
        return StepRows(
            (*earlier.parts, part),
            marks,
            place.position + queries if is_self else self.keys,
            max(self.changed_keys, place.changed_keys),
        )

    def joined(self) -> CapturedCall:
        """Returns one call with the rows of all calls; a single call is returned unchanged if all of it counts.

        The scale is ``None`` if the calls differ in it; the fidelity of a text is the largest known one.
        """
        last = self.parts[-1]
        is_all = last.rows == last.call.shape[2] and last.place.keys == last.call.shape[3]
        if len(self.parts) == 1 and is_all and last.texts == tuple(range(last.call.shape[0])):
            return last.call
        scales = {part.call.scale for part in self.parts}
        first_rows, *later_rows = [part.rows for part in self.parts]
        ids = np.full((self.texts, self.end - self.start), -1)
        for part in self.parts:
            if part.call.ids is not None:
                first_row = part.place.position - self.start
                ids[:, first_row : first_row + part.rows] = part.call.ids[list(part.texts), : part.rows]
        all_norms = [part.call.norms for part in self.parts]
        return replace(
            last.call,
            shape=(self.texts, len(last.call.heads), self.end - self.start, self.keys),
            scale=scales.pop() if len(scales) == 1 else None,
            fidelity=[
                largest_known(part.call.fidelity[part.texts[text]] for part in self.parts) for text in range(self.texts)
            ],
            tolerance=max(part.call.tolerance for part in self.parts),
            map_type=DenseMaps,
            prompt=first_rows if later_rows and set(later_rows) == {1} else None,
            fields=[self._fields(text) for text in range(self.texts)],
            norms=next(
                (norms for norms in all_norms if norms is not None and norms.refusal), None
            ),  # else in the fields
            sinks=self._sinks(),
            ids=ids,
        )

    def _sinks(self) -> list[FloatArray] | None:
        """Returns the scores of a sink in all rows of each text; ``None`` unless all calls have one."""
        heads, sinks = len(self.parts[-1].call.heads), []
        for text in range(self.texts):
            scores = np.full((heads, self.end - self.start), -np.inf, dtype=np.float32)
            for part in self.parts:
                if part.call.sinks is None:
                    return None
                first_row = part.place.position - self.start
                scores[:, first_row : first_row + part.rows] = part.call.sinks[part.texts[text]][:, : part.rows]
            sinks.append(scores)
        return sinks

    def _fields(self, text: int) -> dict[str, Any]:
        heads = len(self.parts[-1].call.heads)
        cells_of_parts = []
        for part in self.parts:
            call, place, item = part.call, part.place, part.texts[text]
            first_row = place.position - self.start
            rows, columns = slice(first_row, first_row + part.rows), slice(place.column, place.column + place.keys)
            cells = cells_of(call, item)
            if place.columns is None:
                scores, weights, visible = cells.scores, cells.weights, cells.visible
                part_of_call = ..., slice(part.rows), slice(place.keys)
                cells = Window(scores[part_of_call], weights[part_of_call], visible[part_of_call])
            else:
                columns, shape = slice(0, self.keys), (heads, part.rows, self.keys)
                scores, weights = np.full(shape, np.nan, np.float32), np.zeros(shape, np.float32)
                visible = np.zeros(shape, dtype=bool)
                visible_to_call = np.broadcast_to(cells.visible, (heads, *cells.visible.shape[-2:]))
                for head, head_columns in enumerate(_columns_of_heads(call, place.columns[item])):
                    is_shown = head_columns >= 0
                    used, places = (head, slice(part.rows), is_shown), (head, slice(None), head_columns[is_shown])
                    scores[places], weights[places] = cells.scores[used], cells.weights[used]
                    visible[places] = visible_to_call[used]
                cells = Window(scores, weights, shared_or_per_head(visible))
            cells_of_parts.append(((rows, columns), cells))
        joined_fields = joined_cells((heads, self.end - self.start, self.keys), cells_of_parts)

        all_fields = [part.call.fields_of(part.texts[text]) for part in self.parts]
        if not all("value_norms" in fields for fields in all_fields):
            return joined_fields
        # one row for all queries, unless gates scale the values for each query
        are_gated = any(fields["value_norms"].ndim > 2 for fields in all_fields)
        norms = np.zeros((heads, self.end - self.start if are_gated else 1, self.keys), dtype=np.float32)
        for fields, part in zip(all_fields, self.parts, strict=True):
            place, first_row = part.place, part.place.position - self.start
            rows = slice(first_row, first_row + part.rows) if are_gated else slice(None)
            part_norms = fields["value_norms"].reshape(heads, -1, fields["value_norms"].shape[-1])[:, : part.rows]
            if place.columns is None:
                norms[:, rows, place.column : place.column + place.keys] = part_norms[..., : place.keys]
                continue
            for head, head_columns in enumerate(_columns_of_heads(part.call, place.columns[part.texts[text]])):
                is_shown = head_columns >= 0
                norms[head, rows, head_columns[is_shown]] = part_norms[head][:, is_shown].T
        norms = norms if are_gated else norms[:, 0]
        fidelity = max(fields["value_norms_fidelity"] for fields in all_fields)
        return joined_fields | {"value_norms": norms, "value_norms_fidelity": fidelity}


def _columns_of_heads(call: CapturedCall, columns: IntArray) -> Iterator[IntArray]:
    """Yields the columns of each recorded head's keys, given ``(1 or key heads, keys)``."""
    for number, head in enumerate(call.heads):
        key_head = head if call.key_heads is None else call.key_heads[number]
        yield columns[key_head % len(columns)]


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
