"""What the heads of a call may see: one array where all see the same cells, one for each head where they do not."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

BY_HEAD = "by_head"  # in a file's header, where its heads see different cells


def shared_or_each(heads: Sequence[NDArray[Any]] | NDArray[Any]) -> NDArray[Any]:
    """What all heads see where that is the same, ``(rows, columns)``; else each head's, ``(heads, rows, columns)``."""
    first = heads[0]
    return first if all(np.array_equal(first, each) for each in heads[1:]) else np.asarray(heads)


def seen_by(cells: NDArray[Any], places: list[int]) -> NDArray[Any]:
    """What the heads at these places see, of cells that are the same for all heads or ``(heads, rows, columns)``."""
    return cells if cells.ndim == 2 else shared_or_each([cells[place] for place in places])


def shape_to_hold(cells: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what holds parts of maps ``(heads, rows, columns)``: with an axis of heads where one part has it."""
    return shape if any(each.ndim == 3 for each in cells) else shape[1:]


def seen_shape(shape: tuple[int, int, int], stored: dict[str, Any]) -> tuple[int, ...]:
    """The shape of what a file holds of the cells of maps ``(heads, rows, columns)``, by its header."""
    return shape if stored.get(BY_HEAD) is True else shape[1:]


def seen_header(cells: NDArray[Any]) -> dict[str, Any]:
    """What a file's header says of such cells: nothing where all heads see the same."""
    return {BY_HEAD: True} if cells.ndim == 3 else {}


def groups_of(cells: NDArray[Any], heads: tuple[int, ...], places: list[int]) -> list[tuple[int, ...]]:
    """The heads in groups that see the same cells, each at its place in the cells."""
    if cells.ndim == 2:
        return [heads]
    groups: dict[bytes, list[int]] = {}
    for head, place in zip(heads, places, strict=True):
        groups.setdefault(blake2b(np.ascontiguousarray(cells[place]).data).digest(), []).append(head)
    return [tuple(group) for group in groups.values()]
