"""Attention weights to one number a query and one a head: the table of metrics, each a function and a line.

A metric of cells is a function of `Grid`: it says which visible keys count for each query, and its number is the weight
on them, absent for a query without one. A metric of rows is a function of `Rows` and gives ``(heads, queries)``. A
head's number is the mean over its queries that have a choice: those that see at least two keys. A metric of columns is
a function of `Columns`, what every key received from those same queries, and gives ``(heads,)``.

Three engines compute them: numpy over maps that are held, torch over long ones, tile by tile, and torch over the texts
of a survey, whose axis comes before the others. Whether a query has a number depends on its grid alone, so that all
heads have it or none.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.maps.captured_metrics import CapturedMetrics
from attnviz.maps.heads import measured_of, tokens_of
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps, is_long
from attnviz.metrics.grid import NEAR, Array, Cells, Grid
from attnviz.metrics.measure import Measure
from attnviz.metrics.needs import ONE_AXIS, Need
from attnviz.metrics.patterns import Pattern, find_patterns
from attnviz.metrics.row_blocks import Columns, GridRows, Rows, blocks_of_rows

STRIPES = 3  # keys whose columns count as vertical stripes


@dataclass(frozen=True)
class Metric(Measure):
    """One line of the table: a measure of where heads look.

    Attributes:
        cells: gives the cells whose weight it is; or
        rows: gives it for each query, ``(heads, queries)``; or
        columns: gives it for each head, ``(heads,)``.
    """

    cells: Callable[[Grid], Cells] | None = field(default=None, compare=False)
    rows: Callable[[Rows], Array] | None = field(default=None, compare=False)
    columns: Callable[[Columns], Array] | None = field(default=None, compare=False)

    def fits(self, grid: Grid) -> bool:
        """False where the axes of a grid are not those that the metric compares."""
        if (grid.cross and self.needs & ONE_AXIS) or (Need.PAIR in self.needs and not grid.is_pair):
            return False
        return grid.in_sequence or Need.SEQUENCE not in self.needs

    def of(self, rows: Rows) -> Array:
        """The number of each query, ``(heads, queries)``; NaN where it has no meaning. Not of a metric of columns."""
        if not self.fits(rows.grid):
            return rows.absent()
        if self.cells is not None:
            return rows.mass(rows.grid.counted_by(self.cells))
        assert self.rows is not None
        return rows.where(rows.grid.choices > 0, self.rows(rows))


@dataclass(frozen=True, eq=False)
class HeadNumbers:
    """What was measured of one head over one text, before it becomes a row of a `HeadFrame`.

    Attributes:
        layer: the layer's number.
        head: the head's number.
        keys: how many keys its queries see in all.
        values: by the name of the metric; NaN where it has no meaning.
        counts: how many queries each value is a mean of.
        sink: the number of the key that receives most.
        sink_label: the label of its token.
    """

    layer: int
    head: int
    keys: int
    values: dict[str, float]
    counts: dict[str, int]
    sink: int
    sink_label: str

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """What the head does, the clearest first."""
        return find_patterns(self.values, self.counts, self.keys, self.sink_label)


def entropy(rows: Rows) -> Array:
    """Entropy of each row in bits, 0 to log2 of the visible keys: −Σ w log2 w (Shannon 1948)."""
    return rows.entropy


def relative_entropy(rows: Rows) -> Array:
    """Entropy over log2 of the visible keys, 0 (one key) to 1 (uniform); absent where one key is visible."""
    return rows.where(rows.grid.choices > 1, rows.entropy / rows.grid.most_bits)


def peak(rows: Rows) -> Array:
    """The largest weight of each row, a share: max w (the "confidence" of Voita et al. 2019)."""
    return rows.peak


def first(grid: Grid) -> Cells:
    """The first token that is not padding (the attention sink of Xiao et al. 2023)."""
    return grid.cells(grid.first_key)


def special(grid: Grid) -> Cells:
    """Tokens that the tokenizer added, such as [SEP] (Clark et al. 2019)."""
    return grid.cells(grid.key("special"))


def itself(grid: Grid) -> Cells:
    """The query's own token."""
    return grid.at_offsets(0, 0)


def previous(grid: Grid) -> Cells:
    """The token before the query; absent for the first token."""
    return grid.at_offsets(-1, -1)


def following(grid: Grid) -> Cells:
    """The token after the query; absent where a causal mask hides it."""
    return grid.at_offsets(1, 1)


def duplicate(grid: Grid) -> Cells:
    """Earlier copies of the query's token (Wang et al. 2022)."""
    return grid.cells(grid.earlier_copies)


def induction(grid: Grid) -> Cells:
    """The tokens after earlier copies of the query's token (Olsson et al. 2022, "prefix matching").

    A token counts only before the query itself.
    """
    return grid.cells(grid.next_keys(grid.earlier_copies) & grid.earlier)


def distance(rows: Rows) -> Array:
    """Mean distance from query to key in tokens: Σ w |q − k| (Vig and Belinkov 2019)."""
    return rows.distance


def distance_spread(rows: Rows) -> Array:
    """Standard deviation of the distance within a row, in tokens: √(Σ w |q − k|² − (Σ w |q − k|)²)."""
    return (rows.squared_distance - rows.distance**2).clip(0) ** 0.5


def locality(grid: Grid) -> Cells:
    """Tokens up to `NEAR` to either side, and the query itself."""
    return grid.at_offsets(-NEAR, NEAR)


def block(grid: Grid) -> Cells:
    """The query's own sentence (the blocks of Kovaleva et al. 2019, figure 1).

    Special tokens belong to no sentence; absent for them, and for a text of one sentence.
    """
    several = (grid.all_keys("sentences") > 0).any(axis=-1, keepdims=True)
    return grid.cells(grid.same("sentences", several))


def pair(grid: Grid) -> Cells:
    """The other text of a pair, special tokens left out."""
    other = grid.key("segments") != grid.query("segments")
    return grid.cells(other & ~grid.key("special") & ~grid.query("special"))


def hidden(rows: Rows) -> Array:
    """The share of the softmax that a causal mask hid: Σ exp(score) over hidden later keys / Σ over all.

    Absent for a query with no later key hidden, and where scores of hidden keys were not kept.
    """
    return rows.where(rows.grid.has_later, rows.hidden)


def sink(columns: Columns) -> Array:
    """Weight on the one key that receives most, whichever it is, a share: maxₖ mean over queries of w."""
    return columns.received.max(axis=-1)


def stripe(columns: Columns) -> Array:
    """Weight on the `STRIPES` keys that receive most, a share: vertical stripes (Kovaleva et al. 2019, figure 1).

    Absent where no more keys than these are seen.
    """
    most = np.sort(columns.received, axis=-1)[..., -STRIPES:].sum(axis=-1)
    return np.where(columns.keys > STRIPES, most, np.nan)


ONE_TEXT = frozenset({Need.SELF_ATTENTION, Need.TWO_TOKENS})
IN_SEQUENCE = ONE_TEXT | {Need.SEQUENCE}
COPIES = frozenset({Need.SELF_ATTENTION, Need.TOKEN_IDS, Need.REPEAT})
METRICS = {
    metric.name: metric
    for metric in (
        Metric("entropy", "entropy", "bits", "entropy of a row", rows=entropy),
        Metric("relative-entropy", "rel. ent.", "share", "entropy over that of a uniform row", rows=relative_entropy),
        Metric("peak", "peak", "share", "largest weight of a row", rows=peak),
        Metric("sink", "sink", "share", "on the key that receives most", columns=sink),
        Metric("stripe", "stripe", "share", f"on the {STRIPES} keys that receive most", columns=stripe),
        Metric("first", "first", "share", "on the first token", cells=first),
        Metric("special", "special", "share", "on special tokens", frozenset({Need.SPECIAL}), special),
        Metric("self", "self", "share", "on the query itself", ONE_TEXT, itself),
        Metric("previous", "previous", "share", "on the token before", IN_SEQUENCE, previous),
        Metric(
            "next",
            "next",
            "share",
            "on the token after",
            frozenset({Need.SELF_ATTENTION, Need.NOT_CAUSAL, Need.SEQUENCE}),
            following,
        ),
        Metric("duplicate", "duplicate", "share", "on earlier copies", COPIES, duplicate),
        Metric(
            "induction", "induction", "share", "on tokens after earlier copies", COPIES | {Need.SEQUENCE}, induction
        ),
        Metric("distance", "distance", "tokens", "mean distance to the key", IN_SEQUENCE, rows=distance),
        Metric("spread", "spread", "tokens", "spread of the distance within a row", IN_SEQUENCE, rows=distance_spread),
        Metric("locality", "locality", "share", f"within {NEAR} tokens", IN_SEQUENCE, locality),
        Metric(
            "block",
            "block",
            "share",
            "within the own sentence",
            frozenset({Need.SELF_ATTENTION, Need.SENTENCES}),
            block,
        ),
        Metric("pair", "pair", "share", "on the other text of a pair", frozenset({Need.PAIR}), pair),
        Metric("hidden", "hidden", "share", "what the causal mask hid", frozenset({Need.CAUSAL_SCORES}), rows=hidden),
    )
}


def measure_heads(
    heads: Iterable[tuple[LayerMaps, int]], names: tuple[str, ...] = tuple(METRICS), every: int = 1
) -> list[HeadNumbers]:
    """The named metrics of these heads in their order; those of one call are measured together, and no others.

    Args:
        heads: the maps and the number of each.
        names: of the metrics.
        every: of how many blocks of queries one is measured.
    """
    heads = list(heads)
    calls: dict[int, tuple[LayerMaps, dict[int, None]]] = {}
    for maps, head in heads:
        calls.setdefault(id(maps), (maps, {}))[1][head] = None
    measured = {
        (id(maps), numbers.head): numbers
        for maps, chosen in calls.values()
        for numbers in measure(maps, names, tuple(chosen), every)
    }
    return [measured[id(maps), head] for maps, head in heads]


def measure(
    maps: LayerMaps, names: tuple[str, ...] = tuple(METRICS), heads: tuple[int, ...] | None = None, every: int = 1
) -> list[HeadNumbers]:
    """The named metrics of these heads of one layer's maps (``None``: of all), in all or some blocks of queries.

    Raises:
        AttnvizError: for maps without single cells that were not measured when they were captured.
    """
    heads = maps.heads if heads is None else heads
    if (held := measured_of(maps)) is not None:
        return [_held_numbers(tokens_of(maps), held, names, head) for head in heads]
    cells = cell_maps(tokens_of(maps))
    measured = {one.head: one for alike in cells.head_groups(heads) for one in _measured(cells, names, alike, every)}
    return [measured[head] for head in heads]


def hold_numbers(maps: CellMaps) -> CapturedMetrics:
    """Every metric of the heads, for maps that are about to lose their cells."""
    found = measure(maps)
    return CapturedMetrics(
        names=tuple(METRICS),
        values=np.array([[one.values[name] for name in METRICS] for one in found], dtype=np.float32),
        counts=np.array([[one.counts[name] for name in METRICS] for one in found], dtype=np.int64),
        sinks=np.array([one.sink for one in found], dtype=np.int64),
        keys=np.array([one.keys for one in found], dtype=np.int64),
    )


def _held_numbers(maps: LayerMaps, held: CapturedMetrics, names: tuple[str, ...], head: int) -> HeadNumbers:
    """What was measured of a head; a metric that was not then is absent."""
    place = maps.positions((head,))[0]
    values = dict(zip(held.names, held.values[place].tolist(), strict=True))
    counts = dict(zip(held.names, held.counts[place].tolist(), strict=True))
    sink = int(held.sinks[place])
    return HeadNumbers(
        layer=maps.layer,
        head=head,
        keys=int(held.keys[place]),
        values={name: values.get(name, np.nan) for name in METRICS if name in names},
        counts={name: counts.get(name, 0) for name in METRICS if name in names},
        sink=sink,
        sink_label=maps.key_tokens.labels[sink],
    )


def _measured(maps: CellMaps, names: tuple[str, ...], heads: tuple[int, ...], every: int) -> list[HeadNumbers]:
    numbers, columns, chosen = measure_queries(maps, names, heads, every)
    means, known = _means(numbers, chosen)
    found = dict(zip(_of_queries(names), means, strict=True))
    count, keys = int(chosen.sum()), int(columns.seen.sum())
    values = {
        name: (metric.columns(columns) if metric.columns else found[name]) if count else np.full(len(heads), np.nan)
        for name, metric in METRICS.items()
        if name in names
    }
    counts = dict.fromkeys(values, count) | dict(zip(found, known, strict=True))
    sinks = columns.received.argmax(axis=-1)
    return [
        HeadNumbers(
            layer=maps.layer,
            head=head,
            keys=keys,
            values={name: float(each[place]) for name, each in values.items()},
            counts=dict(counts),
            sink=int(sinks[place]),
            sink_label=maps.key_tokens.labels[sinks[place]],
        )
        for place, head in enumerate(heads)
    ]


def with_shares(maps: CellMaps) -> CellMaps:
    """The maps with rows that sum to 1: weights as they are, contributions as shares of their rows."""
    if maps.quantity == "weight":
        return maps
    from attnviz.maps.contributions import shares_of_rows

    return shares_of_rows(maps)


def measure_queries(
    maps: CellMaps, names: tuple[str, ...], heads: tuple[int, ...], every: int = 1
) -> tuple[Float64Array, Columns, BoolArray]:
    """Metrics for each query, ``(metrics, heads, queries)``; what keys received; which queries have a choice.

    Of the named metrics those of columns have no number for a query, and are left out. The heads must see the same
    cells: `LayerMaps.head_groups` gives such.
    """
    maps = with_shares(maps)
    metrics, shape = list(_of_queries(names).values()), (len(heads), len(maps.query_tokens))
    numbers = np.full((len(metrics), *shape), np.nan)
    received = np.zeros((len(heads), len(maps.key_tokens)))
    chosen, seen = np.zeros(shape[1], dtype=bool), np.zeros(len(maps.key_tokens), dtype=bool)
    lock = threading.Lock()

    def add(rows: GridRows) -> None:
        """Adds what some rows hold; in one of several threads at once."""
        grid = rows.grid
        for metric, found in zip(metrics, numbers, strict=True):
            found[rows.places, grid.span] = metric.of(rows)
        weights = rows.received
        with lock:
            received[rows.places, : weights.shape[-1]] += weights
            chosen[grid.queries], seen[:] = grid.has_choice, grid.seen

    _each_rows(maps, heads, add, every)
    return numbers, Columns(received / max(1, int(chosen.sum())), seen), chosen


def _each_rows(maps: CellMaps, heads: tuple[int, ...], work: Callable[[GridRows], None], every: int) -> None:
    """Calls a function with the rows of these heads: by torch, in several threads, where long maps name its device."""
    factors = maps.cell_factors() if every == 1 else None
    if factors is not None and factors.device is not None and is_long(len(maps.query_tokens), len(maps.key_tokens)):
        from attnviz.metrics import torch_rows

        torch_rows.each_rows(maps, factors, heads, work)
        return
    for rows in blocks_of_rows(maps, heads, every):
        work(rows)


def _of_queries(names: tuple[str, ...]) -> dict[str, Metric]:
    """The metrics of these names that have a number for each query."""
    return {name: metric for name in names if (metric := METRICS[name]).columns is None}


def _means(numbers: Float64Array, chosen: BoolArray) -> tuple[Float64Array, list[int]]:
    """The means over the chosen queries that have a number, ``(metrics, heads)``, and how many of head 0 these are.

    Args:
        numbers: ``(metrics, heads, queries)``, of which those that do not count are written over by 0.
        chosen: ``(queries,)``.
    """
    counted = chosen & ~np.isnan(numbers)
    count = np.count_nonzero(counted, axis=-1)
    numbers[~counted] = 0
    total = numbers.sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan), count[:, 0].tolist()
