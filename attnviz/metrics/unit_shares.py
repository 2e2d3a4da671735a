"""Measures where the last unit of a text looks: its weight on each earlier unit and on the sink, and its lift.

A unit is a turn, a sentence or any other group of tokens; the last one is, for example, the answer in a chat.
The sink is the first token, special tokens, and tokens of no turn, which draw weight whatever they say (Xiao et al.
2023). Its weight is a separate share, so that all shares of a head add up to 1.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.maps.grouped import Units
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.text.groups import Groups
from attnviz.text.named_groups import REMAINDER_LABELS, named_groups, numbered_label, singular
from attnviz.text.tokens import Tokens

MIN_RUN_KEYS = 256  # runs with at least this many keys on average are streamed one by one
MAX_STREAMED_CELLS = 2**27  # of all heads that are streamed at once; a run needs 12 bytes for 64 of them
MAX_STREAMED_HEADS = 32  # bands are as high as for this many heads at once
MAX_BAND_CELLS = 2**20  # weights of a head that are read at once
MAX_UNIT_COLUMNS = 24  # units with a column in a table of heads; of more, those with the largest shares
RETRIEVAL, LIFT, LOOKBACK = "retrieval", "lift", "lookback"

NumberedUnit = tuple[int, str]  # the number of a unit on the axis of the keys, and its label
DEVIATIONS = 2.0  # below the mean, from which on a token's calibrated score is left out


@dataclass(frozen=True, eq=False)
class UnitShares:
    """The weights of the last unit's queries of some heads of an attention call, by unit."""

    maps: LayerMaps  # the attention call
    heads: tuple[int, ...]  # the numbers of the heads
    last_label: str  # the label of the last unit, whose tokens are the queries
    labels: tuple[str, ...]  # the labels of the units that it sees; in self-attention it is itself the last of them
    numbers: IntArray  # ``(units,)``, the number of each unit on the axis of the keys, as in `Units`
    queries: IntArray  # the tokens of the last unit, ``(queries,)``
    last_by: str  # the name of the units of which the queries are the last: turns or passages if the text has them
    earlier_units: IntArray  # the indices of the units before the last one; of all units in cross-attention
    spans: tuple[slice, ...]  # the first token of each unit, and the one after its last
    shares: Float64Array  # ``(heads, units)``, the weight on each unit without its sink tokens, mean over the queries
    sink: Float64Array  # ``(heads,)``, the weight on the sink, mean over the queries
    uniform_shares: Float64Array  # ``(heads, units)``, the shares if every visible key received the same weight
    # ``(heads,)``, b / (b + w), where b is the mean weight of a key before the last unit, and w that of a key in it;
    # mean over the queries (lookback ratio of Chuang et al. 2024); NaN in cross-attention.
    lookback: Float64Array

    @property
    def retrieval(self) -> Float64Array:
        """The weight on all earlier units, ``(heads,)``."""
        return np.asarray(self.shares[:, self.earlier_units].sum(axis=1))

    @cached_property
    def lift(self) -> Float64Array:
        """The share of each unit over its uniform share, ``(heads, units)``; 0 for a unit without visible keys."""
        return _quotients(self.shares, self.uniform_shares)

    @cached_property
    def excess(self) -> Float64Array:
        """share · log2 lift in bits, ``(heads, earlier units)``: the larger, the more the unit stands out."""
        shares, lift = self.shares[:, self.earlier_units], self.lift[:, self.earlier_units]
        return np.asarray(shares * np.log2(np.maximum(lift, np.finfo(np.float64).tiny)))


def unit_shares(maps: LayerMaps, by: str, heads: tuple[int, ...] | None = None) -> UnitShares | None:
    """Returns the weights of the last unit's queries on each unit and on the sink.

    Returns ``None`` for pooled maps, tokens without these groups, a text without a last or an earlier unit, and keys of
    a single unit.
    """
    if maps.block != (1, 1) or named_groups(maps.query_tokens, by) is None:
        return None
    cells = cell_maps(maps)
    last_by = _answer_units(maps.query_tokens, by)
    query_units, key_units = Units.of(maps.query_tokens, last_by), Units.of(maps.key_tokens, by)
    last, is_sink = last_unit(query_units, last_by), sink_tokens(key_units, by)
    units = np.unique(key_units.numbers[~is_sink])
    if last is None or len(units) < 2:
        return None
    queries = np.flatnonzero(query_units.numbers == last)
    last_start = len(key_units.tokens) if maps.kind == "cross" else int(queries[0])
    is_last_a_key_unit = last_by == by and maps.kind != "cross"
    is_earlier = units != last if is_last_a_key_unit else key_units.starts[units] < last_start
    if not is_earlier.any():
        return None
    # Two columns for the sink: its tokens before the start of the last unit, and those at or after it.
    sink_columns = len(units) + (np.arange(len(key_units.tokens)) >= last_start)
    columns = np.where(is_sink, sink_columns, np.searchsorted(units, key_units.numbers))
    chosen_heads = maps.heads if heads is None else heads
    weights = _column_weights(cells, chosen_heads, queries, columns)
    counts = _column_counts(cells, chosen_heads, queries, columns)
    return UnitShares(
        maps=maps,
        heads=chosen_heads,
        last_label=query_units.labels[last],
        labels=tuple(key_units.labels[unit] for unit in units),
        numbers=units,
        queries=queries,
        last_by=last_by,
        earlier_units=np.flatnonzero(is_earlier),
        spans=tuple(slice(int(key_units.starts[unit]), int(key_units.stops[unit])) for unit in units),
        shares=weights[:, :, : len(units)].mean(axis=1),
        sink=weights[:, :, len(units) :].sum(axis=2).mean(axis=1),
        uniform_shares=_quotients(counts, counts.sum(axis=2, keepdims=True))[:, :, : len(units)].mean(axis=1),
        lookback=_lookback(weights, counts, columns[last_start:]),
    )


def unit_frame(heads: Iterable[tuple[LayerMaps, int]], by: str) -> tuple[HeadFrame, tuple[UnitShares, ...]]:
    """Returns a frame with retrieval, lift, lookback and the shares of earlier units, and each call's `UnitShares`.

    Heads of attention calls for which `unit_shares` returns ``None`` are left out; the frame may have no rows.
    """
    from attnviz.metrics.metrics import METRICS

    heads_by_call: dict[int, tuple[LayerMaps, list[int]]] = {}
    for maps, head in heads:
        heads_by_call.setdefault(id(maps), (maps, []))[1].append(head)
    shares_or_none = [unit_shares(maps, by, tuple(numbers)) for maps, numbers in heads_by_call.values()]
    shares = tuple(call_shares for call_shares in shares_or_none if call_shares is not None)

    # The earlier units with the largest shares have columns.
    largest_shares: dict[NumberedUnit, float] = {}
    for call_shares in shares:
        units_of_call = _numbered_units(call_shares)
        for index in call_shares.earlier_units.tolist():
            share = float(call_shares.shares[:, index].max())
            largest_shares[units_of_call[index]] = max(largest_shares.get(units_of_call[index], 0.0), share)
    chosen_units = sorted(largest_shares, key=lambda unit: -largest_shares[unit])[:MAX_UNIT_COLUMNS]
    units = tuple(unit for unit in largest_shares if unit in chosen_units)

    values = []
    for call_shares in shares:
        most_distinct = call_shares.earlier_units[call_shares.excess.argmax(axis=1)]
        lift = call_shares.lift[np.arange(len(call_shares.heads)), most_distinct]
        absent = np.full(len(call_shares.heads), np.nan)
        indices = {unit: index for index, unit in enumerate(_numbered_units(call_shares))}
        columns = [call_shares.shares[:, indices[unit]] if unit in indices else absent for unit in units]
        values.append(np.stack([call_shares.retrieval, lift, call_shares.lookback, *columns], axis=1))

    column_names = list[str]()
    for _, label in units:  # numbered, as in ``a (2)``, if a metric or an earlier unit has the same name
        column_names.append(numbered_label(label, [RETRIEVAL, LIFT, LOOKBACK, *METRICS, *column_names]))
    last_by = shares[0].last_by if shares else by
    unit_noun, last_noun = singular(by), singular(last_by)
    earlier_noun = "ones" if last_by == by else "parts" if unit_noun == "part" else by
    meanings = {
        RETRIEVAL: f"weight of the last {last_noun} on earlier {earlier_noun}, without sink and marks",
        LIFT: f"share of the {unit_noun} that stands out over its share of the keys",
        LOOKBACK: f"mean weight of a key before the last {last_noun} over its sum with that of a key in it",
    }
    measures = (
        *(Measure(name, name, "times" if name == LIFT else "share", meaning) for name, meaning in meanings.items()),
        *(Measure(name, name, "share", f"weight on {name}") for name in column_names),
    )
    frame = HeadFrame(
        rows=tuple(HeadRow.of(call_shares.maps, head) for call_shares in shares for head in call_shares.heads),
        measures=measures,
        values=np.concatenate(values) if values else np.empty((0, len(measures))),
    )
    return frame, shares


def strongest_unit(shares: Iterable[UnitShares]) -> tuple[UnitShares, int, int] | None:
    """Finds the head and the earlier unit with the largest excess.

    Returns:
        The shares of the head's attention call, the index of the head in them, and the index of the unit; ``None`` if
        no excess is above 0.
    """
    strongest, largest_excess = None, 0.0
    for call_shares in shares:
        if not call_shares.excess.size:
            continue
        head_index, column = np.unravel_index(int(call_shares.excess.argmax()), call_shares.excess.shape)
        if call_shares.excess[head_index, column] > largest_excess:
            strongest = call_shares, int(head_index), int(call_shares.earlier_units[column])
            largest_excess = float(call_shares.excess[head_index, column])
    return strongest


def most_distinct_heads(shares: Iterable[UnitShares]) -> list[tuple[LayerMaps, int]]:
    """Returns the maps and the number of each head, sorted by the largest excess of an earlier unit, descending.

    Heads of attention calls without an earlier unit are left out.
    """
    entries: list[tuple[float, LayerMaps, int]] = []
    for call_shares in shares:
        if call_shares.excess.size:
            largest_excesses = call_shares.excess.max(axis=1).tolist()
            entries += [
                (excess, call_shares.maps, head)
                for excess, head in zip(largest_excesses, call_shares.heads, strict=True)
            ]
    entries.sort(key=lambda entry: -entry[0])
    return [(maps, head) for _, maps, head in entries]


def _numbered_units(shares: UnitShares) -> tuple[NumberedUnit, ...]:
    return tuple(zip(shares.numbers.tolist(), shares.labels, strict=True))


def last_unit(query_units: Units, by: str) -> int | None:
    """Returns the number of the unit that ends last; ``None`` if there is none.

    Units that begin with a special token, and the unit of all tokens that are in no turn or passage, do not count.
    """
    tokens, remainder_label = query_units.tokens, REMAINDER_LABELS.get(by)
    candidates = [
        unit
        for unit, start in enumerate(query_units.starts.tolist())
        if not tokens.special[start] and query_units.labels[unit] != remainder_label
    ]
    return max(candidates, key=lambda unit: int(query_units.stops[unit]), default=None)


def sink_tokens(keys: Units, by: str) -> BoolArray:
    """Returns True for tokens of the sink, ``(keys,)``: the first, special ones, and any outside turns or passages."""
    sink = keys.tokens.special.copy()
    sink[keys.tokens.unpadded.start] = True
    groups = keys.tokens.groups.get(_answer_units(keys.tokens, by))
    if groups is not None and _answer_units(keys.tokens, by) in REMAINDER_LABELS:
        sink |= groups.numbers < 0
    return sink


def _answer_units(tokens: Tokens, by: str) -> str:
    """Returns the name of the units of which the last is the answer.

    It is ``by`` if that is turns or passages; else turns or passages if the tokens have them; else ``by``.
    """
    if by in REMAINDER_LABELS:
        return by
    return next((name for name in REMAINDER_LABELS if name in tokens.groups), by)


def _column_weights(maps: CellMaps, heads: tuple[int, ...], queries: IntArray, columns: IntArray) -> Float64Array:
    """Returns the weights of each query on each column, ``(heads, queries, columns)``; 0 for a column without keys."""
    weights = np.zeros((len(heads), len(queries), int(columns.max()) + 1))
    factors, column_runs = maps.cell_factors(), Groups(columns).runs
    if factors is not None and len(columns) >= MIN_RUN_KEYS * len(column_runs.starts):
        runs = list(zip(*(numbers.tolist() for numbers in column_runs), strict=True))
        for part, span in row_bands(queries, max(1, len(columns) // MAX_STREAMED_HEADS)):
            rows = span.stop - span.start
            heads_together = max(1, MAX_STREAMED_CELLS // (rows * len(columns)))
            band_rows = queries[part] - span.start
            for start, stop, column in runs:
                keys, edges = slice(start, stop), np.arange(span.start, span.stop + 1)
                counts = factors.mask.counts(edges, np.array([start, stop]))[:, 0]
                for first_head in range(0, len(heads), heads_together):
                    head_range = slice(first_head, first_head + heads_together)
                    overview = maps.overview(heads[head_range], rows, 1, span, keys, maximum=False)
                    weight_sums = overview.mean[:, :, 0].astype(np.float64) * counts
                    weights[head_range, part, column] += weight_sums[:, band_rows]
        return weights
    for part, span in row_bands(queries, len(columns)):
        for index, head in enumerate(heads):  # one head at a time bounds the memory of a window
            cells = maps.window((head,), span, slice(0, len(columns))).weights[0]
            weights[index, part] = column_sums(cells, columns)[queries[part] - span.start]
    return weights


def _column_counts(maps: CellMaps, heads: tuple[int, ...], queries: IntArray, columns: IntArray) -> Float64Array:
    """Returns the number of visible keys of each query in each column, ``(heads, queries, columns)``."""
    counts = np.zeros((len(heads), len(queries), int(columns.max()) + 1))
    if (factors := maps.cell_factors()) is not None:
        runs = Groups(columns).runs
        rows, edges = np.arange(queries[0], queries[-1] + 2), np.append(runs.starts, runs.stops[-1])
        run_counts = factors.mask.counts(rows, edges)[queries - queries[0]].astype(np.float64)
        counts += run_counts @ (runs.groups[:, None] == np.arange(counts.shape[2]))
        return counts
    for group in maps.head_groups(heads):
        head_indices = [heads.index(head) for head in group]
        for part, span in row_bands(queries, len(columns)):
            visible = maps.visibility(group[0], span, slice(0, len(columns)))
            counts[head_indices, part] = column_sums(visible, columns)[queries[part] - span.start]
    return counts


def column_sums(cells: FloatArray | BoolArray, columns: IntArray) -> Float64Array:
    """Returns the sums of cells over the keys of each column, ``(queries, columns)``.

    Args:
        cells: ``(queries, keys)``.
        columns: ``(keys,)``, the column of each key.
    """
    runs = Groups(columns).runs
    sums = np.add.reduceat(cells, runs.starts, axis=1, dtype=np.float64)
    is_in_column = runs.groups[:, None] == np.arange(int(columns.max()) + 1)  # (runs, columns)
    sums_of_columns: Float64Array = sums @ is_in_column.astype(np.float64)
    return sums_of_columns


def row_bands(queries: IntArray, keys: int) -> Iterator[tuple[slice, slice]]:
    """Yields bands of rows of at most `MAX_BAND_CELLS` cells, or of one row if that has more.

    Yields:
        A slice of ``queries``, and the range of rows that contains these queries.
    """
    start = 0
    while start < len(queries):
        end_query = queries[start] + max(1, MAX_BAND_CELLS // keys)
        stop = int(np.searchsorted(queries, end_query))
        yield slice(start, stop), slice(int(queries[start]), int(queries[stop - 1]) + 1)
        start = stop


def _quotients(numbers: Float64Array, divisors: Float64Array) -> Float64Array:
    """Returns numbers divided by divisors, with broadcasting; 0 where the divisor is 0."""
    zeros = np.zeros(np.broadcast_shapes(numbers.shape, divisors.shape))
    return np.divide(numbers, divisors, out=zeros, where=divisors > 0)


def _lookback(weights: Float64Array, counts: Float64Array, last_columns: IntArray) -> Float64Array:
    """Returns the lookback ratio of each head, ``(heads,)``, the mean over the queries; NaN in cross-attention."""
    if not len(last_columns):
        return np.full(len(weights), np.nan)
    in_last = np.zeros(weights.shape[2], dtype=bool)
    in_last[np.unique(last_columns)] = True
    weight_before, weight_within = (
        _quotients(weights[:, :, columns].sum(axis=2), counts[:, :, columns].sum(axis=2))
        for columns in (~in_last, in_last)
    )
    return np.asarray(_quotients(weight_before, weight_before + weight_within).mean(axis=1))


def question_scores(heads: Sequence[tuple[CellMaps, int]], question: IntArray) -> Float64Array:
    """Returns each key's mean weight over the rows of a question, summed over heads, ``(keys,)``."""
    keys = len(heads[0][0].key_tokens)
    span, scores = slice(int(question[0]), int(question[-1]) + 1), np.zeros(keys)
    for maps, head in heads:
        rows = maps.window((head,), span, slice(0, keys)).weights[0][question - span.start]
        scores += rows.mean(axis=0, dtype=np.float64)
    return scores


def calibrated_score(scores: Float64Array, content_free_scores: Float64Array, keys: IntArray) -> float:
    """Returns the calibrated score of a unit by QRHead's formula (Zhang et al. 2025).

    The scores under a question without content are subtracted from the tokens' scores. Differences more than two
    standard deviations below the unit's mean are left out, and the others are summed. The score of a unit of one token
    is 0, since it has no standard deviation.

    Args:
        scores: ``(keys,)``, as `question_scores` returns them.
    """
    differences = scores[keys] - content_free_scores[keys]
    deviation = differences.std(ddof=1) if len(keys) > 1 else np.nan
    return float(differences[differences > differences.mean() - DEVIATIONS * deviation].sum())
