"""Cuts an axis into blocks and tiles of blocks, with the tokens in an order in which reducing the blocks is fast."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.streaming.overview import block_edges


@dataclass(frozen=True, eq=False)
class Tile:
    """Neighbouring blocks of an axis that are computed at once.

    Blocks differ in length by one token at most; the shorter ones repeat their last token to be as long as the others.

    Attributes:
        blocks: the numbers of the blocks.
        tokens: the tokens of all blocks.
        grid: ``(blocks, longest)``, the tokens of each block.
        repeats: ``(blocks,)``, true if the last entry of a block repeats the one before; ``None`` if none does.
    """

    blocks: slice
    tokens: slice
    grid: IntArray
    repeats: BoolArray | None

    @property
    def count(self) -> int:
        """The number of blocks."""
        return len(self.grid)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest block."""
        return len(self.grid[0])

    @property
    def place(self) -> slice:
        """The slice of this tile's tokens among the tokens of all tiles of the axis, repeated tokens included."""
        return slice(self.blocks.start * self.longest, self.blocks.stop * self.longest)

    def part(self, blocks: slice) -> "Tile":
        """Returns the tile of some blocks of this tile, which must begin with the first block of its axis."""
        grid = self.grid[blocks]
        repeats = None if self.repeats is None else self.repeats[blocks]
        tokens = slice(int(grid[0, 0]), int(grid[-1, -1]) + 1)
        return Tile(blocks, tokens, grid, repeats if repeats is not None and repeats.any() else None)

    @property
    def interleaved(self) -> IntArray:
        """The first token of each block, then each second one, and so on, so that blocks are reduced element-wise."""
        return self.grid.T.ravel()


@dataclass(frozen=True, eq=False)
class BlockAxis:
    """An axis cut into blocks, each of which is cut into the same number of parts.

    Attributes:
        edges: ``(blocks * parts + 1,)``, the start of each part, and the end.
        parts: number of parts of a block.
    """

    edges: IntArray
    parts: int

    @classmethod
    def of(cls, span: slice, blocks: int, longest: int) -> "BlockAxis":
        """Returns the axis of a span of tokens.

        Args:
            span: the tokens, with both ends.
            blocks: number of blocks, at most one per token.
            longest: the most tokens of a part.
        """
        count = span.stop - span.start
        parts = max(1, min(-(-count // (blocks * longest)), count // blocks))
        return cls(span.start + block_edges(count, blocks * parts), parts)

    def tiles(self, size: int) -> Iterator[Tile]:
        """Yields the parts in tiles of about ``size`` tokens."""
        lengths = np.diff(self.edges)
        longest = int(lengths.max())
        step = max(1, size // longest)
        for first in range(0, len(lengths), step):
            last = min(first + step, len(lengths))
            grid = np.minimum(
                self.edges[first:last, None] + np.arange(longest), self.edges[first + 1 : last + 1, None] - 1
            )
            repeats = lengths[first:last] < longest
            yield Tile(
                blocks=slice(first, last),
                tokens=slice(int(self.edges[first]), int(self.edges[last])),
                grid=grid,
                repeats=repeats if repeats.any() else None,
            )
