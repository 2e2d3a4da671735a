"""Measures what each unit of a text rests on: runs the model without each unit, and on other texts as a control."""

from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.grouped import Units, refuse_missing_units
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import head_name
from attnviz.metrics.steps import refuse_later_keys
from attnviz.metrics.unit_attention import (
    largest_scores,
    outstanding_scores,
    receiver_scores,
    unit_attention,
    units_of_text,
)
from attnviz.metrics.unit_shares import calibrated_score, question_scores
from attnviz.text.named_groups import TOKENS
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from attnviz.base.arrays import Float64Array
    from attnviz.effects.unit_effects import HeadsBy, UnitEffects
    from attnviz.maps.recording import Recording
    from attnviz.models.reading.example import Example
    from attnviz.models.reading.reader import Reader

CONTENT_FREE = "N/A"  # the question of QRHead's calibration
MeasuredHead = tuple[CellMaps, int]


def unit_effects(
    reader: "Reader", example: "Example", selection: Selection, by: str
) -> "tuple[Recording, UnitEffects]":
    """Returns the recording of an example, and what each of its units rests on.

    The model runs once to record its attention, once with all units, and once without each unit but the last; for
    passages, once more with them in reverse order and, if there is a question, once with a question without content.

    Args:
        reader: a reader that predicts tokens.
        example: the text, a chat, or passages before a question.
        selection: the layers and heads over which attention is a mean; without any, receiver heads.
        by: the name of the units.

    Raises:
        AttnvizError: for single tokens as units, fewer than two units, or a model that takes no mask.
    """
    from attnviz.effects.unit_effects import UnitEffects
    from attnviz.effects.unit_losses import unit_losses

    if by == TOKENS:
        raise AttnvizError(f"{option('by', TOKENS)} would hide each token; choose turns, passages or sentences")
    answered_example = reader.answered(example)  # each run reads the same answer
    reader.refuse_absent(selection)
    with reader.running():
        prepared_input = reader.read(answered_example)
    recording = reader.recorded(prepared_input, selection)
    refuse_missing_units(list(recording.maps), Grouping(by=by))
    tokens = recording.maps[0].query_tokens
    calls = [maps for maps in recording.maps if maps.kind == "self" and len(maps.query_tokens) == len(tokens)]
    units, answer = units_of_text(tokens, by)
    if len(units) < 2 or not calls:
        raise AttnvizError(
            f"{option('by', by)} needs two {by} or more, so that one can rest on another; give a longer text"
        )

    refuse_later_keys([cell_maps(maps) for maps in calls], np.zeros(1, dtype=np.int64), "losses without units need")

    # The attention of each head, and the heads to show.
    heads = [(cell_maps(maps), head) for maps in calls for head in maps.heads]
    attention = np.concatenate([unit_attention(maps, units) for maps in calls])  # (heads, units, units)
    heads_by: HeadsBy = "choice"
    scores = receiver_scores(attention, units.sizes)
    chosen = np.arange(len(heads))
    if (selection.chosen_layers, selection.heads) == (None, None):
        heads_by = "outstanding" if np.isnan(scores).all() else "receivers"
        chosen = largest_scores(outstanding_scores(attention, units.sizes) if np.isnan(scores).all() else scores)
    chosen_heads = [heads[index] for index in chosen]
    mean_attention = attention[chosen].mean(axis=0)

    with reader.running():
        inputs_without = reader.hiding(prepared_input)
        lost, divergence, log_probability = unit_losses(reader.module, inputs_without, tokens.ids, units)

    controls: dict[str, Float64Array] = {}
    reversed_example = answered_example.with_passages_reversed()
    if reversed_example is not None:
        controls["reversed"] = _in_reverse(reader.record(reversed_example, selection), chosen_heads, units, answer, by)
    question, neutral_example = answered_example.question_label(by), answered_example.with_question(CONTENT_FREE)
    if reversed_example is not None and neutral_example is not None and question in units.labels:
        neutral_recording = reader.record(neutral_example, selection)
        controls["calibrated"] = _calibrated(neutral_recording, chosen_heads, units, answer, by, question)
    return recording, UnitEffects(
        by=by,
        units=units.labels,
        spans=tuple(zip(units.starts.tolist(), units.stops.tolist(), strict=True)),
        sizes=units.sizes,
        answer=answer,
        heads=tuple(head_name(maps, head) for maps, head in chosen_heads),
        heads_by=heads_by,
        kurtosis=scores[chosen],
        attention=mean_attention,
        lost=lost,
        divergence=divergence,
        log_probability=log_probability,
        passes=len(units) + 1 + len(controls),
        controls=controls,
    )


def _in_reverse(
    recording: "Recording", heads: list[MeasuredHead], units: Units, answer: int, by: str
) -> "Float64Array":
    """Returns the answer's weight on each unit before it, ``(answer,)``, where passages stand in reverse order."""
    from attnviz.effects.unit_effects import weights_of_answer

    same_heads = _same_heads(recording, heads)
    reversed_units, reversed_answer = units_of_text(same_heads[0][0].query_tokens, by)
    attention = np.mean([unit_attention(maps, reversed_units, (head,))[0] for maps, head in same_heads], axis=0)
    weight = weights_of_answer(attention, reversed_units.sizes, reversed_answer)
    weight_of_label = dict(zip(reversed_units.labels, weight.tolist(), strict=False))
    return np.array([weight_of_label.get(label, np.nan) for label in units.labels[:answer]])


def _calibrated(
    recording: "Recording", heads: list[MeasuredHead], units: Units, answer: int, by: str, question: str
) -> "Float64Array":
    """Returns QRHead's calibrated score of each unit before the answer, ``(answer,)``; NaN after the question."""
    neutral_heads = _same_heads(recording, heads)
    neutral_units, _ = units_of_text(neutral_heads[0][0].query_tokens, by)
    tokens_of_question = np.flatnonzero(units.numbers == units.labels.index(question))
    scores = question_scores(heads, tokens_of_question)
    neutral_scores = question_scores(
        neutral_heads, np.flatnonzero(neutral_units.numbers == neutral_units.labels.index(question))
    )
    end = min(int(tokens_of_question[0]), len(neutral_scores))  # both texts have the same tokens up to here
    calibrated_scores = np.full(answer, np.nan)
    for unit in range(answer):
        tokens = np.flatnonzero(units.numbers == unit)
        if tokens[-1] < end:
            calibrated_scores[unit] = calibrated_score(scores, neutral_scores, tokens)
    return calibrated_scores


def _same_heads(recording: "Recording", heads: list[MeasuredHead]) -> list[MeasuredHead]:
    """Returns the heads of another recording that have the names of these."""
    names = {(head_name(maps, head), maps.kind) for maps, head in heads}
    return [
        (cell_maps(maps), head)
        for maps in recording.maps
        for head in maps.heads
        if (head_name(maps, head), maps.kind) in names
    ]
