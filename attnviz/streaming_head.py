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

BITS = math.log2(math.e)
LEAST, MOST = 2.0**-60, 2.0**90  # a row's sum outside these says that its reference was out of reach
NEIGHBOURS = {"self": 0, "previous": -1, "next": 1}


@dataclass(frozen=True, eq=False)
class Found:
    """One head's findings: pixels ``(height, width)``, log-sum-exp and numbers ``(queries,)``."""

    total: Tensor
    highest: Tensor
    logsumexp: Tensor
    numbers: dict[str, Tensor]


class Workspace:
    """The memory that the tiles of one worker share, and the keys that it made ready last."""

    def __init__(self, plan: Plan) -> None:
        rows, count = plan.widest
        features = plan.factors.queries.shape[2] + 2
        self.scores = plan.empty(rows * count)
        self.powers = plan.empty(rows * count) if "entropy" in plan.numbers else self.scores
        pooled = rows * (len(plan.column_axis.edges) - 1)
        self.sums = plan.empty(pooled)
        self.tops = plan.empty(pooled) if plan.maximum or "peak" in plan.numbers else None
        self.queries = plan.empty(rows, features).fill_(1)
        self.keys = plan.empty(len(plan.order), features).fill_(1)
        self.keys[:, -1] = plan.penalties
        self.ones = plan.empty(count).fill_(1)
        self.key_head: int | None = None
        self.tiles = [self.keys[column.place].T for column in plan.columns]
        self.views: dict[tuple[int, ...], tuple[Tensor, Tensor, Tensor]] = {}

    def load_keys(self, plan: Plan, key_head: int) -> None:
        """Brings the keys of a head into the tiles' order, beside the features that carry reference and penalty."""
        if self.key_head != key_head:
            self.keys[:, :-2] = plan.factors.keys[key_head][plan.order]
            self.key_head = key_head

    def tile(self, rows: int, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Scores and powers, ``(rows, keys)``, and the powers as ``(rows, places, blocks)``."""
        if (rows, *shape) not in self.views:
            size = rows * math.prod(shape)
            scores, powers = (each[:size].view(rows, -1) for each in (self.scores, self.powers))
            self.views[rows, *shape] = scores, powers, powers.view(rows, *shape)
        return self.views[rows, *shape]


class Band:
    """One band of rows of one head while its tiles are added up."""

    def __init__(self, plan: Plan, row: Row, space: Workspace) -> None:
        self.row = row
        shape = (len(row.order), row.width)
        self.sums = space.sums[: math.prod(shape)].view(shape)
        self.tops = None if space.tops is None else space.tops[: math.prod(shape)].view(shape)
        self.queries = space.queries[: shape[0]]
        self.surprise, self.before, self.after, self.apart = plan.empty(4, shape[0])
        self.positions = row.order.to(plan.dtype) - row.tile.tokens.start

    def set_reference(self, reference: Tensor) -> None:
        """The score of each row, in bits, against which its powers stand, ``(rows,)``."""
        self.reference = reference
        torch.neg(reference, out=self.queries[:, -2])

    def forget(self) -> None:
        """Begins the sums again."""
        for each in (self.surprise, self.before, self.after, self.apart):
            each.zero_()

    def distance(self) -> Tensor:
        """Sum of power · distance in tokens, ``(rows,)``."""
        near, far = self.row.edge(self.row.before), self.row.edge(self.row.after)
        balance = self.sums[:, :near].sum(1) - self.sums[:, far:].sum(1)
        total: Tensor = self.positions * balance - self.before + self.after + self.apart
        return total


class Head:
    """One head while its bands of rows are added up."""

    def __init__(self, plan: Plan, head: int, space: Workspace) -> None:
        factors = plan.factors
        self.plan, self.head, self.space = plan, head, space
        self.queries = factors.queries[head].to(plan.dtype)
        self.keys = factors.keys[factors.key_heads[head]].to(plan.dtype)
        space.load_keys(plan, factors.key_heads[head])
        self.sink = None if factors.sink is None else float(factors.sink[head]) * BITS
        size = (len(plan.row_axis.edges) - 1, len(plan.column_axis.edges) - 1)
        self.total, self.highest = plan.empty(2, *size).zero_()
        self.bits = plan.empty(plan.queries)  # log2 of the softmax's denominator
        self.numbers = {name: plan.empty(plan.queries) for name in plan.numbers}
        self.guesses = self._capped(self.queries @ self.keys[plan.sampled].T * (factors.scale * BITS)).amax(1)

    def add(self, row: Row) -> None:
        """Computes a band of rows and adds it to the pixels and numbers."""
        band = Band(self.plan, row, self.space)
        torch.mul(self.queries[row.order], self.plan.factors.scale * BITS, out=band.queries[:, :-2])
        band.set_reference(self.guesses[row.order])
        denominator = self._sweep(band)
        within = (denominator >= LEAST) & (denominator <= MOST)
        if not bool((within | self.plan.blind[row.order]).all()):
            band.set_reference(self._largest(band))
            denominator = self._sweep(band)
        self._keep(band, denominator)

    def finished(self) -> Found:
        """The findings, pooled to the pixels asked for."""
        plan = self.plan
        rows, columns = plan.row_axis.parts, plan.column_axis.parts
        shape = (self.total.shape[0] // rows, rows, self.total.shape[1] // columns, columns)
        for name in plan.numbers & {"first", *NEIGHBOURS}:
            self.numbers[name] = self._weight_on(name)
        return Found(
            total=self.total.view(shape).sum((1, 3)),
            highest=self.highest.view(shape).amax((1, 3)),
            logsumexp=self.bits / BITS,
            numbers=self.numbers,
        )

    def _sweep(self, band: Band) -> Tensor:
        """Adds up every tile of a band; the sum of powers of each row, the sink's included, ``(rows,)``."""
        band.forget()
        row, numbers = band.row, self.plan.numbers
        steps = self.plan.positions - row.middle if "distance" in numbers else self.plan.positions
        for place, (column, pixels) in enumerate(zip(row.columns, row.pixels, strict=True)):
            scores, powers, cells = self.space.tile(len(row.order), column.shape)
            self._score(band, place, scores)
            torch.exp2(scores, out=powers)
            torch.sum(cells, 1, out=band.sums[:, pixels])
            if band.tops is not None:
                torch.amax(cells, 1, out=band.tops[:, pixels])
            if "entropy" in numbers:
                band.surprise.addmv_(scores.mul_(powers), self.space.ones[: column.count])
            if "distance" in numbers:
                self._add_distances(band, place, powers, steps[column.place])
        total = band.sums.sum(1)
        return total if self.sink is None else total + torch.exp2(self.sink - band.reference)

    def _score(self, band: Band, place: int, scores: Tensor) -> None:
        """Fills in a tile's scores, in bits above the reference, hidden cells about ``HIDDEN``, ``(rows, keys)``."""
        factors, column = self.plan.factors, band.row.columns[place]
        keys = self.space.tiles[column.index]
        if factors.softcap is None:
            torch.mm(band.queries, keys, out=scores)
        else:
            self._capped(torch.mm(band.queries[:, :-2], keys[:-2], out=scores))
            scores.addmm_(band.queries[:, -2:], keys[-2:])
        if factors.bias:
            scores.add_(self._bias(band.row, column), alpha=BITS)
        if band.row.cut[place]:
            scores.add_(self.plan.hidden_cells(band.row, column))

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

    def _add_distances(self, band: Band, place: int, powers: Tensor, steps: Tensor) -> None:
        """Adds a tile's sum of power · steps from the band's middle, or of power · distance where the diagonal cuts."""
        if place < band.row.before:
            band.before.addmv_(powers, steps)
        elif place >= band.row.after:
            band.after.addmv_(powers, steps)
        else:
            band.apart += (band.positions[:, None] - steps).abs_().mul_(powers).sum(1)

    def _largest(self, band: Band) -> Tensor:
        """The largest score of each row in bits, the sink's included, ``(rows,)``; 0 where nothing is seen."""
        band.set_reference(torch.zeros_like(band.reference))
        largest = torch.full_like(band.reference, HIDDEN if self.sink is None else self.sink)
        for place, column in enumerate(band.row.columns):
            scores = self.space.tile(len(band.row.order), column.shape)[0]
            self._score(band, place, scores)
            largest = torch.maximum(largest, scores.amax(1))
        return torch.where(largest > HIDDEN / 2, largest, 0)

    def _keep(self, band: Band, denominator: Tensor) -> None:
        """Adds a finished band to the head's pixels and numbers."""
        row, tile = band.row, band.row.tile
        share = torch.where(denominator > 0, 1 / denominator, 0)
        self.bits[tile.tokens] = row.only_real(denominator.log2() + band.reference)
        weighted = share if row.real is None else share * row.real
        shape = (tile.count, tile.longest, -1)
        cut = (tile.blocks, slice(row.start, row.start + row.width))
        if row.columns:
            self.total[cut] = torch.bmm(weighted.view(tile.count, 1, tile.longest), band.sums.view(shape))[:, 0]
        if row.columns and band.tops is not None:
            band.tops.mul_(share[:, None])
            if self.plan.maximum:
                self.highest[cut] = band.tops.view(shape).amax(1)
        for name, value in self._row_numbers(band, denominator, share).items():
            self.numbers[name][tile.tokens] = row.only_real(value)

    def _row_numbers(self, band: Band, denominator: Tensor, share: Tensor) -> dict[str, Tensor]:
        """The numbers that the pass itself adds up, ``(rows,)`` each."""
        numbers = {}
        if "entropy" in self.plan.numbers:
            bits = torch.where(denominator > 0, denominator.log2(), 0)
            numbers["entropy"] = (bits * band.sums.sum(1) * share - band.surprise * share).clamp_(min=0)
        if "distance" in self.plan.numbers:
            numbers["distance"] = band.distance() * share
        if "peak" in self.plan.numbers and band.tops is not None:
            numbers["peak"] = band.tops.amax(1) if band.row.columns else torch.zeros_like(share)
        return numbers

    def _weight_on(self, name: str) -> Tensor:
        """The weight of each query on one key of its own, ``(queries,)``; 0 where that key is hidden or not there."""
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
        weights = torch.zeros_like(self.bits)
        weights[first:last] = torch.where(visible, torch.exp2(scores * BITS - self.bits[first:last]).clamp_(max=1), 0)
        return weights
