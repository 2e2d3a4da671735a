"""Joins the rows that the calls of one module add to its map in several forward passes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.assembly.key_marks import KeyMarks
from attnviz.maps.dense import DenseMaps
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.layer_maps import LONG_MAP_TOKENS, Window
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.visibility import joint_shape
from attnviz.text.tokens import Tokens

SAME = 1e-2  # the largest difference between weights of a row that is computed twice


@dataclass(frozen=True, eq=False)
class MapPlace:
    """The place of a call's map in the map of its text.

    Attributes:
        row: the row of its first query.
        column: the column of its first key.
        keys: the number of its keys that belong to the text; unused places of a cache follow them.
        whole: True if the call computed the whole map, without a cache.
        proven: True if its keys were compared with the earlier ones.
    """

    row: int
    column: int
    keys: int
    whole: bool = False
    proven: bool = True


@dataclass(eq=False)
class StepRows:
    """The calls of one module in the forward passes that read one text.

    Attributes:
        calls: the calls whose rows make up the map, each with its place.
        marks: the marks of all keys so far; ``None`` if unknown.
    """

    calls: list[tuple[CapturedCall, MapPlace]]
    marks: KeyMarks | None

    @classmethod
    def of(cls, call: CapturedCall) -> "StepRows":
        """Returns the rows of the first pass."""
        keys = used_keys(call)
        return cls([(call, MapPlace(0, 0, keys, whole=True))], call.marks and call.marks.first(keys))

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
    def preceding(self) -> int:
        """The number of keys before the first query: from a cache made outside, or of the module itself."""
        call, place = self.calls[0]
        return max(place.keys - call.shape[2], 0)

    def is_fresh(self, call: CapturedCall) -> bool:
        """True if a call may begin another text: it has no more past keys than the first call, or no new ones."""
        return call.site.kind == "cross" or past_keys(call) <= self.preceding or self._reads_the_same(call)

    def places(self, call: CapturedCall) -> list[MapPlace]:
        """Returns the possible places of a call, by its shape and keys; empty if it belongs to another text."""
        if call.shape[0] != self.last.shape[0] or call.heads != self.last.heads:
            return []
        if call.site.kind == "cross":
            end = MapPlace(self.rows, 0, call.shape[3])
            return self._agreeing(call, end, end.keys) if end.keys == self.keys else []
        past, used = past_keys(call), used_keys(call)
        if past <= self.preceding:
            whole = MapPlace(0, 0, used, whole=True)
            return self._agreeing(call, whole, self.keys) if self._is_extended_by(call, used) else []
        if past > self.keys:
            return []
        after, within = MapPlace(self.rows, self.keys - past, used), MapPlace(past - self.preceding, 0, used)
        found = self._agreeing(call, after, past)
        if past == self.keys or (self._reads_the_same(call) and not self._stands_at(call, within.row)):
            return found
        return found + self._agreeing(call, within, past)

    def add(self, call: CapturedCall, place: MapPlace) -> None:
        """Adds a call; it replaces rows from its first one on, which were rolled back or are computed again."""
        if place.whole:
            self.calls.clear()
        self.calls = [each for each in self.calls if each[1].row < place.row] + [(call, place)]
        if self.marks is not None and call.marks is not None:
            self.marks = self.marks.first(place.column).followed_by(call.marks.first(place.keys))

    def joined(self) -> CapturedCall:
        """Returns one call with all rows.

        Raises:
            AttnvizError: if the map is too long to be held whole.
        """
        if len(self.calls) == 1 and self.calls[0][1].keys == self.last.shape[3]:
            return self.last
        self._refuse_long()
        batch, heads, *_ = self.last.shape
        all_calls = [call for call, _ in self.calls]
        scales = {call.scale for call in all_calls}
        return replace(
            self.last,
            shape=(batch, heads, self.rows, self.keys),
            scale=scales.pop() if len(scales) == 1 else None,
            fidelity=[_worst([call.fidelity[item] for call in all_calls]) for item in range(batch)],
            map_type=DenseMaps,
            prompt=self._prompt(),
            fields=[self._fields(item) for item in range(batch)],
        )

    def _prompt(self) -> int | None:
        """Returns the rows of the first pass if each later pass added one row; ``None`` otherwise."""
        first, *later = [call.shape[2] for call, _ in self.calls]
        return first if later and set(later) == {1} else None

    def _is_extended_by(self, call: CapturedCall, used: int) -> bool:
        """True if the call's map is this one, or extends it by keys that the earlier rows do not see."""
        if used == self.keys:
            return True
        visible = cells_of(call, 0).visible
        return used > self.keys and not visible[..., : self.rows, self.keys :].any()

    def _reads_the_same(self, call: CapturedCall) -> bool:
        """True if a call computed no new key."""
        known = self.marks is not None and call.marks is not None
        return known and used_keys(call) == self.keys and bool(self._agreeing(call, MapPlace(0, 0, 0), self.keys))

    def _stands_at(self, call: CapturedCall, row: int) -> bool:
        """True if a call's rows equal those at that place; if not, its queries are others."""
        if self.is_pooled or call.map_type is PooledMaps:
            return True
        rows = slice(row, row + call.shape[2])
        return all(
            np.allclose(
                self._fields(item)["weights"][:, rows], cells_of(call, item).weights[..., : self.keys], atol=SAME
            )
            for item in range(call.shape[0])
        )

    def _agreeing(self, call: CapturedCall, place: MapPlace, count: int) -> list[MapPlace]:
        """Returns ``[place]`` if the first ``count`` keys of the call equal the keys there, else an empty list."""
        if self.marks is None or call.marks is None:
            return [replace(place, proven=False)]
        return [place] if self.marks.equal(place.column, call.marks, count) else []

    def _refuse_long(self) -> None:
        if self.is_pooled or self.rows * self.keys > LONG_MAP_TOKENS**2:
            raise AttnvizError(
                f"maps of {self.rows} x {self.keys} tokens over several forward passes are too long to be joined; "
                "run one forward pass over the whole text"
            )

    def _fields(self, item: int) -> dict[str, Any]:
        """Returns the fields of ``DenseMaps`` of one text."""
        shape = (len(self.last.heads), self.rows, self.keys)
        scores, weights = np.full(shape, np.nan, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        visibilities = [call.fields[item]["visible"] for call, _ in self.calls if call.map_type is DenseMaps]
        visible = np.zeros(joint_shape(visibilities, shape), dtype=bool)
        for call, place in self.calls:
            part = cells_of(call, item)
            rows = slice(place.row, place.row + call.shape[2])
            columns = slice(place.column, place.column + place.keys)
            scores[:, rows, columns] = part.scores[..., : place.keys]
            weights[:, rows, columns] = part.weights[..., : place.keys]
            visible[..., rows, columns] = part.visible[..., : place.keys]
        return {"scores": scores, "weights": weights, "visible": visible} | self._moved(item)

    def _moved(self, item: int) -> dict[str, Any]:
        """Returns the norms of one text's moved values, if every call has them."""
        if not all("moved" in call.fields[item] for call, _ in self.calls):
            return {}
        moved = np.zeros((len(self.last.heads), self.keys), dtype=np.float32)
        for call, place in self.calls:
            moved[:, place.column : place.column + place.keys] = call.fields[item]["moved"][:, : place.keys]
        return {
            "moved": moved,
            "moved_fidelity": _worst([call.fields[item]["moved_fidelity"] for call, _ in self.calls]),
        }


def cells_of(call: CapturedCall, item: int) -> Window:
    """Returns the cells of one text of a call."""
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


def used_keys(call: CapturedCall) -> int:
    """Returns the number of keys that belong to the text so far: up to the last visible one, at least the queries."""
    _, _, queries, keys = call.shape
    if call.map_type is not DenseMaps:
        return keys
    visible = np.any([text["visible"].reshape(-1, keys).any(axis=0) for text in call.fields], axis=0)
    last = int(np.flatnonzero(visible)[-1]) + 1 if visible.any() else keys
    return max(last, min(queries, keys))


def past_keys(call: CapturedCall) -> int:
    """Returns the number of keys that come before the call's own queries."""
    return max(used_keys(call) - call.shape[2], 0)


def _worst(fidelities: list[float | None]) -> float | None:
    return max((fidelity for fidelity in fidelities if fidelity is not None), default=None)
