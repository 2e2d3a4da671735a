"""Measures the steps in which a model wrote a text: what each looked at, by unit and by token, and what changed.

A step writes one token, and its row is that of the query before this token: the row from which the token was decided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.grouped import Units, refuse_missing_units
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording, chosen_heads, head_name
from attnviz.metrics.unit_shares import column_sums, last_unit, row_bands, sink_tokens, strongest_unit, unit_frame
from attnviz.text.groups import SENTENCES
from attnviz.text.named_groups import GENERATED, PASSAGES, TOKENS, TURNS, named_groups
from attnviz.text.selection import Grouping, Selection, Span, resolve_span
from attnviz.text.tokens import TEXTS, Tokens

STRONGEST_TOKENS = 8  # the keys of a step that are listed
MAX_NUMBERS = 2**26  # the largest heads x steps x units, which are in memory at once
WRITTEN_PART = ", as written"  # of a unit that begins in the prompt
ALL_QUERIES: Span = (None, None)


@dataclass(frozen=True, eq=False, kw_only=True)
class DecodingSteps:
    """The steps in which a model wrote a text, and what some heads looked at in each.

    The sink is the first token, special tokens and tokens of no turn; it is in no unit and not among the strongest
    keys. The shares of all units and of the sink add up to 1, and so do those of the units that begin in the prompt, of
    the written tokens and of the sink: what was written of a unit that begins in the prompt is a unit of its own.
    """

    heads: tuple[str, ...]  # the heads as ``layer.head``
    by: str  # the name of the units
    query_tokens: Tokens  # the tokens of the queries
    key_tokens: Tokens  # the tokens of the keys
    queries: IntArray  # ``(steps,)``, the query whose row decided the token
    prompt: int  # the number of tokens before the first token that was written
    units: tuple[str, ...]  # the labels of the units of the keys
    unit_starts: IntArray  # ``(units,)``, the first token of each unit
    shares: Float64Array  # ``(heads, steps, units)``, the weight on each unit
    sink: Float64Array  # ``(heads, steps)``, the weight on the sink
    # ``(heads, steps)``, the weight on tokens that earlier steps wrote, without the sink; NaN in cross-attention
    on_written: Float64Array
    # ``(heads, steps)``, the total variation from the row of the step before, 0 to 1; NaN in the first step
    change: Float64Array
    # ``(steps, keys)``, the keys with the largest mean weights over the heads, the largest first
    strongest_keys: IntArray
    strongest_weights: Float64Array  # ``(steps, keys)``, these weights

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The label of the token that each step wrote; "" after the last token of the text."""
        labels = (*self.query_tokens.labels, "")
        return tuple(labels[query + 1] for query in self.queries.tolist())


def measure_steps(recording: Recording, selection: Selection, by: str | None = None) -> DecodingSteps:
    """Measures the steps in which the text of a recording was written."""
    heads = [(head.maps, head.head) for head in chosen_heads(recording, selection)]
    first_maps = heads[0][0]
    if any(maps.item != first_maps.item for maps, _ in heads):
        raise AttnvizError("steps need a single text, and these heads are of several texts; record one text")
    refuse_missing_units([maps for maps, _ in heads], Grouping(by=by))
    units = unit_name(first_maps.key_tokens, by)
    if selection.chosen_layers is None and selection.heads is None:
        strongest = None if units == TOKENS else strongest_unit(unit_frame(heads, units)[1])
        if strongest is not None:  # the head in which a unit stands out most
            call_shares, index, _ = strongest
            heads = [(call_shares.maps, call_shares.heads[index])]
    axes = {(maps.kind, len(maps.query_tokens), len(maps.key_tokens)) for maps, _ in heads}
    if len(axes) > 1:
        raise AttnvizError(
            f"these heads look at different texts; choose heads of one text with {option('heads', '0.1')}"
        )
    queries = step_queries(heads[0][0].query_tokens, selection.queries)
    refuse_later_keys([cell_maps(maps) for maps, _ in heads], queries)

    first_maps = heads[0][0]
    keys = Units.of(first_maps.key_tokens, units)
    sink = sink_tokens(keys, units)
    first_written = int(queries[0]) + 1
    begins_written = first_written if first_maps.kind == "self" else len(first_maps.key_tokens)
    is_written = np.arange(len(first_maps.key_tokens)) >= begins_written
    columns, labels, starts = _key_columns(keys, sink, units, begins_written)
    if len(heads) * len(queries) * (len(labels) + 1) > MAX_NUMBERS:
        raise AttnvizError(
            f"{len(heads)} heads x {len(queries)} steps x {len(labels)} {units} are too many; "
            f"choose fewer heads, as in {option('heads', '0.1')}"
        )
    weight_sums = np.zeros((len(queries), len(first_maps.key_tokens)), dtype=np.float32)
    own = is_written & ~sink if first_maps.kind == "self" else None
    numbers_by_head = [
        _measured_rows(cell_maps(maps), head, queries, columns, own, weight_sums) for maps, head in heads
    ]
    shares, on_written, change = (np.stack(head_numbers) for head_numbers in zip(*numbers_by_head, strict=True))

    mean_weights = np.where(sink, np.float32(-1), weight_sums / np.float32(len(heads)))  # -1 sorts after every weight
    count = min(STRONGEST_TOKENS, mean_weights.shape[1])
    strongest_keys = np.argpartition(-mean_weights, count - 1, axis=1)[:, :count]
    weights = np.take_along_axis(mean_weights, strongest_keys, axis=1)
    order = np.argsort(-weights, axis=1, kind="stable")  # the largest first
    strongest_keys = np.take_along_axis(strongest_keys, order, axis=1)
    strongest_weights = np.maximum(np.take_along_axis(weights, order, axis=1), 0).astype(np.float64)
    return DecodingSteps(
        heads=tuple(head_name(maps, head) for maps, head in heads),
        by=units,
        query_tokens=first_maps.query_tokens,
        key_tokens=first_maps.key_tokens,
        queries=queries,
        prompt=first_written,
        units=labels,
        unit_starts=starts,
        shares=shares[..., : len(labels)],
        sink=shares[..., len(labels) :].sum(axis=-1),
        on_written=on_written,
        change=change,
        strongest_keys=strongest_keys,
        strongest_weights=strongest_weights,
    )


def step_queries(tokens: Tokens, chosen_span: Span = ALL_QUERIES) -> IntArray:
    """Returns the indices of the queries that are steps, ``(steps,)``, ascending."""
    if chosen_span != ALL_QUERIES:
        span = resolve_span(chosen_span, len(tokens), "queries")
        return np.arange(span.start, span.stop)
    queries_before = written_tokens(tokens) - 1
    queries = queries_before[queries_before >= 0]  # no query is before the first token
    if not len(queries):
        raise AttnvizError("a single token has no steps; give a longer text")
    return queries


def written_tokens(tokens: Tokens) -> IntArray:
    """Returns the indices of the generated tokens, else of the last turn, else of the last passage.

    In other texts, returns the indices of all tokens but the first.
    """
    generated_groups = tokens.groups.get(GENERATED)
    if generated_groups is not None:
        generated_tokens = np.flatnonzero(generated_groups.numbers == 1)  # group 0 is the prompt
        if len(generated_tokens):
            return generated_tokens
    for name in (TURNS, PASSAGES):
        if name in tokens.groups:
            units = Units.of(tokens, name)
            last = last_unit(units, name)
            if last is not None:
                return np.flatnonzero(units.numbers == last)
    return np.arange(1, len(tokens))


def unit_name(tokens: Tokens, by: str | None) -> str:
    """Returns ``by``; if that is ``None``, the first of turns, passages, texts and sentences, or else ``tokens``."""
    if by is not None:
        return by
    return next((name for name in (TURNS, PASSAGES, TEXTS, SENTENCES) if named_groups(tokens, name)), TOKENS)


def refuse_later_keys(maps: Sequence[CellMaps], queries: IntArray, subject: str = "steps need") -> None:
    """Raises AttnvizError if the first of the queries sees a later key in one of the maps of self-attention."""
    query = int(queries[0])
    for layer_maps in maps:
        # a sink without a token is the last key, after those of the text
        row, later_keys = slice(query, query + 1), slice(query + 1, len(layer_maps.query_tokens))
        if layer_maps.kind == "self" and layer_maps.visibility(layer_maps.heads[0], row, later_keys).any():
            raise AttnvizError(f"{subject} a model that writes from left to right, and this one sees later tokens too")


def _key_columns(
    keys: Units, sink: BoolArray, by: str, first_written: int
) -> tuple[IntArray, tuple[str, ...], IntArray]:
    """Returns the column of each key, ``(keys,)``, and the label and the first token of each column but the sink's."""
    if by == TOKENS:
        return np.where(sink, 1, 0), (TOKENS,), np.zeros(1, dtype=np.int64)
    parts = 2 * keys.numbers + (np.arange(len(sink)) >= first_written)  # an odd number for what was written
    units = np.unique(parts[~sink])
    goes_on = (units % 2 == 1) & np.isin(units - 1, units)
    labels = tuple(
        f"{keys.labels[unit // 2]}{WRITTEN_PART if is_second else ''}"
        for unit, is_second in zip(units.tolist(), goes_on.tolist(), strict=True)
    )
    starts = np.where(goes_on, first_written, keys.starts[units // 2])
    return np.where(sink, len(units), np.searchsorted(units, parts)), labels, starts


def _measured_rows(
    maps: CellMaps,
    head: int,
    queries: IntArray,
    columns: IntArray,
    is_written: BoolArray | None,
    weight_sums: FloatArray,
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Measures a head at each step, and adds its rows to sums over heads in place."""
    shares = np.zeros((len(queries), int(columns.max()) + 1))
    on_written, change = (np.full(len(queries), np.nan) for _ in range(2))
    last_row = None
    for steps, span in row_bands(queries, len(columns)):
        cells = maps.window((head,), span, slice(0, len(columns))).weights[0]
        rows = cells[queries[steps] - span.start]
        weight_sums[steps] += rows
        shares[steps] = column_sums(rows, columns)
        if is_written is not None:
            on_written[steps] = rows[:, is_written].sum(axis=1, dtype=np.float64)
        previous_rows = np.concatenate([rows[:1] if last_row is None else last_row, rows[:-1]])
        change[steps] = np.abs(rows - previous_rows).sum(axis=1, dtype=np.float64) / 2
        last_row = rows[-1:]
    change[0] = np.nan
    return shares, on_written, change
