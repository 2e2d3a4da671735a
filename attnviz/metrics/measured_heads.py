"""The metrics of heads as a frame: over one text or several, each head with its pattern; and heads chosen by them."""

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
from attnviz.metrics.metrics import METRICS, HeadNumbers, measure_heads
from attnviz.metrics.patterns import MEASURED

MAX_MEASURED_CELLS = 2_000_000  # of all heads: half a second; of more, some of the queries are measured
MAX_LEFT_OUT = 16  # one block of queries in so many is the least that says what a head does


def measured_frame(
    heads: Iterable[tuple[LayerMaps, int]], names: tuple[str, ...] = tuple(METRICS), every: int = 1
) -> HeadFrame:
    """The metrics of heads, a row each in their order.

    Args:
        heads: the maps and the number of each.
        names: of the metrics.
        every: of how many blocks of queries one is measured.
    """
    heads = list(heads)
    measured = measure_heads(heads, names, every)
    rows = (_row(maps.module, maps.kind, one) for (maps, _), one in zip(heads, measured, strict=True))
    measures = tuple(metric for name, metric in METRICS.items() if name in names)
    values = [[one.values[each.name] for each in measures] for one in measured]
    return HeadFrame(rows=tuple(rows), measures=measures, values=_array(values, len(measures)), every=every)


def frame_over_texts(heads: Iterable[tuple[LayerMaps, int]], texts: int) -> HeadFrame:
    """All metrics of heads as means over texts: a row for a head of one number in several texts.

    Args:
        heads: the maps and the number of each, of every text.
        texts: how many texts these are.
    """
    heads = list(heads)
    grouped: dict[tuple[str, int, int, str], list[HeadNumbers]] = {}
    for (maps, head), numbers in zip(heads, measure_heads(heads), strict=True):
        grouped.setdefault((maps.module, maps.layer, head, maps.kind), []).append(numbers)
    combined = [_over_texts(numbers) for numbers in grouped.values()]
    return HeadFrame(
        rows=tuple(_row(module, kind, one) for (module, _, _, kind), (one, _) in zip(grouped, combined, strict=True)),
        measures=tuple(METRICS.values()),
        values=_array([[one.values[name] for name in METRICS] for one, _ in combined], len(METRICS)),
        spreads=_array([[spreads[name] for name in METRICS] for _, spreads in combined], len(METRICS)),
        texts=texts,
    )


def ranked_heads(heads: list[ChosenHead], sort: str | None, top: int | None) -> list[tuple[ChosenHead, float]]:
    """The first heads in the order of a metric, each with its number; without one in their order, with NaN.

    Raises:
        AttnvizError: for an unknown metric, one that no head has, or fewer heads than one.
    """
    names = () if sort is None else (named_measure(sort, METRICS.values()).name,)
    rows = tuple(HeadRow(((head.maps.layer, head.head),)) for head in heads)
    frame = HeadFrame(rows=rows, measures=(), values=np.zeros((len(heads), 0)))
    if names:
        frame = measured_frame(measurable_heads(heads), names)
    return [(heads[place], float(frame.values[place, 0]) if names else math.nan) for place in frame.places(sort, top)]


def filtered_heads(heads: list[ChosenHead], filter: str | None) -> list[ChosenHead]:
    """The heads that a filter leaves; all where there is none.

    Raises:
        AttnvizError: for a filter that is none, or that leaves no head.
    """
    if filter is None:
        return heads
    return [heads[place] for place in measured_frame(measurable_heads(heads)).places(filter=filter)]


def patterns_of(heads: Sequence[ChosenHead]) -> HeadFrame | None:
    """What each head does, found in a moment, over some of the queries where all are too many.

    ``None`` where single cells are not known and were not measured, or all of them are too many to look at.
    """
    every = blocks_apart(heads_with_cells(heads), MAX_MEASURED_CELLS)
    known = all(can_be_measured(head.maps) for head in heads)
    return measured_frame(measurable_heads(heads), MEASURED, every) if known and every <= MAX_LEFT_OUT else None


def blocks_apart(heads: Iterable[tuple[LayerMaps, int]], most: int) -> int:
    """The stride over blocks of queries with which at most so many cells of all heads are measured."""
    cells = sum(len(maps.query_tokens) * len(maps.key_tokens) for maps, _ in heads)
    return max(1, -(-cells // most))


def _row(module: str, kind: str, numbers: HeadNumbers) -> HeadRow:
    return HeadRow(((numbers.layer, numbers.head),), kind, module, numbers.patterns)


def _array(numbers: list[list[float]], measures: int) -> Float64Array:
    return np.array(numbers, dtype=np.float64).reshape(len(numbers), measures)


def _over_texts(numbers: list[HeadNumbers]) -> tuple[HeadNumbers, dict[str, float]]:
    """The numbers of one head as means over its texts, and their standard deviations."""
    first = numbers[0]
    values, spreads = {}, {}
    for name in first.values:
        known = np.array([one.values[name] for one in numbers])
        known = known[~np.isnan(known)]
        values[name] = float(known.mean()) if known.size else np.nan
        spreads[name] = float(known.std(ddof=1)) if known.size > 1 else np.nan
    over_all = replace(
        first,
        values=values,
        counts={name: sum(one.counts[name] for one in numbers) for name in first.counts},
        keys=max(one.keys for one in numbers),
        sink_label=_shared_label(numbers),
    )
    return over_all, spreads


def _shared_label(numbers: list[HeadNumbers]) -> str:
    """The token that receives most in every text, or what these tokens have in common."""
    [(label, count)] = Counter(one.sink_label for one in numbers).most_common(1)
    if count == len(numbers):
        return label
    return "first token" if all(one.sink == 0 for one in numbers) else "various tokens"
