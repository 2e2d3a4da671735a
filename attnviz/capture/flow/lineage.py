"""Lineage: what a tensor was computed from, as far as tells self- from cross-attention, and layers from texts."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

MAX_PIECES = 4  # that are known of one tensor


Whole = tuple[int, int, int, int]


class Piece(NamedTuple):
    """Some consecutive places along an axis of a tensor.

    Attributes:
        whole: the axis: where in memory it begins and how it steps, and how long it is.
        start: the first place.
        rows: how many there are.
    """

    whole: Whole
    start: int
    rows: int

    @property
    def end(self) -> int:
        """The place after the last one."""
        return self.start + self.rows

    @property
    def is_first(self) -> bool:
        """Whether it begins the axis, and others are to follow."""
        return self.start == 0 and self.rows < self.whole[-1]

    @property
    def is_last(self) -> bool:
        """Whether it ends the axis."""
        return self.end == self.whole[-1]

    def is_followed_by(self, other: "Piece") -> bool:
        """Whether another piece of the same axis begins where this one ends."""
        return self.whole == other.whole and self.end == other.start


def cut_axis(source: Tensor, result: Tensor) -> int | None:
    """The axis of a tensor along which a view is a part of it; ``None`` where there is none, or several."""
    if result.numel() >= source.numel() or not result.numel():
        return None
    if result.dim() == source.dim() - 1:
        return next((at for at in range(source.dim()) if _is_alike(source, result, at)), None)
    shorter = (
        [at for at, size in enumerate(result.shape) if size != source.shape[at]] if _same_rank(source, result) else []
    )
    return shorter[0] if len(shorter) == 1 and result.stride(shorter[0]) == source.stride(shorter[0]) else None


def piece_along(source: Tensor, result: Tensor, axis: int) -> Piece | None:
    """The piece of a tensor that a view of it holds along an axis."""
    step, offset = source.stride(axis), result.storage_offset() - source.storage_offset()
    rows = result.shape[axis] if _same_rank(source, result) else 1
    if step <= 0 or offset % step or offset // step + rows > source.shape[axis]:
        return None
    memory = source.untyped_storage().data_ptr()
    return Piece((memory, int(source.storage_offset()), step, source.shape[axis]), offset // step, rows)


def leading_piece(source: Tensor, result: Tensor) -> Piece | None:
    """The piece of a tensor's first axis that a view holds which is cut along others too, as the first words of a text.

    ``None`` where the view is no such part of it.
    """
    if source.dim() < result.dim() or source.dim() - result.dim() > 1 or result.dim() < 1 or not result.numel():
        return None
    step, offset = source.stride(0), result.storage_offset() - source.storage_offset()
    inner = result if _same_rank(source, result) else result[None]
    width = sum((size - 1) * stride for size, stride in zip(inner.shape[1:], inner.stride()[1:], strict=True))
    if step <= 0 or offset < 0 or offset % step + width >= step or (len(inner) > 1 and inner.stride(0) != step):
        return None
    memory = source.untyped_storage().data_ptr()
    start, rows = offset // step, len(inner)
    whole = (memory, int(source.storage_offset()), step, source.shape[0])
    return Piece(whole, start, rows) if rows < source.shape[0] and start + rows <= source.shape[0] else None


class Lineage(NamedTuple):
    """What a tensor was computed from.

    Attributes:
        roots: the inputs, a bit each.
        depth: how many attention calls follow each other on the way to it.
        pieces: which rows of longer tensors.
        recurrent: whether a recurrent network gave it, or something that it was computed from.
    """

    roots: int = 0
    depth: int = 0
    pieces: tuple[Piece, ...] = ()
    recurrent: bool = False

    @property
    def attended(self) -> "Lineage":
        """That of the result of an attention call with queries of this one."""
        return Lineage(self.roots, self.depth + 1)

    def part(self, piece: Piece | None) -> "Lineage":
        """That of a piece of the tensor."""
        return self if piece is None else self._replace(pieces=_together((piece, *self.pieces)))


NOTHING = Lineage()


def merged(lineages: Iterable[Lineage]) -> Lineage:
    """The lineage of what is computed from several tensors."""
    found = [lineage for lineage in lineages if lineage is not NOTHING]
    if not found:
        return NOTHING
    first = found[0]
    if all(other is first for other in found):
        return first
    roots = 0
    for lineage in found:
        roots |= lineage.roots
    pieces = [piece for lineage in found for piece in lineage.pieces]
    depth, recurrent = max(lineage.depth for lineage in found), any(lineage.recurrent for lineage in found)
    return Lineage(roots, depth, _together(pieces) if pieces else (), recurrent)


def _together(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Each piece once, the latest ones."""
    return tuple(dict.fromkeys(pieces))[:MAX_PIECES]


def _same_rank(source: Tensor, result: Tensor) -> bool:
    return source.dim() == result.dim()


def _is_alike(source: Tensor, result: Tensor, axis: int) -> bool:
    """Whether a view is the source without this axis."""
    sizes = [size for at, size in enumerate(zip(source.shape, source.stride(), strict=True)) if at != axis]
    return sizes == list(zip(result.shape, result.stride(), strict=True))
