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

from attnviz.capture.calls.attention_call import AttentionMaps, FactoredCall, shared_or_each
from attnviz.corpus.measuring.cell_sums import TextsCells
from attnviz.corpus.measuring.texts_grid import HeldGrids, TextsGrid
from attnviz.metrics.row_blocks import Rows

TINY = 1e-30  # a weight that adds nothing to the entropy; it keeps log and division finite
WIDE = 64  # the number of keys from which one einsum is quicker than a product and a sum
STEEPEST = 80.0  # the largest exponent used: exp(80) and exp(-80) are normal float32 numbers


class WeighedRows(NamedTuple):
    """Rows of the maps of some texts.

    Attributes:
        weights: the weights, ``(texts, heads, queries, keys)``; 0 where hidden.
        scores: the scores, ``(texts, heads, queries, keys)``; 0 where hidden.
        entropy: the entropy of each row in bits, ``(texts, heads, queries)``.
        peak: the largest weight of each row, ``(texts, heads, queries)``.
        hidden: the share of the softmax that a causal mask hides, ``(texts, heads, queries)``; 0 if it is unknown.
    """

    weights: Tensor
    scores: Tensor
    entropy: Tensor
    peak: Tensor
    hidden: Tensor


class TextsRows(Rows):
    """Rows of heads over some texts, with the numbers ``(texts, heads, queries)`` that metrics read.

    Attributes:
        grid: the visible cells.
        weighed: the weights, scores, entropies and largest weights.
    """

    grid: TextsGrid

    def __init__(self, grid: TextsGrid, weighed: WeighedRows) -> None:
        self.grid, self.weighed = grid, weighed

    @property
    def entropy(self) -> Tensor:
        """The entropy of each row in bits."""
        return self.weighed.entropy

    @property
    def peak(self) -> Tensor:
        """The largest weight of each row."""
        return self.weighed.peak

    @property
    def hidden(self) -> Tensor:
        """The share of the softmax that a causal mask hides."""
        return self.weighed.hidden

    @cached_property
    def placed(self) -> Tensor:
        """The sums of weights times each column of ``grid.sums.by_place``, ``(queries, 2 + columns, texts, heads)``."""
        factors = self.grid.sums.by_place
        count, heads, height, width = self.weighed.weights.shape
        exact = self.weighed.weights.to(factors.dtype).view(count * heads, height, width).transpose(0, 1)
        return torch.bmm(exact, factors).view(height, count, heads, -1).permute(0, 3, 1, 2)

    @property
    def distance(self) -> Tensor:
        """The mean distance to the key."""
        return self.placed[:, 0].permute(1, 2, 0)

    @property
    def squared_distance(self) -> Tensor:
        """The mean squared distance to the key."""
        return self.placed[:, 1].permute(1, 2, 0)

    def mass(self, cells: TextsCells) -> Tensor:
        """Returns the weight on some cells, ``(texts, heads, queries)``; NaN where a query sees none of them."""
        counted = cells.of_cells() & self.grid.visible
        return self.where(counted.any(-1)[:, None], (self.weighed.weights * counted[:, None]).sum(-1))

    def where(self, defined: Tensor, numbers: Tensor) -> Tensor:
        """Returns the numbers where ``defined``, else NaN."""
        return torch.where(defined, numbers, math.nan)

    def not_applicable(self) -> Tensor:
        """Returns NaN for every query, ``(texts, heads, queries)``."""
        return torch.full_like(self.weighed.entropy, math.nan)


def weigh(call: FactoredCall, heads: Sequence[int], held: HeldGrids, texts: slice, rows: slice) -> TextsRows | None:
    """Returns some rows of a call; ``None`` if the heads' visible cells differ.

    Args:
        call: the call, restricted to ``texts``.
        heads: the indices of the heads in the call.
        held: the grids of the batch.
        texts: the range of texts in the batch.
        rows: the range of queries.
    """
    scores, allowed = call.scores_and_visible(heads, rows)
    visible = scores.new_ones(1, 1, 1, 1, dtype=torch.bool) if allowed is None else shared_or_each(allowed)
    if visible.shape[1] > 1:
        return None
    scores = scores.float()
    grid = held.of(visible[:, 0].expand(len(scores), *scores.shape[2:]), texts, rows, True)
    sinks = None if call.sinks is None else call.sinks[list(heads)].float()[:, None, None]
    return TextsRows(grid, _weighed(scores, grid, sinks))


def _weighed(scores: Tensor, grid: TextsGrid, sinks: Tensor | None) -> WeighedRows:
    """Returns the softmax of scores; changes ``scores`` in place.

    Args:
        scores: the scores of visible and hidden cells, ``(texts, heads, queries, keys)``.
        grid: the visible cells.
        sinks: the score of each head's attention sink, a key without a value, ``(heads, 1, 1)``; ``None`` for none.
    """
    barrier, sees = grid.barrier if grid.hides else None, (grid.visible_counts > 0).float()
    raised = scores if barrier is None else scores + barrier
    largest = raised.amax(-1, keepdim=True)
    if barrier is not None and not bool(largest.isfinite().all()):  # hidden scores may be NaN or infinite
        scores = scores.masked_fill_(barrier != 0, 0)
        raised = scores + barrier
        largest = raised.amax(-1, keepdim=True)
    most = largest if sinks is None else torch.maximum(largest, sinks)
    hidden = torch.zeros_like(largest[..., 0])
    if grid.hides_scores:
        future = (scores - most).clamp_(max=STEEPEST).exp_().mul_(grid.later[:, None])
        hidden = _row_sums(future)
    exponents = scores - most if barrier is None else raised.sub_(most).clamp_(min=-STEEPEST)
    parts = exponents.exp()
    if barrier is not None:
        parts.mul_(barrier == 0)
    visible = _row_sums(parts)
    if grid.hides_scores:
        hidden = hidden / (hidden + visible).clamp_(min=TINY) * grid.has_hidden_later
    total = visible if sinks is None else visible + (sinks - most)[..., 0].exp_()
    total.clamp_(min=0.5)  # it is at least 1 where a query sees a key; the clamp only avoids log(0) elsewhere
    entropy = (total.log() * visible - _row_products(exponents, parts)) / total / math.log(2)
    share = sees / total
    return WeighedRows(
        weights=parts.mul_(share[..., None]),
        scores=scores.mul_(grid.ones[:, None]) if grid.hides else scores,
        entropy=entropy,
        peak=share if sinks is None else share * (largest - most)[..., 0].exp_(),
        hidden=hidden,
    )


def _row_sums(cells: Tensor) -> Tensor:
    """Returns the sum of each row, as a product with ones: several times quicker than a sum for short rows."""
    return cells @ cells.new_ones(cells.shape[-1])


def _row_products(exponents: Tensor, parts: Tensor) -> Tensor:
    """Returns the sum over each row of ``exponents * parts``; may change ``exponents`` in place."""
    if parts.shape[-1] < WIDE:
        return _row_sums(exponents.mul_(parts))
    return torch.einsum("thqk,thqk->thq", exponents, parts)


def captured_rows(maps: AttentionMaps, grid: TextsGrid) -> TextsRows:
    """Returns the rows of maps that the model itself computed."""
    cells, weights = grid.ones[:, None], maps.weights.float()
    if grid.batch.is_padded:
        weights = weights * cells
    entropy = -(weights.clamp(min=TINY).log_().mul_(weights).sum(-1)) / math.log(2)
    scores = maps.scores.float()
    weighed = WeighedRows(
        weights=weights,
        scores=scores.masked_fill(cells == 0, 0) if grid.hides else scores,
        entropy=entropy,
        peak=weights.amax(-1),
        hidden=torch.zeros_like(entropy),
    )
    return TextsRows(grid, weighed)
