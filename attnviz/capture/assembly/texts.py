"""Collects the texts of several forward passes: a pass is a new batch, or a step that continues the last one.

A pass continues a text if the keys that it did not compute equal keys that earlier passes computed; marks of keys are
compared. This holds for any cache, and without one. The rows of such a pass are appended to the maps; any other pass
brings new texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.assembly.step_rows import MapPlace, StepRows
from attnviz.capture.flow.sites import CallSite

Key = tuple[CallSite, int]  # a call in a pass: its site, and the number of earlier calls of that site


@dataclass(eq=False)
class _Batch:
    """The forward passes over the texts of one batch.

    Attributes:
        rows: the rows that all passes added, for each module.
        passes: the number of passes.
    """

    rows: dict[Key, StepRows]
    passes: int = 1

    @property
    def size(self) -> int:
        """The number of texts that a pass reads at once."""
        return max((site.run + 1) * rows.last.shape[0] for (site, _), rows in self.rows.items())

    def continued_by(self, calls: dict[Key, CapturedCall]) -> bool:
        """Adds the calls of another pass if it continues these texts; True if it does."""
        if not calls.keys() <= self.rows.keys():
            return False
        choices = {key: self.rows[key].places(call) for key, call in calls.items()}
        places = _consistent(choices, self.rows, calls)
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
        """Adds the calls of a pass."""
        if not calls or self.refusal is not None:
            return
        self.passes += 1
        keyed = _keyed(calls)
        if self.batches and self.batches[-1].continued_by(keyed):
            return
        self.refusal = self._unknown_cache(keyed)
        self.batches.append(_Batch({key: StepRows.of(call) for key, call in keyed.items()}))

    def calls(self) -> list[CapturedCall]:
        """Returns one call for each module and batch, with the number of the batch's first text.

        Raises:
            AttnvizError: if a pass reads keys from a cache that no earlier pass computed, or if a map of several passes
                is too long to be joined.
        """
        if self.refusal is not None:
            raise self.refusal
        joined, item = [], 0
        for batch in self.batches:
            for rows in batch.rows.values():
                call = rows.last if batch.passes == 1 else rows.joined()
                joined.append(replace(call, first_item=item, passes=batch.passes))
            item += batch.size
        return joined

    def remarks(self) -> tuple[str, ...]:
        """Returns sentences on what was joined."""
        if self.passes < 2:
            return ()
        texts = sum(batch.size for batch in self.batches)
        steps = max(batch.passes for batch in self.batches)
        if steps == 1:
            return (f"{texts} texts of {self.passes} forward passes, in the order in which they ran.",)
        if len(self.batches) == 1:
            return (f"The rows of {self.passes} forward passes: each step of the decoding adds its own.",)
        return (f"{texts} texts of {self.passes} forward passes: each step of a decoding adds its rows to its text.",)

    def _unknown_cache(self, calls: dict[Key, CapturedCall]) -> AttnvizError | None:
        """Returns the refusal of a pass that neither continues a text nor begins one."""
        first = self.batches[0].rows if self.batches else {}
        if all(first[key].is_fresh(call) for key, call in calls.items() if key in first):
            return None
        return AttnvizError(
            f"forward pass {self.passes} reads keys from a cache that no forward pass before it computed in this "
            "order, as beam search does; use greedy decoding, sampling, or one forward pass over the whole text"
        )


def _keyed(calls: Sequence[CapturedCall]) -> dict[Key, CapturedCall]:
    keyed: dict[Key, CapturedCall] = {}
    for call in calls:
        number = sum(site == call.site for site, _ in keyed)
        keyed[call.site, number] = call
    return keyed


def _consistent(
    choices: dict[Key, list[MapPlace]], rows: dict[Key, StepRows], calls: dict[Key, CapturedCall]
) -> dict[Key, MapPlace] | None:
    """Returns one place for each call, such that all begin at one row; ``None`` if there is none, or nothing is new."""
    if not all(choices.values()) or not any(place.proven for places in choices.values() for place in places):
        return None
    self_attention = {key: places for key, places in choices.items() if key[0].kind == "self"}
    partial = [places for places in self_attention.values() if not places[0].whole]
    starts = [place.row for place in partial[0]] if partial else []
    common = [row for row in starts if all(any(place.row == row for place in places) for places in partial)]
    if partial and not common:
        return None
    grows = any(places[0].keys > rows[key].keys for key, places in self_attention.items() if places[0].whole)
    if self_attention and not partial and not grows:
        return None
    chosen = {}
    for key, places in choices.items():
        if key[0].kind == "cross":
            row = common[0] if common else _start_alone(rows[key], calls[key], bool(self_attention))
            chosen[key] = replace(places[0], row=row, whole=row == 0)
        else:
            chosen[key] = next(place for place in places if place.whole or place.row == common[0])
    return chosen


def _start_alone(rows: StepRows, call: CapturedCall, computed_again: bool) -> int:
    """Returns the first row of cross-attention if self-attention is not cached, or was not recorded."""
    return 0 if computed_again or call.shape[2] > rows.rows else rows.rows
