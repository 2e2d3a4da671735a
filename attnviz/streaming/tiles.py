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
        grid: ``(blocks, block_length)``, the tokens of each block.
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
    def block_length(self) -> int:
        """The number of tokens of the longest block, to which the others are padded."""
        return len(self.grid[0])

    @property
    def place(self) -> slice:
        """The slice of this tile's tokens among the tokens of all tiles of the axis, repeated tokens included."""
        return slice(self.blocks.start * self.block_length, self.blocks.stop * self.block_length)

    def part(self, blocks: slice) -> "Tile":
        """Returns the tile of some of this tile's blocks, by their numbers.

        This tile must begin with block 0 of its axis, so that the numbers are also indices.
        """
        grid = self.grid[blocks]
        repeats = None if self.repeats is None else self.repeats[blocks]
        has_repeats = repeats is not None and repeats.any()
        tokens = slice(int(grid[0, 0]), int(grid[-1, -1]) + 1)
        return Tile(blocks, tokens, grid, repeats if has_repeats else None)

    @property
    def interleaved_tokens(self) -> IntArray:
        """The first token of each block, then the second of each, and so on: blocks are then reduced element-wise."""
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
    def from_span(cls, span: slice, blocks: int, max_tokens: int) -> "BlockAxis":
        """Returns a span of tokens cut into blocks, and each block into parts of at most about ``max_tokens`` tokens.

        A block never has more parts than tokens.
        """
        count = span.stop - span.start
        parts = max(1, min(-(-count // (blocks * max_tokens)), count // blocks))
        return cls(span.start + block_edges(count, blocks * parts), parts)

    def tiles(self, size: int) -> Iterator[Tile]:
        """Yields the parts in tiles of at most ``size`` tokens, or of one part if it is longer.

        A part is a block of its tile. All are as long as the longest part of the axis: a shorter one repeats its last
        token, and is marked in the tile's ``repeats``.
        """
        lengths = np.diff(self.edges)
        block_length = int(lengths.max())
        step = max(1, size // block_length)
        for first in range(0, len(lengths), step):
            stop = min(first + step, len(lengths))
            last_tokens = self.edges[first + 1 : stop + 1, None] - 1
            grid = np.minimum(self.edges[first:stop, None] + np.arange(block_length), last_tokens)
            repeats = lengths[first:stop] < block_length
            yield Tile(
                blocks=slice(first, stop),
                tokens=slice(int(self.edges[first]), int(self.edges[stop])),
                grid=grid,
                repeats=repeats if repeats.any() else None,
            )
