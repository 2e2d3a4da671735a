"""Makes tables of the heads of surveys: means with patterns, indices of chosen heads, and changes of two surveys."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.corpus.sums.survey import DECILES, Survey
from attnviz.corpus.sums.tallies import NO_SINK, VARIOUS_SINKS
from attnviz.metrics.head_frame import HeadChanges, HeadFrame, HeadRow, number_changes
from attnviz.metrics.patterns import REST_METRICS, find_patterns
from attnviz.text.head_name import HeadName
from attnviz.text.selection import Selection
from attnviz.text.towers import refuse_other_tower

FORMAT, VERSION = "attnviz survey changes", 1


def survey_frame(survey: Survey, indices: Sequence[int]) -> HeadFrame:
    """Returns the means over texts of every metric, with standard deviations, margins, counts and deciles."""
    head_indices, metric_indices = list(indices), range(len(survey.metrics))
    deciles = [[survey.deciles(head, metric) for metric in metric_indices] for head in head_indices]
    return HeadFrame(
        rows=tuple(_row(survey, index) for index in head_indices),
        measures=survey.metrics,
        values=survey.means[head_indices],
        spreads=survey.spreads[head_indices],
        margins=survey.margins[head_indices],
        counts=survey.tallies.count[head_indices],
        deciles=np.array(deciles).reshape(len(head_indices), len(metric_indices), len(DECILES)),
        texts=survey.texts,
    )


def chosen_places(survey: Survey, selection: Selection) -> list[int]:
    """Returns the indices of the selected heads in ``survey.heads``; all indices if nothing is selected.

    They ascend, except that pairs of layer and head keep the order in which the user gave them.

    Raises:
        AttnvizError: if the survey lacks a selected layer or head, or the selection names a tower.
    """
    refuse_other_tower(selection.tower, "", "a survey", "")
    return selection.places_in([head.known_head for head in survey.heads])


def _row(survey: Survey, index: int) -> HeadRow:
    """Returns the row of the head at an index of ``survey.heads``, with the patterns that its means show."""
    head, names = survey.heads[index], [metric.name for metric in survey.metrics]
    means, counts = (
        dict(zip(names, table[index].tolist(), strict=True)) for table in (survey.means, survey.tallies.count)
    )
    mean_length = survey.tokens // max(1, survey.texts)  # 0 for a survey without texts
    with np.errstate(invalid="ignore"):
        beside_means = survey.tallies.beside_sums.total[index] / survey.tallies.beside_count[index]
    beside_sink = dict(zip(REST_METRICS, beside_means.tolist(), strict=True))
    sink = int(survey.tallies.sinks[index])  # the token that receives the most weight in every text
    labels = {} if sink in (NO_SINK, VARIOUS_SINKS) else survey.sink_labels
    patterns = find_patterns(means, counts, beside_sink, mean_length, labels.get(sink, "various tokens"))
    return HeadRow((HeadName(head.layer, head.head, head.part),), "self", head.module, patterns)


def survey_changes(before: Survey, after: Survey, indices: Sequence[int], metric: str | None = None) -> HeadChanges:
    """Returns the changes of the metrics of heads between two surveys, the clearest first.

    The surveys are treated as independent samples of texts. Heads that only one survey has are left out.

    Raises:
        AttnvizError: if the surveys have no head with a metric in common.
    """
    frame_before, frame_after = survey_frame(before, indices), survey_frame(after, range(len(after.heads)))
    if metric is not None:
        frame_before = frame_before.select([metric])
    changes = number_changes(frame_before, frame_after)
    if not changes:
        raise AttnvizError(
            f"no head has {metric or 'a metric'} in both surveys; choose surveys of one model with the same metrics"
        )
    changes.sort(key=lambda change: -change.clearness)
    origins = {"format": FORMAT, "version": VERSION, "before": _origin(before), "after": _origin(after)}
    return HeadChanges(tuple(changes), _remarks(before, after), origins)


def _origin(survey: Survey) -> dict[str, Any]:
    corpus = list(survey.corpus)
    return {"model": survey.model, "corpus": corpus, "texts": survey.texts, "tokens": survey.tokens}


def _remarks(before: Survey, after: Survey) -> tuple[str, ...]:
    """Returns sentences on two surveys: the model and corpus of each, and what they do not share."""
    remarks = [
        f"Before: {before.model} over {before.texts} {before.example_noun} of {', '.join(before.corpus)}. "
        f"After: {after.model} over {after.texts} {after.example_noun} of {', '.join(after.corpus)}."
    ]
    if before.model != after.model:
        remarks.append("The models differ: heads of the same number need not do the same.")
    if before.corpus != after.corpus or (before.texts, before.tokens) != (after.texts, after.tokens):
        remarks.append(f"The corpora differ: a number may change merely because the {after.example_noun} differ.")
    heads_before, heads_after = ({head.name for head in survey.heads} for survey in (before, after))
    unmatched_heads = heads_before ^ heads_after
    if unmatched_heads:
        subject = "1 head is" if len(unmatched_heads) == 1 else f"{len(unmatched_heads)} heads are"
        remarks.append(f"{subject} in only one survey and omitted.")
    return tuple(remarks)
