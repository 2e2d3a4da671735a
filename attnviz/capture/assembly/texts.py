"""Collects the texts of several forward passes: a pass reads a new batch, or is a step that continues the last one.

A pass continues a text if the keys that it did not compute equal keys that earlier passes computed, by their marks.
This holds for any cache, and without one. The rows of such a pass are appended to the maps; any other pass brings new
texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.assembly.step_rows import MapPlace, StepRows
from attnviz.capture.flow.sites import CallSite

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

        Raises:
            AttnvizError: if a pass reads keys from a cache that no earlier pass computed, or if a map of several passes
                is too long to be joined.
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
