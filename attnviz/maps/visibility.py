"""Stores the visible cells of heads: one array if all heads see the same cells, else one per head."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

BY_HEAD = "by_head"  # key in a file's header, true if heads see different cells


def shared_or_per_head(heads: Sequence[NDArray[Any]] | NDArray[Any]) -> NDArray[Any]:
    """Returns ``(rows, columns)`` if the arrays of all heads are equal, else ``(heads, rows, columns)``."""
    first = heads[0]
    return first if all(np.array_equal(first, each) for each in heads[1:]) else np.asarray(heads)


def visible_to_heads(cells: NDArray[Any], places: list[int]) -> NDArray[Any]:
    """Returns the cells of the heads at these indices; ``(rows, columns)`` if they are equal.

    Args:
        cells: ``(rows, columns)`` for all heads, or ``(heads, rows, columns)``.
        places: indices of the heads in ``cells``.
    """
    return cells if cells.ndim == 2 else shared_or_per_head([cells[place] for place in places])


def joint_shape(cells: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that can hold all parts: ``shape`` with its axis of heads if any part has one, else without."""
    return shape if any(each.ndim == 3 for each in cells) else shape[1:]


def stored_shape(shape: tuple[int, int, int], stored: dict[str, Any]) -> tuple[int, ...]:
    """Returns the shape of a file's array of cells by its header: ``(heads, rows, columns)`` or ``(rows, columns)``."""
    return shape if stored.get(BY_HEAD) is True else shape[1:]


def visibility_header(cells: NDArray[Any]) -> dict[str, Any]:
    """Returns the entry of a file's header for these cells; empty if all heads see the same."""
    return {BY_HEAD: True} if cells.ndim == 3 else {}


def heads_by_visibility(cells: NDArray[Any], heads: tuple[int, ...], places: list[int]) -> list[tuple[int, ...]]:
    """Returns the heads in groups that see the same cells.

    Args:
        cells: ``(rows, columns)`` for all heads, or ``(heads, rows, columns)``.
        heads: numbers of the heads.
        places: index of each head in ``cells``.
    """
    if cells.ndim == 2:
        return [heads]
    groups: dict[bytes, list[int]] = {}
    for head, place in zip(heads, places, strict=True):
        groups.setdefault(blake2b(np.ascontiguousarray(cells[place]).data).digest(), []).append(head)
    return [tuple(group) for group in groups.values()]
