"""What the axes of a tensor stand for: features, tokens, or both in one, followed through views, copies and products.

An axis is made of parts, the slowest first, as ``(batch * heads)`` is of two. A projection makes its last axis
features; what is split off from there are heads. So heads, texts and tokens are told apart whatever order they stand
in.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_REMEMBERED = 1024  # results that are kept: most are found again in the next layer
UNKNOWN, TOKENS, FEATURES = 0, 1, 2  # labels of parts; greater ones are marks, which name an axis of one product
FIRST_MARK = 4  # a mark is a multiple of this, and the label that it stands for


class Part(NamedTuple):
    """A factor of an axis: how long it is, and its label."""

    size: int
    label: int


Axis = tuple[Part, ...]
Axes = tuple[Axis, ...]


@lru_cache(MAX_REMEMBERED)
def unknown_axes(shape: tuple[int, ...]) -> Axes:
    """Axes of which nothing is known."""
    return tuple(axis_of(size, UNKNOWN) for size in shape)


def axis_of(size: int, label: int) -> Axis:
    """An axis of one part; without any where its size is 1."""
    return (Part(size, label),) if size > 1 else ()


def label_of(label: int) -> int:
    """The label that a mark stands for; of others themselves."""
    return label % FIRST_MARK


def size_of(axis: Axis) -> int:
    """How long an axis is."""
    size = 1
    for part in axis:
        size *= part.size
    return size


def is_all(axis: Axis, label: int) -> bool:
    """Whether the axis has a part, and all stand for this label."""
    return bool(axis) and all(label_of(part.label) == label for part in axis)


def labels_in(axes: Iterable[Axis]) -> set[int]:
    """Every label that the axes have."""
    return {part.label for axis in axes for part in axis}


@lru_cache(MAX_REMEMBERED)
def rearranged(axes: Axes, strides: tuple[int, ...], shape: tuple[int, ...], new_strides: tuple[int, ...]) -> Axes:
    """The axes of a view, or of a reshaped copy if strides are those of contiguous tensors.

    Args:
        axes: of the tensor that is viewed.
        strides: its strides.
        shape: of the view.
        new_strides: of the view.
    """
    atoms = [atom for axis, stride in zip(axes, strides, strict=True) for atom in _atoms(axis, stride)]
    atoms.sort(reverse=True)
    return tuple(_covered(atoms, size, stride) for size, stride in zip(shape, new_strides, strict=True))


def _atoms(axis: Axis, stride: int) -> Iterable[tuple[int, int, int]]:
    """Where in memory each part of an axis steps: from, to, and its label."""
    for part in reversed(axis):
        if stride:
            yield stride, stride * part.size, part.label
        stride *= part.size


def _covered(atoms: list[tuple[int, int, int]], size: int, stride: int) -> Axis:
    """The parts that an axis of this size and stride steps through."""
    if size == 1:
        return ()
    parts = []
    for low, high, label in atoms:
        start, end = max(low, stride), min(high, stride * size)
        if stride and end > start:
            parts.append(Part(end // start, label))
    if size_of(tuple(parts)) == size:
        return tuple(parts)
    labels = {part.label for part in parts}
    return axis_of(size, labels.pop() if len(labels) == 1 else UNKNOWN)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@lru_cache(MAX_REMEMBERED)
def broadcast(operands: tuple[Axes, ...], shape: tuple[int, ...]) -> Axes:
    """The axes of what is computed from each element of the operands: the best known of those as long as the result."""
    result = []
    for place, size in enumerate(reversed(shape), 1):
        found = [axes[-place] for axes in operands if len(axes) >= place and size_of(axes[-place]) == size]
        result.append(best_known(found, size))
    return tuple(reversed(result))


def best_known(found: Sequence[Axis], size: int) -> Axis:
    """The first axis with a mark, else the first of which something is known, as long as it is now."""
    known = next((axis for axis in found if any(part.label >= FIRST_MARK for part in axis)), None)
    if known is None:
        known = next((axis for axis in found if any(part.label for part in axis)), found[0] if found else ())
    return resized(known, size)


def resized(axis: Axis, size: int) -> Axis:
    """The axis with another size, as after a slice, padding or concatenation."""
    if size_of(axis) == size:
        return axis
    labels = {part.label for part in axis}
    return axis_of(size, labels.pop() if len(labels) == 1 else UNKNOWN)


def filled_in(axes: Axes, others: Axes) -> Axes:
    """The axes, of which those that nothing is known of are as others in their places."""
    if len(axes) != len(others):
        return axes
    return tuple(
        resized(other, size_of(axis)) if is_all(axis, UNKNOWN) else axis
        for axis, other in zip(axes, map(without_marks, others), strict=True)
    )


def without_marks(axis: Axis) -> Axis:
    """The axis with the labels that its marks stand for."""
    return tuple(Part(part.size, label_of(part.label)) for part in axis)
