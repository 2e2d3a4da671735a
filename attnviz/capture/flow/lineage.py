"""Tracks what a tensor was computed from: tells self-attention from cross-attention, and layers from loops."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

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
