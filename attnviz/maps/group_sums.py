"""Sums weights over groups of queries and keys, in bands of tokens, so that long maps are never whole in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.maps.visibility import shared_or_per_head
from attnviz.streaming.overview import bands
from attnviz.text.groups import Groups

MAX_SUMMED_CELLS = 2**24  # weights of all heads that are read at once
MAX_FLOAT32_SUM = 512  # tokens of a group, above which weights are summed in float64


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Weights summed over groups of tokens.

    Attributes:
        weights: ``(heads, rows, columns)``, over the visible cells of a group of queries and a group of keys.
        visible: ``(rows, columns)``, true if any of these cells is visible; ``(heads, rows, columns)`` if heads see
            different cells.
    """

    weights: FloatArray | Float64Array
    visible: BoolArray


Read = Callable[[slice, slice], tuple[FloatArray, BoolArray]]


def sum_groups(read: Read, heads: int, rows: Groups, columns: Groups) -> GroupSums:
    """Sums the weights over every pair of a group of queries and a group of keys.

    Args:
        read: returns the weights ``(heads, queries, keys)`` of spans of queries and keys, and the visible cells.
        heads: number of heads that ``read`` returns.
        rows: the groups of queries.
        columns: the groups of keys.
    """
    keys = columns.token_span
    most = max(1, MAX_SUMMED_CELLS // (heads * (keys.stop - keys.start)))  # queries
    parts = []
    for part in _parts(rows, most):
        queries = part.token_span
        fits = queries.stop - queries.start <= most
        parts.append(
            sums_of(*read(queries, keys), part, columns) if fits else _sums_of_bands(read, heads, part, columns, most)
        )
    if len(parts) == 1:
        return parts[0]
    visible = [part.visible for part in parts]
    if any(each.ndim == 3 for each in visible):
        visible = [np.broadcast_to(each, part.weights.shape) for each, part in zip(visible, parts, strict=True)]
    return GroupSums(np.concatenate([part.weights for part in parts], axis=1), np.concatenate(visible, axis=-2))


def sums_of(weights: FloatArray, visible: BoolArray, rows: Groups, columns: Groups) -> GroupSums:
    """Sums weights over groups of both axes.

    Args:
        weights: ``(heads, queries, keys)``, of the tokens from the first group to the end of the last on both axes.
        visible: ``(queries, keys)``, or ``(heads, queries, keys)`` if heads see different cells.
        rows: the groups of queries.
        columns: the groups of keys.
    """
    long = max(int(rows.sizes.max()), int(columns.sizes.max())) > MAX_FLOAT32_SUM
    cells = weights.astype(np.float64) if long else weights
    return GroupSums(
        weights=rows.reduce(np.add, columns.reduce(np.add, cells, 2), 1),
        visible=rows.reduce(np.logical_or, columns.reduce(np.logical_or, visible, -1), -2),
    )


def _parts(rows: Groups, most: int) -> Iterator[Groups]:
    """Yields the groups in parts of at most ``most`` queries or of one group; in one part if groups are unordered."""
    if not rows.in_order:
        yield rows
        return
    start = 0
    while start < len(rows):
        stop = max(start + 1, int(np.searchsorted(rows.stops, rows.starts[start] + most, side="right")))
        yield rows.part(slice(start, stop))
        start = stop


def _sums_of_bands(read: Read, heads: int, rows: Groups, columns: Groups, most: int) -> GroupSums:
    """Sums bands of at most ``most`` queries, added up in float64."""
    weights = np.zeros((heads, len(rows), len(columns)))
    visible = np.zeros(weights.shape, dtype=bool)
    for band in bands(rows.token_span, 1, most):
        numbers = rows.numbers[band.start - rows.first : band.stop - rows.first]
        cells, visible_cells = read(band, columns.token_span)
        grouped = numbers >= 0
        by_key = columns.reduce(np.add, cells.astype(np.float64), 2)
        visible_by_key = np.broadcast_to(columns.reduce(np.logical_or, visible_cells, -1), by_key.shape)
        for head in range(heads):
            np.add.at(weights[head], numbers[grouped], by_key[head, grouped])
            np.logical_or.at(visible[head], numbers[grouped], visible_by_key[head, grouped])
    return GroupSums(weights, shared_or_per_head(visible))
