"""One head's maps in one pass: a tile of scores is computed, exponentiated, pooled to pixels and forgotten.

Powers of two stand against a reference for each row, the largest score of a few keys, which enters the matrix product
as one more feature; only where a row's sum shows that its reference was out of reach is that band of rows computed
again from its true maximum (an online softmax, Milakov and Gimelshein 2018, with the rescaling left out where it is
not needed).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnviz.streaming.plan import HIDDEN, Plan, Row
from attnviz.streaming.tiles import Tile
from attnviz.streaming.workspace import Block, Workspace

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
        columns, rows = plan.column_axis.parts, plan.row_axis.parts
        shape = (space.total.shape[0] // columns, columns, space.total.shape[1] // rows, rows)
        bits = (self.sums.denominator.log2() - space.queries[:, -2])[plan.query_order]
        numbers = {name: value[plan.query_order] for name, value in self._row_numbers().items()}
        for name in plan.numbers & {"first", *NEIGHBOURS}:
            numbers[name] = self._weight_on(name, bits)
        return Found(
            total=space.total.view(shape).sum((1, 3)).T.contiguous(),
            highest=None if space.highest is None else space.highest.view(shape).amax((1, 3)).T.contiguous(),
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
        measured = self.space.tops is not None or bool(self.plan.numbers)
        queries, sums, steps = self._queries(row), self.sums.of(row), self._steps(row)
        sums.every.zero_()
        for place, column in enumerate(row.columns):
            block = self.space.block(row.count, column)
            self._score(row, place, queries, block)
            torch.exp2(block.scores, out=block.powers)
            torch.sum(block.cells, 1, out=block.sums)
            if measured:
                self._measure(row, place, block, sums, steps[place])
        torch.sum(self.space.sums[row.pixels, : row.count], 0, out=sums.mass)
        return sums.mass if self.sink is None else sums.mass + torch.exp2(queries[-2] + self.sink)

    def _queries(self, row: Row) -> Tensor:
        """A band's queries as the product likes them, ``(features + 2, rows)``."""
        rows = self.space.queries[row.place].T
        return self.space.band[: rows.numel()].view(rows.shape).copy_(rows)

    def _steps(self, row: Row) -> Sequence[Tensor]:
        """How many tokens the keys of each tile lie after the band's first query, ``(keys,)`` each, where wanted."""
        if "distance" not in self.plan.numbers or not row.columns:
            return [self.space.ones] * len(row.columns)
        reach = slice(row.columns[0].place.start, row.columns[-1].place.stop)
        counts = [column.grid.size for column in row.columns]
        steps: tuple[Tensor, ...] = (self.plan.positions[reach] - row.middle).split(counts)
        return steps

    def _score(self, row: Row, place: int, queries: Tensor, block: Block) -> None:
        """Fills in a tile's scores, in bits above the reference, hidden cells about ``HIDDEN``, ``(keys, rows)``."""
        factors, column = self.plan.factors, row.columns[place]
        if factors.softcap is None:
            torch.mm(block.keys, queries, out=block.scores)
        else:
            self._capped(torch.mm(block.keys[:, :-2], queries[:-2], out=block.scores))
            block.scores.addmm_(block.keys[:, -2:], queries[-2:])
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

    def _bias(self, row: Row, column: Tile) -> Tensor:
        """What the bias adds to a tile's scores, ``(keys, rows)``."""
        queries, keys = row.tile.tokens, column.tokens
        block = self.plan.factors.bias.block([self.head], queries, keys)[0].T
        cells = block[column.grid.ravel() - keys.start][:, row.tile.interleaved - queries.start]
        return torch.from_numpy(np.maximum(cells, HIDDEN)).to(self.plan.device, self.plan.dtype)

    def _measure(self, row: Row, place: int, block: Block, sums: Sums, steps: Tensor) -> None:
        """Adds a tile to the numbers that are wanted; its scores are spent."""
        if block.tops is not None:
            torch.amax(block.cells, 1, out=block.tops)
        if "entropy" in self.plan.numbers:
            block.scores.mul_(block.powers)
            sums.surprise.addmv_(block.scores_by_row, block.ones)
        if "distance" not in self.plan.numbers:
            return
        if row.before <= place < row.after:
            torch.mul(block.powers, self.plan.distances(row, row.columns[place]), out=block.scores)
            sums.apart.addmv_(block.scores_by_row, block.ones)
        else:
            (sums.before if place < row.before else sums.after).addmv_(block.powers_by_row, steps)

    def _largest(self, row: Row) -> Tensor:
        """The largest score of each row in bits, the sink's included, ``(rows,)``; 0 where nothing is seen."""
        self.space.queries[row.place, -2] = 0
        largest = self.plan.empty(row.count).fill_(HIDDEN if self.sink is None else self.sink)
        queries = self._queries(row)
        for place, column in enumerate(row.columns):
            block = self.space.block(row.count, column)
            self._score(row, place, queries, block)
            largest = torch.maximum(largest, block.scores.amax(0))
        return torch.where(largest > HIDDEN / 2, largest, 0)

    def _pool(self, row: Row, share: Tensor) -> None:
        """Adds a finished band, whose powers times the share are weights, to the head's pixels."""
        space, rows = self.space, row.count
        if not row.columns:
            return
        if "distance" in self.plan.numbers:
            before, after = slice(row.pixels.start, row.edge(row.before)), slice(row.edge(row.after), row.pixels.stop)
            self.sums.balance[row.place] = space.sums[before, :rows].sum(0) - space.sums[after, :rows].sum(0)
        pixels = row.pixels, row.tile.blocks
        weights = space.sums[row.pixels, :rows].mul_(share if row.real is None else share * row.real)
        space.total[pixels] = _folded(torch.add, weights, row.tile.longest)
        if space.tops is None:
            return
        tops = space.tops[row.pixels, :rows].mul_(share)
        if "peak" in self.plan.numbers:
            self.sums.peak[row.place] = tops.amax(0)
        if space.highest is not None:
            space.highest[pixels] = _folded(torch.maximum, tops, row.tile.longest)

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
        factors, count, own = self.plan.factors, self.plan.queries, name != "first"
        shift = factors.mask.offset + NEIGHBOURS[name] if own else 0
        first = max(0, -shift)
        last = max(first, min(count, self.plan.keys - shift)) if own else count
        queries = np.arange(first, last)
        keys = queries + shift if own else np.zeros_like(queries)
        rows = self.keys[first + shift : last + shift] if own else self.keys[:1]
        scores = (self.queries[first:last] * rows).sum(1) * factors.scale
        if factors.softcap is not None:
            scores = factors.softcap * torch.tanh(scores / factors.softcap)
        if factors.bias:
            scores += torch.from_numpy(factors.bias.at([self.head], queries, keys)[0]).to(scores)
        visible = torch.from_numpy(factors.mask.sees(queries, keys)).to(self.plan.device)
        weights = torch.zeros_like(bits)
        weights[first:last] = torch.where(visible, torch.exp2(scores * BITS - bits[first:last]).clamp_(max=1), 0)
        return weights


def _folded(combine: Callable[..., Tensor], values: Tensor, length: int) -> Tensor:
    """A band reduced to its pixels along the queries, ``(..., pixels)``, in its own memory, ``(..., length * pixels)``.

    The second half of each pixel's queries is laid on the first until one is left: these are long runs of numbers,
    where ``torch.amax`` of a few pixels is ten times slower.
    """
    pixels = values.shape[-1] // length
    while length > 1:
        half = length // 2
        first = values[:, : half * pixels]
        combine(first, values[:, (length - half) * pixels : length * pixels], out=first)
        length -= half
    return values[:, :pixels]
