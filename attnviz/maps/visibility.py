"""Stores the visible cells of heads: one array if all heads see the same cells, else one per head."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, IntArray

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
