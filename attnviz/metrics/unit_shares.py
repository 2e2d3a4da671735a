"""Measures where the last unit of a text looks: its share on each earlier unit, without sink and marks, and its lift.

A unit is a turn, a sentence or any other group of tokens. The last one is the answer of a chat, or what is read last.
The sink is the first token, special tokens, and tokens of no turn, which draw weight whatever they say (Xiao et al.
2023); it has a share of its own, so that all shares of a head add up to 1.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.text.groups import Groups
from attnviz.text.named_groups import REMAINDER_LABELS, named_groups
from attnviz.text.units import Units

MIN_RUN_KEYS = 256  # mean number of keys of a run, from which on runs are streamed one by one
MAX_STREAMED_CELLS = 2**27  # of all heads that are streamed at once; a run keeps 12 bytes for 64 of them
MAX_STREAMED_HEADS = 32  # for which a band has rows enough
MAX_BAND_CELLS = 2**20  # weights of a head that are read at once
MAX_UNIT_COLUMNS = 24  # units with a column in a table of heads; of more, those with the largest shares
RETRIEVAL, LIFT, LOOKBACK = "retrieval", "lift", "lookback"


@dataclass(frozen=True, eq=False)
class UnitShares:
    """The weights of the last unit's queries of some heads of an attention call, by unit.

    Attributes:
        maps: the attention call.
        heads: the numbers of the heads.
        last: the label of the last unit, whose tokens are the queries.
        labels: the labels of the units that it sees; the last of them is itself in self-attention.
        numbers: ``(units,)``, the number of each unit on the axis of the keys, as in `Units`.
        last_number: the number of the last unit on the axis of the queries.
        spans: the first token of each unit, and the one after its last.
        shares: ``(heads, units)``, the weight on each unit without its sink tokens, mean over the queries.
        sink: ``(heads,)``, the weight on the sink, mean over the queries.
        even: ``(heads, units)``, the share of a unit among the visible keys, mean over the queries: its share if every
            key received the same weight.
        lookback: ``(heads,)``, the mean weight of a key before the last unit over the sum of that and the mean weight
            of its own keys, mean over the queries (lookback ratio of Chuang et al. 2024); NaN in cross-attention.
    """

    maps: LayerMaps
    heads: tuple[int, ...]
    last: str
    labels: tuple[str, ...]
    numbers: IntArray
    last_number: int
    spans: tuple[slice, ...]
    shares: Float64Array
    sink: Float64Array
    even: Float64Array
    lookback: Float64Array

    @cached_property
    def earlier(self) -> IntArray:
        """The indices of the units before the last one; of all units in cross-attention."""
        if self.maps.kind == "cross":
            return np.arange(len(self.labels))
        return np.flatnonzero(self.numbers != self.last_number)

    @property
    def retrieval(self) -> Float64Array:
        """The weight on all earlier units, ``(heads,)``."""
        return np.asarray(self.shares[:, self.earlier].sum(axis=1))

    @cached_property
    def lift(self) -> Float64Array:
        """The share of each unit over its even share, ``(heads, units)``: 1 if every key receives the same weight."""
        return np.divide(self.shares, self.even, out=np.zeros_like(self.shares), where=self.even > 0)

    @cached_property
    def excess(self) -> Float64Array:
        """How much each earlier unit stands out, ``(heads, earlier units)``, in bits: share · log2 lift."""
        shares, lift = self.shares[:, self.earlier], self.lift[:, self.earlier]
        return np.asarray(shares * np.log2(np.maximum(lift, np.finfo(np.float64).tiny)))


def unit_shares(maps: LayerMaps, by: str, heads: tuple[int, ...] | None = None) -> UnitShares | None:
    """Returns the shares of the last unit of an attention call; ``None`` without single cells or an earlier unit.

    Args:
        maps: the attention call, over tokens.
        by: the name of the groups, as in `named_groups`.
        heads: the numbers of the heads; ``None`` for all.
    """
    if maps.block != (1, 1) or named_groups(maps.query_tokens, by) is None:
        return None
    cells = cell_maps(maps)
    rows, keys = Units.of(maps.query_tokens, by), Units.of(maps.key_tokens, by)
    last, sink = last_unit(rows, by), sink_tokens(keys, by)
    seen = np.unique(keys.numbers[~sink])
    if last is None or len(seen) < 2:
        return None
    queries = np.flatnonzero(rows.numbers == last)
    start = len(keys.tokens) if maps.kind == "cross" else queries[0]
    sinks = len(seen) + (np.arange(len(keys.tokens)) >= start)  # before the last unit, and in it
    columns = np.where(sink, sinks, np.searchsorted(seen, keys.numbers))
    chosen = maps.heads if heads is None else heads
    weights, counts = _weights(cells, chosen, queries, columns), _counts(cells, chosen, queries, columns)
    return UnitShares(
        maps=maps,
        heads=chosen,
        last=rows.labels[last],
        labels=tuple(keys.labels[unit] for unit in seen),
        numbers=seen,
        last_number=last,
        spans=tuple(slice(int(keys.starts[unit]), int(keys.stops[unit])) for unit in seen),
        shares=weights[:, :, : len(seen)].mean(axis=1),
        sink=weights[:, :, len(seen) :].sum(axis=2).mean(axis=1),
        even=_divided(counts, counts.sum(axis=2, keepdims=True))[:, :, : len(seen)].mean(axis=1),
        lookback=_lookback(weights, counts, columns[start:]),
    )


def unit_frame(heads: Iterable[tuple[LayerMaps, int]], by: str) -> tuple[HeadFrame, tuple[UnitShares, ...]]:
    """Returns retrieval, lift, lookback and the shares of earlier units of heads, and what they were read from.

    Args:
        heads: the maps and the number of each head.
        by: the name of the groups.
    """
    heads_of: dict[int, tuple[LayerMaps, list[int]]] = {}
    for maps, head in heads:
        heads_of.setdefault(id(maps), (maps, []))[1].append(head)
    found = [unit_shares(maps, by, tuple(numbers)) for maps, numbers in heads_of.values()]
    shares = tuple(each for each in found if each is not None)
    labels = _columns_of(shares)
    return (
        HeadFrame(
            rows=tuple(HeadRow(((each.maps.layer, head),), each.maps.kind) for each in shares for head in each.heads),
            measures=(*_measures(by), *(Measure(label, label, "share", f"weight on {label}") for label in labels)),
            values=np.concatenate([_values(each, labels) for each in shares]) if shares else np.empty((0, 3)),
        ),
        shares,
    )


def strongest_unit(shares: Iterable[UnitShares]) -> tuple[UnitShares, int, int] | None:
    """Returns the shares, the index of a head and the index of a unit that stands out most; ``None`` if none does."""
    best, most = None, 0.0
    for each in shares:
        if not each.excess.size:
            continue
        head, unit = np.unravel_index(int(each.excess.argmax()), each.excess.shape)
        if each.excess[head, unit] > most:
            best, most = (each, int(head), int(each.earlier[unit])), float(each.excess[head, unit])
    return best


def _measures(by: str) -> tuple[Measure, ...]:
    one = by.removesuffix("s")
    return (
        Measure(RETRIEVAL, RETRIEVAL, "share", f"weight of the last {one} on earlier ones, without sink and marks"),
        Measure(LIFT, LIFT, "times", f"share of the {one} that stands out over its share of the keys"),
        Measure(LOOKBACK, LOOKBACK, "share", f"mean weight of a key before the last {one} over that and its own"),
    )


def _values(each: UnitShares, labels: tuple[str, ...]) -> Float64Array:
    """Returns the numbers of each head, ``(heads, measures)``; NaN for units that an attention call lacks."""
    standing = each.lift[np.arange(len(each.heads)), each.earlier[each.excess.argmax(axis=1)]]
    columns = [each.retrieval, standing, each.lookback]
    nothing = np.full(len(each.heads), np.nan)
    columns += [each.shares[:, each.labels.index(label)] if label in each.labels else nothing for label in labels]
    return np.stack(columns, axis=1)


def _columns_of(shares: tuple[UnitShares, ...]) -> tuple[str, ...]:
    """Returns the labels of the earlier units in their order; of many, those with the largest shares of any head."""
    largest: dict[str, float] = {}
    for each in shares:
        for unit in each.earlier.tolist():
            label = each.labels[unit]
            largest[label] = max(largest.get(label, 0.0), float(each.shares[:, unit].max()))
    kept = sorted(largest, key=lambda label: -largest[label])[:MAX_UNIT_COLUMNS]
    return tuple(label for label in largest if label in kept)


def last_unit(rows: Units, by: str) -> int | None:
    """Returns the number of the unit that ends last and is neither marks nor a special token; ``None`` for none."""
    tokens, marks = rows.tokens, REMAINDER_LABELS.get(by)
    units = [
        unit
        for unit, start in enumerate(rows.starts.tolist())
        if not tokens.special[start] and rows.labels[unit] != marks
    ]
    return max(units, key=lambda unit: int(rows.stops[unit]), default=None)


def sink_tokens(keys: Units, by: str) -> BoolArray:
    """Returns True for tokens of the sink, ``(keys,)``: the first, special ones, and those of no turn or passage."""
    sink = keys.tokens.special.copy()
    sink[keys.tokens.unpadded.start] = True
    if by in REMAINDER_LABELS and REMAINDER_LABELS[by] in keys.labels:
        sink |= keys.numbers == keys.labels.index(REMAINDER_LABELS[by])
    return sink


def _weights(maps: CellMaps, heads: tuple[int, ...], queries: IntArray, columns: IntArray) -> Float64Array:
    """Returns the weights of each query on each column, ``(heads, queries, columns)``.

    Args:
        maps: the attention call.
        heads: the numbers of the heads.
        queries: the indices of the queries, ascending.
        columns: ``(keys,)``, the column of each key; not all columns need to have keys.
    """
    weights = np.zeros((len(heads), len(queries), int(columns.max()) + 1))
    if maps.cell_factors() is not None and len(columns) >= MIN_RUN_KEYS * len(Groups(columns).runs.starts):
        _add_streamed(maps, heads, queries, columns, weights)
        return weights
    for part, span in row_bands(queries, len(columns)):
        for place, head in enumerate(heads):  # one by one, since a window of all heads would be long
            cells = maps.window((head,), span, slice(0, len(columns))).weights[0]
            weights[place, part] = column_sums(cells, columns)[queries[part] - span.start]
    return weights


def _add_streamed(
    maps: CellMaps, heads: tuple[int, ...], queries: IntArray, columns: IntArray, weights: Float64Array
) -> None:
    """Adds the weights of each query on each column, run by run, by the engine of overviews, which is faster on runs.

    Args:
        maps: the attention call, with factors.
        heads: the numbers of the heads.
        queries: the indices of the queries, ascending.
        columns: ``(keys,)``, the column of each key.
        weights: ``(heads, queries, columns)``, to which the weights are added.
    """
    factors, runs = maps.cell_factors(), list(zip(*(each.tolist() for each in Groups(columns).runs), strict=True))
    assert factors is not None
    for part, span in row_bands(queries, max(1, len(columns) // MAX_STREAMED_HEADS)):
        rows = span.stop - span.start
        step = max(1, MAX_STREAMED_CELLS // (rows * len(columns)))
        places = queries[part] - span.start
        for start, stop, column in runs:
            keys, edges = slice(start, stop), np.arange(span.start, span.stop + 1)
            counts = factors.mask.counts(edges, np.array([start, stop]))[:, 0]
            for first in range(0, len(heads), step):
                some = heads[first : first + step]
                means = maps.overview(some, rows, 1, span, keys, maximum=False).mean[:, :, 0].astype(np.float64)
                weights[first : first + step, part, column] += (means * counts)[:, places]


def _counts(maps: CellMaps, heads: tuple[int, ...], queries: IntArray, columns: IntArray) -> Float64Array:
    """Returns the number of visible keys of each query in each column, ``(heads, queries, columns)``."""
    counts = np.zeros((len(heads), len(queries), int(columns.max()) + 1))
    if (factors := maps.cell_factors()) is not None:
        runs = Groups(columns).runs
        rows, edges = np.arange(queries[0], queries[-1] + 2), np.append(runs.starts, runs.stops[-1])
        of_runs = factors.mask.counts(rows, edges)[queries - queries[0]].astype(np.float64)
        counts += of_runs @ (runs.groups[:, None] == np.arange(counts.shape[2]))
        return counts
    for alike in maps.head_groups(heads):
        places = [heads.index(head) for head in alike]
        for part, span in row_bands(queries, len(columns)):
            visible = maps.visibility(alike[0], span, slice(0, len(columns)))
            counts[places, part] = column_sums(visible, columns)[queries[part] - span.start]
    return counts


def column_sums(cells: FloatArray | BoolArray, columns: IntArray) -> Float64Array:
    """Returns the sums of ``(queries, keys)`` cells over the keys of each column, ``(queries, columns)``."""
    runs = Groups(columns).runs
    sums = np.add.reduceat(cells, runs.starts, axis=1, dtype=np.float64)
    joined: Float64Array = sums @ (runs.groups[:, None] == np.arange(int(columns.max()) + 1)).astype(np.float64)
    return joined


def row_bands(queries: IntArray, keys: int) -> Iterator[tuple[slice, slice]]:
    """Yields parts of the queries of at most ``MAX_BAND_CELLS`` cells: their places, and the span that holds them."""
    start = 0
    while start < len(queries):
        most = queries[start] + max(1, MAX_BAND_CELLS // keys)
        stop = int(np.searchsorted(queries, most))
        yield slice(start, stop), slice(int(queries[start]), int(queries[stop - 1]) + 1)
        start = stop


def _divided(numbers: Float64Array, by: Float64Array) -> Float64Array:
    """Returns the quotients; 0 where the divisor is 0."""
    return np.divide(numbers, by, out=np.zeros(np.broadcast_shapes(numbers.shape, by.shape)), where=by > 0)


def _lookback(weights: Float64Array, counts: Float64Array, own: IntArray) -> Float64Array:
    """Returns the lookback ratio of each head, ``(heads,)``; NaN in cross-attention.

    Args:
        weights: ``(heads, queries, columns)``.
        counts: the same shape, the visible keys.
        own: the columns of the keys from the last unit on.
    """
    if not len(own):
        return np.full(len(weights), np.nan)
    new = np.zeros(weights.shape[2], dtype=bool)
    new[np.unique(own)] = True
    before, after = (_divided(weights[:, :, part].sum(axis=2), counts[:, :, part].sum(axis=2)) for part in (~new, new))
    return np.asarray(_divided(before, before + after).mean(axis=1))
