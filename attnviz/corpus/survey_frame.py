"""Returns the means of a survey as a `HeadFrame` with a pattern for each head, and the indices of chosen heads."""

from collections.abc import Sequence

import numpy as np

from attnviz.corpus.sums.survey import DECILES, Survey
from attnviz.corpus.sums.tallies import NO_SINK, VARIOUS_SINKS
from attnviz.metrics.beside_sink import REST_METRICS
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.patterns import find_patterns
from attnviz.text.selection import Selection
from attnviz.text.towers import refuse_other_tower


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
    patterns = find_patterns(means, counts, beside_sink, mean_length, _sink_label(survey, index))
    return HeadRow(((head.layer, head.head),), "self", head.module, patterns, part=head.part)


def _sink_label(survey: Survey, index: int) -> str:
    """Returns the label of the token that receives the most weight in every text."""
    number = int(survey.tallies.sinks[index])
    if number in (NO_SINK, VARIOUS_SINKS):
        return "various tokens"
    return survey.sink_labels.get(number, "various tokens")
