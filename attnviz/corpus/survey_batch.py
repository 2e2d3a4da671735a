"""Opens the model of a survey, and surveys one batch of texts or one picture with it."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.base.printable import printable
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.labels import CaptureOptions
from attnviz.capture.model_calls import run_model
from attnviz.corpus.batches import Batch, SurveyOptions, without_picture
from attnviz.corpus.measure import CallNumbers, measure_call
from attnviz.corpus.sums import Tallies, TextNumbers, offset_bins, position_bins
from attnviz.corpus.survey import Examples, Survey
from attnviz.corpus.texts_grid import CachedGrids, TextBatch
from attnviz.maps.derived import without_sink
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.pooled import CallMetrics, concatenated_metrics
from attnviz.maps.recording import Recording
from attnviz.metrics.call_metrics import measure_queries, metrics_of_queries
from attnviz.metrics.grid import Columns
from attnviz.metrics.metrics import Metric
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import UNSURVEYED, open_reader, refuse_untrained, refuse_unused
from attnviz.text.head_name import KnownHead
from attnviz.text.selection import Selection, refuse_missing
from attnviz.text.tokens import Tokens
from attnviz.version import __version__

SINGLE_TEXT_SETTINGS = ("context", "attention", "pair", "chat", "generate", "truncate")


class BatchModel(Protocol):
    """A model that can run a batch of a survey, such as every `Reader`."""

    @property
    def module(self) -> nn.Module:
        """The module that is called."""

    @property
    def name(self) -> str:
        """The model's name in captions."""

    @property
    def device(self) -> torch.device:
        """The device of its weights."""

    def inputs_of_batch(self, texts: Sequence[Tokens]) -> Any:
        """Returns the arguments of the module for texts, padded at their ends."""


def open_survey_model(
    settings: ModelSettings, selection: Selection, window: int | None, pictures: bool = False
) -> Reader:
    """Returns the reader of a model, opened for many texts or for pictures."""
    refuse_untrained(settings.model, UNSURVEYED)
    if pictures:
        reader = open_reader(settings, "images", selection.tower)
        reader.refuse_absent(selection)
        return reader
    refuse_unused(settings)
    inapplicable = [name for name in SINGLE_TEXT_SETTINGS if getattr(settings, name)]
    if inapplicable:
        raise AttnvizError(f"{option(inapplicable[0])} is for a single text, and a survey reads many; leave it out")
    reader = open_reader(settings, "texts", selection.tower)
    reader.refuse_absent(selection)
    refuse_long_window(reader, window)
    return reader


def refuse_long_window(reader: Reader, window: int | None) -> None:
    """Raises AttnvizError if a window has more tokens than the model reads."""
    limit = None if window is None else reader.limit_for(window)
    if window is not None and limit is not None and window > limit:
        raise AttnvizError(
            f"{option('window', window)} is more tokens than {reader.name} reads; use {option('window', limit)}"
        )


class BatchMeasurements(NamedTuple):
    """The numbers of every measured head in the texts of a batch."""

    heads: tuple[KnownHead, ...]  # the measured heads, whose part is not known
    numbers: TextNumbers  # their numbers, text by text
    sink_labels: dict[int, str]  # the labels of the tokens that receive the most weight, by their numbers
    silent_layers: Mapping[int, str]  # what layers without attention compute, by number; empty if layers were chosen


def measure_batch(model: BatchModel, batch: Batch, options: SurveyOptions) -> BatchMeasurements:
    """Returns the numbers of every chosen head of self-attention in the texts of a batch, sorted by layer and head."""
    metrics = options.metrics
    class_tokens = {
        name: [masks[number] for masks in batch.masks] for number, name in enumerate(options.custom_classes)
    }
    texts = TextBatch([window.tokens for window in batch.windows], model.device, class_tokens)
    grids = CachedGrids(texts, [metric for metric in metrics if metric.columns is None])
    calls = list[tuple[CallSite, tuple[int, ...], CallNumbers]]()

    def receive(site: CallSite, heads: tuple[int, ...], call: AttentionCall, first_head: int) -> None:
        if site.kind == "cross":
            return
        text_count, _, queries, keys = call.shape
        if text_count < len(texts.texts):
            raise AttnvizError(
                f"layer {site.layer} attends over {text_count} of {len(texts.texts)} texts at a time; a survey needs a "
                "model that attends over all texts of a batch at once"
            )
        if (text_count, queries, keys) != (len(texts.texts), texts.width, texts.width):
            raise AttnvizError(
                f"layer {site.layer} attends in parts of {queries} x {keys} tokens over texts of {texts.width}; "
                "a survey needs a model that attends over whole texts"
            )
        for measured_heads, numbers in measure_call(call, [head - first_head for head in heads], grids):
            calls.append((site, tuple(first_head + head for head in measured_heads), numbers))

    block = CaptureBlock(model.module, CaptureOptions(selection=options.selection, stop=True, receive=receive))
    with block, torch.inference_mode():
        run_model(model.module, model.inputs_of_batch(texts.texts))
    block.capture.finish()
    if not calls:
        block.recording()  # raises an error that says why there are no calls
    counts: dict[int, int] = {}
    for site, count in block.capture.head_counts.items():
        counts[site.layer] = max(counts.get(site.layer, 0), count)
    chosen_layers, silent_layers = options.selection.chosen_layers, block.capture.silent_layers
    refuse_missing(chosen_layers, tuple(counts), "layer", silent_layers)
    for layer in chosen_layers or counts:
        refuse_missing(options.selection.heads_of(layer), tuple(range(counts[layer])), f"head in layer {layer}:")
    calls.sort(key=lambda call: (call[0].layer, call[0].module, call[1]))
    heads = tuple(
        KnownHead(site.layer, head, module=printable(site.module))
        for site, chosen_heads, _ in calls
        for head in chosen_heads
    )
    numbers = _joined_numbers(
        [(len(chosen_heads), call_numbers) for _, chosen_heads, call_numbers in calls], texts, metrics
    )
    sink_numbers = set(np.unique(numbers.sinks).tolist())
    labels = {_label_number(label): label for tokens in texts.texts for label in tokens.labels}
    sink_labels = {number: label for number, label in labels.items() if number in sink_numbers}
    return BatchMeasurements(heads, numbers, sink_labels, {} if chosen_layers else silent_layers)


def _joined_numbers(calls: list[tuple[int, CallNumbers]], texts: TextBatch, metrics: Sequence[Metric]) -> TextNumbers:
    """Returns the numbers of all calls of a batch, joined along heads."""
    labels = np.zeros((len(texts.texts), texts.width), dtype=np.int64)
    for label_row, tokens in zip(labels, texts.texts, strict=True):
        label_row[: len(tokens)] = [_label_number(label) for label in tokens.labels]

    def along_heads(arrays: list[Tensor]) -> Any:
        return np.concatenate([array.cpu().numpy() for array in arrays], axis=1)

    def counts_per_head(arrays: list[Tensor]) -> IntArray:
        counts = [array.cpu().numpy().astype(np.int64).sum(axis=0) for array in arrays]
        return np.concatenate(
            [np.tile(call_counts, (heads, 1)) for call_counts, (heads, _) in zip(counts, calls, strict=True)]
        )

    call_numbers = [numbers for _, numbers in calls]
    sinks = along_heads([numbers.received.argmax(-1) for numbers in call_numbers])
    row_metrics = [number for number, metric in enumerate(metrics) if metric.columns is None]
    values = np.full((*sinks.shape, len(metrics)), np.nan)
    values[..., row_metrics] = along_heads([numbers.values for numbers in call_numbers])
    queries = np.full(values.shape, -1, dtype=np.int64)
    queries[..., row_metrics] = along_heads([numbers.queries for numbers in call_numbers])
    for number, metric in enumerate(metrics):
        if metric.columns is None:
            continue
        columns = []
        for numbers in call_numbers:
            received_weights = numbers.received.double().cpu().numpy()
            column = metric.columns(Columns(received_weights, numbers.visible_keys.cpu().numpy()))
            # NaN for a text in which no query sees two keys
            columns.append(np.where(np.isnan(received_weights).any(axis=-1), np.nan, column))
        values[..., number] = np.concatenate(columns, axis=1)
    return TextNumbers(
        values=values,
        queries=queries,
        sinks=np.take_along_axis(labels, sinks, axis=1),
        beside_sink=np.concatenate([numbers.beside_sink for numbers in call_numbers], axis=1),
        weights=along_heads([numbers.weights for numbers in call_numbers]),
        scores=along_heads([numbers.scores for numbers in call_numbers]),
        pairs=counts_per_head([numbers.pairs for numbers in call_numbers]),
        entropies=along_heads([numbers.entropies for numbers in call_numbers]),
        rows=counts_per_head([numbers.rows for numbers in call_numbers]),
    )


def _label_number(label: str) -> int:
    """Returns a number that identifies a label, the same in every run: its CRC-32."""
    return zlib.crc32(label.encode(errors="surrogatepass"))


def survey_of_batch(model: BatchModel, batch: Batch, options: SurveyOptions) -> Survey:
    """Runs a model over one batch and returns the survey of the batch."""
    return _survey_of_measurements(measure_batch(model, batch, options), model.name, batch, options)


def _survey_of_measurements(
    measurements: BatchMeasurements, model: str, batch: Batch, options: SurveyOptions
) -> Survey:
    """Returns the survey that holds the numbers of one batch."""
    ids = np.array([window.id for window in batch.windows], dtype=np.int64)
    tokens = sum(len(window.tokens) for window in batch.windows)
    return Survey(
        heads=measurements.heads,
        metrics=options.metrics,
        tallies=Tallies.of(measurements.numbers, options.metrics, tokens),
        examples=Examples.of(measurements.numbers, ids, lambda index: batch.windows[index].example),
        model=model,
        settings=options.settings,
        corpus=options.corpus,
        custom_classes=options.custom_classes,
        sink_labels=measurements.sink_labels,
        silent_layers=measurements.silent_layers,
        version=__version__,
    )


def survey_of_picture(reader: Reader, batch: Batch, options: SurveyOptions) -> Survey:
    """Returns the survey of a batch that holds one picture."""
    [window] = batch.windows
    recording = reader.record(Example(image=window.text.image), options.selection)
    calls = self_attention(recording)
    if not len(window.tokens):  # those of a module of any kind are known once it has run
        longest_axis = max((maps.query_tokens for maps in calls), key=len)
        batch = batch._replace(windows=[window._replace(tokens=without_picture(longest_axis))])
    measurements = measure_picture(calls, options.metrics)
    measurements = measurements._replace(silent_layers=recording.silent_layers)
    return _survey_of_measurements(measurements, reader.name, batch, options)


def self_attention(recording: Recording) -> list[CellMaps]:
    """Returns the maps over tokens of all calls of self-attention."""
    calls = [without_sink(cell_maps(maps.pooled_source)) for maps in recording.maps if maps.kind == "self"]
    if not calls:
        raise AttnvizError("the model has no self-attention over a picture; use a vision model")
    return calls


def measure_picture(calls: Sequence[CellMaps], metrics: Sequence[Metric]) -> BatchMeasurements:
    """Returns the numbers of every head over one picture, sorted by layer and head.

    Weights by offset and entropies by position are not counted: a patch has neighbours on four sides.
    """
    names = tuple(metric.name for metric in metrics)
    row_metrics = [metric.columns is None for metric in metrics]
    heads, queries, sink_labels = list[KnownHead](), list[IntArray](), list[str]()
    metrics_of_groups = list[CallMetrics]()
    for maps in calls:
        for group in maps.head_groups(maps.heads):
            measured = measure_queries(maps, names, group)
            found = metrics_of_queries(maps, group, names, measured)
            is_counted = (measured.visible_counts > 0) & ~np.isnan(measured.numbers)
            largest_queries = np.where(is_counted, measured.numbers, -np.inf).argmax(axis=-1).T
            group_queries = np.full(found.values.shape, -1, dtype=np.int64)
            group_queries[:, row_metrics] = np.where(found.counts[:, row_metrics] > 0, largest_queries, -1)
            heads += [KnownHead(maps.layer, head, module=maps.module) for head in group]
            sink_labels += [maps.key_tokens.labels[sink] for sink in found.sinks.tolist()]
            metrics_of_groups.append(found)
            queries.append(group_queries)
    order = sorted(range(len(heads)), key=lambda index: (heads[index].layer, heads[index].module, heads[index].head))
    found, count = concatenated_metrics(metrics_of_groups).take(order), len(order)
    numbers = TextNumbers(
        values=np.asarray(found.values[None], dtype=np.float64),
        queries=np.concatenate(queries)[order][None],
        sinks=np.array([[_label_number(sink_labels[index]) for index in order]], dtype=np.int64),
        beside_sink=np.asarray(found.beside_sink[None], dtype=np.float64),
        weights=np.zeros((1, count, offset_bins())),
        scores=np.zeros((1, count, offset_bins())),
        pairs=np.zeros((count, offset_bins()), dtype=np.int64),
        entropies=np.zeros((1, count, position_bins())),
        rows=np.zeros((count, position_bins()), dtype=np.int64),
    )
    labels = {_label_number(label): label for label in sink_labels}
    return BatchMeasurements(tuple(heads[index] for index in order), numbers, labels, {})
