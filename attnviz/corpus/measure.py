"""Measures each text of a batched attention call on the model's device, block by block, and keeps no maps.

The formulas are those of `attnviz.metrics.metrics`, for all texts and heads of a block at once. Weights on the cells of
all metrics are summed together, and quantities that metrics share are computed once for each row.

Only one exponential is computed for each cell: with ``p = exp(s - m) / Z`` the entropy of a row is
``log Z - sum(p (s - m))`` and its largest weight ``1 / Z``.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.base.arrays import Float64Array
from attnviz.capture.calls.attention_call import AttentionCall, AttentionMaps, FactoredCall, shared_or_per_head_cells
from attnviz.corpus.cell_sums import TextsCells, place_sums
from attnviz.corpus.texts_grid import CachedGrids, TextsGrid
from attnviz.metrics.call_metrics import sink_cells
from attnviz.metrics.grid import Rows
from attnviz.metrics.patterns import REST_METRICS, is_sink, numbers_beside_sink
from attnviz.streaming.torch_pass import map_parallel

TINY = 1e-30  # a weight that adds nothing to the entropy; it keeps log and division finite
MAX_EXPONENT = 80.0  # the largest exponent used: exp(80) and exp(-80) are normal float32 numbers
BLOCK_CELLS = 2**20  # texts x heads x queries x keys in memory at once, in each thread
MIN_ROWS = 16
UNDEFINED = -1.0  # less than the number of any row


class SoftmaxRows(NamedTuple):
    """The softmax of rows of several texts, with the entropy and peak of each row."""

    weights: Tensor  # the weights, ``(texts, heads, queries, keys)``; 0 where hidden
    scores: Tensor  # the scores, ``(texts, heads, queries, keys)``; 0 where hidden
    entropy: Tensor  # the entropy of each row in bits, ``(texts, heads, queries)``
    peak: Tensor  # the largest weight of each row, ``(texts, heads, queries)``
    hidden: Tensor  # the share of the softmax that a causal mask hides, ``(texts, heads, queries)``; 0 if it is unknown
    # the log-sum-exp of the scores of each row, ``(texts, heads, queries)``; NaN if the model computed the weights
    logsumexp: Tensor


class TextsRows(Rows):
    """Rows of heads over some texts, with the numbers ``(texts, heads, queries)`` that metrics read.

    Attributes:
        softmax: the weights, scores, entropies and largest weights of the rows.
    """

    grid: TextsGrid  # the visible cells

    def __init__(self, grid: TextsGrid, softmax: SoftmaxRows) -> None:
        self.grid, self.softmax = grid, softmax

    @property
    def entropy(self) -> Tensor:
        """The entropy of each row in bits, ``(texts, heads, queries)``."""
        return self.softmax.entropy

    @property
    def peak(self) -> Tensor:
        """The largest weight of each row, ``(texts, heads, queries)``."""
        return self.softmax.peak

    @property
    def key_weights(self) -> Tensor:
        """The weight on each key, ``(texts, heads, queries, keys)``."""
        return self.softmax.weights

    @property
    def hidden(self) -> Tensor:
        """The share of the softmax that a causal mask hides, ``(texts, heads, queries)``; 0 if it is unknown."""
        return self.softmax.hidden

    @cached_property
    def _distance_sums(self) -> Tensor:
        """The sums of weights times distances and squared distances, ``(2, texts, heads, queries)``."""
        return place_sums(self.grid.sums.distances, self.softmax.weights).permute(1, 2, 3, 0)

    @property
    def distance(self) -> Tensor:
        """The mean distance to the key in tokens, weighted by the weights."""
        return self._distance_sums[0]

    @property
    def distance_moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """The sums Σ w, Σ w·x and Σ w·x², where x is the distance: exact enough in float64 over short texts."""
        distance, squared_distance = self._distance_sums
        return self.softmax.weights.sum(-1, dtype=distance.dtype), distance, squared_distance

    def mass(self, cells: TextsCells) -> Tensor:
        """Returns the weight on the given cells, ``(texts, heads, queries)``; NaN where a query sees none of them."""
        in_cells = cells.broadcast_mask() & self.grid.visible
        return self.where(in_cells.any(-1)[:, None], (self.softmax.weights * in_cells[:, None]).sum(-1))

    def where(self, is_defined: Tensor, numbers: Tensor) -> Tensor:
        """Returns the numbers where ``is_defined`` is True, else NaN."""
        return torch.where(is_defined, numbers, math.nan)

    def not_applicable(self) -> Tensor:
        """Returns NaN for every query, ``(texts, heads, queries)``."""
        return torch.full_like(self.softmax.entropy, math.nan)


def softmax_rows(
    call: FactoredCall, heads: Sequence[int], grids: CachedGrids, texts: slice, rows: slice
) -> TextsRows | None:
    """Returns a range of rows of a call with their softmax; ``None`` if the heads' visible cells differ."""
    scores, call_visible = call.scores_and_visible(heads, rows)
    if call_visible is None:  # every cell is visible
        visible = scores.new_ones(1, 1, 1, 1, dtype=torch.bool)
    else:
        visible = shared_or_per_head_cells(call_visible)
    if visible.shape[1] > 1:
        return None
    scores = scores.float()
    grid = grids.of(visible[:, 0].expand(len(scores), *scores.shape[2:]), texts, rows, knows_hidden_scores=True)
    sinks = None if call.sinks is None else call.sinks[list(heads)].float()[:, None, None]
    return TextsRows(grid, _softmax(scores, grid, sinks))


def _softmax(scores: Tensor, grid: TextsGrid, sinks: Tensor | None) -> SoftmaxRows:
    """Returns the softmax of scores, in their place, with the entropy and the largest weight of each row."""
    additive_mask = grid.additive_mask if grid.has_hidden else None
    sees_key = (grid.visible_counts > 0).float()
    masked_scores = scores if additive_mask is None else scores + additive_mask
    largest_scores = masked_scores.amax(-1, keepdim=True)
    if additive_mask is not None and not bool(largest_scores.isfinite().all()):  # hidden scores may be NaN or infinite
        scores = scores.masked_fill_(additive_mask != 0, 0)
        masked_scores = scores + additive_mask
        largest_scores = masked_scores.amax(-1, keepdim=True)
    maximum = largest_scores if sinks is None else torch.maximum(largest_scores, sinks)
    if grid.knows_hidden_future:
        future_exponentials = (scores - maximum).clamp_(max=MAX_EXPONENT).exp_().mul_(grid.hidden_future[:, None])
        future_sums = _row_sums(future_exponentials)
    exponents = scores - maximum if additive_mask is None else masked_scores.sub_(maximum).clamp_(min=-MAX_EXPONENT)
    exponentials = exponents.exp()
    if additive_mask is not None:
        exponentials.mul_(grid.visible_as_float[:, None])
    visible_sums = _row_sums(exponentials)
    if grid.knows_hidden_future:
        hidden_share = future_sums / (future_sums + visible_sums).clamp_(min=TINY) * grid.has_hidden_later
    else:
        hidden_share = torch.zeros_like(visible_sums)
    total = visible_sums if sinks is None else visible_sums + (sinks - maximum)[..., 0].exp_()
    total.clamp_(min=0.5)  # at least 1 if a query sees a key; the clamp only avoids log(0) for other queries
    entropy = (total.log() * visible_sums - _row_sums(exponents.mul_(exponentials))) / total / math.log(2)
    peak_weight = sees_key / total
    return SoftmaxRows(
        weights=exponentials.mul_(peak_weight[..., None]),
        scores=scores.mul_(grid.visible_as_float[:, None]) if grid.has_hidden else scores,
        entropy=entropy,
        peak=peak_weight if sinks is None else peak_weight * (largest_scores - maximum)[..., 0].exp_(),
        hidden=hidden_share,
        logsumexp=maximum[..., 0] + total.log(),
    )


def _row_sums(cells: Tensor) -> Tensor:
    """Returns the sum of each row, as a product with ones: several times quicker than a sum for short rows."""
    return cells @ cells.new_ones(cells.shape[-1])


def _captured_rows(maps: AttentionMaps, grid: TextsGrid) -> TextsRows:
    """Returns the rows of maps whose weights the model computed; weights are 0 in hidden cells and in padding."""
    cells, weights = grid.visible_as_float[:, None], maps.weights.float()
    if grid.batch.is_padded:
        weights = weights * cells
    entropy = -(weights.clamp(min=TINY).log_().mul_(weights).sum(-1)) / math.log(2)
    scores = maps.scores.float()
    rows = SoftmaxRows(
        weights=weights,
        scores=scores.masked_fill(cells == 0, 0) if grid.has_hidden else scores,
        entropy=entropy,
        peak=weights.amax(-1),
        hidden=torch.zeros_like(entropy),  # the share that a causal mask hides is unknown
        logsumexp=torch.full_like(entropy, math.nan),
    )
    return TextsRows(grid, rows)


class CallNumbers(NamedTuple):
    """The numbers of each text in one call."""

    values: Tensor  # the metrics except those of columns, ``(texts, heads, metrics)``; NaN where one is undefined
    queries: Tensor  # the query where each metric is largest, ``(texts, heads, metrics)``; -1 where no query has it
    # the weight on each key, ``(texts, heads, keys)``: the mean over queries that see two keys or more; NaN where there
    # are none
    received: Tensor
    visible_keys: Tensor  # True for keys that any query sees, ``(texts, keys)``
    weights: Tensor  # weights summed over pairs of query and key, ``(texts, heads, offset bins)``
    scores: Tensor  # scores summed in the same way
    pairs: Tensor  # the number of these pairs, ``(texts, offset bins)``
    entropies: Tensor  # entropies in bits summed over queries, ``(texts, heads, position bins)``
    rows: Tensor  # the number of these queries, ``(texts, position bins)``
    beside_sink: Float64Array  # the metrics beside each head's sink that decide patterns, ``(texts, heads, metrics)``


def measure_call(
    call: AttentionCall, heads: Sequence[int], grids: CachedGrids
) -> list[tuple[tuple[int, ...], CallNumbers]]:
    """Returns the numbers of chosen heads of a self-attention call over a batch, as pairs of head indices and numbers.

    There is one pair for all heads, or one pair for each head if their visible cells differ.
    """
    # Blocks cover the call: several whole texts, or a band of queries of one text.
    texts, _, queries, keys = call.shape
    texts_of_thread = -(-texts // torch.get_num_threads())  # rounded up
    texts_at_once = max(1, min(BLOCK_CELLS // (len(heads) * queries * keys), texts_of_thread))
    rows_of_block = max(MIN_ROWS, -(-BLOCK_CELLS // (len(heads) * keys)))  # rounded up: 86 of 512, not 6 x 85 and 2
    rows_at_once = queries if min(texts_at_once, texts) > 1 else rows_of_block
    blocks = list[tuple[slice, slice]]()  # texts and queries whose maps fit in `BLOCK_CELLS`
    for start in range(0, texts, texts_at_once):
        text_range = slice(start, min(start + texts_at_once, texts))
        for first_row in range(0, queries, rows_at_once):
            blocks.append((text_range, slice(first_row, min(first_row + rows_at_once, queries))))
    if isinstance(call, FactoredCall) and len(grids.batch.texts) > 1:  # else each product would copy them first
        call = replace(call, queries=call.queries.contiguous(), keys=call.keys.contiguous())

    def measure(block: tuple[slice, slice]) -> _Band | None:
        """Returns the sums of a block; ``None`` if the heads' visible cells differ."""
        texts_of_block, rows_of_texts = block
        block_call = call.of_texts(texts_of_block)
        if isinstance(block_call, FactoredCall):
            rows = softmax_rows(block_call, heads, grids, texts_of_block, rows_of_texts)
            return None if rows is None else _measure_band(rows)
        maps = block_call.maps(heads, rows_of_texts)
        if maps.visible.shape[1] > 1:
            return None
        grid = grids.of(maps.visible[:, 0], texts_of_block, rows_of_texts, knows_hidden_scores=False)
        return _measure_band(_captured_rows(maps, grid))

    is_cpu = grids.batch.device.type == "cpu"
    results = map_parallel(measure, blocks) if is_cpu else [measure(block) for block in blocks]
    bands = [band for band in results if band is not None]
    if len(bands) < len(results):  # the heads see different cells, so each needs a grid for itself
        return [numbers for head in heads for numbers in measure_call(call, [head], grids)]
    text_sums = list[_Band]()  # of the texts of a block, over all of their rows
    for (_, band_rows), band in zip(blocks, bands, strict=True):
        if band_rows.start == 0:
            text_sums.append(band)
        else:
            text_sums[-1] = text_sums[-1].joined(band)
    if len(text_sums) == 1:
        sums = text_sums[0]
    else:
        sums = _Band(*(torch.cat(tensors) for tensors in zip(*text_sums, strict=True)))

    counts = sums.counts.clone()
    for number, metric in enumerate(grids.metrics):
        counts[:, number] = metric.counted_queries(sums.counts[:, number], sums.choice_counts)
    values = (sums.sums / counts[:, None]).masked_fill_((counts == 0)[:, None], math.nan)
    received = sums.received / sums.choice_counts[:, None, None]
    call_numbers = CallNumbers(
        values=values,
        queries=sums.queries,
        received=received,
        visible_keys=sums.visible_keys,
        weights=sums.weights,
        scores=sums.scores,
        pairs=sums.pairs,
        entropies=sums.entropies,
        rows=sums.rows,
        beside_sink=_beside_sinks(call, heads, grids, sums, values, received),
    )
    return [(tuple(heads), call_numbers)]


class _Band(NamedTuple):
    """The sums of a band of rows, as in `CallNumbers`."""

    sums: Tensor
    counts: Tensor
    best: Tensor
    queries: Tensor
    received: Tensor
    visible_keys: Tensor
    choice_counts: Tensor
    weights: Tensor
    scores: Tensor
    pairs: Tensor
    entropies: Tensor
    rows: Tensor
    pattern_rows: Tensor
    logsumexp: Tensor
    visible_counts: Tensor

    def joined(self, other: "_Band") -> "_Band":
        """Returns the sums over the rows of this band and of ``other``, whose rows are later ones of the same texts."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in self._fields[:-3]}
        sums |= {name: torch.cat([getattr(self, name), getattr(other, name)], dim=2) for name in self._fields[-3:]}
        is_larger = (other.best > self.best) | (self.queries < 0)  # -1: no row of this band has the number
        return _Band(**sums)._replace(
            best=torch.maximum(self.best, other.best),
            queries=torch.where(is_larger, other.queries, self.queries),
            visible_keys=self.visible_keys | other.visible_keys,
        )


def _beside_sinks(
    call: AttentionCall, heads: Sequence[int], grids: CachedGrids, band: _Band, values: Tensor, received: Tensor
) -> Float64Array:
    """Returns the metrics of `REST_METRICS` beside each head's sink, ``(texts, heads, metrics)``."""
    numbers_of = {metric.name: number for number, metric in enumerate(grids.metrics) if metric.name in REST_METRICS}
    own = np.full((*values.shape[:2], len(REST_METRICS)), np.nan)
    for name, number in numbers_of.items():
        own[..., REST_METRICS.index(name)] = values[..., number].cpu().numpy()
    sinks, sink_shares = (tensor.cpu().numpy() for tensor in reversed(received.nan_to_num().max(-1)))
    has_sink = is_sink(sink_shares)
    if not has_sink.any():
        return own
    sink_weights = np.zeros(band.logsumexp.shape)
    cells = {name: np.zeros(sink_weights.shape, dtype=bool) for name in numbers_of}
    for sink in set(sinks[has_sink].tolist()):
        is_here = has_sink & (sinks == sink)
        sink_weights[is_here] = _column(call, heads, sink, band.logsumexp).cpu().numpy()[is_here]
        grid = TextsGrid.of_sink(grids.batch, slice(0, len(values)), sink, grids.metrics)
        metrics = [grids.metrics[number] for number in numbers_of.values()]
        for name, mask in sink_cells(grid, metrics, TextsCells.broadcast_mask).items():
            cells[name][is_here] = np.broadcast_to(mask[..., None, :].cpu().numpy(), sink_weights.shape)[is_here]
    beside = numbers_beside_sink(
        {name: band.pattern_rows[..., index].double().cpu().numpy() for index, name in enumerate(numbers_of)},
        sink_weights,
        cells,
        band.visible_counts.long().cpu().numpy(),
    )
    return np.where(has_sink[..., None], beside, own)


def _column(call: AttentionCall, heads: Sequence[int], key: int, logsumexp: Tensor) -> Tensor:
    """Returns the weights of all queries on one key, ``(texts, heads, queries)``."""
    if not isinstance(call, FactoredCall):
        return call.weights(heads, slice(None))[..., key]
    scores, visible = call.scores_and_visible(heads, slice(None), slice(key, key + 1))
    weights = (scores[..., 0] - logsumexp).exp()
    return weights if visible is None else weights * visible[..., 0]


def _measure_band(rows: TextsRows) -> _Band:
    grid, weights, sums = rows.grid, rows.softmax.weights, rows.grid.sums

    # the numbers of the rows, (queries, metrics, texts, heads): those of whole rows, then sums over cells
    texts, heads, queries = rows.entropy.shape
    row_numbers = rows.entropy.new_empty(queries, len(grid.metrics), texts, heads)
    row_metric_count = len(sums.row_metrics)
    for column, number in enumerate(sums.row_metrics):
        row_numbers[:, column] = grid.metrics[number].query_values(rows).permute(2, 0, 1)
    defined_queries = grid.defined_queries(row_numbers[:, :row_metric_count])
    for column in defined_queries.partial_columns:
        row_numbers[:, column].nan_to_num_()
    sums.write(weights, row_numbers[:, row_metric_count:])
    row_numbers.mul_(grid.has_choice.T[:, None, :, None])
    row_maxima, order = row_numbers.amax(0), sums.order

    # only queries that see two keys or more count; a product with 0 leaves out the others
    entropies = rows.entropy.permute(2, 0, 1) * grid.has_choice.T.view(-1, len(grid.visible), 1)
    received = weights.sum(2)  # queries that see no key have no weight
    if grid.has_single_key:
        received = (grid.has_choice[:, None, None] @ weights)[:, :, 0]

    # The first query where each number is largest, (metrics, texts, heads); -1 if no query has it. The number less the
    # largest is 0 there and negative elsewhere, so the first largest has the highest rank.
    count = len(row_numbers)
    ranks = torch.arange(count, 0, -1, dtype=row_numbers.dtype, device=row_numbers.device)
    first = (row_numbers - row_maxima).sign_().mul_(count).add_(ranks[:, None, None, None]).amax(0)
    largest_queries = count - first.long() + grid.rows.start
    best_queries = torch.where(row_maxima > 0, largest_queries, defined_queries.first_rows.T[..., None])

    # the metrics of `REST_METRICS` of each row, NaN where undefined
    columns = [order[number] for number, metric in enumerate(grid.metrics) if metric.name in REST_METRICS]
    has_number = defined_queries.has_number[..., columns][:, None]

    return _Band(
        sums=row_numbers.sum(0)[order].permute(1, 2, 0),
        counts=defined_queries.counts[:, order],
        best=row_maxima.permute(1, 2, 0).masked_fill((defined_queries.counts == 0)[:, None], UNDEFINED)[..., order],
        queries=best_queries[order].permute(1, 2, 0),
        received=received,
        visible_keys=grid.visible_keys,
        choice_counts=grid.has_choice.sum(1),
        weights=grid.by_offset(weights),
        scores=grid.by_offset(rows.softmax.scores),
        pairs=grid.pairs,
        entropies=torch.einsum("qth,qb->thb", entropies, grid.position_bins),
        rows=grid.has_choice @ grid.position_bins,
        pattern_rows=row_numbers[:, columns].permute(2, 3, 0, 1).where(has_number, math.nan),
        logsumexp=rows.softmax.logsumexp,
        visible_counts=grid.visible_counts,
    )
