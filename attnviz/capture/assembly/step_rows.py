"""StepRows: the rows that the calls of one module add to its map, forward pass by forward pass."""

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

SAME = 1e-2  # how far weights of a row may differ that is computed again


@dataclass(frozen=True, eq=False)
class MapPlace:
    """Where the map of a call stands in the map of its text.

    Attributes:
        row: the row of its first query.
        column: the column of its first key.
        keys: how many of its keys are of the text; after them are the unused places of a cache.
        whole: whether the call computed the whole map, without a cache.
        proven: whether its keys were compared with those before.
    """

    row: int
    column: int
    keys: int
    whole: bool = False
    proven: bool = True


@dataclass(eq=False)
class StepRows:
    """The calls of one module over the forward passes that read one text.

    Attributes:
        calls: those that the map is made of, each with its place.
        marks: of all keys so far; ``None`` where they are not known.
    """

    calls: list[tuple[CapturedCall, MapPlace]]
    marks: KeyMarks | None

    @classmethod
    def of(cls, call: CapturedCall) -> "StepRows":
        """The call of the first pass."""
        keys = used_keys(call)
        return cls([(call, MapPlace(0, 0, keys, whole=True))], call.marks and call.marks.first(keys))

    @property
    def last(self) -> CapturedCall:
        """The latest call."""
        return self.calls[-1][0]

    @property
    def rows(self) -> int:
        """How many queries there are so far."""
        call, place = self.calls[-1]
        return place.row + call.shape[2]

    @property
    def keys(self) -> int:
        """How many keys there are so far."""
        place = self.calls[-1][1]
        return place.column + place.keys

    @property
    def is_pooled(self) -> bool:
        """Whether single cells of a call were not kept."""
        return any(call.held_as is PooledMaps for call, _ in self.calls)

    @property
    def preceding(self) -> int:
        """How many keys come before the first query: of a cache from outside, or of the module itself."""
        call, place = self.calls[0]
        return max(place.keys - call.shape[2], 0)

    def is_fresh(self, call: CapturedCall) -> bool:
        """Whether a call may be the first of another text: it reads as many keys beside its queries, or no new ones."""
        return call.site.kind == "cross" or past_keys(call) <= self.preceding or self._reads_the_same(call)

    def places(self, call: CapturedCall) -> list[MapPlace]:
        """Where the call may stand, by its shape and keys; nowhere where it is of another text."""
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
        """Adds a call; rows from its first on were taken back, or are computed again."""
        if place.whole:
            self.calls.clear()
        self.calls = [each for each in self.calls if each[1].row < place.row] + [(call, place)]
        if self.marks is not None and call.marks is not None:
            self.marks = self.marks.first(place.column).followed_by(call.marks.first(place.keys))

    def joined(self) -> CapturedCall:
        """One call that holds all rows.

        Raises:
            AttnvizError: if the map is too long to be held whole.
        """
        if len(self.calls) == 1 and self.calls[0][1].keys == self.last.shape[3]:
            return self.last
        self._refuse_long()
        batch, heads, *_ = self.last.shape
        every = [call for call, _ in self.calls]
        scales = {call.scale for call in every}
        return replace(
            self.last,
            shape=(batch, heads, self.rows, self.keys),
            scale=scales.pop() if len(scales) == 1 else None,
            fidelity=[_worst([call.fidelity[item] for call in every]) for item in range(batch)],
            held_as=DenseMaps,
            fields=[self._fields(item) for item in range(batch)],
        )

    def _is_extended_by(self, call: CapturedCall, used: int) -> bool:
        """Whether the call's map is this one, or this one with further rows that the ones before do not look at."""
        if used == self.keys:
            return True
        visible = cells_of(call, 0).visible
        return used > self.keys and not visible[..., : self.rows, self.keys :].any()

    def _reads_the_same(self, call: CapturedCall) -> bool:
        """Whether a call computed no key that is new."""
        known = self.marks is not None and call.marks is not None
        return known and used_keys(call) == self.keys and bool(self._agreeing(call, MapPlace(0, 0, 0), self.keys))

    def _stands_at(self, call: CapturedCall, row: int) -> bool:
        """Whether the rows of a call are those that stand there: if not, they are of other queries."""
        if self.is_pooled or call.held_as is PooledMaps:
            return True
        rows = slice(row, row + call.shape[2])
        return all(
            np.allclose(
                self._fields(item)["weights"][:, rows], cells_of(call, item).weights[..., : self.keys], atol=SAME
            )
            for item in range(call.shape[0])
        )

    def _agreeing(self, call: CapturedCall, place: MapPlace, count: int) -> list[MapPlace]:
        """The place, if so many first keys of the call are those that stand there already."""
        if self.marks is None or call.marks is None:
            return [replace(place, proven=False)]
        return [place] if self.marks.equal(place.column, call.marks, count) else []

    def _refuse_long(self) -> None:
        if self.is_pooled or self.rows * self.keys > LONG_MAP_TOKENS**2:
            raise AttnvizError(
                f"maps of {self.rows} x {self.keys} tokens over several forward passes are too long to be joined; "
                "one forward pass over the whole text works"
            )

    def _fields(self, item: int) -> dict[str, Any]:
        """What ``DenseMaps`` hold of one text."""
        shape = (len(self.last.heads), self.rows, self.keys)
        scores, weights = np.full(shape, np.nan, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        seen = [call.fields[item]["visible"] for call, _ in self.calls if call.held_as is DenseMaps]
        visible = np.zeros(joint_shape(seen, shape), dtype=bool)
        for call, place in self.calls:
            part = cells_of(call, item)
            rows = slice(place.row, place.row + call.shape[2])
            columns = slice(place.column, place.column + place.keys)
            scores[:, rows, columns] = part.scores[..., : place.keys]
            weights[:, rows, columns] = part.weights[..., : place.keys]
            visible[..., rows, columns] = part.visible[..., : place.keys]
        return {"scores": scores, "weights": weights, "visible": visible} | self._moved(item)

    def _moved(self, item: int) -> dict[str, Any]:
        """What the keys of one text move, where every call tells it."""
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
    """The cells of one text of a call."""
    fields = call.fields[item]
    if call.held_as is not FactoredMaps:
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
    """The keys of a call that are of its text so far: all up to the last that is visible, or as many as queries."""
    _, _, queries, keys = call.shape
    if call.held_as is not DenseMaps:
        return keys
    visible = np.any([text["visible"].reshape(-1, keys).any(axis=0) for text in call.fields], axis=0)
    last = int(np.flatnonzero(visible)[-1]) + 1 if visible.any() else keys
    return max(last, min(queries, keys))


def past_keys(call: CapturedCall) -> int:
    """The keys of a call that are none of its own queries."""
    return max(used_keys(call) - call.shape[2], 0)


def _worst(fidelities: list[float | None]) -> float | None:
    return max((fidelity for fidelity in fidelities if fidelity is not None), default=None)
