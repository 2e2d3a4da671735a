"""Computes overviews by a fused attention kernel whose values are one-hot block numbers, so it returns weights.

The value of a key is 1 at the feature of its block, else 0: the kernel's output is each query's weight on every block.
A value has one feature per block, as many as a head is wide, so keys are cut into chunks of that many blocks. A chunk's
weights are normalized over the chunk alone; exp(its log-sum-exp − that of the whole row) turns them into shares of the
row. On CUDA this is faster than tiles in torch, which wait for memory: the kernel keeps its tiles on the chip.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attnviz.attention.kernels import fused_attention, has_fused_attention
from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import FloatArray
from attnviz.streaming.overview import BlockAxis, Factors, Overview, Tile, block_edges

MAX_BYTES = {"cpu": 2**26, "cuda": 2**29}  # of the weights on blocks in memory at once
WIDTH_MULTIPLE = 8  # CUDA's kernels need a head width that is a multiple of this


@dataclass(frozen=True, eq=False)
class DeviceFactors:
    """Queries, keys and the rules that turn them into weights, as tensors on a device."""

    queries: Tensor  # ``(heads, queries, features)``
    keys: Tensor  # ``(key heads, keys, features)``
    key_heads: tuple[int, ...]  # ``(heads,)``, index of the key head that each head reads
    scale: float  # factor of q·k
    mask: Mask = field(default_factory=Mask)  # rules that decide which cells are visible
    bias: Bias = field(default_factory=Bias)  # term that is added to the scores
    softcap: float | None = None  # soft limit of the scores; ``None`` for none
    # ``(heads,)``, an extra score in every row's softmax that belongs to no key; ``None`` for none
    sink: FloatArray | None = None

    @classmethod
    def on_device(cls, device: str, factors: Factors, head_indices: Sequence[int]) -> "DeviceFactors":
        """Returns the factors of some heads, with queries and keys copied to a device as float32.

        The bias still holds all heads, so callers may only check whether it is empty.
        """
        key_heads = sorted({factors.key_heads[index] for index in head_indices})
        queries, keys = (
            torch.from_numpy(np.stack([np.asarray(array[index], dtype=np.float32) for index in indices])).to(device)
            for array, indices in ((factors.queries, head_indices), (factors.keys, key_heads))
        )
        return cls(
            queries,
            keys,
            tuple(key_heads.index(factors.key_heads[index]) for index in head_indices),
            factors.scale,
            factors.mask,
            factors.bias,
            softcap=factors.softcap,
            sink=None if factors.sink is None else factors.sink[list(head_indices)],
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of computation: float64 if the queries are float64, else float32."""
        return torch.float64 if self.queries.dtype == torch.float64 else torch.float32


def prefers_kernel(factors: DeviceFactors) -> bool:
    """True if the fused kernel should compute the means of these factors: they are on CUDA, and it supports them."""
    queries = factors.queries
    if queries.device.type != "cuda" or not kernel_supports(factors):
        return False
    return has_fused_attention(_kernel_width(queries), queries.dtype, queries.device)


def kernel_supports(factors: DeviceFactors) -> bool:
    """True if the kernel can compute these weights.

    The mask may be full or causal, with a prefix and a tail, and with padding at the ends of the keys; a sink is
    allowed. Not allowed are a bias, soft cap, window, chunk, explicit mask, a scale of 0 or below, and mixed dtypes.
    """
    mask = factors.mask
    changes_scores = bool(factors.bias) or factors.softcap is not None
    if changes_scores or mask.window is not None or mask.chunk is not None or mask.explicit is not None:
        return False
    keys = _span_without_padding(factors)
    has_padding_inside = mask.padding is not None and not mask.padding[keys].all()
    return not has_padding_inside and factors.scale > 0 and factors.queries.dtype == factors.keys.dtype


@torch.no_grad()
def overview_by_indicators(factors: DeviceFactors, height: int, width: int) -> tuple[Overview, FloatArray]:
    """Returns the mean of each pixel (the maximum is all 0), and the log-sum-exp, ``(heads, queries)``.

    Pixels are right to 1e-5 with float32 factors. With narrower ones the kernel rounds weights, and their sums over
    keys, to the same dtype: the relative error is up to 2**-7 for bfloat16 and 2**-10 for float16 (where weights below
    6e-8 become 0), and usually five times smaller, as the rounding errors within a block cancel out.
    """
    plan = _PassPlan(factors, height, width)
    heads, queries, _ = factors.queries.shape
    part_totals = np.empty((heads, len(plan.rows.edges) - 1, len(plan.edges) - 1), dtype=np.float32)
    logsumexp = np.empty((heads, queries), dtype=np.float32)
    for group in plan.groups():
        for band in plan.bands:
            band_totals, band_logsumexp = _pooled_band(plan, group, band)
            part_totals[group, band.blocks] = _to_numpy(band_totals)
            logsumexp[group, band.tokens] = _to_numpy(band_logsumexp)
    totals = part_totals.reshape(heads, -1, plan.rows.parts, part_totals.shape[2]).sum(axis=2)
    counts = factors.mask.counts(plan.rows.edges[:: plan.rows.parts], plan.edges)
    means = totals / np.maximum(counts, 1).astype(np.float32)
    return Overview(mean=means, maximum=np.zeros_like(means), visible=counts > 0), logsumexp


class _PassPlan:
    """The plan of an overview: cuts heads into groups, queries into bands and keys into chunks, to bound the memory.

    Attributes:
        blocks: ``(keys,)``, the number of each key's block.
    """

    def __init__(self, factors: DeviceFactors, height: int, width: int) -> None:
        self.factors = factors
        heads, query_count, _ = factors.queries.shape
        self.key_count = factors.keys.shape[1]
        self.kernel_width = _kernel_width(factors.queries)
        self.edges = block_edges(self.key_count, min(width, self.key_count))
        self.chunks = set(self.edges[:: self.kernel_width].tolist())
        key_blocks = np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges))
        self.blocks = torch.from_numpy(key_blocks).to(factors.queries.device)
        row_bytes = (len(self.chunks) + 2) * self.kernel_width * factors.queries.element_size()  # weights of one query
        max_rows = max(1, MAX_BYTES[factors.queries.device.type] // row_bytes)
        self.heads_at_once = max(1, min(max_rows // query_count, heads))
        self.rows = BlockAxis.from_span(slice(0, query_count), min(height, query_count), max_rows)
        # A tile pads all blocks to the longest, so all queries in one band may need more rows.
        self.bands = list(self.rows.tiles(max_rows if max_rows < query_count else 2 * max_rows))

    def groups(self) -> Iterator[slice]:
        """Yields the heads in groups whose weights on blocks fit the memory limit `MAX_BYTES`."""
        heads = len(self.factors.queries)
        return (slice(start, min(start + self.heads_at_once, heads)) for start in range(0, heads, self.heads_at_once))

    def pieces(self, queries: slice) -> Iterator[slice]:
        """Yields runs of the keys that these queries see, cut at the ends of chunks and where the mask begins to
        hide.
        """
        mask, unpadded_keys = self.factors.mask, _span_without_padding(self.factors)
        reachable_keys = mask.reach(queries, self.key_count)
        first = max(unpadded_keys.start, reachable_keys.start)
        stop = min(unpadded_keys.stop, reachable_keys.stop)
        diagonal = {queries.start + mask.offset, queries.stop + mask.offset}
        edges = {first, stop, *self.chunks, mask.prefix, mask.tail or 0, *diagonal}
        piece_edges = sorted(edge for edge in edges if first <= edge <= stop)
        pieces = (slice(*ends) for ends in pairwise(piece_edges))
        return (piece for piece in pieces if mask.coverage(queries, piece) is not False)


@dataclass(frozen=True, eq=False)
class _PieceWeights:
    """The weights of each row on a piece of the keys."""

    pixels: slice
    # ``(heads, queries, features)``, the first features are the weights on these blocks; over the keys of the piece
    # they sum to 1
    weights: Tensor
    logsumexp: Tensor  # ``(heads, queries)``, over the keys of the piece; −inf if a query sees none of them


def _pooled_band(plan: _PassPlan, heads: slice, band: Tile) -> tuple[Tensor, Tensor]:
    """Returns the weights of a band of queries, summed over blocks, and the log-sum-exp of its rows."""
    factors = plan.factors
    padding = (0, plan.kernel_width - factors.queries.shape[2])  # features of 0
    queries = functional.pad(factors.queries[heads, band.tokens], padding)[None]
    keys = functional.pad(factors.keys[list(factors.key_heads[heads])], padding)[None]
    piece_results = [
        _piece_weights(plan, queries, keys[:, :, piece], band.tokens, piece) for piece in plan.pieces(band.tokens)
    ]
    empty_logsumexp = torch.full(queries.shape[1:3], -math.inf, dtype=factors.dtype, device=queries.device)
    logsumexps = [empty_logsumexp, *(result.logsumexp for result in piece_results)]
    if factors.sink is not None:
        sink = torch.tensor(factors.sink[heads].tolist(), dtype=empty_logsumexp.dtype, device=empty_logsumexp.device)
        logsumexps.append(sink[:, None].expand_as(empty_logsumexp))
    logsumexp = torch.stack(logsumexps).logsumexp(0)
    row_logsumexp = logsumexp.masked_fill(logsumexp == -math.inf, math.inf)  # makes the rows that see no key 0, not NaN
    totals = empty_logsumexp.new_zeros(len(empty_logsumexp), band.count, len(plan.edges) - 1)
    for result in piece_results:
        row_shares = torch.exp(result.logsumexp - row_logsumexp)[..., None]  # of the keys of the piece, in each row
        weights = result.weights[..., : result.pixels.stop - result.pixels.start] * row_shares
        if band.repeats is None:
            totals[:, :, result.pixels] += weights.view(len(weights), *band.grid.shape, -1).sum(2)
            continue
        rows = torch.from_numpy(band.grid - band.tokens.start).to(weights.device)  # (blocks, queries of a block)
        cells = weights[:, rows]  # (heads, blocks, queries of a block, blocks of keys)
        cells[:, torch.from_numpy(band.repeats).to(weights.device), -1] = 0  # the last query of a short block is a copy
        totals[:, :, result.pixels] += cells.sum(2)
    return totals, logsumexp


def _piece_weights(plan: _PassPlan, queries: Tensor, keys: Tensor, rows: slice, piece: slice) -> _PieceWeights:
    """Returns the weights of some queries on a piece of the keys."""
    # The indices of the first query within the piece and of the first after it: 0 if all queries see the whole piece.
    first_within = first_after = 0
    if not plan.factors.mask.coverage(rows, piece):
        first_within = piece.start - plan.factors.mask.offset - rows.start
        first_after = first_within + keys.shape[2]
    # Values are one-hot: 1 at the block of the key, so that the kernel sums the weights of each block.
    first, last = (int(plan.edges.searchsorted(key, side="right")) - 1 for key in (piece.start, piece.stop - 1))
    pixels = slice(first, last + 1)
    block_numbers = torch.arange(first, first + plan.kernel_width, device=plan.blocks.device)
    values = (plan.blocks[piece, None] == block_numbers).to(plan.factors.keys.dtype).expand(*keys.shape)
    results = []
    if first_within:  # these queries see none of the keys
        logsumexp = torch.full((keys.shape[1], first_within), -math.inf, dtype=plan.factors.dtype, device=keys.device)
        results.append((keys.new_zeros(*logsumexp.shape, plan.kernel_width), logsumexp))
    for query_part, causal in ((queries[:, :, first_within:first_after], True), (queries[:, :, first_after:], False)):
        if query_part.shape[2]:
            output, logsumexp = fused_attention(query_part, keys, values, causal=causal, scale=plan.factors.scale)
            results.append((output[0], logsumexp[0].to(plan.factors.dtype)))
    weights, logsumexps = zip(*results, strict=True)
    if len(results) == 1:  # no copy
        return _PieceWeights(pixels, weights[0], logsumexps[0])
    return _PieceWeights(pixels, torch.cat(weights, 1), torch.cat(logsumexps, 1))


def _kernel_width(queries: Tensor) -> int:
    """Returns the width of a head for the kernel, which is also the number of blocks that a value can tell apart."""
    features = queries.shape[-1]
    return features + -features % WIDTH_MULTIPLE  # rounded up to a multiple


def _span_without_padding(factors: DeviceFactors) -> slice:
    """Returns the keys from the first to the last that is not padding; an empty slice if all keys are padding."""
    padding = factors.mask.padding
    if padding is None:
        return slice(0, factors.keys.shape[1])
    unpadded_keys = np.flatnonzero(padding)  # the mask is true for keys that are not padding
    return slice(int(unpadded_keys[0]), int(unpadded_keys[-1]) + 1) if len(unpadded_keys) else slice(0, 0)


def _to_numpy(values: Tensor) -> FloatArray:
    return np.asarray(values.cpu().numpy(), dtype=np.float32)
