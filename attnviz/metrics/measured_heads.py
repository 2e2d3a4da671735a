"""Measures heads over one text or several into a frame, with their patterns, and selects heads by metrics."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.heads import ChosenHead, can_be_measured, heads_with_cells, measurable_heads
from attnviz.maps.layer_maps import LayerMaps
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import named_measure
from attnviz.metrics.metrics import METRICS, HeadNumbers, measure_heads, metric_names
from attnviz.metrics.patterns import PATTERN_METRICS

MAX_MEASURED_CELLS = 2_000_000  # over all heads: half a second; above it, only some blocks of queries are measured
MAX_PATTERN_STRIDE = 16  # the largest stride over blocks of queries at which a head's pattern can still be told


def measured_frame(
    heads: Iterable[tuple[LayerMaps, int]], names: tuple[str, ...] | None = None, stride: int = 1
) -> HeadFrame:
    """Measures heads over one text into a frame, with a row per head in their order.

    Args:
        heads: maps with the number of a head.
        names: the names of the metrics; ``None`` for all of the heads' maps.
        stride: the stride over blocks of queries; 1 measures all.
    """
    heads = list(heads)
    names = metric_names(maps for maps, _ in heads) if names is None else names
    measured = measure_heads(heads, names, stride)
    rows = (_row(maps.module, maps.kind, numbers) for (maps, _), numbers in zip(heads, measured, strict=True))
    measures = tuple(metric for name, metric in METRICS.items() if name in names)
    values = [[numbers.values[measure.name] for measure in measures] for numbers in measured]
    return HeadFrame(rows=tuple(rows), measures=measures, values=_array(values, len(measures)), stride=stride)


def frame_over_texts(heads: Iterable[tuple[LayerMaps, int]], texts: int) -> HeadFrame:
    """Computes all metrics of heads as means over texts; the maps of a head in several texts become one row.

    Args:
        heads: maps with the number of a head, for every text.
        texts: the number of texts.
    """
    heads = list(heads)
    names = metric_names(maps for maps, _ in heads)
    grouped: dict[tuple[str, int, int, str], list[HeadNumbers]] = {}
    for (maps, head), numbers in zip(heads, measure_heads(heads, names), strict=True):
        grouped.setdefault((maps.module, maps.layer, head, maps.kind), []).append(numbers)
    combined = [_mean_over_texts(numbers) for numbers in grouped.values()]
    return HeadFrame(
        rows=tuple(
            _row(module, kind, means) for (module, _, _, kind), (means, _) in zip(grouped, combined, strict=True)
        ),
        measures=tuple(METRICS[name] for name in names),
        values=_array([[means.values[name] for name in names] for means, _ in combined], len(names)),
        spreads=_array([[spreads[name] for name in names] for _, spreads in combined], len(names)),
        texts=texts,
    )


def ranked_heads(heads: list[ChosenHead], sort: str | None, top: int | None) -> list[tuple[ChosenHead, float]]:
    """Returns heads sorted by a metric, each with its value; without a metric, in their order and with NaN.

    Args:
        heads: the heads to sort.
        sort: the name of a metric, as `HeadFrame.selected_rows` takes it; ``None`` keeps the order.
        top: the number of heads to keep; ``None`` for all.

    Raises:
        AttnvizError: for an unknown metric, a metric that applies to no head, or a ``top`` below 1.
    """
    names = () if sort is None else (named_measure(sort, METRICS.values()).name,)
    rows = tuple(HeadRow(((head.maps.layer, head.head),)) for head in heads)
    frame = HeadFrame(rows=rows, measures=(), values=np.zeros((len(heads), 0)))
    if names:
        frame = measured_frame(measurable_heads(heads), names)
    return [
        (heads[place], float(frame.values[place, 0]) if names else math.nan) for place in frame.selected_rows(sort, top)
    ]


def filtered_heads(heads: list[ChosenHead], filter: str | None) -> list[ChosenHead]:
    """Returns the heads that pass a filter; all if it is ``None``.

    Raises:
        AttnvizError: for an invalid filter, or one that no head passes.
    """
    if filter is None:
        return heads
    return [heads[place] for place in measured_frame(measurable_heads(heads)).selected_rows(filter=filter)]


def pattern_frame(heads: Sequence[ChosenHead]) -> HeadFrame | None:
    """Returns the frame of heads with their patterns, measured within about half a second.

    It measures only some blocks of queries if there are more than `MAX_MEASURED_CELLS` cells. Returns ``None`` if the
    stride over blocks would be above `MAX_PATTERN_STRIDE`, or if a head has neither cells nor captured metrics.
    """
    stride = block_stride(heads_with_cells(heads), MAX_MEASURED_CELLS)
    measurable = all(can_be_measured(head.maps) for head in heads)
    return (
        measured_frame(measurable_heads(heads), PATTERN_METRICS, stride)
        if measurable and stride <= MAX_PATTERN_STRIDE
        else None
    )


def block_stride(heads: Iterable[tuple[LayerMaps, int]], max_cells: int) -> int:
    """Returns the stride over blocks of queries at which about ``max_cells`` cells of all heads are measured."""
    cells = sum(len(maps.query_tokens) * len(maps.key_tokens) for maps, _ in heads)
    return max(1, -(-cells // max_cells))


def _row(module: str, kind: str, numbers: HeadNumbers) -> HeadRow:
    """Returns the row of a head, with its patterns."""
    return HeadRow(((numbers.layer, numbers.head),), kind, module, numbers.patterns)


def _array(numbers: list[list[float]], measures: int) -> Float64Array:
    """Returns the numbers as an array, ``(heads, measures)``, also if there is no head."""
    return np.array(numbers, dtype=np.float64).reshape(len(numbers), measures)


def _mean_over_texts(numbers: list[HeadNumbers]) -> tuple[HeadNumbers, dict[str, float]]:
    """Returns the means of one head's numbers over its texts, and their standard deviations by metric."""
    first = numbers[0]
    values, spreads = {}, {}
    for name in first.values:
        defined = np.array([of_text.values[name] for of_text in numbers])
        defined = defined[~np.isnan(defined)]
        values[name] = float(defined.mean()) if defined.size else np.nan
        spreads[name] = float(defined.std(ddof=1)) if defined.size > 1 else np.nan
    means = replace(
        first,
        values=values,
        counts={name: sum(of_text.counts[name] for of_text in numbers) for name in first.counts},
        keys=max(of_text.keys for of_text in numbers),
        sink_label=_shared_label(numbers),
    )
    return means, spreads


def _shared_label(numbers: list[HeadNumbers]) -> str:
    """Returns the label of the token that receives most weight in every text, or a phrase for several such tokens."""
    [(label, count)] = Counter(of_text.sink_label for of_text in numbers).most_common(1)
    if count == len(numbers):
        return label
    return "first token" if all(of_text.sink == 0 for of_text in numbers) else "various tokens"
