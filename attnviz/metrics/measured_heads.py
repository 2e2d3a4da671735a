"""Measures heads over one text or several into a frame, with their patterns, and selects heads by metrics."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.heads import ChosenHead, captured_metrics_of, head_name, heads_with_cells, measurable_heads
from attnviz.maps.layer_maps import LayerMaps, known_cells
from attnviz.maps.recording import Recording
from attnviz.metrics.call_metrics import HeadNumbers, measure_heads
from attnviz.metrics.head_filter import refuse_filter, texts_of_filter
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure, named_measure
from attnviz.metrics.metrics import METRICS, metric_names
from attnviz.metrics.patterns import FIRST_TOKEN, PATTERN_METRICS, VARIOUS_TOKENS
from attnviz.text.selection import refuse_missing

MAX_MEASURED_CELLS = 2_000_000  # over all heads: half a second; above it, only some blocks of queries are measured
MAX_PATTERN_STRIDE = 16  # the largest stride over blocks of queries at which a head's pattern can still be told


def measured_frame(
    heads: Iterable[tuple[LayerMaps, int]], names: tuple[str, ...] | None = None, stride: int = 1
) -> HeadFrame:
    """Returns a frame of metrics of heads over one text, with a row per head in their order."""
    heads = list(heads)
    names = metric_names(maps for maps, _ in heads) if names is None else names
    head_numbers = measure_heads(heads, names, stride)
    rows = (
        HeadRow.of(maps, numbers.head, numbers.patterns) for (maps, _), numbers in zip(heads, head_numbers, strict=True)
    )
    measures = tuple(metric for name, metric in METRICS.items() if name in names)
    values = [[numbers.values[measure.name] for measure in measures] for numbers in head_numbers]
    return HeadFrame(rows=tuple(rows), measures=measures, values=_number_array(values, len(measures)), stride=stride)


def frame_over_texts(heads: Iterable[tuple[LayerMaps, int]], texts: int) -> HeadFrame:
    """Returns a frame with the means over texts of all metrics; the maps of a head in several texts become one row."""
    heads = list(heads)
    names = metric_names(maps for maps, _ in heads)
    numbers_by_head: dict[tuple[str, str], list[HeadNumbers]] = {}
    maps_by_head: dict[tuple[str, str], LayerMaps] = {}
    for (maps, head), numbers in zip(heads, measure_heads(heads, names), strict=True):
        key = head_name(maps, head), maps.module
        numbers_by_head.setdefault(key, []).append(numbers)
        maps_by_head[key] = maps
    means_and_spreads = [_mean_over_texts(numbers) for numbers in numbers_by_head.values()]
    values = [[means.values[name] for name in names] for means, _ in means_and_spreads]
    spreads = [[head_spreads[name] for name in names] for _, head_spreads in means_and_spreads]
    return HeadFrame(
        rows=tuple(
            replace(HeadRow.of(maps, means.head, means.patterns), item=maps.item if texts == 1 else None)
            for maps, (means, _) in zip(maps_by_head.values(), means_and_spreads, strict=True)
        ),
        measures=tuple(METRICS[name] for name in names),
        values=_number_array(values, len(names)),
        spreads=_number_array(spreads, len(names)),
        texts=texts,
    )


def with_filtered_texts(recording: Recording, filter: str | None) -> Recording:
    """Returns the recording with only the texts of a batch that a filter asks for; unchanged if it asks for none."""
    texts = None if filter is None else texts_of_filter(filter)
    if texts is None:
        return recording
    refuse_missing(tuple(texts), sorted({maps.item for maps in recording.maps}), "text")
    return replace(recording, maps=tuple(maps for maps in recording.maps if maps.item in texts))


def refuse_unknown_measures(sort: str | None, filter: str | None, measures: Iterable[Measure] = ()) -> None:
    """Raises AttnvizError if heads are to be sorted or filtered by what is neither a metric nor one of the measures."""
    known_measures = (*measures, *METRICS.values())
    if sort is not None:
        named_measure(sort, known_measures)
    if filter is not None:
        refuse_filter(filter, [measure.name for measure in known_measures])


def ranked_heads(heads: list[ChosenHead], sort: str | None, top: int | None) -> list[tuple[ChosenHead, float]]:
    """Returns heads sorted by a metric, each with its value; if ``sort`` is ``None``, in their order and with NaN."""
    if sort is None:
        rows = tuple(HeadRow.of(head.maps, head.head) for head in heads)
        frame = HeadFrame(rows=rows, measures=(), values=np.zeros((len(heads), 0)))
        values = [math.nan] * len(heads)
    else:
        name = sort.removeprefix("-")
        if name not in METRICS:
            name = named_measure(sort, [METRICS[each] for each in metric_names(head.maps for head in heads)]).name
        frame = measured_frame(measurable_heads(heads), (name,))
        values = frame.values[:, 0].tolist()
    return [(heads[index], values[index]) for index in frame.selected_rows(sort, top)]


def filtered_heads(heads: list[ChosenHead], filter: str | None) -> list[ChosenHead]:
    """Returns the heads that pass a filter; all if it is ``None``."""
    if filter is None:
        return heads
    return [heads[index] for index in measured_frame(measurable_heads(heads)).selected_rows(filter=filter)]


def pattern_frame(heads: Sequence[ChosenHead]) -> HeadFrame | None:
    """Returns the frame of heads with their patterns, measured within about half a second.

    It measures only some blocks of queries if there are more than `MAX_MEASURED_CELLS` cells. Returns ``None`` if the
    stride over blocks would be above `MAX_PATTERN_STRIDE`, or if a head has neither cells nor captured metrics.
    """
    stride = block_stride(heads_with_cells(heads), MAX_MEASURED_CELLS)
    are_measurable = all(known_cells(head.maps) or captured_metrics_of(head.maps) for head in heads)
    if not are_measurable or stride > MAX_PATTERN_STRIDE:
        return None
    return measured_frame(measurable_heads(heads), PATTERN_METRICS, stride)


def block_stride(heads: Iterable[tuple[LayerMaps, int]], max_cells: int) -> int:
    """Returns the stride over blocks of queries at which about ``max_cells`` cells of all heads are measured."""
    cells = sum(len(maps.query_tokens) * len(maps.key_tokens) for maps, _ in heads)
    return max(1, math.ceil(cells / max_cells))


def _number_array(numbers: list[list[float]], measures: int) -> Float64Array:
    """Returns the numbers as an array, ``(heads, measures)``, also for no head."""
    return np.array(numbers, dtype=np.float64).reshape(len(numbers), measures)


def _mean_over_texts(numbers: list[HeadNumbers]) -> tuple[HeadNumbers, dict[str, float]]:
    """Returns the means of a head's numbers over texts, and the standard deviation of each metric."""
    first_text = numbers[0]
    values, spreads = {}, {}
    for name in first_text.values:
        text_values = np.array([text_numbers.values[name] for text_numbers in numbers])
        known_values = text_values[~np.isnan(text_values)]
        values[name] = float(known_values.mean()) if known_values.size else np.nan
        spreads[name] = float(known_values.std(ddof=1)) if known_values.size > 1 else np.nan
    known_beside_sink = {
        name: [text.beside_sink[name] for text in numbers if not math.isnan(text.beside_sink[name])]
        for name in first_text.beside_sink
    }
    if len({text.sink_label for text in numbers}) == 1:
        sink_label = first_text.sink_label
    else:
        sink_label = FIRST_TOKEN if all(text.sink == 0 for text in numbers) else VARIOUS_TOKENS
    means = replace(
        first_text,
        values=values,
        counts={name: sum(text_numbers.counts[name] for text_numbers in numbers) for name in first_text.counts},
        keys=max(text_numbers.keys for text_numbers in numbers),
        sink_label=sink_label,
        beside_sink={name: float(np.mean(known)) if known else math.nan for name, known in known_beside_sink.items()},
    )
    return means, spreads
