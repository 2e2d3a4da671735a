"""One head's maps in one pass: a tile of scores is computed, exponentiated, pooled to pixels and forgotten.

Powers of two stand against a reference for each row, the largest score of a few keys, which enters the matrix product
as one more feature; only where a row's sum shows that its reference was out of reach is that band of rows computed
again from its true maximum (an online softmax, Milakov and Gimelshein 2018, with the rescaling left out where it is
not needed).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnviz.streaming_plan import HIDDEN, Column, Plan, Row
from attnviz.streaming_space import Block, Workspace

BITS = math.log2(math.e)
LEAST, MOST = 2.0**-60, 2.0**90  # a row's sum outside these says that its reference was out of reach
TINY = 2.0**-126
NEIGHBOURS = {"self": 0, "previous": -1, "next": 1}


@dataclass(frozen=True, eq=False)
class Found:
    """One head's findings: pixels ``(height, width)``, log-sum-exp and numbers ``(queries,)``.

    Attributes:
        total: sums of weights.
        highest: largest weights; ``None`` where they are not wanted.
        logsumexp: natural; −inf where a query sees nothing.
        numbers: by name.
    """

    total: Tensor
    highest: Tensor | None
    logsumexp: Tensor
    numbers: dict[str, Tensor]


class Sums:
    """What rows add up to while the tiles pass, each ``(rows,)``.

    Attributes:
        denominator: the sum of powers, the sink's included.
        mass: the sum of powers on keys.
        surprise: the sum of power · score.
        before: the sum of power · steps from the band's first query, over tiles before the band.
        after: the same over tiles after it.
        apart: the sum of power · distance over tiles that the diagonal cuts.
        balance: the mass before the band less that after it.
        peak: the largest weight.
    """

    def __init__(self, every: Tensor) -> None:
        self.every = every  # (8, rows)
        rows: tuple[Tensor, ...] = every.unbind()
        self.denominator, self.mass, self.surprise, self.before, self.after, self.apart, self.balance, self.peak = rows

    def of(self, row: Row) -> "Sums":
        """Those of a band's rows."""
        return Sums(self.every[:, row.place])


class Head:
    """One head while its bands of rows are added up."""

    def __init__(self, plan: Plan, head: int, space: Workspace) -> None:
        factors = plan.factors
        self.plan, self.head, self.space = plan, head, space
        self.sums = Sums(plan.empty(8, len(plan.row_order)))
        self.queries = factors.queries[head].to(plan.dtype)
        self.keys = factors.keys[factors.key_heads[head]].to(plan.dtype)
        self.sink = None if factors.sink is None else float(factors.sink[head]) * BITS
        space.load(self.queries, factors.scale * BITS, self.keys, factors.key_heads[head])
        space.queries[:, -2] = -self._capped(space.queries[:, :-2] @ self.keys[plan.sampled].T).amax(1)

    def add(self, row: Row) -> None:
        """Computes a band of rows and adds it to the pixels and sums."""
        denominator = self._sweep(row)
        if not self._within_reach(row, denominator):
            self.space.queries[row.place, -2] = -self._largest(row)
            denominator = self._sweep(row)
        self.sums.denominator[row.place] = denominator
        self._pool(row, denominator.clamp(min=TINY).reciprocal_())

    def finished(self) -> Found:
        """The findings, pooled to the pixels asked for."""
        plan, space = self.plan, self.space
        rows, columns = plan.row_axis.parts, plan.column_axis.parts
        shape = (space.total.shape[0] // rows, rows, space.total.shape[1] // columns, columns)
        bits = plan.by_query(self.sums.denominator.log2() - space.queries[:, -2])
        numbers = {name: plan.by_query(value) for name, value in self._row_numbers().items()}
        for name in plan.numbers & {"first", *NEIGHBOURS}:
            numbers[name] = self._weight_on(name, bits)
        return Found(
            total=space.total.view(shape).sum((1, 3)),
            highest=None if space.highest is None else space.highest.view(shape).amax((1, 3)),
            logsumexp=bits / BITS,
            numbers=numbers,
        )

    def _within_reach(self, row: Row, denominator: Tensor) -> bool:
        """Whether the reference of every row that sees a key was near enough to its largest score."""
        least, most = torch.aminmax(denominator)
        if float(least) >= LEAST and float(most) <= MOST:
            return True
        within = (denominator >= LEAST) & (denominator <= MOST)
        return bool((within | self.plan.blind[row.order]).all())

    def _sweep(self, row: Row) -> Tensor:
        """Adds up every tile of a band; the sum of powers of each row, the sink's included, ``(rows,)``."""
        blocks, measured = self.space.blocks(len(row.order)), bool(self.space.tops is not None or self.plan.numbers)
        queries, sums, steps = self.space.queries[row.place], self.sums.of(row), self._steps(row)
        sums.every.zero_()
        for place, column in enumerate(row.columns):
            block = blocks[column.index]
            self._score(row, place, queries, block)
            torch.exp2(block.scores, out=block.powers)
            torch.sum(block.cells, 1, out=block.sums)
            if measured:
                self._measure(row, place, block, sums, steps[place])
        torch.sum(self.space.sums[: len(row.order), row.pixels], 1, out=sums.mass)
        return sums.mass if self.sink is None else sums.mass + torch.exp2(queries[:, -2] + self.sink)

    def _steps(self, row: Row) -> tuple[Tensor, ...]:
        """How many tokens the keys of each tile lie after the band's first query, ``(keys,)`` each."""
        if not row.columns:
            return ()
        reach = slice(row.columns[0].place.start, row.columns[-1].place.stop)
        counts = [column.count for column in row.columns]
        steps: tuple[Tensor, ...] = (self.plan.positions[reach] - row.middle).split(counts)
        return steps

    def _score(self, row: Row, place: int, queries: Tensor, block: Block) -> None:
        """Fills in a tile's scores, in bits above the reference, hidden cells about ``HIDDEN``, ``(rows, keys)``."""
        factors, column = self.plan.factors, row.columns[place]
        if factors.softcap is None:
            torch.mm(queries, block.keys, out=block.scores)
        else:
            self._capped(torch.mm(queries[:, :-2], block.keys[:-2], out=block.scores))
            block.scores.addmm_(queries[:, -2:], block.keys[-2:])
        if factors.bias:
            block.scores.add_(self._bias(row, column), alpha=BITS)
        if row.cut[place]:
            block.scores.add_(self.plan.hidden_cells(row, column))

    def _capped(self, products: Tensor) -> Tensor:
        """Products in bits under the soft cap, in place."""
        softcap = self.plan.factors.softcap
        if softcap is None:
            return products
        return products.div_(softcap * BITS).tanh_().mul_(softcap * BITS)

    def _bias(self, row: Row, column: Column) -> Tensor:
        """What the bias adds to a tile's scores, ``(rows, keys)``."""
        keys = column.tile.tokens
        block = self.plan.factors.bias.block([self.head], row.tile.tokens, keys)[0]
        cells = block[row.tile.grid.ravel() - row.tile.tokens.start][:, column.tile.interleaved - keys.start]
        return torch.from_numpy(np.maximum(cells, HIDDEN)).to(self.plan.device, self.plan.dtype)

    def _measure(self, row: Row, place: int, block: Block, sums: Sums, steps: Tensor) -> None:
        """Adds a tile to the numbers that are wanted; its scores are spent."""
        powers, ones = block.powers, self.space.ones[: len(steps)]
        if block.tops is not None:
            torch.amax(block.cells, 1, out=block.tops)
        if "entropy" in self.plan.numbers:
            sums.surprise.addmv_(block.scores.mul_(powers), ones)
        if "distance" not in self.plan.numbers:
            return
        if row.before <= place < row.after:
            sums.apart.addmv_(torch.mul(powers, self.plan.distances(row, row.columns[place]), out=block.scores), ones)
        else:
            (sums.before if place < row.before else sums.after).addmv_(powers, steps)

    def _largest(self, row: Row) -> Tensor:
        """The largest score of each row in bits, the sink's included, ``(rows,)``; 0 where nothing is seen."""
        self.space.queries[row.place, -2] = 0
        largest = self.plan.empty(len(row.order)).fill_(HIDDEN if self.sink is None else self.sink)
        queries = self.space.queries[row.place]
        blocks = self.space.blocks(len(row.order))
        for place, column in enumerate(row.columns):
            self._score(row, place, queries, blocks[column.index])
            largest = torch.maximum(largest, blocks[column.index].scores.amax(1))
        return torch.where(largest > HIDDEN / 2, largest, 0)

    def _pool(self, row: Row, share: Tensor) -> None:
        """Adds a finished band, whose powers times the share are weights, to the head's pixels."""
        tile, space = row.tile, self.space
        rows = len(row.order)
        near, far = slice(row.pixels.start, row.edge(row.before)), slice(row.edge(row.after), row.pixels.stop)
        if "distance" in self.plan.numbers:
            self.sums.balance[row.place] = space.sums[:rows, near].sum(1) - space.sums[:rows, far].sum(1)
        if not row.columns:
            return
        cut, shape = (tile.blocks, row.pixels), (tile.count, tile.longest, -1)
        weighted = share if row.real is None else share * row.real
        pixels = space.sums[:rows].view(shape)[:, :, row.pixels]
        space.total[cut] = torch.bmm(weighted.view(tile.count, 1, tile.longest), pixels)[:, 0]
        if space.tops is None:
            return
        tops = space.tops[:rows, row.pixels].mul_(share[:, None])
        if space.highest is not None:
            space.highest[cut] = space.tops[:rows].view(shape)[:, :, row.pixels].amax(1)
        if "peak" in self.plan.numbers:
            self.sums.peak[row.place] = tops.amax(1)

    def _row_numbers(self) -> dict[str, Tensor]:
        """The numbers that the pass itself adds up, ``(rows,)`` each."""
        sums, wanted = self.sums, self.plan.numbers
        share = torch.where(sums.denominator > 0, 1 / sums.denominator, 0)
        numbers = {}
        if "entropy" in wanted:
            bits = torch.where(sums.denominator > 0, sums.denominator.log2(), 0)
            numbers["entropy"] = (bits * sums.mass * share - sums.surprise * share).clamp_(min=0)
        if "distance" in wanted:
            total = self.plan.from_middle * sums.balance - sums.before + sums.after + sums.apart
            numbers["distance"] = total * share
        if "peak" in wanted:
            numbers["peak"] = sums.peak
        return numbers

    def _weight_on(self, name: str, bits: Tensor) -> Tensor:
        """The weight of each query on one key of its own, ``(queries,)``; 0 where that key is hidden or not there.

        Args:
            name: ``first``, or one of ``NEIGHBOURS``.
            bits: ``(queries,)``, log2 of the softmax's denominator.
        """
        factors, count = self.plan.factors, self.plan.queries
        shift = factors.mask.offset + NEIGHBOURS.get(name, 0)
        first = max(0, -shift)
        last = max(first, count if name == "first" else min(count, self.plan.keys - shift))
        queries = np.arange(first, last)
        keys = np.zeros_like(queries) if name == "first" else queries + shift
        rows = self.keys[:1] if name == "first" else self.keys[first + shift : last + shift]
        first, last = (0, count) if name == "first" else (first, last)
        scores = (self.queries[first:last] * rows).sum(1) * factors.scale
        if factors.softcap is not None:
            scores = factors.softcap * torch.tanh(scores / factors.softcap)
        if factors.bias:
            scores += torch.from_numpy(factors.bias.at([self.head], queries, keys)[0]).to(scores)
        visible = torch.from_numpy(factors.mask.sees(queries, keys)).to(self.plan.device)
        weights = torch.zeros_like(bits)
        weights[first:last] = torch.where(visible, torch.exp2(scores * BITS - bits[first:last]).clamp_(max=1), 0)
        return weights
