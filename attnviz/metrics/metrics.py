"""Computes metrics of attention weights, per query and per head; each is a function and a line of the table `METRICS`.

A sink, which is a key without a token, is no token of a metric: the rows that metrics read lack its share.

There are three kinds of metrics:

- A metric of cells is a function of `Grid` that selects visible cells. Its number for a query is the weight on these
  cells. A query that sees none of them counts with 0, unless the metric relates the query to a key that it may lack,
  such as the token before it.
- A metric of rows is a function of `Rows` that returns a number per query, ``(heads, queries)``.
- A metric of columns is a function of `Columns`, the weight that each key receives, and returns ``(heads,)``.

A head's number is the mean over the queries that count: they see at least two keys and are no padding. A metric of
rows leaves out queries without a number, and its meaning names those that it counts.

Three engines compute them: numpy for maps in memory, torch for long maps, tile by tile, and torch for the batches of a
survey, where an axis of texts comes first. The grid alone decides if a query has a number, and
all heads have one or none, except for `mass-60` and `spatial-entropy`, which also depend on the row.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.maps.heads import captured_metrics_of
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps, is_long
from attnviz.maps.pooled import CapturedMetrics, concatenated_metrics
from attnviz.maps.sink import without_sink
from attnviz.metrics.grid import NEAR, Array, Cells, Columns, Grid, Rows
from attnviz.metrics.measure import ONE_AXIS, Measure, Need
from attnviz.metrics.patches import (
    ImagePatches,
    border_patches,
    image_patches,
    mass_60,
    patch_beside,
    picture_distance,
    register_tokens,
    spatial_entropy,
)
from attnviz.metrics.patterns import REST_METRICS, Pattern, find_patterns, is_sink, numbers_beside_sink
from attnviz.metrics.query_grid import NumberedTokens, QueryGrid, is_sequence
from attnviz.metrics.row_blocks import TINY, GridRows, blocks_of_rows, first_position

STRIPES = 3  # keys that count as vertical stripes


@dataclass(frozen=True)
class Metric(Measure):
    """A measure of where heads look; exactly one of its functions is set."""

    # returns the cells whose weight is the number of a query
    cells: Callable[[Grid], Cells] | None = field(default=None, compare=False)
    # returns the number of each query, ``(heads, queries)``
    rows: Callable[[Rows], Array] | None = field(default=None, compare=False)
    # returns the number of each head, ``(heads,)``
    columns: Callable[[Columns], Array] | None = field(default=None, compare=False)
    # True if a metric of cells leaves out queries that see none of its cells, rather than count 0: it relates a query
    # to a key that the query may lack
    only_seeing: bool = field(default=False, compare=False, kw_only=True)

    def counted_queries(self, with_number: Array, all_queries: Array) -> Array:
        """Returns how many queries a mean is over; 0 if no query has the number, so that the metric does not apply."""
        if self.cells is None or self.only_seeing:
            return with_number
        return all_queries * (with_number > 0)

    def fits(self, grid: Grid) -> bool:
        """True if the grid has what the metric needs of its axes: one text, a pair of texts, patches or a sequence."""
        if grid.cross and self.needs & ONE_AXIS:
            return False
        if Need.PAIR in self.needs and not grid.is_pair:
            return False
        if Need.PATCHES in self.needs and grid.patches is None:
            return False
        return grid.in_sequence or Need.SEQUENCE not in self.needs

    def query_values(self, rows: Rows) -> Array:
        """Returns the number of each query, ``(heads, queries)``; NaN where the metric does not apply.

        The metric must not be one of columns.
        """
        if not self.fits(rows.grid):
            return rows.not_applicable()
        if self.cells is not None:
            return rows.mass(rows.grid.cells_of(self.cells))
        assert self.rows is not None
        return rows.where(rows.grid.visible_counts > 0, self.rows(rows))


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


def entropy(rows: Rows) -> Array:
    """Returns the entropy of each row in bits, 0 to log2 of its visible keys: −Σ w log2 w (Shannon 1948)."""
    return rows.entropy


def relative_entropy(rows: Rows) -> Array:
    """Returns entropy divided by log2 of the visible keys, 0 to 1 (uniform); NaN without two visible keys."""
    return rows.where(rows.grid.visible_counts > 1, rows.entropy / rows.grid.max_entropy)


def peak(rows: Rows) -> Array:
    """Returns the largest weight of each row, a share: max w (the "confidence" of Voita et al. 2019)."""
    return rows.peak


def first_token(grid: Grid) -> Cells:
    """Returns the cells of the first key that is not padding (the attention sink of Xiao et al. 2023)."""
    return grid.cells(grid.first_key)


def special_tokens(grid: Grid) -> Cells:
    """Returns the cells of tokens that the tokenizer added, such as [SEP] (Clark et al. 2019)."""
    return grid.cells(grid.key_numbers("special"))


def own_token(grid: Grid) -> Cells:
    """Returns the cells in which the key is the query's own token."""
    return grid.at_offsets(0, 0)


def previous_token(grid: Grid) -> Cells:
    """Returns the cells of the token before the query; the first token has no such cell."""
    return grid.at_offsets(-1, -1)


def next_token(grid: Grid) -> Cells:
    """Returns the cells of the token after the query; under a causal mask no query has one."""
    return grid.at_offsets(1, 1)


def earlier_copies(grid: Grid) -> Cells:
    """Returns the cells of earlier copies of the query's token (Wang et al. 2022)."""
    return grid.cells(grid.earlier_copies)


def tokens_after_copies(grid: Grid) -> Cells:
    """Returns the cells of keys that follow an earlier copy of the query's token and come before the query.

    Source: Olsson et al. 2022, "prefix matching".
    """
    return grid.cells(grid.next_keys(grid.earlier_copies) & grid.is_earlier)


def mean_distance(rows: Rows) -> Array:
    """Returns the mean distance from query to key in tokens: Σ w |q − k| (Vig and Belinkov 2019)."""
    return rows.distance


def distance_spread(rows: Rows) -> Array:
    """Returns the standard deviation of the distance within a row, in tokens: √(Σ w (|q − k| − d)² / Σ w).

    d is the row's mean distance, Σ w |q − k| / Σ w. The sum of weights is 1, unless a learned sink takes a part.
    """
    weight, first, second = rows.distance_moments
    weight = weight.clip(TINY)
    # The difference of two nearly equal sums can be negative by rounding, hence the clip.
    return (second / weight - (first / weight) ** 2).clip(0) ** 0.5


def near_tokens(grid: Grid) -> Cells:
    """Returns the cells of keys at most `NEAR` positions from the query, the query's own token included."""
    return grid.at_offsets(-NEAR, NEAR)


def own_sentence(grid: Grid) -> Cells:
    """Returns the cells of keys in the query's sentence (the blocks of Kovaleva et al. 2019, figure 1).

    Special tokens have no cells, neither as queries nor as keys. A text with a single sentence has none.
    """
    has_two_sentences = (grid.all_key_numbers("sentences") > 0).any(axis=-1, keepdims=True)
    return grid.cells(grid.same_numbers("sentences", has_two_sentences))


def other_text(grid: Grid) -> Cells:
    """Returns the cells between the two texts of a pair, without special tokens."""
    other = grid.key_numbers("segments") != grid.query_numbers("segments")
    return grid.cells(other & ~grid.key_numbers("special") & ~grid.query_numbers("special"))


def hidden_share(rows: Rows) -> Array:
    """Returns the share of the softmax that a causal mask removed: Σ exp(score) over hidden later keys / Σ over all.

    NaN for a query without hidden later keys, or without known scores of them.
    """
    return rows.where(rows.grid.has_hidden_later, rows.hidden)


def sink_share(columns: Columns) -> Array:
    """Returns the mean weight over queries on the key that receives most, ``(..., heads)``, a share."""
    return columns.received.max(axis=-1)


def stripe_share(columns: Columns) -> Array:
    """Returns the mean weight over queries on the `STRIPES` keys that receive most, ``(..., heads)``, a share.

    These are the vertical stripes of Kovaleva et al. 2019, figure 1. NaN if only `STRIPES` keys or fewer are visible,
    since they would receive all the weight.
    """
    stripe_weight = np.sort(columns.received, axis=-1)[..., -STRIPES:].sum(axis=-1)
    return np.where(columns.keys > STRIPES, stripe_weight, np.nan)


ONE_TEXT = frozenset({Need.SELF_ATTENTION, Need.TWO_TOKENS})
IN_SEQUENCE = ONE_TEXT | {Need.SEQUENCE}
ON_PATCHES = frozenset({Need.PATCHES})
AMONG_PATCHES = ON_PATCHES | {Need.SELF_ATTENTION}
OF_THOSE_SEEING = "over queries that see one"  # ends the meaning of a metric that leaves out all others
COPIES = frozenset({Need.SELF_ATTENTION, Need.TOKEN_IDS, Need.REPEAT})
METRICS = {
    metric.name: metric
    for metric in (
        Metric("entropy", "entropy", "bits", "entropy of a row", rows=entropy),
        Metric(
            "relative-entropy", "rel. ent.", "share", "entropy divided by that of a uniform row", rows=relative_entropy
        ),
        Metric("peak", "peak", "share", "largest weight of a row", rows=peak),
        Metric("sink", "sink", "share", "weight on the key that receives most", columns=sink_share),
        Metric("stripe", "stripe", "share", f"weight on the {STRIPES} keys that receive most", columns=stripe_share),
        Metric("first", "first", "share", "weight on the first token", frozenset({Need.SEQUENCE}), first_token),
        Metric("special", "special", "share", "weight on special tokens", frozenset({Need.SPECIAL}), special_tokens),
        Metric("self", "self", "share", "weight on the query itself", ONE_TEXT, own_token),
        Metric(
            "previous", "previous", "share", "weight on the token before", IN_SEQUENCE, previous_token, only_seeing=True
        ),
        Metric(
            "next",
            "next",
            "share",
            "weight on the token after",
            frozenset({Need.SELF_ATTENTION, Need.NOT_CAUSAL, Need.SEQUENCE}),
            next_token,
            only_seeing=True,
        ),
        Metric(
            "duplicate",
            "duplicate",
            "share",
            f"weight on earlier copies, {OF_THOSE_SEEING}",
            COPIES,
            earlier_copies,
            only_seeing=True,
        ),
        Metric(
            "induction",
            "induction",
            "share",
            f"weight on tokens after earlier copies, {OF_THOSE_SEEING}",
            COPIES | {Need.SEQUENCE},
            tokens_after_copies,
            only_seeing=True,
        ),
        Metric("distance", "distance", "tokens", "mean distance to the key", IN_SEQUENCE, rows=mean_distance),
        Metric("spread", "spread", "tokens", "standard deviation of the distance", IN_SEQUENCE, rows=distance_spread),
        Metric("locality", "locality", "share", f"weight within {NEAR} tokens", IN_SEQUENCE, near_tokens),
        Metric(
            "block",
            "block",
            "share",
            "weight within the query's sentence",
            frozenset({Need.SELF_ATTENTION, Need.SENTENCES}),
            own_sentence,
            only_seeing=True,
        ),
        Metric(
            "pair",
            "pair",
            "share",
            "weight on the other text of a pair",
            frozenset({Need.PAIR}),
            other_text,
            only_seeing=True,
        ),
        Metric(
            "hidden",
            "hidden",
            "share",
            "weight that the causal mask removes, over queries with hidden later keys",
            frozenset({Need.CAUSAL_SCORES}),
            rows=hidden_share,
        ),
        Metric("on-picture", "on pict.", "share", "weight on patches of images", ON_PATCHES, image_patches),
        Metric(
            "mass-60",
            "mass 60",
            "share",
            "least share of patches with 60 % of the weight on patches, over queries with such weight",
            ON_PATCHES,
            rows=mass_60,
        ),
        Metric(
            "spatial-entropy",
            "sp. ent.",
            "nats",
            "entropy over connected parts of patches above the mean, over queries with such parts",
            ON_PATCHES,
            rows=spatial_entropy,
        ),
        Metric("border", "border", "share", "weight on patches at the edges", ON_PATCHES, border_patches),
        Metric(
            "registers",
            "registers",
            "share",
            "weight on tokens without a place",
            ON_PATCHES | {Need.NO_PLACE},
            register_tokens,
        ),
        *(
            Metric(
                name,
                name,
                "share",
                f"weight on the patch {place}",
                AMONG_PATCHES,
                partial(patch_beside, right=right, down=down),
                only_seeing=True,
            )
            for name, place, right, down in (
                ("left", "to the left", -1, 0),
                ("right", "to the right", 1, 0),
                ("above", "above", 0, -1),
                ("below", "below", 0, 1),
            )
        ),
        Metric(
            "picture-distance",
            "pict.dist",
            "share",
            "mean distance of patches over the diagonal, over queries that are patches",
            AMONG_PATCHES,
            rows=picture_distance,
        ),
    )
}


def metric_names(maps: Iterable[LayerMaps]) -> tuple[str, ...]:
    """Returns the names of all metrics that maps can have; metrics of patches only if a key is a patch of an image."""
    axes = {id(layer_maps.key_tokens): layer_maps.key_tokens for layer_maps in maps}
    has_patches = any(ImagePatches.of(axis).is_patch.any() for axis in axes.values())
    return tuple(name for name, metric in METRICS.items() if has_patches or Need.PATCHES not in metric.needs)


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


def all_metrics(maps: CellMaps) -> CapturedMetrics:
    """Returns all metrics of all heads in float32, for maps that drop their single cells."""
    metrics = _measured_metrics(maps, metric_names([maps]), maps.heads)
    values, beside_sink = metrics.values.astype(np.float32), metrics.beside_sink.astype(np.float32)
    return replace(metrics, values=values, beside_sink=beside_sink)


def _measured_metrics(
    maps: CellMaps, names: tuple[str, ...], heads: tuple[int, ...], stride: int = 1
) -> CapturedMetrics:
    """Returns the metrics of heads, in the order of ``heads``, in float64."""
    groups = maps.head_groups(heads)
    metrics = concatenated_metrics(
        metrics_of_queries(maps, group, names, measure_queries(maps, names, group, stride)) for group in groups
    )
    measured_heads = [head for group in groups for head in group]
    return metrics.take([measured_heads.index(head) for head in heads])


def metrics_of_queries(
    maps: CellMaps, heads: tuple[int, ...], names: tuple[str, ...], measured: "MeasuredQueries"
) -> CapturedMetrics:
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
    return CapturedMetrics(
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
