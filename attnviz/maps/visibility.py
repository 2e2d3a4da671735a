"""Stores the visible cells of heads, once if all see the same, and sums weights over groups of queries and keys."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.streaming.overview import bands_of_queries
from attnviz.text.groups import Groups

BY_HEAD = "by_head"  # key in a file's header, true if heads see different cells


def shared_or_per_head(arrays: Sequence[NDArray[Any]] | NDArray[Any]) -> NDArray[Any]:
    """Returns the first head's array, ``(rows, columns)``, if all are equal; else all, ``(heads, rows, columns)``."""
    first_array = arrays[0]
    are_equal = all(np.array_equal(first_array, array) for array in arrays[1:])
    return first_array if are_equal else np.asarray(arrays)


def place_of_first_query(visible: BoolArray) -> int:
    """Returns the place of the first query among the keys of self-attention, by the visible cells, ``(queries, keys)``.

    It is the first key if each query sees its own, and none between it and the end of the queries: the keys after them
    then stand for several tokens. Else `position_of_first_query` finds it.
    """
    queries, keys = visible.shape
    own_cells = visible[:, :queries]
    if 1 < queries < keys and own_cells.diagonal().all() and not np.triu(own_cells, 1).any():
        return 0
    last_keys = keys - 1 - visible[:, ::-1].argmax(axis=1)
    return position_of_first_query(np.where(visible.any(axis=1), last_keys, -1), keys)


def position_of_first_query(last_keys: IntArray, keys: int) -> int:
    """Returns the place of the first query among the keys of self-attention, given the last key that each query sees.

    Queries are the last keys, as after a cache, but unused places of a cache and padding may follow them. So the last
    query that sees further than all before it is taken to see up to its own key.
    """
    earlier_keys = keys - len(last_keys)
    sees_further = last_keys > np.maximum.accumulate(np.append(-1, last_keys))[:-1]
    if earlier_keys <= 0 or not sees_further.any():
        return earlier_keys
    query = int(np.flatnonzero(sees_further)[-1])
    return min(max(int(last_keys[query]) - query, 0), earlier_keys)


def visible_to_heads(cells: NDArray[Any], indices: list[int]) -> NDArray[Any]:
    """Returns the cells of the heads at these indices: ``(heads, rows, columns)``, or ``(rows, columns)`` if all equal.

    Args:
        cells: ``(rows, columns)`` for all heads, or ``(heads, rows, columns)``.
    """
    return cells if cells.ndim == 2 else shared_or_per_head([cells[index] for index in indices])


def stored_shape(shape: tuple[int, int, int], header: dict[str, Any]) -> tuple[int, ...]:
    """Returns the shape of a stored array of cells: ``(rows, columns)`` unless the header says that heads differ."""
    return shape if header.get(BY_HEAD) is True else shape[1:]


def visibility_header(cells: NDArray[Any]) -> dict[str, Any]:
    """Returns the header entry for cells with an axis of heads; {} if all heads see the same cells (two axes)."""
    return {BY_HEAD: True} if cells.ndim == 3 else {}


def heads_by_visibility(cells: NDArray[Any], heads: tuple[int, ...], indices: list[int]) -> list[tuple[int, ...]]:
    """Returns the heads in groups that see the same cells, in the order of their first heads.

    Args:
        cells: ``(rows, columns)`` for all heads, or ``(heads, rows, columns)``.
    """
    if cells.ndim == 2:
        return [heads]
    # Digests are compared instead of arrays, so that each array is read once.
    heads_by_digest: dict[bytes, list[int]] = {}
    for head, index in zip(heads, indices, strict=True):
        digest = blake2b(np.ascontiguousarray(cells[index]).data).digest()
        heads_by_digest.setdefault(digest, []).append(head)
    return [tuple(group) for group in heads_by_digest.values()]


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
