"""Attention weights to one number a query and one a head: the table of metrics, each a function and a line.

A metric of rows is a function of `Rows` and gives ``(heads, queries)``, NaN where it has no meaning for a query. A
head's number is the mean over its queries that have a choice: those that see at least two keys. A metric of columns
is a function of `Columns`, what every key received from those same queries, and gives ``(heads,)``. Rows come in
blocks of queries with all keys, so that maps of any length are measured in bounded memory.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import AttnvizError, known_names, nearest
from attnviz.maps.heads import measured_of, tokens_of
from attnviz.maps.held_numbers import HeldNumbers
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps, is_long
from attnviz.metrics.query_grid import NEAR
from attnviz.metrics.row_blocks import Columns, Rows, blocks_of_rows, where

STRIPES = 3  # keys whose columns count as vertical stripes


@dataclass(frozen=True)
class Metric:
    """One line of the table.

    Attributes:
        name: as a user writes it.
        header: at most nine characters over its column.
        unit: ``bits``, ``tokens`` or ``share`` (of a query's weight, 0 to 1).
        meaning: what the number is, in one phrase.
        rows: gives it for each query, ``(heads, queries)``; or
        columns: gives it for each head, ``(heads,)``.
        needs: what maps must have, where not all do.
    """

    name: str
    header: str
    unit: str
    meaning: str
    rows: Callable[[Rows], Float64Array] | None = None
    columns: Callable[[Columns], Float64Array] | None = None
    needs: str = "queries that see two keys or more"


@dataclass(frozen=True, eq=False)
class HeadNumbers:
    """Every metric of one head.

    Attributes:
        layer: the layer's number.
        head: the head's number.
        kind: ``self`` or ``cross``.
        item: which text of a batch it attends over.
        keys: how many keys its queries see in all.
        values: by the name of the metric; NaN where it has no meaning.
        counts: how many queries each value is a mean of.
        sink: the number of the key that receives most.
        sink_label: the label of its token.
    """

    layer: int
    head: int
    kind: str
    item: int
    keys: int
    values: dict[str, float]
    counts: dict[str, int]
    sink: int
    sink_label: str


def entropy(rows: Rows) -> Float64Array:
    """Entropy of each row in bits, 0 to log2 of the visible keys: −Σ w log2 w (Shannon 1948)."""
    return where(rows.grid.choices > 0, rows.entropy)


def relative_entropy(rows: Rows) -> Float64Array:
    """Entropy over log2 of the visible keys, 0 (one key) to 1 (uniform); absent where one key is visible."""
    most = np.log2(np.maximum(rows.grid.choices, 2))
    return where(rows.grid.choices > 1, rows.entropy / most)


def peak(rows: Rows) -> Float64Array:
    """The largest weight of each row, a share: max w (the "confidence" of Voita et al. 2019)."""
    return where(rows.grid.choices > 0, rows.peak)


def first(rows: Rows) -> Float64Array:
    """Weight on the first token that is not padding, a share (the attention sink of Xiao et al. 2023)."""
    return rows.weight_at(np.full(len(rows.grid.queries), np.argmax(rows.grid.seen)))


def special(rows: Rows) -> Float64Array:
    """Weight on tokens that the tokenizer added, such as [SEP], a share (Clark et al. 2019)."""
    return rows.mass(rows.grid.special)


def itself(rows: Rows) -> Float64Array:
    """Weight on the query's own token, a share; absent between two texts."""
    return rows.absent() if rows.grid.cross else rows.weight_at(rows.grid.positions)


def previous(rows: Rows) -> Float64Array:
    """Weight on the token before the query, a share; absent for the first token, and between two texts."""
    return rows.absent() if rows.grid.cross else rows.weight_at(rows.grid.positions - 1)


def following(rows: Rows) -> Float64Array:
    """Weight on the token after the query, a share; absent where a causal mask hides it, and between two texts."""
    return rows.absent() if rows.grid.cross else rows.weight_at(rows.grid.positions + 1)


def duplicate(rows: Rows) -> Float64Array:
    """Weight on earlier copies of the query's token, a share (Wang et al. 2022); absent without one."""
    return rows.absent() if rows.grid.cross else rows.mass(rows.grid.copies)


def induction(rows: Rows) -> Float64Array:
    """Weight on the tokens after earlier copies of the query's token, a share (Olsson et al. 2022, "prefix matching").

    A token counts only before the query itself; absent for a query without such a token, and between two texts.
    """
    return rows.absent() if rows.grid.cross else rows.mass(rows.grid.after_copies)


def distance(rows: Rows) -> Float64Array:
    """Mean distance from query to key in tokens: Σ w |q − k| (Vig and Belinkov 2019); not between texts."""
    return rows.absent() if rows.grid.cross else where(rows.grid.choices > 0, rows.distance)


def distance_spread(rows: Rows) -> Float64Array:
    """Standard deviation of the distance within a row, in tokens: √(Σ w |q − k|² − (Σ w |q − k|)²)."""
    if rows.grid.cross:
        return rows.absent()
    variance = rows.squared_distance - rows.distance**2
    return where(rows.grid.choices > 0, np.sqrt(np.maximum(variance, 0)))


def locality(rows: Rows) -> Float64Array:
    """Weight within `NEAR` tokens to either side and on the query itself, a share; absent between two texts."""
    return rows.absent() if rows.grid.cross else rows.mass(rows.grid.near)


def block(rows: Rows) -> Float64Array:
    """Weight within the query's own sentence, a share (the blocks of Kovaleva et al. 2019, figure 1).

    Special tokens belong to no sentence; absent for them, for a text of one sentence, and between two texts.
    """
    if rows.grid.cross or rows.grid.key_sentences.max(initial=0) < 1:
        return rows.absent()
    return where(rows.grid.query_sentences[rows.grid.queries] >= 0, rows.mass(rows.grid.own_sentence))


def pair(rows: Rows) -> Float64Array:
    """Weight on the other text of a pair, special tokens left out, a share; absent without a pair."""
    if rows.grid.cross or rows.grid.key_tokens.segments.max(initial=0) < 1:
        return rows.absent()
    return where(~rows.grid.query_tokens.special[rows.grid.queries], rows.mass(rows.grid.other_text))


def hidden(rows: Rows) -> Float64Array:
    """The share of the softmax that a causal mask hid: Σ exp(score) over hidden later keys / Σ over all.

    Absent for a query with no later key hidden, between two texts, and where scores of hidden keys were not kept.
    """
    if rows.grid.cross or not rows.grid.has_later.any():
        return rows.absent()
    return where(rows.grid.has_later & (rows.grid.choices > 0), 1 - 1 / (1 + rows.beyond))


def sink(columns: Columns) -> Float64Array:
    """Weight on the one key that receives most, whichever it is, a share: maxₖ mean over queries of w."""
    return np.asarray(columns.received.max(axis=-1))


def stripe(columns: Columns) -> Float64Array:
    """Weight on the `STRIPES` keys that receive most, a share: vertical stripes (Kovaleva et al. 2019, figure 1).

    Absent where no more keys than these are seen.
    """
    most = np.sort(columns.received, axis=-1)[:, -STRIPES:].sum(axis=-1)
    return np.where(columns.seen.sum() > STRIPES, most, np.nan)


SELF = "self-attention"
METRICS = {
    metric.name: metric
    for metric in (
        Metric("entropy", "entropy", "bits", "entropy of a row", entropy),
        Metric("relative-entropy", "rel. ent.", "share", "entropy over that of a uniform row", relative_entropy),
        Metric("peak", "peak", "share", "largest weight of a row", peak),
        Metric("sink", "sink", "share", "on the key that receives most", columns=sink),
        Metric("stripe", "stripe", "share", f"on the {STRIPES} keys that receive most", columns=stripe),
        Metric("first", "first", "share", "on the first token", first),
        Metric("special", "special", "share", "on special tokens", special, needs="special tokens such as [CLS]"),
        Metric("self", "self", "share", "on the query itself", itself, needs=f"{SELF} over two tokens or more"),
        Metric(
            "previous", "previous", "share", "on the token before", previous, needs=f"{SELF} over two tokens or more"
        ),
        Metric("next", "next", "share", "on the token after", following, needs=f"{SELF} that is not causal"),
        Metric(
            "duplicate", "duplicate", "share", "on earlier copies", duplicate, needs=f"{SELF}, token ids and a repeat"
        ),
        Metric(
            "induction",
            "induction",
            "share",
            "on tokens after earlier copies",
            induction,
            needs=f"{SELF}, token ids and a repeat",
        ),
        Metric(
            "distance",
            "distance",
            "tokens",
            "mean distance to the key",
            distance,
            needs=f"{SELF} over two tokens or more",
        ),
        Metric(
            "spread",
            "spread",
            "tokens",
            "spread of the distance within a row",
            distance_spread,
            needs=f"{SELF} over two tokens or more",
        ),
        Metric(
            "locality", "locality", "share", f"within {NEAR} tokens", locality, needs=f"{SELF} over two tokens or more"
        ),
        Metric("block", "block", "share", "within the own sentence", block, needs=f"{SELF} and two sentences"),
        Metric("pair", "pair", "share", "on the other text of a pair", pair, needs="a pair of texts"),
        Metric("hidden", "hidden", "share", "what the causal mask hid", hidden, needs="a causal mask and all scores"),
    )
}


def find_metric(name: str, metrics: Mapping[str, Metric] = METRICS) -> Metric:
    """The metric of that name, among all or those given by their names.

    Raises:
        AttnvizError: if there is none, listing those there are.
    """
    if name not in metrics:
        raise AttnvizError(f"unknown metric {name!r}; {nearest(name, metrics)}{known_names(metrics)} works")
    return metrics[name]


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


def hold_numbers(maps: CellMaps) -> HeldNumbers:
    """Every metric of the heads, for maps that are about to lose their cells."""
    found = measure(maps)
    return HeldNumbers(
        names=tuple(METRICS),
        values=np.array([[one.values[name] for name in METRICS] for one in found], dtype=np.float32),
        counts=np.array([[one.counts[name] for name in METRICS] for one in found], dtype=np.int64),
        sinks=np.array([one.sink for one in found], dtype=np.int64),
        keys=np.array([one.keys for one in found], dtype=np.int64),
    )


def _held_numbers(maps: LayerMaps, held: HeldNumbers, names: tuple[str, ...], head: int) -> HeadNumbers:
    """What was measured of a head; a metric that was not then is absent."""
    place = maps.positions((head,))[0]
    values = dict(zip(held.names, held.values[place].tolist(), strict=True))
    counts = dict(zip(held.names, held.counts[place].tolist(), strict=True))
    sink = int(held.sinks[place])
    return HeadNumbers(
        layer=maps.layer,
        head=head,
        kind=maps.kind,
        item=maps.item,
        keys=int(held.keys[place]),
        values={name: values.get(name, np.nan) for name in METRICS if name in names},
        counts={name: counts.get(name, 0) for name in METRICS if name in names},
        sink=sink,
        sink_label=maps.key_tokens.labels[sink],
    )


def _measured(maps: CellMaps, names: tuple[str, ...], heads: tuple[int, ...], every: int) -> list[HeadNumbers]:
    of_queries, columns, chosen = measure_queries(maps, names, heads, every)
    values = {
        name: metric.columns(columns) if metric.columns else _mean(of_queries[name], chosen)
        for name, metric in METRICS.items()
        if name in names
    }
    values = {name: numbers if chosen.any() else np.full(len(heads), np.nan) for name, numbers in values.items()}
    counts = {name: int((~np.isnan(numbers[0]) & chosen).sum()) for name, numbers in of_queries.items()}
    sinks = columns.received.argmax(axis=-1)
    return [
        HeadNumbers(
            layer=maps.layer,
            head=head,
            kind=maps.kind,
            item=maps.item,
            keys=int(columns.seen.sum()),
            values={name: float(numbers[place]) for name, numbers in values.items()},
            counts={name: counts.get(name, int(chosen.sum())) for name in values},
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
) -> tuple[dict[str, Float64Array], Columns, BoolArray]:
    """Metrics of rows for each query, ``(heads, queries)`` by name; what keys received; which queries have a choice.

    The heads must see the same cells: `LayerMaps.head_groups` gives such.
    """
    maps = with_shares(maps)
    functions = {name: function for name in names if (function := METRICS[name].rows)}
    shape = len(heads), len(maps.query_tokens)
    numbers = {name: np.full(shape, np.nan) for name in functions}
    received = np.zeros((len(heads), len(maps.key_tokens)))
    chosen, seen = np.zeros(shape[1], dtype=bool), np.zeros(len(maps.key_tokens), dtype=bool)
    lock = threading.Lock()

    def add(rows: Rows) -> None:
        """Adds what some rows hold; in one of several threads at once."""
        grid = rows.grid
        for name, function in functions.items():
            numbers[name][rows.places, grid.queries] = function(rows)
        found = rows.received
        with lock:
            received[rows.places, : found.shape[-1]] += found
            chosen[grid.queries], seen[:] = grid.has_choice, grid.seen

    _each_rows(maps, heads, add, every)
    return numbers, Columns(received / max(1, int(chosen.sum())), seen), chosen


def _each_rows(maps: CellMaps, heads: tuple[int, ...], work: Callable[[Rows], None], every: int) -> None:
    """Calls a function with the rows of these heads: by torch, in several threads, where long maps name its device."""
    factors = maps.cell_factors() if every == 1 else None
    if factors is not None and factors.device is not None and is_long(len(maps.query_tokens), len(maps.key_tokens)):
        from attnviz.metrics import torch_rows

        torch_rows.each_rows(maps, factors, heads, work)
        return
    for rows in blocks_of_rows(maps, heads, every):
        work(rows)


def _mean(numbers: Float64Array, chosen: BoolArray) -> Float64Array:
    """The mean over the chosen queries for which there is a number, ``(heads, queries)`` to ``(heads,)``."""
    counted = chosen & ~np.isnan(numbers)
    total = np.where(counted, numbers, 0).sum(axis=-1)
    count = counted.sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
