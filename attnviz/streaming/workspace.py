"""The memory of one worker: a head's queries and keys in the order of the tiles, and one tile of scores at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.streaming.plan import Plan
from attnviz.streaming.tiles import Tile


class Block(NamedTuple):
    """The memory that a band of rows and a tile of keys are computed in.

    Attributes:
        keys: ``(keys, features)``.
        scores: ``(keys, rows)``.
        powers: ``(keys, rows)``; the memory of the scores where these are not wanted after them.
        scores_by_row: ``(rows, keys)``, the same memory.
        powers_by_row: ``(rows, keys)``, the same memory.
        cells: the powers as ``(pixels, places within a pixel, rows)``.
        ones: ``(keys,)``.
        sums: ``(pixels, rows)``.
        tops: the same of the largest; ``None`` where none is wanted.
    """

    keys: Tensor
    scores: Tensor
    powers: Tensor
    scores_by_row: Tensor
    powers_by_row: Tensor
    cells: Tensor
    ones: Tensor
    sums: Tensor
    tops: Tensor | None


class Workspace:
    """What the heads of one worker are computed in, one after another.

    Two features stand beside those of the queries and keys: what is taken off each row's scores, and what hides a key.

    Attributes:
        queries: ``(rows, features + 2)``, scaled.
        keys: ``(columns, features + 2)``.
        band: the queries of one band, in the order that is wanted.
        sums: ``(columns' pixels, rows of a band)``.
        tops: the same of the largest; ``None`` where none is wanted.
        total: ``(columns' pixels, rows' pixels)``, a head's sums of weights.
        highest: the same of its largest weights; ``None`` where they are not wanted.
    """

    def __init__(self, plan: Plan) -> None:
        rows, count = plan.widest
        features = plan.factors.queries.shape[2] + 2
        height, width = (len(axis.edges) - 1 for axis in (plan.row_axis, plan.column_axis))
        self.plan = plan
        self.scores = plan.empty(rows * count)
        self.powers = plan.empty(rows * count) if "entropy" in plan.numbers else self.scores
        self.sums = plan.empty(width, rows)
        self.tops = plan.empty(width, rows) if plan.maximum or "peak" in plan.numbers else None
        self.queries = plan.empty(len(plan.row_order), features).fill_(1)
        self.keys = plan.empty(len(plan.order), features).fill_(1)
        self.keys[:, -1] = plan.penalties
        self.band = plan.empty(features * rows)
        self.ones = plan.empty(count).fill_(1)
        self.total = plan.empty(width, height).zero_()
        self.highest = plan.empty(width, height).zero_() if plan.maximum else None
        self.key_head: int | None = None
        self._blocks: dict[tuple[int, int, int], Block] = {}

    def load(self, queries: Tensor, scale: float, keys: Tensor, key_head: int) -> None:
        """Brings a head's queries and keys into the order of the tiles; keys that are there already stay."""
        torch.mul(queries.index_select(0, self.plan.row_order), scale, out=self.queries[:, :-2])
        if self.key_head != key_head:
            self.keys[:, :-2] = keys if self.plan.column.repeats is None else keys[self.plan.order]
            self.key_head = key_head

    def block(self, rows: int, column: Tile) -> Block:
        """The memory of a band of so many rows and a tile of keys."""
        key = rows, column.blocks.start, column.blocks.stop
        if key not in self._blocks:
            self._blocks[key] = self._block(rows, column)
        return self._blocks[key]

    def _block(self, rows: int, column: Tile) -> Block:
        scores, powers = (each[: column.grid.size * rows].view(-1, rows) for each in (self.scores, self.powers))
        return Block(
            keys=self.keys[column.place],
            scores=scores,
            powers=powers,
            scores_by_row=scores.T,
            powers_by_row=powers.T,
            cells=powers.view(*column.grid.shape, rows),
            ones=self.ones[: column.grid.size],
            sums=self.sums[column.blocks, :rows],
            tops=None if self.tops is None else self.tops[column.blocks, :rows],
        )
