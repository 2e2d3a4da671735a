"""The metrics of the heads whose exact numbers are shown, and what each head does, for a medium that lists them."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.heads import heads_with_cells
from attnviz.metrics.head_patterns import blocks_apart
from attnviz.metrics.metrics import METRICS, measure_heads
from attnviz.metrics.patterns import Pattern, find_patterns
from attnviz.report.numbers import HeadCells, Numbers

MAX_MEASURED_CELLS = 50_000_000  # of all heads: about a second; of more, some of the queries are measured
CHANGES = {
    "change": ("share", "total variation between A and B, mean over the queries"),
    "divergence": ("bits", "Jensen-Shannon divergence of A and B, mean over the queries"),
}


@dataclass(frozen=True, eq=False)
class HeadsMeasured:
    """A number for every head and metric, and what heads do.

    Attributes:
        names: of the metrics that any head has.
        units: of each: ``share``, ``bits`` or ``tokens``.
        meanings: of each, in one phrase.
        values: ``(heads, metrics)``; NaN where a head has no such number.
        patterns: one entry a head, the clearest pattern first; empty where nothing is known.
        every: of how many blocks of queries one was measured.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    meanings: tuple[str, ...]
    values: Float64Array
    patterns: tuple[tuple[Pattern, ...], ...]
    every: int = 1


def measure_shown(numbers: Numbers) -> HeadsMeasured | None:
    """The metrics of all heads, over all their queries and keys; how much each changed where two runs are compared.

    ``None`` where single cells of a head are not known.
    """
    if len(numbers.heads[0].sides) > 1:
        return _changes(numbers.heads)
    heads = [(head.maps, head.head) for head in numbers.heads]
    maps = heads_with_cells(numbers.heads)
    if len(maps) < len(heads):
        return None
    every = blocks_apart(maps, MAX_MEASURED_CELLS)
    measured = measure_heads(maps, every=every)
    values = np.array([[one.values[name] for name in METRICS] for one in measured], dtype=np.float64)
    present = [place for place, column in enumerate(values.T) if not np.isnan(column).all()]
    if not present:
        return None
    metrics = [tuple(METRICS.values())[place] for place in present]
    return HeadsMeasured(
        names=tuple(metric.name for metric in metrics),
        units=tuple(metric.unit for metric in metrics),
        meanings=tuple(metric.meaning for metric in metrics),
        values=values[:, present],
        patterns=tuple(find_patterns(one) for one in measured),
        every=every,
    )


def _changes(heads: tuple[HeadCells, ...]) -> HeadsMeasured | None:
    if not all(head.change for head in heads):
        return None
    values = [[head.change["variation_mean"], head.change["divergence_mean"]] for head in heads]
    return HeadsMeasured(
        names=tuple(CHANGES),
        units=tuple(unit for unit, _ in CHANGES.values()),
        meanings=tuple(meaning for _, meaning in CHANGES.values()),
        values=np.array(values, dtype=np.float64),
        patterns=((),) * len(heads),
    )
