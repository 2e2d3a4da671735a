"""Collects the texts of several forward passes: a pass reads new texts, or adds rows to texts of earlier passes.

A pass continues a text if the keys that it did not compute equal keys that earlier passes computed, by their marks.
This holds for any cache, and without one: each row is kept over the keys that it saw, wherever the cache held them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.base.errors import layers_phrase, number_ranges
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.assembly.step_rows import MapPlace, StepRows
from attnviz.capture.flow.sites import CallSite

Key = tuple[CallSite, int]  # identifies a call in a pass: its site, and the number of earlier calls of that site


@dataclass(frozen=True, eq=False)
class _Batch:
    """The forward passes over the texts of one batch."""

    rows: dict[Key, StepRows]
    passes: int = 1
    last_key: Key | None = None  # the last call of self-attention in the last pass

    @property
    def size(self) -> int:
        return max((site.run + 1) * rows.texts for (site, _), rows in self.rows.items())

    def continuation(self, calls: dict[Key, CapturedCall]) -> "_Continuation | None":
        """Returns how a pass continues these texts; ``None`` if it does not."""
        if not calls.keys() <= self.rows.keys():
            return None
        self_calls = {key: call for key, call in calls.items() if key[0].kind == "self"}
        has_cached_keys = any(call.past_keys > self.rows[key].start for key, call in self_calls.items())
        continuation = self._in_order(calls, self.rows)
        if continuation is not None or not has_cached_keys:
            return continuation

        texts = self._continued_texts(self_calls)
        if texts is not None:
            sizes = {self.rows[key].texts for key in self_calls}
            rows = {key: rows.of_texts(texts) if rows.texts in sizes else rows for key, rows in self.rows.items()}
            continuation = self._in_order(calls, rows)
            if continuation is not None:
                return replace(continuation, texts=texts)

        return None

    def continuation_over_changed_cache(self, calls: dict[Key, CapturedCall]) -> "_Continuation | None":
        """Returns how a pass continues these texts if its cache dropped, reordered or rounded keys."""
        is_known = all(key in self.rows and call.shape[0] == self.rows[key].texts for key, call in calls.items())
        if not is_known:
            return None
        places = {
            key: self.rows[key].places(call) or self.rows[key].places_of_changed_cache(call)
            for key, call in calls.items()
        }
        return _consistent_places(places, self.rows, calls)

    def is_repeated_by(self, calls: dict[Key, CapturedCall]) -> bool:
        """True if a pass of cross-attention alone has as many queries as the first one, as when a picture is denoised.

        A decoder goes on with one query, or with a few drafts.
        """
        if not calls.keys() <= self.rows.keys() or any(site.kind == "self" for site, _ in calls):
            return False
        counts = [(call.shape[2], self.rows[key].parts[0].rows) for key, call in calls.items()]
        return all(count == first for count, first in counts) and max(counts)[0] > 1

    def _in_order(self, calls: dict[Key, CapturedCall], rows: dict[Key, StepRows]) -> "_Continuation | None":
        places = {}
        for key, call in calls.items():
            places[key] = rows[key].places(call)
            if not places[key]:
                return None
        return _consistent_places(places, rows, calls)

    def _continued_texts(self, calls: dict[Key, CapturedCall]) -> tuple[int, ...] | None:
        """Returns the earlier text whose keys each text of a pass has cached; ``None`` if one has none."""
        # Beam search puts the texts of a cache in another order; a cache may also be repeated for several questions.
        equal_texts: Any = True
        for key, call in calls.items():
            rows, past_count = self.rows[key], call.past_keys
            if rows.marks is None or call.marks is None or past_count > rows.keys:
                return None
            starts = (0, rows.keys - past_count)
            equal = [rows.marks.equal_texts(start, call.marks, past_count) for start in dict.fromkeys(starts)]
            if equal_texts is not True and equal_texts.shape != equal[0].shape:
                return None
            equal_texts = np.any(equal, axis=0) & equal_texts
        if equal_texts is True or not equal_texts.any(axis=1).all():
            return None
        numbers = range(equal_texts.shape[1])
        return tuple(
            text if text in numbers and equal_texts[text, text] else int(equal_texts[text].argmax())
            for text in range(len(equal_texts))
        )


@dataclass(frozen=True, eq=False)
class _Continuation:
    """How a pass continues the texts of a batch."""

    rows: dict[Key, StepRows]  # the rows so far of each text that the pass continues
    places: dict[Key, MapPlace]
    position: int | None  # of the first query of the pass; ``None`` if it computed whole maps, or no self-attention
    texts: tuple[int, ...] | None = None  # the earlier texts that it continues; ``None`` if their order is the same


class TextCollector:
    """Collects the calls of forward passes, and joins those of one text."""

    def __init__(self, joins: bool = True) -> None:
        self.joins = joins  # False if each pass reads texts of its own
        self.batches: list[_Batch] = []
        self.calls: list[CapturedCall] = []  # the joined calls, once `end` was called
        self.passes = 0
        self.is_verifying = False  # True while a model verifies drafts, so that passes take back rejected ones
        self.latest = 0  # the number of the batch that the last pass belongs to
        self.rejected_rows = 0
        self.was_reordered = False
        self.unplaced_passes: list[int] = []
        self.unplaced_keys = ""  # what the cache of the first unplaced pass held
        self.long_passes: list[int] = []
        self.branches: list[_Branch] = []
        self.may_end_in_drafts = 0  # rows at the end of a text that may be drafts

    def add(self, calls: Sequence[CapturedCall]) -> None:
        """Adds the calls of a pass to the batch that the pass continues, else as a new batch; nothing without calls.

        A pass may begin before the end of a batch. If it takes back rejected drafts, or repeats the rows after its
        place, its rows replace them. Otherwise both continuations are kept, each with the rows before that place.
        """
        if not calls:
            return
        self.passes += 1
        calls_by_key: dict[Key, CapturedCall] = {}
        for call in calls:
            number = sum(site == call.site for site, _ in calls_by_key)
            calls_by_key[call.site, number] = call
        last_key = next((key for key in reversed(calls_by_key) if key[0].kind == "self"), None)
        number, continuation = self._continuation(calls_by_key) if self.joins else (0, None)
        if continuation is None:
            self.latest = len(self.batches)
            self.batches.append(_Batch({key: StepRows.begin(call) for key, call in calls_by_key.items()}, 1, last_key))
            return

        batch, position = self.batches[number], continuation.position
        rows = continuation.rows | {
            key: continuation.rows[key].followed_by(call, continuation.places[key])
            for key, call in calls_by_key.items()
        }
        continued_batch = _Batch(rows, batch.passes + 1, last_key)
        if continuation.texts is not None and len(set(continuation.texts)) == batch.size == len(continuation.texts):
            self.was_reordered = True
        steps = [key for key, place in continuation.places.items() if key[0].kind == "self" and not place.is_whole_map]
        loses_rows = any(
            continuation.rows[key].end > continuation.places[key].position
            and not continuation.rows[key].repeats_rows_in(calls_by_key[key], continuation.places[key])
            for key in steps
        )
        last_start = max((continuation.rows[key].parts[-1].place.position for key in steps), default=0)
        may_reject = position is not None and position > last_start

        # The batch goes on at its end, or with rows that it has already.
        if not loses_rows:
            self.latest, self.batches[number] = number, continued_batch
            return

        # Drafts were rejected: the rows of this pass replace theirs.
        assert position is not None  # whole maps lose no rows
        if self.is_verifying and may_reject:
            self.rejected_rows += max(continuation.rows[key].end for key in steps) - position
            self.latest, self.batches[number] = number, continued_batch
            return

        # Another continuation of the same beginning: both are kept.
        self.branches.append(_Branch(number, len(self.batches), position, may_reject))
        self.latest = len(self.batches)
        self.batches.append(continued_batch)

    def _continuation(self, calls: dict[Key, CapturedCall]) -> "tuple[int, _Continuation | None]":
        """Returns the number of the batch that a pass continues, and how; ``None`` if it begins other texts."""
        self_calls = {key: call for key, call in calls.items() if key[0].kind == "self"}
        has_cached_keys = any(call.past_keys > 0 for call in self_calls.values())
        # It continues the batch whose last tokens it has cached, else the one of which it has cached most tokens.
        number, best, is_too_long = 0, None, False
        for way in (_Batch.continuation, _Batch.continuation_over_changed_cache):
            for other in range(len(self.batches))[::-1][: None if has_cached_keys else 1]:
                batch = self.batches[other]
                continuation = None if batch.is_repeated_by(calls) else way(batch, calls)
                if continuation is None:
                    continue
                rows, places = continuation.rows, continuation.places
                if not all(rows[key].can_join(call, places[key]) for key, call in calls.items()):
                    is_too_long = True
                    continue
                is_at_end = all(rows[key].end <= places[key].position for key in self_calls)
                if best is None or is_at_end or (continuation.position or 0) > (best.position or 0):
                    number, best = other, continuation
                if is_at_end:
                    break
            if best is not None or not has_cached_keys:
                break
        if best is None and is_too_long:
            self.long_passes.append(self.passes)
        elif best is None and self.batches and has_cached_keys:
            self._note_unplaced(calls)
        return number, best

    def _note_unplaced(self, calls: dict[Key, CapturedCall]) -> None:
        """Notes a pass whose cached keys are unknown, and how many of them the last batch has."""
        rows_so_far = self.batches[-1].rows
        for key, call in calls.items():
            rows, past_count = rows_so_far.get(key), call.past_keys
            if key[0].kind != "self" or rows is None or rows.marks is None or call.marks is None:
                continue
            if past_count <= rows.start:
                return
            known = rows.marks.known_keys(call.marks, past_count)
            if known < past_count or call.shape[0] != rows.texts:
                if not self.unplaced_passes:
                    self.unplaced_keys = f"{past_count - known} of {past_count} in pass {self.passes}"
                self.unplaced_passes.append(self.passes)
                return

    def end_verification(self, tokens: int | None) -> None:
        """Leaves out rejected drafts at the end of the last batch, given the number of tokens that were kept."""
        self.is_verifying = False
        batch = self.batches[self.latest] if self.batches else None
        if batch is None or batch.last_key is None:
            return
        rows = batch.rows[batch.last_key]
        if rows.parts[-1].rows == 1:
            return
        end, last_start = rows.end, rows.parts[-1].place.position
        if tokens is None or not last_start < tokens <= end:
            self.may_end_in_drafts = rows.parts[-1].rows - 1
            return
        if tokens == end:
            return
        self.rejected_rows += end - tokens
        kept_rows = {}
        for key, each in batch.rows.items():
            is_self = key[0].kind == "self"
            is_beside = each.end == end and key[0].part == batch.last_key[0].part if is_self else True
            position = tokens if is_self else tokens - rows.start
            if not is_beside:
                kept_rows[key] = each
            elif each.start < position:
                kept_rows[key] = each.before(position, is_self=is_self)
        self.batches[self.latest] = replace(batch, rows=kept_rows)

    def end(self, calls: Sequence[CapturedCall]) -> None:
        """Adds the calls of the last pass, then sets `calls`: one call for each batch and call site.

        A module that attends several times in a pass has several sites; the calls of several passes are joined. Each
        has the number of its batch's first text.
        """
        self.add(calls)
        first_item = 0
        for batch in self.batches:
            for rows in batch.rows.values():
                last = rows.parts[-1]
                is_one_pass = batch.passes == 1 and last.rows == last.call.shape[2]
                call = last.call if is_one_pass else rows.joined()
                self.calls.append(replace(call, first_item=first_item, passes=batch.passes))
            first_item += batch.size

    def remarks(self) -> tuple[str, ...]:
        """Returns remarks on the texts that the passes read, and on what could not be joined or was left out."""
        remarks = []
        if self.passes > 1:
            texts = sum(batch.size for batch in self.batches)
            plural = "s" if texts > 1 else ""
            order = "each decoding step adds its rows"
            if max(batch.passes for batch in self.batches) == 1:
                order = "in the order in which they ran"
            separator = ":" if "step" in order else ","
            remarks.append(f"{texts} text{plural} from {self.passes} forward passes{separator} {order}.")
        first_items = np.cumsum([0, *(batch.size for batch in self.batches)]).tolist()
        for branch in self.branches:
            first, second = first_items[branch.earlier], first_items[branch.later]
            doubt = f"; text {first} may end in rejected drafts" if branch.may_reject else ""
            remarks.append(f"Text {second} begins with the first {branch.position} tokens of text {first}{doubt}.")
        if self.rejected_rows:
            remarks.append(f"Left out: {self.rejected_rows} rows of drafts that were rejected.")
        if self.may_end_in_drafts:
            remarks.append(f"The last {self.may_end_in_drafts} rows may be drafts that were rejected.")
        if self.was_reordered:
            remarks.append(
                "The cache put the texts in another order between passes, as beam search does: each text has the rows "
                "that its last step continues."
            )
        if self.unplaced_passes:
            verb = "reads" if len(self.unplaced_passes) == 1 else "read"
            plural = "" if len(self.unplaced_passes) == 1 else "es"
            remarks.append(
                f"Forward pass{plural} {number_ranges(self.unplaced_passes)} {verb} cached keys that no pass before "
                f"computed ({self.unplaced_keys}): the rows are texts of their own, over the keys that they saw."
            )
        if self.long_passes:
            remarks.append(
                f"Forward pass {number_ranges(self.long_passes)} continues a text whose map is too long to be joined: "
                "the rows are texts of their own; run one forward pass over the whole text for one map."
            )
        remarks += self._remarks_on_caches(first_items)
        return tuple(remarks)

    def _remarks_on_caches(self, first_items: Sequence[int]) -> list[str]:
        remarks = []
        for number, batch in enumerate(self.batches):
            name, all_rows = (
                f"text {first_items[number]}",
                [rows for key, rows in batch.rows.items() if key[0].kind == "self" and batch.passes > 1],
            )
            changed = max(all_rows, key=lambda rows: rows.changed_keys, default=None)
            if changed is not None and changed.changed_keys:
                remarks.append(
                    f"In {name}, {changed.changed_keys} of {changed.keys - 1} cached keys differ from those computed, "
                    "as in a quantised cache: each row shows the keys that it saw."
                )
            dropping = [rows for rows in all_rows if any(part.place.columns is not None for part in rows.parts)]
            if dropping:
                count = dropping[0].parts[-1].place.keys
                remarks.append(
                    f"In {name}, keys that the cache dropped are hidden in the rows after that: "
                    f"the last pass read {count} of {dropping[0].keys}."
                )
            starts = {rows.start for rows in all_rows}
            for start in sorted(starts)[1:]:
                layers = {key[0].layer for key, rows in batch.rows.items() if rows in all_rows and rows.start == start}
                rows = next(rows for rows in all_rows if rows.start == start)
                remarks.append(
                    f"In {name}, {layers_phrase(layers)} computed the last {rows.end - start} of {rows.end} rows."
                )
        return remarks


@dataclass(frozen=True)
class _Branch:
    """A text that begins with the first tokens of an earlier text."""

    earlier: int  # the number of the batch of the earlier text
    later: int  # the number of its own batch
    position: int  # the number of common tokens
    may_reject: bool  # True if the later tokens of the earlier text may be rejected drafts


def _consistent_places(
    possible_places: dict[Key, list[MapPlace]], rows: dict[Key, StepRows], calls: dict[Key, CapturedCall]
) -> _Continuation | None:
    """Returns one place for each call of a pass: its whole map, or rows from one position on in all calls."""
    is_proven = any(place.has_equal_keys for places in possible_places.values() for place in places)
    if not all(possible_places.values()) or not is_proven:
        return None
    self_places = {key: places for key, places in possible_places.items() if key[0].kind == "self"}
    steps = {key: places for key, places in self_places.items() if not places[0].is_whole_map}
    has_new_keys = any(places[0].keys > rows[key].keys for key, places in self_places.items() if places[0].is_whole_map)
    if self_places and not steps and not has_new_keys:
        return None

    position = None
    if steps:
        exact = [[place.position for place in places] for places in steps.values() if not places[0].is_earliest]
        earliest = max((places[0].position for places in steps.values() if places[0].is_earliest), default=0)
        candidates = [each for each in exact[0] if all(each in others for others in exact)] if exact else []
        if not exact:
            # A cache that drops keys may have dropped the last ones: the pass begins where another one ended.
            starts = [part.place.position for key in steps for part in rows[key].parts]
            candidates = sorted([*starts, *(rows[key].end for key in steps)])
        position = next((each for each in candidates if each >= earliest), None)
        if position is None:
            return None

    chosen_places = {}
    for key, places in possible_places.items():
        if key[0].kind == "cross":
            row = rows[key].end
            if position is not None:
                row = position - min(rows[step].start for step in steps)
            elif self_places or calls[key].shape[2] > row:  # all rows are computed again
                row = 0
            chosen_places[key] = replace(places[0], position=row, is_whole_map=row == 0)
        elif places[0].is_whole_map:
            chosen_places[key] = places[0]
        elif places[0].is_earliest:
            assert position is not None
            chosen_places[key] = places[0].moved_to(position)
        else:
            chosen_places[key] = next(place for place in places if place.position == position)
    return _Continuation(rows, chosen_places, position)
