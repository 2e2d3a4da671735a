"""Overviews and numbers of maps of any length in one pass over tiles, in memory that does not grow with their area.

A tile of scores is computed, exponentiated, pooled to pixels and forgotten. Powers of two stand against a reference
for each row, the largest score of one tile and some bits; only where another tile shows that the reference was too
low is that band of rows computed again from its true maximum (an online softmax, Milakov and Gimelshein 2018, with
the rescaling left out where it is not needed).
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from attnviz.bias import Bias
from attnviz.errors import AttnvizError, known_names
from attnviz.maps import FloatArray, Overview
from attnviz.maps_factored import FactoredMaps
from attnviz.masks import Mask
from attnviz.tiles import Axis, Tile

Progress = Callable[[int, int], None]

BITS = math.log2(math.e)
HEADROOM = 20.0  # bits that a row's reference lies above the largest score of its first tile
LEAST, MOST = 2.0**-40, 2.0**90  # a row's sum outside these says that its reference was out of reach
TILE = {"cpu": (512, 512), "cuda": (2048, 4096), "mps": (2048, 4096)}  # queries and keys of a tile
LONGEST = 16  # keys that are pooled in one step; torch's maximum over more is ten times slower
ALONG_KEYS = ("entropy", "peak", "distance")
NEIGHBOURS = {"self": 0, "previous": -1, "next": 1}
NUMBERS = (*ALONG_KEYS, "first", *NEIGHBOURS)


@dataclass(frozen=True, eq=False)
class Factors:
    """What the maps of one attention call are computed from, on the device where it is.

    Attributes:
        queries: ``(heads, queries, features)``.
        keys: ``(key heads, keys, features)``.
        key_heads: ``(heads,)``, which of the key heads each head reads.
        scale: what q·k is multiplied by.
        mask: which cells are visible.
        bias: what is added to the scores.
        softcap: the soft limit of the scores; ``None`` for none.
        sink: ``(heads,)``, a score beside every row that is no key; ``None`` for none.
    """

    queries: Tensor
    keys: Tensor
    key_heads: tuple[int, ...]
    scale: float
    mask: Mask = field(default_factory=Mask)
    bias: Bias = field(default_factory=Bias)
    softcap: float | None = None
    sink: FloatArray | None = None

    @classmethod
    def of(cls, maps: FactoredMaps) -> "Factors":
        """The factors that maps hold, in main memory."""
        queries, keys = (torch.from_numpy(np.array(array[:], dtype=np.float32)) for array in (maps.queries, maps.keys))
        scale = maps.scale or 0.0
        return cls(queries, keys, maps.key_heads, scale, maps.mask, maps.bias, maps.softcap, maps.sink)


@dataclass(frozen=True, eq=False)
class Streamed:
    """What one pass found.

    Attributes:
        overview: mean and maximum of each pixel's block.
        logsumexp: ``(heads, queries)``, natural; −inf where a query sees nothing.
        numbers: by name, ``(heads, queries)``: ``entropy`` (bits), ``peak`` (the largest weight), ``distance`` (mean,
            in tokens), and the weight on the ``first`` key, the query's own (``self``), the ``previous`` and ``next``.
    """

    overview: Overview
    logsumexp: FloatArray
    numbers: dict[str, FloatArray]


@torch.no_grad()
def stream(
    factors: Factors,
    height: int,
    width: int,
    *,
    maximum: bool = True,
    numbers: Collection[str] = (),
    progress: Progress | None = None,
) -> Streamed:
    """The overview, the log-sum-exp and the chosen numbers of every head.

    Args:
        factors: what the maps are computed from.
        height: pixels along the queries; more than there are queries gives one a query.
        width: pixels along the keys.
        maximum: whether the overview's maximum is wanted; else it is all zero.
        numbers: names of numbers, of ``NUMBERS``.
        progress: called with the bands of rows done and all there are.

    Raises:
        AttnvizError: for a name that is not of ``NUMBERS``.
    """
    unknown = sorted(set(numbers) - set(NUMBERS))
    if unknown:
        raise AttnvizError(f"unknown number {unknown[0]!r}; {known_names(NUMBERS)} works")
    plan = _Plan(factors, height, width, maximum, frozenset(numbers))
    heads = factors.queries.shape[0]
    bands = heads * len(plan.rows)
    found = []
    for head in range(heads):
        one = _Head(plan, head)
        for done, row in enumerate(plan.rows, start=head * len(plan.rows) + 1):
            one.add(row)
            if progress is not None:
                progress(done, bands)
        found.append(one.finished())
    return plan.join(found)


class _Column:
    """A tile of keys with what is done to its scores made ready on the device."""

    def __init__(self, tile: Tile, mask: Mask, device: torch.device) -> None:
        self.tile = tile
        self.blocks, self.tokens = tile.blocks, tile.tokens
        self.shape = (tile.longest, tile.count)
        self.keys = tile.interleaved
        self.order = torch.from_numpy(self.keys).to(device)
        self.last = None if tile.repeats is None else _penalty(tile.repeats, device)
        padded = mask.padding is not None and not mask.padding[tile.tokens].all()
        self.padding = _penalty(~mask.padding[self.keys], device) if padded and mask.padding is not None else None

    @property
    def count(self) -> int:
        """How many keys are computed, repeated ones included."""
        return len(self.keys)

    @cached_property
    def steps(self) -> Tensor:
        """How far each key is from the tile's first, ``(count,)``."""
        return self.order.sub(self.tokens.start).to(torch.float32)

    @cached_property
    def starts(self) -> Tensor:
        """How far each block's first key is from the tile's, ``(blocks,)``."""
        return self.steps[: self.tile.count]

    @cached_property
    def places(self) -> Tensor:
        """The places within a block, ``(longest,)``."""
        return torch.arange(self.tile.longest, device=self.order.device)

    def hide(self, scores: Tensor) -> bool:
        """Puts repeated and padded keys out of sight, ``(queries, count)``; says whether there are any."""
        if self.last is not None:
            scores.view(len(scores), *self.shape)[:, -1].add_(self.last)
        if self.padding is not None:
            scores.add_(self.padding)
        return self.last is not None or self.padding is not None


class _Plan:
    """How the maps are cut into tiles, and the memory that all tiles share."""

    def __init__(self, factors: Factors, height: int, width: int, maximum: bool, numbers: frozenset[str]) -> None:
        self.factors, self.maximum, self.numbers = factors, maximum, numbers
        self.device = factors.queries.device
        self.rules = Mask(**{**vars(factors.mask), "padding": None})
        self.dtype = torch.float64 if factors.queries.dtype == torch.float64 else torch.float32
        queries, self.keys = factors.queries.shape[1], factors.keys.shape[1]
        size = TILE[self.device.type]
        self.row_axis = Axis.of(slice(0, queries), min(height, queries), size[0])
        self.column_axis = Axis.of(slice(0, self.keys), min(width, self.keys), LONGEST)
        self.rows = list(self.row_axis.tiles(size[0]))
        self.columns = [_Column(tile, factors.mask, self.device) for tile in self.column_axis.tiles(size[1])]
        self.starts = np.array([column.tokens.start for column in self.columns])
        area = max(row.grid.size for row in self.rows) * max(column.count for column in self.columns)
        self.scores = self.empty(area)
        self.powers = self.empty(area) if numbers & {"entropy"} else self.scores
        pooled = max(row.grid.size for row in self.rows) * (len(self.column_axis.edges) - 1)
        self.sums = self.empty(pooled)
        self.tops = self.empty(pooled) if maximum or "peak" in numbers else None
        self.hidden: dict[tuple[int, ...], Tensor] = {}

    def empty(self, *shape: int) -> Tensor:
        """Memory of this shape, not yet written."""
        return torch.empty(*shape, dtype=self.dtype, device=self.device)

    def columns_of(self, row: Tile) -> list[_Column]:
        """The tiles of keys that a band of rows sees, the one where its diagonal begins first."""
        reach = self.rules.reach(row.tokens, self.keys)
        if reach.start >= reach.stop:
            return []
        first, last = (int(np.searchsorted(self.starts, end, side="right")) for end in (reach.start, reach.stop - 1))
        diagonal = int(np.searchsorted(self.starts, row.tokens.start + self.rules.offset, side="right"))
        diagonal = min(max(diagonal, first), last)
        return [
            self.columns[place - 1] for place in (diagonal, *range(first, diagonal), *range(diagonal + 1, last + 1))
        ]

    def hidden_cells(self, row: Tile, column: _Column) -> Tensor | None:
        """Which cells of a tile the rules hide, ``(queries, keys)``; ``None`` where all are seen."""
        if self.rules.coverage(row.tokens, column.tokens):
            return None
        ragged = row.repeats is not None or column.tile.repeats is not None
        key = (row.tokens.start - column.tokens.start, row.grid.size, *column.shape)
        if key in self.hidden and not ragged:
            return self.hidden[key]
        seen = self.rules.sees(row.grid.reshape(-1, 1), column.keys)
        hidden = torch.from_numpy(~seen).to(self.device)
        if self.rules.moves_along and not ragged:
            self.hidden[key] = hidden
        return hidden

    def join(self, found: "list[_Found]") -> Streamed:
        """The heads' findings as numpy arrays."""
        rows, columns = (axis.edges[:: axis.parts] for axis in (self.row_axis, self.column_axis))
        counts = self.factors.mask.counts(rows, columns)
        mean = np.stack([_numpy(one.total) for one in found]) / np.maximum(counts, 1)
        maximum = np.stack([_numpy(one.highest) for one in found])
        return Streamed(
            overview=Overview(mean=mean.astype(np.float32), maximum=maximum, visible=counts > 0),
            logsumexp=np.stack([_numpy(one.logsumexp) for one in found]),
            numbers={name: np.stack([_numpy(one.numbers[name]) for one in found]) for name in sorted(self.numbers)},
        )


@dataclass(frozen=True, eq=False)
class _Found:
    """One head's findings: pixels ``(height, width)``, and numbers ``(queries,)``."""

    total: Tensor
    highest: Tensor
    logsumexp: Tensor
    numbers: dict[str, Tensor]


class _Band:
    """One band of rows of one head while its tiles are added up."""

    def __init__(self, plan: _Plan, row: Tile, columns: list[_Column]) -> None:
        self.row, self.columns = row, columns
        self.start = min((column.blocks.start for column in columns), default=0)
        self.stop = max((column.blocks.stop for column in columns), default=0)
        shape = (row.grid.size, self.stop - self.start)
        self.sums = plan.sums[: shape[0] * shape[1]].view(shape)
        self.tops = None if plan.tops is None else plan.tops[: shape[0] * shape[1]].view(shape)
        self.negative = plan.empty(shape[0], 1).zero_()  # minus the reference, in bits
        self.surprise = plan.empty(shape[0]).zero_()  # sum of power · score, in bits
        self.distance = plan.empty(shape[0]).zero_()  # sum of power · distance, in tokens

    def pixels(self, column: _Column) -> slice:
        """Where a tile's pixels stand in the band's."""
        return slice(column.blocks.start - self.start, column.blocks.stop - self.start)


class _Head:
    """One head while its bands of rows are added up."""

    def __init__(self, plan: _Plan, head: int) -> None:
        factors = plan.factors
        self.plan, self.head = plan, head
        self.queries = factors.queries[head]
        keys = factors.keys[factors.key_heads[head]].to(plan.dtype)
        self.keys = [keys[column.order].mul_(factors.scale * BITS).T for column in plan.columns]
        self.place = {id(column): place for place, column in enumerate(plan.columns)}
        self.sink = None if factors.sink is None else float(factors.sink[head]) * BITS
        size = (len(plan.row_axis.edges) - 1, len(plan.column_axis.edges) - 1)
        self.total, self.highest = plan.empty(*size).zero_(), plan.empty(*size).zero_()
        self.bits = plan.empty(len(self.queries))  # log2 of the softmax's denominator
        self.numbers = {name: plan.empty(len(self.queries)) for name in plan.numbers}

    def add(self, row: Tile) -> None:
        """Computes a band of rows and adds it to the pixels and numbers."""
        band = _Band(self.plan, row, self.plan.columns_of(row))
        queries = self._rows(row)
        self._sweep(band, queries, reference=None)
        denominator = self._denominator(band)
        if not bool(((denominator >= LEAST) & (denominator <= MOST)).all()):
            self._sweep(band, queries, reference=self._largest(band, queries))
            denominator = self._denominator(band)
        self._keep(band, denominator)

    def finished(self) -> _Found:
        """The findings, pooled to the pixels asked for."""
        plan = self.plan
        rows, columns = plan.row_axis.parts, plan.column_axis.parts
        shape = (self.total.shape[0] // rows, rows, self.total.shape[1] // columns, columns)
        for name in plan.numbers & {"first", *NEIGHBOURS}:
            self.numbers[name] = self._weight_on(name)
        return _Found(
            total=self.total.view(shape).sum((1, 3)),
            highest=self.highest.view(shape).amax((1, 3)),
            logsumexp=self.bits / BITS,
            numbers=self.numbers,
        )

    def _rows(self, row: Tile) -> Tensor:
        """The queries of a band, the repeated ones included, ``(queries, features)``."""
        if row.repeats is None:
            return self.queries[row.tokens].to(self.plan.dtype)
        return self.queries[torch.from_numpy(row.grid.ravel()).to(self.queries.device)].to(self.plan.dtype)

    def _sweep(self, band: _Band, queries: Tensor, reference: Tensor | None) -> None:
        """Adds up every tile of a band against a reference for each row; by default that of its first tile."""
        band.surprise.zero_()
        band.distance.zero_()
        if reference is not None:
            torch.neg(reference, out=band.negative)
        for column in band.columns:
            known = reference is not None or column is not band.columns[0]
            scores, hides = self._scores(band.row, column, queries, band.negative if known else None)
            if not known:
                band.negative = -(_finite(scores.amax(1, keepdim=True)) + HEADROOM)
                scores.add_(band.negative)
            self._add_tile(band, column, scores, hides)

    def _scores(self, row: Tile, column: _Column, queries: Tensor, negative: Tensor | None) -> tuple[Tensor, bool]:
        """The scores of a tile in bits above the reference, hidden cells −inf, and whether any is hidden."""
        plan, factors = self.plan, self.plan.factors
        shape = (len(queries), column.count)
        scores = plan.scores[: shape[0] * shape[1]].view(shape)
        keys = self.keys[self.place[id(column)]]
        plain = factors.softcap is None and not factors.bias
        if plain and negative is not None:
            torch.addmm(negative.expand(shape), queries, keys, out=scores)
        else:
            torch.mm(queries, keys, out=scores)
        if not plain:
            self._bend(scores, row, column)
            if negative is not None:
                scores.add_(negative)
        hides = column.hide(scores)
        hidden = plan.hidden_cells(row, column)
        if hidden is not None:
            scores.masked_fill_(hidden, -math.inf)
        return scores, hides or hidden is not None

    def _bend(self, scores: Tensor, row: Tile, column: _Column) -> None:
        """Puts products under the soft cap and adds the bias, in bits."""
        factors = self.plan.factors
        if factors.softcap is not None:
            scores.div_(factors.softcap * BITS).tanh_().mul_(factors.softcap * BITS)
        if factors.bias:
            block = factors.bias.block([self.head], row.tokens, column.tokens)[0]
            rows, keys = row.grid.ravel() - row.tokens.start, column.keys - column.tokens.start
            scores.add_(torch.from_numpy(block[rows][:, keys]).to(scores), alpha=BITS)

    def _add_tile(self, band: _Band, column: _Column, scores: Tensor, hides: bool) -> None:
        """Pools a tile and adds its share to the rows' numbers."""
        plan = self.plan
        pixels, shape = band.pixels(column), (len(scores), *column.shape)
        if band.tops is not None:
            torch.amax(scores.view(shape), 1, out=band.tops[:, pixels])
        powers = plan.powers[: scores.numel()].view(scores.shape)
        torch.exp2(scores, out=powers)
        torch.sum(powers.view(shape), 1, out=band.sums[:, pixels])
        if "entropy" in plan.numbers:
            if hides:
                scores.clamp_(min=-1e30)
            band.surprise += scores.mul_(powers).sum(1)
        if "distance" in plan.numbers:
            band.distance += self._distances(band, column, powers, pixels)

    def _distances(self, band: _Band, column: _Column, powers: Tensor, pixels: slice) -> Tensor:
        """Sum of power · distance over a tile's keys, ``(queries,)``."""
        positions = torch.from_numpy(band.row.grid.ravel()).to(self.plan.device) + self.plan.rules.offset
        steps = (positions - column.tokens.start).to(powers.dtype)
        before = int(positions[-1]) < column.tokens.start
        if before or int(positions[0]) >= column.tokens.stop:
            sums = band.sums[:, pixels]
            within = powers.view(len(powers), *column.shape).sum(2)  # by place in its block
            passed: Tensor = steps * sums.sum(1) - sums @ column.starts.to(sums) - within @ column.places.to(sums)
            return -passed if before else passed
        apart: Tensor = (powers * (steps[:, None] - column.steps).abs()).sum(1)
        return apart

    def _largest(self, band: _Band, queries: Tensor) -> Tensor:
        """The largest score of each row in bits, the sink's included, ``(queries, 1)``; 0 where nothing is seen."""
        largest = self.plan.empty(len(queries), 1).fill_(-math.inf if self.sink is None else self.sink)
        for column in band.columns:
            scores, _ = self._scores(band.row, column, queries, None)
            largest = torch.maximum(largest, scores.amax(1, keepdim=True))
        return _finite(largest)

    def _denominator(self, band: _Band) -> Tensor:
        """The sum of powers of each row, the sink's included, ``(queries,)``."""
        total = band.sums.sum(1)
        return total if self.sink is None else total + torch.exp2(band.negative[:, 0] + self.sink)

    def _keep(self, band: _Band, denominator: Tensor) -> None:
        """Adds a finished band to the head's pixels and numbers."""
        plan, row = self.plan, band.row
        real = None if row.repeats is None else torch.from_numpy(_real(row)).to(plan.device)
        bits = denominator.log2()
        share = torch.where(denominator > 0, 1 / denominator, denominator)
        self.bits[row.tokens] = _only(bits - band.negative[:, 0], real)
        above = torch.where(denominator > 0, bits, math.inf)[:, None]
        weighted = share if real is None else share * real
        shape = (row.count, row.longest, -1)
        cut = (row.blocks, slice(band.start, band.stop))
        if band.columns:
            self.total[cut] = torch.bmm(weighted.view(row.count, 1, row.longest), band.sums.view(shape))[:, 0]
        if band.tops is not None and band.columns:
            tops = band.tops.sub_(above)
            if plan.maximum:
                self.highest[cut] = tops.view(shape).amax(1).exp2_()
        for name, value in self._row_numbers(band, share, bits).items():
            self.numbers[name][row.tokens] = _only(value, real)

    def _row_numbers(self, band: _Band, share: Tensor, bits: Tensor) -> dict[str, Tensor]:
        """The numbers that the pass itself adds up, ``(queries,)`` each."""
        numbers = {}
        if "entropy" in self.plan.numbers:
            mass = band.sums.sum(1) * share
            spread = torch.where(share > 0, bits, 0) * mass - band.surprise * share
            numbers["entropy"] = spread.clamp_(min=0)
        if "distance" in self.plan.numbers:
            numbers["distance"] = band.distance * share
        if "peak" in self.plan.numbers and band.tops is not None:
            numbers["peak"] = band.tops.amax(1).exp2_() if band.columns else share.zero_()
        return numbers

    def _weight_on(self, name: str) -> Tensor:
        """The weight of each query on one key of its own, ``(queries,)``; 0 where that key is hidden or not there."""
        factors, count = self.plan.factors, len(self.queries)
        queries = np.arange(count)
        keys = np.zeros(count, dtype=np.int64) if name == "first" else queries + factors.mask.offset + NEIGHBOURS[name]
        within = np.clip(keys, 0, self.plan.keys - 1)
        visible = torch.from_numpy(factors.mask.sees(queries, within) & (within == keys)).to(self.plan.device)
        rows = factors.keys[factors.key_heads[self.head]][torch.from_numpy(within).to(self.plan.device)]
        scores = (self.queries.to(self.plan.dtype) * rows.to(self.plan.dtype)).sum(1) * factors.scale
        if factors.softcap is not None:
            scores = factors.softcap * torch.tanh(scores / factors.softcap)
        if factors.bias:
            scores += torch.from_numpy(factors.bias.at([self.head], queries, within)[0]).to(scores)
        weights = torch.exp2(scores * BITS - self.bits).clamp_(max=1)
        return torch.where(visible, weights, 0)


def _penalty(hidden: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], device: torch.device) -> Tensor:
    """−inf where hidden, else 0."""
    return torch.from_numpy(np.where(hidden, np.float32(-np.inf), np.float32(0))).to(device)


def _finite(reference: Tensor) -> Tensor:
    """The reference, 0 where a row has none."""
    return torch.where(reference.isfinite(), reference, torch.zeros_like(reference))


def _real(row: Tile) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which rows of a band are not repeats, ``(queries,)``."""
    real = np.ones(row.grid.shape, dtype=bool)
    if row.repeats is not None:
        real[row.repeats, -1] = False
    return real.ravel()


def _only(values: Tensor, real: Tensor | None) -> Tensor:
    return values if real is None else values[real]


def _numpy(values: Tensor) -> FloatArray:
    return np.asarray(values.float().cpu().numpy())
