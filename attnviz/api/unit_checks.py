"""Checks what an answer looked at: by what it loses without a unit, and by controls that run the model again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import track
from attnviz.maps.grouped import refuse_missing_units
from attnviz.maps.heads import chosen_heads, head_name
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.metrics.unit_shares import (
    UnitChecks,
    UnitShares,
    calibrated_score,
    question_scores,
    sink_tokens,
    strongest_sum,
    strongest_unit,
    unit_frame,
)
from attnviz.text.named_groups import TOKENS
from attnviz.text.selection import Grouping, Selection
from attnviz.text.units import Units

if TYPE_CHECKING:
    from attnviz.base.arrays import Float64Array, IntArray
    from attnviz.maps.recording import Recording
    from attnviz.models.reading.example import Example
    from attnviz.models.reading.reader import Reader

CONTENT_FREE = "N/A"  # the question of QRHead's calibration


def unit_checks(
    reader: "Reader", example: "Example", selection: Selection, grouping: Grouping, count: int
) -> "tuple[Recording, UnitChecks]":
    """Returns the recording of an example, and the measurements of each unit before its answer, the last unit.

    The ``count`` units with the largest share are hidden one at a time, and the drop in the answer's log-probability is
    measured. Numbers are means over the chosen heads, else of the head in which a unit stands out most.

    Args:
        reader: a reader that predicts tokens.
        example: the text, a chat, or passages before a question.
        selection: the layers and heads.
        grouping: the units.
        count: the number of units to hide.

    Raises:
        AttnvizError: for single tokens as units, fewer than two units, or a model that takes no mask.
    """
    refuse_single_tokens(grouping)
    check = _Check(reader, reader.answered(example), selection, grouping)  # each run reads the same answer
    return check.recording, check.unit_checks(count)


def refuse_single_tokens(grouping: Grouping) -> None:
    """Raises AttnvizError for single tokens as units."""
    if grouping.units == TOKENS:
        raise AttnvizError(f"{option('check')} hides units; add {option('by', 'turns')}, passages or sentences")


@dataclass(frozen=True, eq=False)
class _Check:
    """The runs of a model over an example and its controls."""

    reader: "Reader"
    example: "Example"
    selection: Selection
    grouping: Grouping

    @property
    def unit_name(self) -> str:
        """The name of the units."""
        return self.grouping.units

    @cached_property
    def recording(self) -> "Recording":
        """The recording of the example."""
        return self.reader.record(self.example, self.selection)

    @cached_property
    def shares(self) -> tuple[UnitShares, ...]:
        """The shares of the measured heads, for each attention call; see `_shares_of`."""
        return self._shares_of(self.recording, None)

    @cached_property
    def heads(self) -> list[tuple[CellMaps, int]]:
        """The maps and the number of each measured head."""
        return [(cell_maps(shares.maps), head) for shares in self.shares for head in shares.heads]

    def unit_checks(self, count: int) -> UnitChecks:
        """Returns the measurements of each unit before the answer, which is the last unit."""
        first_shares = self.shares[0]  # all calls of the text number its units alike
        units = Units.of(first_shares.maps.query_tokens, self.unit_name)
        queries = first_shares.queries
        is_sink = sink_tokens(units, self.unit_name)
        labels = [first_shares.labels[unit] for unit in first_shares.earlier_units.tolist()]
        unit_tokens = [
            np.flatnonzero((units.numbers == number) & ~is_sink)
            for number in first_shares.numbers[first_shares.earlier_units]
        ]
        shares, lifts = self._mean("shares"), self._mean("lift")
        largest_units = np.argsort(-shares, kind="stable")[:count]
        losses, log_probability = self._losses(units, first_shares, queries, largest_units)
        strongest = [
            np.mean([strongest_sum(maps, head, queries, tokens) for maps, head in self.heads]) for tokens in unit_tokens
        ]  # of each unit, the mean over heads
        return UnitChecks(
            by=self.unit_name,
            heads=tuple(head_name(maps, head) for maps, head in self.heads),
            last=first_shares.last_label,
            units=tuple(labels),
            tokens=np.array([len(tokens) for tokens in unit_tokens]),
            shares=shares,
            lifts=lifts,
            strongest=np.array(strongest),
            calibrated=self._calibrated_scores(unit_tokens, units),
            reversed=self._shares_in_reverse(labels),
            lost=losses,
            log_probability=log_probability,
            written=len(queries),
        )

    def _mean(self, name: str) -> "Float64Array":
        """Returns ``shares`` or ``lift`` of each earlier unit as a mean over the heads, ``(earlier units,)``."""
        numbers = np.concatenate([getattr(shares, name)[:, shares.earlier_units] for shares in self.shares])
        return np.asarray(numbers.mean(axis=0))

    def _shares_of(self, recording: "Recording", heads: Sequence[str] | None) -> tuple[UnitShares, ...]:
        """Returns the shares of attention that units get in heads of a recording, for each attention call."""
        refuse_missing_units(list(recording.maps), self.grouping)
        selection = Selection.parse(heads=",".join(heads)) if heads else self.selection
        head_maps = [(head.maps, head.head) for head in chosen_heads(recording, selection)]
        _, shares = unit_frame(head_maps, self.unit_name)
        if not shares:
            raise AttnvizError(
                f"{option('check')} needs two {self.unit_name} or more, so that the last can look at another; "
                "give a longer text"
            )
        user_chose_heads = (selection.chosen_layers, selection.heads) != (None, None)
        if heads or user_chose_heads:
            return shares
        strongest = strongest_unit(shares)
        if strongest is None:
            return shares
        call_shares, head_index, _ = strongest
        _, head_shares = unit_frame([(call_shares.maps, call_shares.heads[head_index])], self.unit_name)
        return head_shares

    def _losses(
        self, units: Units, shares: UnitShares, queries: "IntArray", hidden_units: "IntArray"
    ) -> "tuple[Float64Array, float]":
        """Returns the loss of the answer's log-probability without each hidden unit, and the log-probability itself."""
        from attnviz.effects.measures import answer_log_probabilities

        tokens = shares.maps.query_tokens
        answer_tokens = queries[queries > 0]  # no token predicts the first token of a text
        losses = np.full(len(shares.earlier_units), np.nan)
        with self.reader.running():

            def log_probabilities_without(hidden: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "Float64Array":
                """Returns those of the answer's tokens with some tokens, ``(tokens,)``, hidden from all rows."""
                inputs = self.reader.inputs_without(tokens, hidden)
                return answer_log_probabilities(self.reader.module, inputs, tokens.ids, answer_tokens)

            log_probabilities = log_probabilities_without(np.zeros(len(tokens), dtype=bool))
            for unit in track(hidden_units.tolist(), "hiding units"):
                number = shares.numbers[shares.earlier_units[unit]]
                is_hidden = (units.numbers == number) & (np.arange(len(tokens)) > 0)
                lost = log_probabilities - log_probabilities_without(is_hidden)
                losses[unit] = lost[~is_hidden[answer_tokens - 1]].sum()
        return losses, float(log_probabilities.sum())

    def _calibrated_scores(self, unit_tokens: "list[IntArray]", units: Units) -> "Float64Array | None":
        """Returns the score of each earlier unit by `calibrated_score`; ``CONTENT_FREE`` is the neutral question."""
        question_label, neutral_example = (
            self.example.question_label(self.unit_name),
            self.example.with_question(CONTENT_FREE),
        )
        if question_label is None or neutral_example is None or question_label not in units.labels:
            return None
        question = np.flatnonzero(units.numbers == units.labels.index(question_label))
        measured_heads = {(head_name(maps, head), maps.kind) for maps, head in self.heads}
        recording = self.reader.record(neutral_example, self.selection)
        neutral_heads: list[tuple[CellMaps, int]] = []
        for maps in recording.maps:
            heads = [head for head in maps.heads if (head_name(maps, head), maps.kind) in measured_heads]
            neutral_heads += [(cell_maps(maps), head) for head in heads]

        first_maps, _ = neutral_heads[0]  # all of them have the tokens of the same text
        neutral_units = Units.of(first_maps.key_tokens, self.unit_name)
        neutral_question = np.flatnonzero(neutral_units.numbers == neutral_units.labels.index(question_label))
        scores = question_scores(self.heads, question)
        neutral_scores = question_scores(neutral_heads, neutral_question)
        end = min(int(question[0]), len(neutral_scores))  # both texts have the same tokens up to here
        scores_of_units = [
            calibrated_score(scores, neutral_scores, tokens) if int(tokens[-1]) < end else np.nan
            for tokens in unit_tokens
        ]
        return np.array(scores_of_units)

    def _shares_in_reverse(self, labels: list[str]) -> "Float64Array | None":
        """Returns the mean share of each unit over the heads when the model reads the passages in reverse order."""
        example = self.example.with_passages_reversed()
        if example is None:
            return None

        names = [head_name(maps, head) for maps, head in self.heads]
        reversed_shares = self._shares_of(self.reader.record(example, self.selection), names)
        first_shares = reversed_shares[0]
        share_of_label = {
            first_shares.labels[unit]: np.mean([call_shares.shares[:, unit].mean() for call_shares in reversed_shares])
            for unit in first_shares.earlier_units.tolist()
        }
        return np.array([share_of_label.get(label, np.nan) for label in labels])
