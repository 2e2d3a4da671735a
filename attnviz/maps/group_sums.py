"""Sums weights over groups of queries and keys, in bands of tokens, so that long maps are never whole in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.maps.visibility import shared_or_per_head
from attnviz.streaming.overview import bands_of_queries
from attnviz.text.groups import Groups

MAX_SUMMED_CELLS = 2**24  # weights of all heads that are read at once
MAX_FLOAT32_SUM = 512  # tokens of a group, above which weights are summed in float64


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Weights summed over groups of tokens."""

    # ``(heads, rows, columns)``, over the visible cells of a group of queries and a group of keys
    weights: FloatArray | Float64Array
    # ``(rows, columns)``, true if any of these cells is visible; ``(heads, rows, columns)`` if heads see different
    # cells
    visible: BoolArray


ReadCells = Callable[[slice, slice], tuple[FloatArray, BoolArray]]


def sum_groups(read: ReadCells, heads: int, rows: Groups, columns: Groups) -> GroupSums:
    """Returns the weights summed over every pair of a group of queries and a group of keys.

    Reads at most `MAX_SUMMED_CELLS` weights at once, or those of one query if they are more.

    Args:
        read: returns the weights ``(heads, queries, keys)`` of spans of queries and keys, and the visible cells.
    """
    keys = columns.token_span
    max_queries = max(1, MAX_SUMMED_CELLS // (heads * (keys.stop - keys.start)))
    sums = []
    for part in _group_parts(rows, max_queries):
        queries = part.token_span
        if queries.stop - queries.start <= max_queries:
            sums.append(sum_cells(*read(queries, keys), part, columns))
        else:
            # The groups of this part are long: their sums grow band by band, in float64.
            weights = np.zeros((heads, len(part), len(columns)))
            is_visible = np.zeros(weights.shape, dtype=bool)
            for band in bands_of_queries(queries, 1, max_queries):
                group_numbers = part.numbers[band.start - part.first : band.stop - part.first]
                cells, visible_cells = read(band, keys)
                in_group = group_numbers >= 0
                column_sums = columns.reduce(np.add, cells.astype(np.float64), 2)  # (heads, queries, columns)
                column_visible = np.broadcast_to(columns.reduce(np.logical_or, visible_cells, -1), column_sums.shape)
                for head in range(heads):
                    np.add.at(weights[head], group_numbers[in_group], column_sums[head, in_group])
                    np.logical_or.at(is_visible[head], group_numbers[in_group], column_visible[head, in_group])
            sums.append(GroupSums(weights, shared_or_per_head(is_visible)))
    if len(sums) == 1:
        return sums[0]

    visible = [part.visible for part in sums]
    if any(array.ndim == 3 for array in visible):
        visible = [np.broadcast_to(array, part.weights.shape) for array, part in zip(visible, sums, strict=True)]
    return GroupSums(np.concatenate([part.weights for part in sums], axis=1), np.concatenate(visible, axis=-2))


def sum_cells(weights: FloatArray, visible: BoolArray, rows: Groups, columns: Groups) -> GroupSums:
    """Returns the sums of weights over every pair of a group of queries and a group of keys.

    Args:
        weights: ``(heads, queries, keys)``, from the first group to the end of the last on both axes.
        visible: ``(queries, keys)``, or ``(heads, queries, keys)`` if heads see different cells.
    """
    needs_float64 = max(int(rows.sizes.max()), int(columns.sizes.max())) > MAX_FLOAT32_SUM
    cells = weights.astype(np.float64) if needs_float64 else weights
    return GroupSums(
        weights=rows.reduce(np.add, columns.reduce(np.add, cells, 2), 1),
        visible=rows.reduce(np.logical_or, columns.reduce(np.logical_or, visible, -1), -2),
    )


def _group_parts(rows: Groups, max_queries: int) -> Iterator[Groups]:
    """Yields parts of neighbouring groups that span at most ``max_queries`` queries; a longer group is one part."""
    if not rows.in_order:
        yield rows
        return
    start = 0
    while start < len(rows):
        stop = max(start + 1, int(np.searchsorted(rows.stops, rows.starts[start] + max_queries, side="right")))
        yield rows.part(slice(start, stop))
        start = stop
