"""Overviews by attention's own fused kernel, with values that say which block a key is in: the output is weights.

A value has room for as many blocks as a head is wide, so keys are taken in chunks of so many blocks. Within a chunk the
kernel gives each query's weight on every block; the chunk's log-sum-exp against that of the whole row says how much of
the row the chunk holds. On CUDA plain tiles wait for memory, and the kernel keeps its tiles to itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attnviz.attention.kernels import fused_attention, has_fused_attention
from attnviz.base.arrays import FloatArray
from attnviz.streaming.device_factors import DeviceFactors
from attnviz.streaming.overview import Overview, block_edges
from attnviz.streaming.tiles import BlockAxis, Tile

HELD = {"cpu": 2**26, "cuda": 2**29}  # bytes of weights on blocks that are held at once
MULTIPLE = 8  # the kernels of CUDA take heads as wide as a multiple of this


def suits(factors: DeviceFactors) -> bool:
    """Whether this is the way to the means of these factors: on CUDA, where the kernel follows the rules."""
    queries = factors.queries
    if queries.device.type != "cuda" or not expressible(factors):
        return False
    return has_fused_attention(_width(queries), queries.dtype, queries.device)


def expressible(factors: DeviceFactors) -> bool:
    """Whether the kernel computes these weights: full or causal, with a prefix, padding at the ends, a sink."""
    mask, bare = factors.mask, not factors.bias and factors.softcap is None
    if not bare or mask.window is not None or mask.chunk is not None or mask.explicit is not None:
        return False
    real = _real(factors)
    gaps = mask.padding is not None and not mask.padding[real].all()
    return not gaps and factors.scale > 0 and factors.queries.dtype == factors.keys.dtype


@torch.no_grad()
def overview_by_indicators(factors: DeviceFactors, height: int, width: int) -> tuple[Overview, FloatArray]:
    """Each pixel's mean (its maximum is not found: all 0), and the log-sum-exp, ``(heads, queries)``.

    With float32 factors right to 1e-5. With narrower ones the kernel rounds weights, and their sums over keys, to the
    bits of these: pixels are right to 2**-7 of themselves for bfloat16 and 2**-10 for float16 (in which weights below
    6e-8 are lost), commonly five times better, as the roundings within a block cancel out.

    Args:
        factors: such as are ``expressible``.
        height: pixels along the queries; more than there are queries gives one a query.
        width: pixels along the keys.
    """
    cut = _Cut(factors, height, width)
    heads, queries, _ = factors.queries.shape
    totals = np.empty((heads, len(cut.rows.edges) - 1, len(cut.edges) - 1), dtype=np.float32)
    logsumexp = np.empty((heads, queries), dtype=np.float32)
    for group in cut.groups():
        for band in cut.bands:
            pooled, denominators = _band(cut, group, band)
            totals[group, band.blocks] = _numpy(pooled)
            logsumexp[group, band.tokens] = _numpy(denominators)
    totals = totals.reshape(heads, -1, cut.rows.parts, totals.shape[2]).sum(axis=2)
    counts = factors.mask.counts(cut.rows.edges[:: cut.rows.parts], cut.edges)
    totals /= np.maximum(counts, 1).astype(np.float32)
    return Overview(mean=totals, maximum=np.zeros_like(totals), visible=counts > 0), logsumexp


class _Cut:
    """How queries, keys and heads are cut so that what is held at once stays bounded."""

    def __init__(self, factors: DeviceFactors, height: int, width: int) -> None:
        self.factors = factors
        heads, self.queries, _ = factors.queries.shape
        self.keys = factors.keys.shape[1]
        self.wide = _width(factors.queries)
        self.edges = block_edges(self.keys, min(width, self.keys))
        self.chunks = set(self.edges[:: self.wide].tolist())
        self.blocks = torch.from_numpy(np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges)))
        self.blocks = self.blocks.to(factors.queries.device)  # the block of each key
        held = (len(self.chunks) + 2) * self.wide * factors.queries.element_size()  # bytes for one query
        rows = max(1, HELD[factors.queries.device.type] // held)
        self.together = max(1, min(rows // self.queries, heads))
        self.rows = BlockAxis.of(slice(0, self.queries), min(height, self.queries), rows)
        self.bands = list(self.rows.tiles(rows if rows < self.queries else 2 * rows))  # ragged blocks count as longer

    def groups(self) -> Iterator[slice]:
        """The heads, as many at a time as may be held."""
        heads = len(self.factors.queries)
        return (slice(start, min(start + self.together, heads)) for start in range(0, heads, self.together))

    def indicators(self, keys: slice) -> tuple[slice, Tensor]:
        """The blocks of keys of a chunk, and values ``(keys, features)`` that are 1 at each one's block, else 0."""
        first, last = (int(self.edges.searchsorted(key, side="right")) - 1 for key in (keys.start, keys.stop - 1))
        places = torch.arange(first, first + self.wide, device=self.blocks.device)
        values = self.blocks[keys, None] == places
        return slice(first, last + 1), values.to(self.factors.keys.dtype)

    def pieces(self, queries: slice) -> Iterator[slice]:
        """Keys that these queries see, cut where a chunk ends, and where the rules begin to hide some of them."""
        mask, real = self.factors.mask, _real(self.factors)
        reach = mask.reach(queries, self.keys)
        first, stop = max(real.start, reach.start), min(real.stop, reach.stop)
        edges = {first, stop, *self.chunks, mask.prefix, queries.start + mask.offset}
        inside = sorted(edge for edge in edges if first <= edge <= stop)
        return (slice(*ends) for ends in pairwise(inside))


@dataclass(frozen=True, eq=False)
class _Part:
    """What a piece of the keys holds of each row.

    Attributes:
        pixels: the blocks that the keys are in.
        weights: ``(heads, queries, at least as many blocks)``, the weight of each among the keys of the piece.
        logsumexp: ``(heads, queries)``, that of the piece; −inf where a query sees none of it.
    """

    pixels: slice
    weights: Tensor
    logsumexp: Tensor

    def pooled(self, denominators: Tensor, band: Tile) -> Tensor:
        """Sums over each block of queries, ``(heads, blocks of queries, blocks of keys)``.

        Args:
            denominators: ``(heads, queries)``, the log-sum-exp of the whole rows.
            band: which queries, in which blocks.
        """
        share = torch.exp(self.logsumexp - denominators)[..., None]
        weights = self.weights[..., : self.pixels.stop - self.pixels.start] * share
        if band.repeats is None:
            return weights.view(len(weights), *band.grid.shape, -1).sum(2)
        order = torch.from_numpy(band.grid - band.tokens.start).to(weights.device)
        cells = weights[:, order]  # (heads, blocks, queries of a block, blocks of keys)
        cells[:, torch.from_numpy(band.repeats).to(weights.device), -1] = 0
        return cells.sum(2)


def _band(cut: _Cut, heads: slice, band: Tile) -> tuple[Tensor, Tensor]:
    """Sums of weights, ``(heads, blocks of queries, blocks of keys)``, and the log-sum-exp, ``(heads, queries)``."""
    factors = cut.factors
    queries, keys = _factors(factors, heads, band.tokens)
    parts = [_part(cut, queries, keys[:, :, piece], band.tokens, piece) for piece in cut.pieces(band.tokens)]
    nothing = torch.full(queries.shape[1:3], -math.inf, dtype=factors.dtype, device=queries.device)
    known = [nothing, *(part.logsumexp for part in parts)]
    if factors.sink is not None:
        sink = torch.tensor(factors.sink[heads].tolist(), dtype=nothing.dtype, device=nothing.device)
        known.append(sink[:, None].expand_as(nothing))
    logsumexp = torch.stack(known).logsumexp(0)
    denominators = logsumexp.masked_fill(logsumexp == -math.inf, math.inf)  # so that a row that sees nothing is 0
    totals = nothing.new_zeros(len(nothing), band.count, len(cut.edges) - 1)
    for part in parts:
        totals[:, :, part.pixels] += part.pooled(denominators, band)
    return totals, logsumexp


def _part(cut: _Cut, queries: Tensor, keys: Tensor, rows: slice, piece: slice) -> _Part:
    """What a piece holds: under a causal rule queries before it see none, its own what is before them, later ones all.

    Args:
        cut: how all is cut.
        queries: ``(1, heads, queries, features)``, those of the rows.
        keys: ``(1, heads, keys, features)``, those of the piece.
        rows: which queries.
        piece: which keys.
    """
    unseen = within = 0
    if not cut.factors.mask.coverage(rows, piece):
        unseen = piece.start - cut.factors.mask.offset - rows.start
        within = unseen + keys.shape[2]
    pixels, values = cut.indicators(piece)
    values = values.expand(*keys.shape)
    found = [_nothing(cut, keys, unseen)] if unseen else []
    for some, causal in ((queries[:, :, unseen:within], True), (queries[:, :, within:], False)):
        if some.shape[2]:
            output, logsumexp = fused_attention(some, keys, values, causal=causal, scale=cut.factors.scale)
            found.append((output[0], logsumexp[0].to(cut.factors.dtype)))
    weights, sums = found[0] if len(found) == 1 else (torch.cat(each, 1) for each in zip(*found, strict=True))
    return _Part(pixels, weights, sums)


def _nothing(cut: _Cut, keys: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    """What is found for queries that see none of the keys."""
    unseen = torch.full((keys.shape[1], queries), -math.inf, dtype=cut.factors.dtype, device=keys.device)
    return keys.new_zeros(*unseen.shape, cut.wide), unseen


def _factors(factors: DeviceFactors, heads: slice, queries: slice) -> tuple[Tensor, Tensor]:
    """Some heads' queries and each one's keys, both ``(1, heads, tokens, features)`` with features of 0 added."""
    chosen = factors.queries[heads, queries], factors.keys[list(factors.key_heads[heads])]
    more = _width(factors.queries) - factors.queries.shape[2]
    first, second = (functional.pad(each, (0, more))[None] for each in chosen)
    return first, second


def _width(queries: Tensor) -> int:
    """How wide a head is for the kernel, and so how many blocks a value has room for."""
    features = queries.shape[-1]
    return features + -features % MULTIPLE


def _real(factors: DeviceFactors) -> slice:
    """The keys from the first to the last that is no padding."""
    padding = factors.mask.padding
    if padding is None:
        return slice(0, factors.keys.shape[1])
    real = np.flatnonzero(padding)
    return slice(int(real[0]), int(real[-1]) + 1) if len(real) else slice(0, 0)


def _numpy(values: Tensor) -> FloatArray:
    return np.asarray(values.cpu().numpy(), dtype=np.float32)
