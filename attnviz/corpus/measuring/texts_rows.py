"""Computes the weights of rows of several texts, with each row's entropy and largest weight from the same softmax.

Only one exponential is computed for each cell: with ``p = exp(s - m) / Z`` the entropy of a row is
``log Z - sum(p (s - m))`` and its largest weight ``1 / Z``.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import AttentionMaps, FactoredCall, shared_or_per_head_cells
from attnviz.corpus.measuring.cell_sums import TextsCells, place_sums
from attnviz.corpus.measuring.texts_grid import CachedGrids, TextsGrid
from attnviz.metrics.grid import Rows

TINY = 1e-30  # a weight that adds nothing to the entropy; it keeps log and division finite
MAX_EXPONENT = 80.0  # the largest exponent used: exp(80) and exp(-80) are normal float32 numbers


class SoftmaxRows(NamedTuple):
    """The softmax of rows of several texts, with the entropy and peak of each row.

    Attributes:
        weights: the weights, ``(texts, heads, queries, keys)``; 0 where hidden.
        scores: the scores, ``(texts, heads, queries, keys)``; 0 where hidden.
        entropy: the entropy of each row in bits, ``(texts, heads, queries)``.
        peak: the largest weight of each row, ``(texts, heads, queries)``.
        hidden: the share of the softmax that a causal mask hides, ``(texts, heads, queries)``; 0 if it is unknown.
        logsumexp: the log-sum-exp of the scores of each row, ``(texts, heads, queries)``; NaN if the model computed the
            weights.
    """

    weights: Tensor
    scores: Tensor
    entropy: Tensor
    peak: Tensor
    hidden: Tensor
    logsumexp: Tensor


class TextsRows(Rows):
    """Rows of heads over some texts, with the numbers ``(texts, heads, queries)`` that metrics read.

    Attributes:
        grid: the visible cells.
        softmax: the weights, scores, entropies and largest weights of the rows.
    """

    grid: TextsGrid

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
    def squared_distance(self) -> Tensor:
        """The mean squared distance to the key in tokens, weighted by the weights."""
        return self._distance_sums[1]

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


def captured_rows(maps: AttentionMaps, grid: TextsGrid) -> TextsRows:
    """Returns the rows of maps whose weights the model computed, with the entropy and the largest weight of each row.

    Scores are 0 in hidden cells, and weights are 0 in padding. The share that a causal mask hides is unknown, hence 0.
    """
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
        hidden=torch.zeros_like(entropy),
        logsumexp=torch.full_like(entropy, math.nan),
    )
    return TextsRows(grid, rows)
