"""Returns the means of a survey as a `HeadFrame` with a pattern for each head, and the places of chosen heads."""

from collections.abc import Sequence

import numpy as np

from attnviz.corpus.sums.survey import DECILES, Survey
from attnviz.corpus.sums.tallies import NO_SINK, VARIOUS_SINKS
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.patterns import find_patterns
from attnviz.text.selection import Selection, refuse_missing


def survey_frame(survey: Survey, places: Sequence[int]) -> HeadFrame:
    """Returns means over texts of the heads at these places, with standard deviations, margins, counts and deciles."""
    chosen, measures = list(places), range(len(survey.metrics))
    deciles = [[survey.deciles(place, number) for number in measures] for place in chosen]
    return HeadFrame(
        rows=tuple(_row(survey, place) for place in chosen),
        measures=survey.metrics,
        values=survey.means[chosen],
        spreads=survey.spreads[chosen],
        margins=survey.margins[chosen],
        counts=survey.tallies.count[chosen],
        deciles=np.array(deciles).reshape(len(chosen), len(measures), len(DECILES)),
        texts=survey.texts,
    )


def chosen_places(survey: Survey, selection: Selection) -> list[int]:
    """Returns the places of the chosen heads in ``survey.heads``.

    Raises:
        AttnvizError: if the survey lacks a chosen layer or head.
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


def _row(survey: Survey, place: int) -> HeadRow:
    """Returns the row of a head, with the patterns that its means show."""
    head, names = survey.heads[place], [metric.name for metric in survey.metrics]
    means, counts = (
        dict(zip(names, each[place].tolist(), strict=True)) for each in (survey.means, survey.tallies.count)
    )
    keys = survey.tokens // max(1, survey.texts)
    patterns = find_patterns(means, counts, keys, _sink_label(survey, place))
    return HeadRow(((head.layer, head.head),), "self", head.module, patterns)


def _sink_label(survey: Survey, place: int) -> str:
    number = int(survey.tallies.sinks[place])
    if number in (NO_SINK, VARIOUS_SINKS):
        return "various tokens"
    return survey.sink_labels.get(number, "various tokens")
