"""Returns the means of a survey as a `HeadFrame` with a pattern for each head, and the indices of chosen heads."""

from collections.abc import Sequence

import numpy as np

from attnviz.corpus.sums.survey import DECILES, Survey
from attnviz.corpus.sums.tallies import NO_SINK, VARIOUS_SINKS
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.patterns import find_patterns
from attnviz.text.selection import Selection, refuse_missing


def survey_frame(survey: Survey, places: Sequence[int]) -> HeadFrame:
    """Returns means over texts of the heads at these indices, with standard deviations, margins, counts and deciles."""
    chosen_heads, measures = list(places), range(len(survey.metrics))
    deciles = [[survey.deciles(place, number) for number in measures] for place in chosen_heads]
    return HeadFrame(
        rows=tuple(_row(survey, place) for place in chosen_heads),
        measures=survey.metrics,
        values=survey.means[chosen_heads],
        spreads=survey.spreads[chosen_heads],
        margins=survey.margins[chosen_heads],
        counts=survey.tallies.count[chosen_heads],
        deciles=np.array(deciles).reshape(len(chosen_heads), len(measures), len(DECILES)),
        texts=survey.texts,
    )


def chosen_places(survey: Survey, selection: Selection) -> list[int]:
    """Returns the indices of the selected heads in ``survey.heads``.

    Raises:
        AttnvizError: if the survey lacks a selected layer or head.
    """
    layers: dict[int, list[int]] = {}
    for head in survey.heads:
        layers.setdefault(head.layer, []).append(head.head)
    refuse_missing(selection.chosen_layers, tuple(layers), "layer")
    for layer in selection.chosen_layers or layers:
        refuse_missing(selection.heads_of(layer), tuple(layers[layer]), f"head in layer {layer}:")
    if selection.pairs is not None:
        places = {(head.layer, head.head): place for place, head in enumerate(survey.heads)}
        return [places[pair] for pair in selection.pairs]
    return [
        place
        for place, head in enumerate(survey.heads)
        if (selection.layers is None or head.layer in selection.layers)
        and (selection.heads is None or head.head in selection.heads)
    ]


def _row(survey: Survey, index: int) -> HeadRow:
    """Returns the row of a head, with the patterns that its means show."""
    head, names = survey.heads[index], [metric.name for metric in survey.metrics]
    means, counts = (
        dict(zip(names, table[index].tolist(), strict=True)) for table in (survey.means, survey.tallies.count)
    )
    mean_length = survey.tokens // max(1, survey.texts)
    patterns = find_patterns(means, counts, mean_length, _sink_label(survey, index))
    return HeadRow(((head.layer, head.head),), "self", head.module, patterns)


def _sink_label(survey: Survey, index: int) -> str:
    """Returns the label of the token with the most weight in every text; ``various tokens`` if texts differ."""
    number = int(survey.tallies.sinks[index])
    if number in (NO_SINK, VARIOUS_SINKS):
        return "various tokens"
    return survey.sink_labels.get(number, "various tokens")
