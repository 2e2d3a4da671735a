"""The memory of one worker: a head's queries and keys in the order of the tiles, and one tile of scores at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.streaming_plan import Plan


class Block(NamedTuple):
    """The memory that a band of rows and a tile of keys are computed in.

    Attributes:
        keys: ``(features, keys)``, what the band's queries are multiplied by.
        scores: ``(rows, keys)``.
        powers: ``(rows, keys)``; the memory of the scores where these are not wanted after them.
        cells: the powers as ``(rows, places within a pixel, pixels)``.
        sums: ``(rows, pixels)``.
        tops: the same of the largest; ``None`` where none is wanted.
    """

    keys: Tensor
    scores: Tensor
    powers: Tensor
    cells: Tensor
    sums: Tensor
    tops: Tensor | None


class Workspace:
    """What the heads of one worker are computed in, one after another.

    Two features stand beside those of the queries and keys: what is taken off each row's scores, and what hides a key.

    Attributes:
        queries: ``(rows, features + 2)``, scaled.
        keys: ``(columns, features + 2)``.
        sums: ``(rows of a band, columns' pixels)``.
        tops: the same of the largest; ``None`` where none is wanted.
        total: ``(rows' pixels, columns' pixels)``, a head's sums of weights.
        highest: the same of its largest weights; ``None`` where they are not wanted.
    """

    def __init__(self, plan: Plan) -> None:
        rows, count = plan.widest
        features = plan.factors.queries.shape[2] + 2
        height, width = (len(axis.edges) - 1 for axis in (plan.row_axis, plan.column_axis))
        self.plan = plan
        self.scores = plan.empty(rows * count)
        self.powers = plan.empty(rows * count) if "entropy" in plan.numbers else self.scores
        self.sums = plan.empty(rows, width)
        self.tops = plan.empty(rows, width) if plan.maximum or "peak" in plan.numbers else None
        self.queries = plan.empty(len(plan.row_order), features).fill_(1)
        self.keys = plan.empty(len(plan.order), features).fill_(1)
        self.keys[:, -1] = plan.penalties
        self.ones = plan.empty(count).fill_(1)
        self.total = plan.empty(height, width).zero_()
        self.highest = plan.empty(height, width).zero_() if plan.maximum else None
        self.key_head: int | None = None
        self._blocks: dict[int, list[Block]] = {}

    def load(self, queries: Tensor, scale: float, keys: Tensor, key_head: int) -> None:
        """Brings a head's queries and keys into the order of the tiles; keys that are there already stay."""
        torch.mul(self.plan.by_row(queries), scale, out=self.queries[:, :-2])
        if self.key_head != key_head:
            self.keys[:, :-2] = keys[self.plan.order]
            self.key_head = key_head

    def blocks(self, rows: int) -> list[Block]:
        """The memory of a band of so many rows with each tile of keys."""
        if rows not in self._blocks:
            self._blocks[rows] = [self._block(rows, index) for index in range(len(self.plan.columns))]
        return self._blocks[rows]

    def _block(self, rows: int, index: int) -> Block:
        column = self.plan.columns[index]
        scores, powers = (each[: rows * column.count].view(rows, -1) for each in (self.scores, self.powers))
        return Block(
            keys=self.keys[column.place].T,
            scores=scores,
            powers=powers,
            cells=powers.view(rows, *column.shape),
            sums=self.sums[:rows, column.tile.blocks],
            tops=None if self.tops is None else self.tops[:rows, column.tile.blocks],
        )
