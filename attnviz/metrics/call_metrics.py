"""Measures the heads of one attention call, over blocks of rows or tiles on a device, and of texts into a frame."""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.maps.derived import without_sink
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps, is_long, known_cells
from attnviz.maps.pooled import CallMetrics, concatenated_metrics
from attnviz.maps.recording import (
    ChosenHead,
    Recording,
    captured_metrics_of,
    head_name,
    heads_with_cells,
    measurable_heads,
)
from attnviz.metrics.grid import Array, Cells, Columns, Grid
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure, named_measure, refuse_filter, texts_of_filter
from attnviz.metrics.metrics import METRICS, Metric, metric_names, sink_share
from attnviz.metrics.patterns import (
    FIRST_TOKEN,
    PATTERN_METRICS,
    REST_METRICS,
    VARIOUS_TOKENS,
    Pattern,
    find_patterns,
    is_sink,
    numbers_beside_sink,
)
from attnviz.metrics.query_grid import NumberedTokens, QueryGrid, is_sequence
from attnviz.metrics.row_blocks import GridRows, blocks_of_rows, first_position
from attnviz.text.selection import refuse_missing


@dataclass(frozen=True, eq=False)
class HeadNumbers:
    """The metrics of one head over one text, which become a row of a `HeadFrame`."""

    layer: int  # the layer's number
    head: int  # the head's number
    keys: int  # the number of keys that any query sees
    values: dict[str, float]  # the value of each metric by name; NaN where it does not apply
    counts: dict[str, int]  # the number of queries that each value is a mean of
    sink: int  # the index of the key that receives most weight
    sink_label: str  # the label of that key's token
    beside_sink: dict[str, float]  # the metrics of `REST_METRICS` beside the sink, by name; they decide the patterns

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns of the head, the clearest first."""
        return find_patterns(self.values, self.counts, self.beside_sink, self.keys, self.sink_label)


def measure_heads(
    heads: Iterable[tuple[LayerMaps, int]], names: tuple[str, ...] | None = None, stride: int = 1
) -> list[HeadNumbers]:
    """Returns the metrics of heads, in their order; the heads of one attention call are measured together."""
    heads = list(heads)
    names = metric_names(maps for maps, _ in heads) if names is None else names
    calls = {id(maps): maps for maps, _ in heads}
    heads_of_calls: dict[int, dict[int, None]] = {}  # each call's heads, once each and in their order
    for maps, head in heads:
        heads_of_calls.setdefault(id(maps), {})[head] = None
    numbers_by_head = {
        (call, numbers.head): numbers
        for call, call_heads in heads_of_calls.items()
        for numbers in measure(calls[call], names, tuple(call_heads), stride)
    }
    return [numbers_by_head[id(maps), head] for maps, head in heads]


def measure(
    maps: LayerMaps, names: tuple[str, ...] | None = None, heads: tuple[int, ...] | None = None, stride: int = 1
) -> list[HeadNumbers]:
    """Returns the metrics of heads of one attention call, in the order of ``heads``.

    Maps that were measured during capture give those metrics, whatever the stride.
    """
    heads = maps.heads if heads is None else heads
    names = metric_names([maps]) if names is None else names
    source, metrics = maps.pooled_source, captured_metrics_of(maps)
    indices: Iterable[int] = range(len(heads))
    if metrics is None:
        metrics = _measured_metrics(without_sink(cell_maps(source)), names, heads, stride)
    else:
        indices = source.head_indices(heads)
    head_numbers = []
    for head, index in zip(heads, indices, strict=True):
        values = dict(zip(metrics.names, metrics.values[index].tolist(), strict=True))
        counts = dict(zip(metrics.names, metrics.counts[index].tolist(), strict=True))
        sink = int(metrics.sinks[index])
        numbers = HeadNumbers(
            layer=source.layer,
            head=head,
            keys=int(metrics.keys[index]),
            # a metric that was not measured is NaN with the count 0
            values={name: values.get(name, np.nan) for name in METRICS if name in names},
            counts={name: counts.get(name, 0) for name in METRICS if name in names},
            sink=sink,
            sink_label=source.key_tokens.labels[sink],
            beside_sink=dict(zip(REST_METRICS, metrics.beside_sink[index].tolist(), strict=True)),
        )
        head_numbers.append(numbers)
    return head_numbers


def all_metrics(maps: CellMaps) -> CallMetrics:
    """Returns all metrics of all heads in float32, for maps that drop their single cells."""
    metrics = _measured_metrics(maps, metric_names([maps]), maps.heads)
    values, beside_sink = metrics.values.astype(np.float32), metrics.beside_sink.astype(np.float32)
    return replace(metrics, values=values, beside_sink=beside_sink)


def _measured_metrics(maps: CellMaps, names: tuple[str, ...], heads: tuple[int, ...], stride: int = 1) -> CallMetrics:
    """Returns the metrics of heads, in the order of ``heads``, in float64."""
    groups = maps.head_groups(heads)
    metrics = concatenated_metrics(
        metrics_of_queries(maps, group, names, measure_queries(maps, names, group, stride)) for group in groups
    )
    measured_heads = [head for group in groups for head in group]
    return metrics.take([measured_heads.index(head) for head in heads])


def metrics_of_queries(
    maps: CellMaps, heads: tuple[int, ...], names: tuple[str, ...], measured: "MeasuredQueries"
) -> CallMetrics:
    """Returns the metrics of heads that share their visible cells, given those of their queries."""
    has_choice = measured.visible_counts > 0
    query_count = int(has_choice.sum())
    is_counted = has_choice & ~np.isnan(measured.numbers)
    with_number = np.count_nonzero(is_counted, axis=-1)
    mean_counts = np.zeros_like(with_number)
    for index, metric in enumerate(_query_metrics(names).values()):
        mean_counts[index] = metric.counted_queries(with_number[index], query_count)
    totals = np.sum(measured.numbers, axis=-1, where=is_counted)
    means = np.where(mean_counts > 0, totals / np.maximum(mean_counts, 1), np.nan)
    row_metrics = [METRICS[name].columns is None for name in names]
    values = np.full((len(heads), len(names)), np.nan)
    counts = np.full(values.shape, query_count, dtype=np.int64)  # metrics of columns count all queries
    counts[:, row_metrics] = mean_counts.T
    if query_count:
        values[:, row_metrics] = means.T
        for column, name in enumerate(names):
            column_metric = METRICS[name].columns
            if column_metric is not None:
                values[:, column] = column_metric(measured.columns)
    return CallMetrics(
        names=names,
        values=values,
        counts=counts,
        sinks=np.asarray(measured.columns.received.argmax(axis=-1)),
        keys=np.full(len(heads), measured.columns.visible_keys.sum(), dtype=np.int64),
        beside_sink=_rest_of_heads(maps, heads, names, measured, means),
    )


def normalized_rows(maps: CellMaps) -> CellMaps:
    """Returns other numbers than weights as the shares of their sizes in a row; maps of weights unchanged."""
    if maps.quantity == "weight":
        return maps
    from attnviz.maps.derived import NormalizedMaps

    return NormalizedMaps(**maps.shared_fields(), source=maps)


class MeasuredQueries(NamedTuple):
    """The metrics of each query of heads that share their visible cells."""

    # ``(metrics, heads, queries)``, NaN for queries that were not measured or to which a metric does not apply
    numbers: Float64Array
    columns: Columns  # the weight that the keys receive
    # ``(queries,)``, the number of keys that each measured query sees; 0 for a query that does not count, since it sees
    # one key or is padding
    visible_counts: IntArray


def measure_queries(maps: CellMaps, names: tuple[str, ...], heads: tuple[int, ...], stride: int = 1) -> MeasuredQueries:
    """Returns the metrics of each query, for heads that share their visible cells (see `LayerMaps.head_groups`)."""
    maps = normalized_rows(maps)
    metrics, shape = list(_query_metrics(names).values()), (len(heads), len(maps.query_tokens))
    numbers = np.full((len(metrics), *shape), np.nan)
    received_weights = np.zeros((len(heads), len(maps.key_tokens)))
    counts, visible_keys = np.zeros(shape[1], dtype=np.int64), np.zeros(len(maps.key_tokens), dtype=bool)
    lock = threading.Lock()

    def add(rows: GridRows) -> None:
        grid = rows.grid
        for metric, metric_numbers in zip(metrics, numbers, strict=True):
            metric_numbers[rows.head_range, grid.span] = metric.query_values(rows)
        weights = rows.received
        with lock:
            received_weights[rows.head_range, : weights.shape[-1]] += weights
            counts[grid.queries], visible_keys[:] = grid.visible_counts * grid.has_choice, grid.visible_keys

    factors = maps.cell_factors() if stride == 1 else None
    if factors is not None and factors.device is not None and is_long(len(maps.query_tokens), len(maps.key_tokens)):
        from attnviz.metrics import torch_rows

        torch_rows.process_rows(maps, factors, heads, add)
    else:
        for rows in blocks_of_rows(maps, heads, stride):
            add(rows)
    return MeasuredQueries(
        numbers, Columns(received_weights / max(1, int(np.count_nonzero(counts))), visible_keys), counts
    )


def _rest_of_heads(
    maps: CellMaps, heads: tuple[int, ...], names: tuple[str, ...], measured: MeasuredQueries, means: Float64Array
) -> Float64Array:
    """Returns `REST_METRICS` beside each head's sink, ``(heads, metrics)``; without a sink, its own numbers."""
    maps = normalized_rows(maps)
    metrics = {name: index for index, name in enumerate(_query_metrics(names)) if name in REST_METRICS}
    rest_numbers = np.full((len(heads), len(REST_METRICS)), np.nan)
    for name, index in metrics.items():
        rest_numbers[:, REST_METRICS.index(name)] = means[index]
    sinks, has_sink = measured.columns.received.argmax(axis=-1), is_sink(sink_share(measured.columns))
    all_queries = slice(0, len(maps.query_tokens))
    query_tokens, key_tokens = NumberedTokens(maps.query_tokens), NumberedTokens(maps.key_tokens)
    first = first_position(maps, heads[0])
    for sink in set(sinks[has_sink].tolist()):
        columns = slice(max(0, sink - 1), sink + 1)  # induction looks at the key before a cell
        grid = QueryGrid(
            visible=np.ones((len(maps.query_tokens), columns.stop - columns.start), dtype=bool),
            visible_keys=measured.columns.visible_keys,
            start=0,
            query_tokens=query_tokens,
            key_tokens=key_tokens,
            cross=not maps.has_common_places,
            in_sequence=is_sequence(maps.key_tokens),
            first_column=columns.start,
            first_position=first,
        )
        chosen = np.flatnonzero((sinks == sink) & has_sink)
        weights = maps.window(tuple(heads[index] for index in chosen), all_queries, slice(sink, sink + 1)).weights
        rest_numbers[chosen] = numbers_beside_sink(
            {name: measured.numbers[index][chosen] for name, index in metrics.items()},
            weights[:, :, 0].astype(np.float64),
            sink_cells(grid, [METRICS[name] for name in metrics], lambda cells: cells.is_counted),
            measured.visible_counts,
        )
    return rest_numbers


def sink_cells(grid: Grid, metrics: Iterable[Metric], mask_of: Callable[[Cells], Array]) -> dict[str, Array]:
    """Returns True for queries whose cell of the grid's last key counts for a metric, by the name of the metric."""
    return {
        metric.name: mask_of(grid.cells_of(metric.cells))[..., -1]
        for metric in metrics
        if metric.cells is not None and metric.fits(grid)
    }


def _query_metrics(names: tuple[str, ...]) -> dict[str, Metric]:
    """Returns the named metrics that have a number for each query, by name."""
    return {name: METRICS[name] for name in names if METRICS[name].columns is None}


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
