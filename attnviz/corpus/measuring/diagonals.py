"""Sums cells over the diagonals of equal ``key - query``."""

from torch import Tensor


class Diagonals:
    """Sums over diagonals, with buffers that later calls use again, since new memory takes longer than the sums.

    Attributes:
        buffers: the buffers that no call uses, by the shape of the cells.
    """

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, ...], list[Tensor]] = {}

    def sums(self, cells: Tensor) -> Tensor:
        """Returns the sums over diagonals, ``(..., queries + keys - 1)``, that of last query and first key first.

        Each row is written one place further left than the row before it, so that each diagonal becomes a column. The
        zeros between the rows are written once.
        """
        *batch_axes, queries, keys = cells.shape
        width = queries + keys - 1
        buffers = self.buffers.setdefault(cells.shape, [])
        try:
            buffer = buffers.pop()
        except IndexError:
            buffer = cells.new_zeros(*batch_axes, queries * (width + 1))
        buffer[..., : queries * width].view(*batch_axes, queries, width)[..., queries - 1 :] = cells
        sums = buffer.view(*batch_axes, queries, width + 1)[..., :width].sum(-2)
        buffers.append(buffer)
        return sums
