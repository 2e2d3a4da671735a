"""The blocks of an axis in tiles, each in an order in which reducing its blocks is fast."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.streaming.overview import block_edges


@dataclass(frozen=True, eq=False)
class Tile:
    """Neighbouring blocks of an axis, computed at once.

    Blocks differ in length by one token at most; the shorter repeat their last token to be as long as the others.

    Attributes:
        blocks: which blocks.
        tokens: which tokens they hold.
        grid: ``(blocks, longest)``, the tokens of each block.
        repeats: ``(blocks,)``, true where the last entry of a block repeats the one before; ``None`` where none does.
    """

    blocks: slice
    tokens: slice
    grid: IntArray
    repeats: BoolArray | None

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.grid)

    @property
    def longest(self) -> int:
        """Tokens of the longest block."""
        return len(self.grid[0])

    @property
    def place(self) -> slice:
        """Where its tokens stand among those of all tiles of its axis, repeated ones included."""
        return slice(self.blocks.start * self.longest, self.blocks.stop * self.longest)

    def part(self, blocks: slice) -> "Tile":
        """Some blocks of a tile that begins with the first block of its axis."""
        grid = self.grid[blocks]
        repeats = None if self.repeats is None else self.repeats[blocks]
        tokens = slice(int(grid[0, 0]), int(grid[-1, -1]) + 1)
        return Tile(blocks, tokens, grid, repeats if repeats is not None and repeats.any() else None)

    @property
    def interleaved(self) -> IntArray:
        """First tokens of all blocks, then second tokens, and so on: reducing a block leaves adjacent blocks apart."""
        return self.grid.T.ravel()


@dataclass(frozen=True, eq=False)
class BlockAxis:
    """An axis cut into blocks, and each of these into ``parts``, none of them longer than asked for.

    Attributes:
        edges: ``(blocks * parts + 1,)``, where each part begins, and the end.
        parts: how many parts make a block.
    """

    edges: IntArray
    parts: int

    @classmethod
    def of(cls, span: slice, blocks: int, longest: int) -> "BlockAxis":
        """The axis over a span of tokens; ``blocks`` are at most as many as the tokens."""
        count = span.stop - span.start
        parts = max(1, min(-(-count // (blocks * longest)), count // blocks))
        return cls(span.start + block_edges(count, blocks * parts), parts)

    def tiles(self, size: int) -> Iterator[Tile]:
        """The parts in tiles of about ``size`` tokens."""
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
