"""Tracks what each axis of a tensor stands for, and what the tensor was computed from.

An axis is a product of parts, the slowest first: ``(batch * heads)`` has two. A projection labels its last axis
features; parts that are split off from that axis later are heads. So heads, texts and tokens are told apart in any
memory layout. The lineage tells self-attention from cross-attention, and layers from loops.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

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


MAX_PIECES = 4  # pieces kept for one tensor


LongerAxis = tuple[int, int, int, int]  # its address in memory, offset and stride (in elements), and size


class Piece(NamedTuple):
    """A range of consecutive places along an axis of a tensor."""

    whole: LongerAxis  # the axis, identified by its memory
    start: int  # the first place
    rows: int  # the number of places

    @property
    def end(self) -> int:
        """The end of the range, exclusive."""
        return self.start + self.rows

    @property
    def is_first(self) -> bool:
        """True if the piece begins the axis but does not cover it."""
        return self.start == 0 and self.rows < self.whole[-1]

    @property
    def is_last(self) -> bool:
        """True if the piece ends the axis."""
        return self.end == self.whole[-1]

    def is_followed_by(self, other: "Piece") -> bool:
        """True if another piece of the same axis begins where this one ends."""
        return self.whole == other.whole and self.end == other.start


def cut_axis(source: Tensor, result: Tensor) -> int | None:
    """Returns the only axis of a tensor along which a view of it is shorter, or that the view lacks.

    ``None`` if there is no such axis, or several, or if the view skips elements along it, is empty or not smaller.
    """
    if result.numel() >= source.numel() or not result.numel():
        return None
    if result.dim() == source.dim() - 1:
        sizes = list(zip(source.shape, source.stride(), strict=True))
        sizes_of_view = list(zip(result.shape, result.stride(), strict=True))
        return next((axis for axis in range(source.dim()) if sizes[:axis] + sizes[axis + 1 :] == sizes_of_view), None)
    if source.dim() != result.dim():
        return None
    shorter_axes = [axis for axis, size in enumerate(result.shape) if size != source.shape[axis]]
    if len(shorter_axes) != 1 or result.stride(shorter_axes[0]) != source.stride(shorter_axes[0]):
        return None
    return shorter_axes[0]


def piece_along(source: Tensor, result: Tensor, axis: int) -> Piece | None:
    """Returns the places along an axis of a tensor that a view of the tensor covers.

    Returns ``None`` if the view begins between two places of the axis, or ends beyond its last place.
    """
    step, offset = source.stride(axis), result.storage_offset() - source.storage_offset()
    rows = result.shape[axis] if source.dim() == result.dim() else 1
    if step <= 0 or offset % step or offset // step + rows > source.shape[axis]:
        return None
    memory = source.untyped_storage().data_ptr()
    return Piece((memory, int(source.storage_offset()), step, source.shape[axis]), offset // step, rows)


def leading_piece(source: Tensor, result: Tensor) -> Piece | None:
    """Returns the range of a tensor's first axis that a view covers; the view may be shorter along other axes too.

    ``None`` unless the view lies in consecutive rows, but not all rows, and lacks at most one axis of the tensor.
    """
    missing_axes = source.dim() - result.dim()
    if missing_axes not in (0, 1) or result.dim() < 1 or not result.numel():
        return None
    step, offset = source.stride(0), result.storage_offset() - source.storage_offset()
    view_of_rows = result if source.dim() == result.dim() else result[None]
    # The place of a row's last element, counted from its first, must lie in the same row of the source.
    width = sum(
        (size - 1) * stride for size, stride in zip(view_of_rows.shape[1:], view_of_rows.stride()[1:], strict=True)
    )
    lies_in_rows = step > 0 and offset >= 0 and offset % step + width < step
    is_consecutive = len(view_of_rows) == 1 or view_of_rows.stride(0) == step
    if not lies_in_rows or not is_consecutive:
        return None
    memory = source.untyped_storage().data_ptr()
    start, rows = offset // step, len(view_of_rows)
    whole = (memory, int(source.storage_offset()), step, source.shape[0])
    is_part = rows < source.shape[0] and start + rows <= source.shape[0]
    return Piece(whole, start, rows) if is_part else None


class Lineage(NamedTuple):
    """The origin of a tensor: the inputs and attention calls that it was computed from."""

    roots: int = 0  # a bit set of inputs
    depth: int = 0  # the length of the longest chain of attention calls that leads to it
    pieces: tuple[Piece, ...] = ()  # the ranges of rows of longer tensors that it may cover
    recurrent: bool = False  # True if a recurrent network is among its ancestors
    poolings: int = 0  # the largest number of poolings on a chain of functions that leads to it

    @property
    def after_attention(self) -> "Lineage":
        """The lineage of the output of attention with these queries: deeper, without pieces, and not recurrent."""
        return Lineage(self.roots, self.depth + 1, poolings=self.poolings)

    def part(self, piece: Piece | None) -> "Lineage":
        """Returns the lineage of a piece of the tensor; unchanged if the piece is unknown."""
        return self if piece is None else self._replace(pieces=_first_pieces((piece, *self.pieces)))


NOTHING = Lineage()


def merged_lineage(lineages: Iterable[Lineage]) -> Lineage:
    """Returns the lineage of a result computed from tensors of these lineages; `NOTHING` if none has an origin.

    It has the roots of all, the largest depth and number of poolings, and the first `MAX_PIECES` different pieces in
    the order of the lineages, and is recurrent if one of them is. A single lineage is returned unchanged.
    """
    lineages_with_origin = [lineage for lineage in lineages if lineage is not NOTHING]
    if not lineages_with_origin:
        return NOTHING
    first = lineages_with_origin[0]
    if all(lineage is first for lineage in lineages_with_origin):
        return first
    roots = 0
    for lineage in lineages_with_origin:
        roots |= lineage.roots
    pieces = [piece for lineage in lineages_with_origin for piece in lineage.pieces]
    depth = max(lineage.depth for lineage in lineages_with_origin)
    is_recurrent = any(lineage.recurrent for lineage in lineages_with_origin)
    poolings = max(lineage.poolings for lineage in lineages_with_origin)
    return Lineage(roots, depth, _first_pieces(pieces) if pieces else (), is_recurrent, poolings)


def have_separate_inputs(queries: Lineage, keys: Lineage, are_projections: bool) -> bool:
    """True if queries and keys come from different inputs, or one of them from parameters alone, as latents do.

    Different inputs are certain only of projections: other tensors may come from code that was not observed.
    """
    if queries.roots and keys.roots:
        return are_projections and not queries.roots & keys.roots
    return bool(queries.roots or keys.roots)


def _first_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Returns the first ``MAX_PIECES`` different pieces; those of one lineage go from the latest to the earliest."""
    return tuple(dict.fromkeys(pieces))[:MAX_PIECES]
