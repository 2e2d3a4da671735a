"""Surveys one picture: records it as `attnviz show` does, and measures its heads by the places of its patches."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.corpus.measuring.survey_batch import BatchMeasurements, label_number, survey_of_measurements
from attnviz.corpus.sums.bins import offset_bins, position_bins
from attnviz.corpus.sums.survey import Survey, SurveyedHead
from attnviz.corpus.sums.tallies import TextNumbers
from attnviz.corpus.texts.batches import Batch, SurveyOptions
from attnviz.maps.heads import maps_over_tokens
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.metrics import Metric, measure_queries, query_means, rest_of_heads
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader


def survey_of_picture(reader: Reader, batch: Batch, options: SurveyOptions) -> Survey:
    """Returns the survey of a batch that holds one picture.

    Raises:
        AttnvizError: if the model refuses the picture, has no self-attention over it, or its cells are unknown.
    """
    [window] = batch.windows
    recording = reader.record(Example(image=window.text.image), options.selection)
    measurements = measure_picture(self_attention(recording), options.metrics)
    return survey_of_measurements(measurements, reader.name, batch, options)


def self_attention(recording: Recording) -> list[CellMaps]:
    """Returns the maps over tokens of all calls of self-attention.

    Raises:
        AttnvizError: if there is no self-attention, or the cells of a call are unknown.
    """
    calls = [cell_maps(maps_over_tokens(maps)) for maps in recording.maps if maps.kind == "self"]
    if not calls:
        raise AttnvizError("the model has no self-attention over a picture; use a vision model")
    return calls


class _HeadRow(NamedTuple):
    """The numbers of one head over a picture."""

    head: SurveyedHead
    values: Float64Array
    places: IntArray
    sink_label: str
    beside_sink: Float64Array


def measure_picture(calls: Sequence[CellMaps], metrics: Sequence[Metric]) -> BatchMeasurements:
    """Returns the numbers of every head over one picture, sorted by layer and head.

    Weights by offset and entropies by position are not counted: a patch has neighbours on four sides.
    """
    rows = list[_HeadRow]()
    for maps in sorted(calls, key=lambda maps: maps.layer):
        for heads in maps.head_groups(maps.heads):
            values, places, sinks, beside_sink = _numbers(maps, heads, metrics)
            labels = [maps.key_tokens.labels[sink] for sink in sinks.tolist()]
            names = [SurveyedHead(maps.layer, head, maps.module) for head in heads]
            rows += map(_HeadRow, names, values.T, places.T, labels, beside_sink)
    rows.sort(key=lambda row: (row.head.layer, row.head.module, row.head.head))
    count = len(rows)
    numbers = TextNumbers(
        values=np.stack([row.values for row in rows])[None],
        places=np.stack([row.places for row in rows])[None],
        sinks=np.array([[label_number(row.sink_label) for row in rows]], dtype=np.int64),
        beside_sink=np.stack([row.beside_sink for row in rows])[None],
        weights=np.zeros((1, count, offset_bins())),
        scores=np.zeros((1, count, offset_bins())),
        pairs=np.zeros((count, offset_bins()), dtype=np.int64),
        entropies=np.zeros((1, count, position_bins())),
        rows=np.zeros((count, position_bins()), dtype=np.int64),
    )
    sink_labels = {label_number(row.sink_label): row.sink_label for row in rows}
    return BatchMeasurements(tuple(row.head for row in rows), numbers, sink_labels)


def _numbers(
    maps: CellMaps, heads: tuple[int, ...], metrics: Sequence[Metric]
) -> tuple[Float64Array, IntArray, IntArray, Float64Array]:
    """Returns the numbers of heads that share their visible cells; queries that see a single key do not count."""
    names = tuple(metric.name for metric in metrics)
    measured = measure_queries(maps, names, heads)
    query_numbers, columns, visible_counts = measured
    has_choice = visible_counts > 0
    is_counted = has_choice & ~np.isnan(query_numbers)
    means, counts = query_means(query_numbers, has_choice, names)
    largest_queries = np.where(counts > 0, np.where(is_counted, query_numbers, -np.inf).argmax(axis=-1), -1)
    row_metrics = [index for index, metric in enumerate(metrics) if metric.columns is None]
    values = np.full((len(metrics), len(heads)), np.nan)
    places = np.full(values.shape, -1, dtype=np.int64)
    values[row_metrics], places[row_metrics] = means, largest_queries
    for index, metric in enumerate(metrics):
        if metric.columns is not None and has_choice.any():
            values[index] = metric.columns(columns)
    return values, places, columns.received.argmax(axis=-1), rest_of_heads(maps, heads, names, measured, means)
