"""Tracks what each axis of a tensor stands for (features, tokens, or both) through views, copies and products.

An axis is a product of parts, the slowest first: ``(batch * heads)`` has two. A projection labels its last axis
features; parts that are split off from that axis later are heads. So heads, texts and tokens are told apart in any
memory layout.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_CACHED = 1024  # cached results; most are used again in the next layer
UNKNOWN, TOKENS, FEATURES = 0, 1, 2  # labels of parts; greater ones are marks, each naming one axis of one product
FIRST_MARK = 4  # a mark is a multiple of this plus the label that it stands for


class Part(NamedTuple):
    """A factor of an axis: its size and its label."""

    size: int
    label: int


Axis = tuple[Part, ...]
Axes = tuple[Axis, ...]


@lru_cache(MAX_CACHED)
def unknown_axes(shape: tuple[int, ...]) -> Axes:
    """Returns axes of these sizes with unknown labels."""
    return tuple(axis_of(size, UNKNOWN) for size in shape)


def axis_of(size: int, label: int) -> Axis:
    """Returns an axis of one part; an axis of size 1 has no parts."""
    return (Part(size, label),) if size > 1 else ()


def label_of(mark: int) -> int:
    """Returns the label that a mark stands for; a label is returned unchanged."""
    return mark % FIRST_MARK


def size_of(axis: Axis) -> int:
    """Returns the size of an axis: the product of its parts."""
    size = 1
    for part in axis:
        size *= part.size
    return size


def is_all(axis: Axis, label: int) -> bool:
    """True if the axis has a part, and each part has this label or a mark that stands for it."""
    return bool(axis) and all(label_of(part.label) == label for part in axis)


def labels_in(axes: Iterable[Axis]) -> set[int]:
    """Returns the labels and marks of all parts of the axes."""
    return {part.label for axis in axes for part in axis}


@lru_cache(MAX_CACHED)
def axes_of_view(axes: Axes, strides: tuple[int, ...], shape: tuple[int, ...], new_strides: tuple[int, ...]) -> Axes:
    """Returns the axes of a view, or of a reshaped copy if the strides are those of contiguous tensors."""
    atoms: list[tuple[int, int, int]] = []  # of each part its stride, stride times size (in elements), and label
    for axis, axis_stride in zip(axes, strides, strict=True):
        stride = axis_stride
        for part in reversed(axis):
            if stride:
                atoms.append((stride, stride * part.size, part.label))
            stride *= part.size
    atoms.sort(reverse=True)
    new_axes = []
    for size, stride in zip(shape, new_strides, strict=True):
        parts = []  # those that the new axis steps through
        for atom_stride, atom_span, label in atoms:
            part_stride, part_span = max(atom_stride, stride), min(atom_span, stride * size)
            if stride and part_span > part_stride:
                parts.append(Part(part_span // part_stride, label))
        new_axes.append(resized_axis(tuple(parts), size))
    return tuple(new_axes)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@lru_cache(MAX_CACHED)
def broadcast(operands: tuple[Axes, ...], shape: tuple[int, ...]) -> Axes:
    """Returns the axes of an element-wise result: each is the most informative axis of full size among the operands.

    An axis that no operand has in full size is unknown.
    """
    reversed_axes = []
    for index_from_end, size in enumerate(reversed(shape), 1):
        aligned_axes = [axes[-index_from_end] for axes in operands if len(axes) >= index_from_end]
        candidates = [axis for axis in aligned_axes if size_of(axis) == size]
        reversed_axes.append(most_informative_axis(candidates, size))
    return tuple(reversed(reversed_axes))


def most_informative_axis(candidates: Sequence[Axis], size: int) -> Axis:
    """Returns the first axis with a mark, else the first with a label, else the first, resized to ``size``.

    Without candidates it is an unknown axis of that size.
    """
    marked_axes = (axis for axis in candidates if any(part.label >= FIRST_MARK for part in axis))
    labelled_axes = (axis for axis in candidates if any(part.label for part in axis))
    chosen_axis: Axis | None = next(marked_axes, None)
    if chosen_axis is None:
        chosen_axis = next(labelled_axes, candidates[0] if candidates else ())
    return resized_axis(chosen_axis, size)


def resized_axis(axis: Axis, size: int) -> Axis:
    """Returns the axis with this size, as after a slice: unchanged if it has this size already, else as one part.

    The part has the label that all parts of the axis have; it is unknown if their labels differ, or there are none.
    """
    if size_of(axis) == size:
        return axis
    labels = {part.label for part in axis}
    return axis_of(size, labels.pop() if len(labels) == 1 else UNKNOWN)


def with_labels_from(axes: Axes, labelled_axes: Axes) -> Axes:
    """Returns the axes, with the labels of another tensor for the axes that have no label.

    Labelled axes, and the sizes of all, are kept. Returns the axes unchanged if the other tensor has another rank.
    """
    if len(axes) != len(labelled_axes):
        return axes
    return tuple(
        resized_axis(labelled_axis, size_of(axis)) if is_all(axis, UNKNOWN) else axis
        for axis, labelled_axis in zip(axes, map(without_marks, labelled_axes), strict=True)
    )


def without_marks(axis: Axis) -> Axis:
    """Returns the axis with each mark replaced by the label that it stands for."""
    return tuple(Part(part.size, label_of(part.label)) for part in axis)
