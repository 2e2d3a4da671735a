"""The metrics of the heads whose exact numbers are shown, and what each head does, for a medium that lists them."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.heads import heads_with_cells
from attnviz.maps.layer_maps import cell_maps
from attnviz.metrics.head_patterns import blocks_apart
from attnviz.metrics.metrics import METRICS, Metric, measure_heads
from attnviz.metrics.patterns import Pattern, find_patterns
from attnviz.report.added_numbers import MOVED, added_effect
from attnviz.report.numbers import HeadCells, Numbers

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects

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
        units: of each: ``share``, ``bits``, ``tokens``, ``norm`` or ``change``.
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


def measure_shown(numbers: Numbers, effects: "Effects | None" = None) -> HeadsMeasured | None:
    """The metrics of all heads, over all their queries and keys; how much each changed where two runs are compared.

    Args:
        numbers: of the heads.
        effects: what an output loses without each of them, as one more number.

    ``None`` where single cells of a head are not known.
    """
    measured = _changes(numbers.heads) if len(numbers.heads[0].sides) > 1 else _measured(numbers.heads)
    if measured is None:
        return None
    added = [*_effect(numbers.heads, effects), *_moved(numbers.heads)]
    return replace(
        measured,
        names=(*(metric.name for metric, _ in added), *measured.names),
        units=(*(metric.unit for metric, _ in added), *measured.units),
        meanings=(*(metric.meaning for metric, _ in added), *measured.meanings),
        values=np.column_stack([*(values for _, values in added), measured.values]),
    )


def _effect(heads: tuple[HeadCells, ...], effects: "Effects | None") -> list[tuple[Metric, list[float]]]:
    """What is lost without each head; NaN for one that is not known."""
    if effects is None:
        return []
    added = added_effect(effects)
    return [(added.metric, [added.values.get((head.maps.layer, head.head), math.nan) for head in heads])]


def _moved(heads: tuple[HeadCells, ...]) -> list[tuple[Metric, list[float]]]:
    """What each head moves, where that is known of all, and their cells are few enough."""
    cells = sum((head.queries.stop - head.queries.start) * (head.keys.stop - head.keys.start) for head in heads)
    if cells > MAX_MEASURED_CELLS or any(len(head.sides) > 1 or head.maps.moved is None for head in heads):
        return []
    from attnviz.maps.contributions import contribution_maps, moved_by

    each = {id(head.maps): head.maps for head in heads}
    known = {name: maps if maps.quantity == "contribution" else contribution_maps(maps) for name, maps in each.items()}
    moved = [moved_by(cell_maps(known[id(head.maps)]), head.head, head.queries, head.keys) for head in heads]
    return [(MOVED, moved)]


def _measured(shown: tuple[HeadCells, ...]) -> HeadsMeasured | None:
    heads = [(head.maps, head.head) for head in shown]
    maps = heads_with_cells(shown)
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
