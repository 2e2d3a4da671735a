"""WeighedRows: the weights of some rows of maps, with what their softmax tells of each row on the way.

Only one exponential is computed for each cell: with ``p = exp(s - m) / Z`` the entropy of a row is
``log Z - sum(p (s - m))`` and its largest weight ``1 / Z``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import AttentionMaps, FactoredCall, one_or_each
from attnviz.corpus.visible_cells import HeldCells, VisibleCells

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


def weigh(
    call: FactoredCall, heads: Sequence[int], held: HeldCells, texts: slice, rows: slice
) -> tuple[WeighedRows, VisibleCells] | None:
    """Some rows of a call of some texts alone, and which cells they see; ``None`` where heads see different cells."""
    scores, allowed = call.scored(heads, rows)
    seen = scores.new_ones(1, 1, 1, 1, dtype=torch.bool) if allowed is None else one_or_each(allowed)
    if seen.shape[1] > 1:
        return None
    scores = scores.float()
    visible = held.of(seen[:, 0].expand(len(scores), *scores.shape[2:]), texts, rows, True)
    sinks = None if call.sinks is None else call.sinks[list(heads)].float()[:, None, None]
    return _weighed(scores, visible, sinks), visible


def _weighed(scores: Tensor, visible: VisibleCells, sinks: Tensor | None) -> WeighedRows:
    """The softmax of scores, which are written to.

    Args:
        scores: ``(texts, heads, queries, keys)``, hidden or not.
        visible: which of them the heads see.
        sinks: ``(heads, 1, 1)``, the score of a key without value.
    """
    barrier, sees = visible.barrier if visible.hides else None, (visible.choices > 0)[:, None].float()
    raised = scores if barrier is None else scores + barrier
    largest = raised.amax(-1, keepdim=True)
    if barrier is not None and not bool(largest.isfinite().all()):  # what is hidden is no number
        scores = scores.masked_fill_(barrier != 0, 0)
        raised = scores + barrier
        largest = raised.amax(-1, keepdim=True)
    most = largest if sinks is None else torch.maximum(largest, sinks)
    hidden = torch.zeros_like(largest[..., 0])
    if visible.has_later:
        beyond = (scores - most).clamp_(max=STEEPEST).exp_().mul_(visible.later[:, None])
        hidden = _row_sums(beyond)
    exponents = scores - most if barrier is None else raised.sub_(most).clamp_(min=-STEEPEST)
    parts = exponents.exp()
    if barrier is not None:
        parts.mul_(barrier == 0)
    seen = _row_sums(parts)
    if visible.has_later:
        hidden = hidden / (hidden + seen).clamp_(min=TINY) * visible.sees_later[:, None]
    total = seen if sinks is None else seen + (sinks - most)[..., 0].exp_()
    total.clamp_(min=0.5)  # 1 or more where a key is seen
    entropy = (total.log() * seen - _row_products(exponents, parts)) / total / math.log(2)
    share = sees / total
    return WeighedRows(
        weights=parts.mul_(share[..., None]),
        scores=scores.mul_(visible.cells[:, None]) if visible.hides else scores,
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


def taken(maps: AttentionMaps, visible: VisibleCells) -> WeighedRows:
    """Maps that the model computed itself."""
    cells, weights = visible.cells[:, None], maps.weights.float()
    if visible.batch.is_padded:
        weights = weights * cells
    entropy = -(weights.clamp(min=TINY).log_().mul_(weights).sum(-1)) / math.log(2)
    scores = maps.scores.float()
    return WeighedRows(
        weights=weights,
        scores=scores.masked_fill(cells == 0, 0) if visible.hides else scores,
        entropy=entropy,
        peak=weights.amax(-1),
        hidden=torch.zeros_like(entropy),
    )
