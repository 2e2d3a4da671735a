"""TextsRows: the weights of some rows of several texts, with what their softmax tells of each row on the way.

Only one exponential is computed for each cell: with ``p = exp(s - m) / Z`` the entropy of a row is
``log Z - sum(p (s - m))`` and its largest weight ``1 / Z``.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import AttentionMaps, FactoredCall, one_or_each
from attnviz.corpus.measuring.cell_sums import TextsCells
from attnviz.corpus.measuring.texts_grid import HeldGrids, TextsGrid
from attnviz.metrics.row_blocks import Rows

TINY = 1e-30  # a weight whose share of the entropy is none
WIDE = 64  # keys from which products of rows are summed at once
STEEPEST = 80.0  # of exponents that float32 holds


class WeighedRows(NamedTuple):
    """Rows of maps of some texts.

    Attributes:
        weights: ``(texts, heads, queries, keys)``, 0 where hidden.
        scores: the same of scores, 0 where hidden.
        entropy: ``(texts, heads, queries)``, bits.
        peak: the same of the largest weight.
        hidden: the same of the share of the softmax that a causal mask hid; 0 where none is known.
    """

    weights: Tensor
    scores: Tensor
    entropy: Tensor
    peak: Tensor
    hidden: Tensor


class TextsRows(Rows):
    """Rows of heads over some texts, as metrics ask for their numbers, ``(texts, heads, queries)``.

    Attributes:
        grid: the queries and keys.
        weighed: the weights, and what was computed with them.
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
        """The share of the softmax that a causal mask hid."""
        return self.weighed.hidden

    @cached_property
    def placed(self) -> Tensor:
        """The sums of weights with distances, their squares and cells by place, ``(queries, these, texts, heads)``."""
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
        """The weight on some cells; NaN where a query sees none of them."""
        counted = cells.of_cells() & self.grid.visible
        return self.where(counted.any(-1)[:, None], (self.weighed.weights * counted[:, None]).sum(-1))

    def where(self, defined: Tensor, numbers: Tensor) -> Tensor:
        """The numbers of queries for which that is true, else NaN."""
        return torch.where(defined, numbers, math.nan)

    def absent(self) -> Tensor:
        """NaN for every query."""
        return torch.full_like(self.weighed.entropy, math.nan)


def weigh(call: FactoredCall, heads: Sequence[int], held: HeldGrids, texts: slice, rows: slice) -> TextsRows | None:
    """Some rows of a call of some texts alone; ``None`` where heads see different cells."""
    scores, allowed = call.scored(heads, rows)
    seen = scores.new_ones(1, 1, 1, 1, dtype=torch.bool) if allowed is None else one_or_each(allowed)
    if seen.shape[1] > 1:
        return None
    scores = scores.float()
    grid = held.of(seen[:, 0].expand(len(scores), *scores.shape[2:]), texts, rows, True)
    sinks = None if call.sinks is None else call.sinks[list(heads)].float()[:, None, None]
    return TextsRows(grid, _weighed(scores, grid, sinks))


def _weighed(scores: Tensor, grid: TextsGrid, sinks: Tensor | None) -> WeighedRows:
    """The softmax of scores, which are written to.

    Args:
        scores: ``(texts, heads, queries, keys)``, hidden or not.
        grid: which of them the heads see.
        sinks: ``(heads, 1, 1)``, the score of a key without value.
    """
    barrier, sees = grid.barrier if grid.hides else None, (grid.choices > 0).float()
    raised = scores if barrier is None else scores + barrier
    largest = raised.amax(-1, keepdim=True)
    if barrier is not None and not bool(largest.isfinite().all()):  # what is hidden is no number
        scores = scores.masked_fill_(barrier != 0, 0)
        raised = scores + barrier
        largest = raised.amax(-1, keepdim=True)
    most = largest if sinks is None else torch.maximum(largest, sinks)
    hidden = torch.zeros_like(largest[..., 0])
    if grid.hides_scores:
        beyond = (scores - most).clamp_(max=STEEPEST).exp_().mul_(grid.later[:, None])
        hidden = _row_sums(beyond)
    exponents = scores - most if barrier is None else raised.sub_(most).clamp_(min=-STEEPEST)
    parts = exponents.exp()
    if barrier is not None:
        parts.mul_(barrier == 0)
    seen = _row_sums(parts)
    if grid.hides_scores:
        hidden = hidden / (hidden + seen).clamp_(min=TINY) * grid.has_later
    total = seen if sinks is None else seen + (sinks - most)[..., 0].exp_()
    total.clamp_(min=0.5)  # 1 or more where a key is seen
    entropy = (total.log() * seen - _row_products(exponents, parts)) / total / math.log(2)
    share = sees / total
    return WeighedRows(
        weights=parts.mul_(share[..., None]),
        scores=scores.mul_(grid.ones[:, None]) if grid.hides else scores,
        entropy=entropy,
        peak=share if sinks is None else share * (largest - most)[..., 0].exp_(),
        hidden=hidden,
    )


def _row_sums(cells: Tensor) -> Tensor:
    """The sum of each row, by a product: on short rows it is several times quicker than a sum."""
    return cells @ cells.new_ones(cells.shape[-1])


def _row_products(exponents: Tensor, parts: Tensor) -> Tensor:
    """The sum of their product over each row; the first are written to."""
    if parts.shape[-1] < WIDE:
        return _row_sums(exponents.mul_(parts))
    return torch.einsum("thqk,thqk->thq", exponents, parts)


def captured_rows(maps: AttentionMaps, grid: TextsGrid) -> TextsRows:
    """The rows of maps that the model computed itself."""
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
