"""The factors of a call: given to its kernel, or worked out from a softmax and the product that came before it.

Attention written by hand shows what its softmax took and gave. Where that is the product of queries and keys, times a
scale, plus what a mask and positions add, the maps can be computed from these alone. Every visible score is compared
with the model's before that is believed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls import (
    SAMPLED_QUERIES,
    Added,
    AttentionCall,
    FactoredCall,
    Product,
    SoftmaxCall,
    hidden_cells,
    pick_heads,
    places_of,
)

AGREEMENT, HALF_AGREEMENT = 1e-4, 1e-2  # differences of weights that rounding in float32, or in a half, explains
SCORE_AGREEMENT = 1e-5  # the same of scores in float32, for each of 1 + |score|
ROUNDING, HALF_ROUNDING = 1e-6, 1e-3  # relative, of a scale that is worked out; in float32 of sums as well
SAMPLED = 64  # queries from which scale and bias are worked out, the first and the last among them
BAND = 256  # queries that are compared at once
EXACT = (torch.float32, torch.float64)


def factors_of(call: AttentionCall, heads: Sequence[int]) -> FactoredCall | None:
    """What the maps of these heads can be computed from, ``None`` where it is not known."""
    if isinstance(call, FactoredCall):
        return call
    assert isinstance(call, SoftmaxCall)
    if call.factors is not None and call.factors.shape == call.shape and _gives_weights(call.factors, call, heads):
        return call.factors
    found = None if call.product is None else _worked_out(call, call.product, heads)
    return found if found is not None and _gives_weights(found, call, heads) else None


def _gives_weights(factors: FactoredCall, call: SoftmaxCall, heads: Sequence[int]) -> bool:
    """Whether the factors give the weights of at most 32 queries that the model had."""
    rows = slice(None, None, -(-call.shape[2] // SAMPLED_QUERIES))
    ours, real = (each.weights(heads, rows).float() for each in (factors, call))
    return bool(((ours - real).abs() < _allowed(call, factors.seen_scores(heads, rows))).all())


def _allowed(call: SoftmaxCall, scores: Tensor) -> float:
    """How far apart rounding may put weights: of scores in the thousands, as of steep slopes, float32 keeps less."""
    if not _is_exact(call):
        return HALF_AGREEMENT
    largest = float(scores.nan_to_num(neginf=0.0).abs().amax())
    return max(AGREEMENT, ROUNDING * largest)


class _Sample(NamedTuple):
    """Some queries of the chosen heads.

    Attributes:
        rows: ``(rows,)``, which queries.
        scores: ``(batch, heads, rows, keys)``, what the softmax took.
        products: ``(batch, heads, rows, keys)``, queries · keys.
        visible: ``(batch, 1, rows, keys)``.
        features: how many a product sums over.
        rounding: how far a scale may be off.
    """

    rows: Tensor
    scores: Tensor
    products: Tensor
    visible: Tensor
    features: int
    rounding: float


def _worked_out(call: SoftmaxCall, product: Product, heads: Sequence[int]) -> FactoredCall | None:
    """The factors that give every visible score of these heads, if positions add one number a key or a distance."""
    visible = _shared_visible(call.before, heads)
    if visible is None:
        return None
    if call.before.dtype not in EXACT:  # under autocast they were rounded before they were multiplied
        product = Product(*(each.to(call.before.dtype) for each in product))
    sample = _sample(call, product, visible, heads)
    for by_distance in (None, False, True):
        scale, added = _fitted(sample, call.shape, heads, by_distance)
        found = FactoredCall(
            queries=product.queries,
            keys=product.keys,
            values=call.values,
            output=call.output,
            scale=scale,
            mask=visible,
            added=added,
        )
        if _compared(found, call, heads, sample.rows) is not None:
            return _confirmed(found, call, heads)
    return None


def _confirmed(found: FactoredCall, call: SoftmaxCall, heads: Sequence[int]) -> FactoredCall | None:
    """The factors with the log-sum-exp that the model's weights say, if they give all of its scores."""
    batch, count, queries, _ = call.shape
    logsumexp = torch.zeros(batch, count, queries, device=call.after.device)
    for head in heads:
        for rows in _bands(call):
            largest = _compared(found, call, [head], rows)
            if largest is None:
                return None
            weights = call.after[:, [head], rows].amax(-1).float()
            logsumexp[:, [head], rows] = largest - weights.log()
    return replace(found, logsumexp=logsumexp if _is_exact(call) else None)


def _shared_visible(before: Tensor, heads: Sequence[int]) -> Tensor | None:
    """Which cells are visible, ``(batch, 1, queries, keys)``, ``None`` where heads see different ones."""
    first = ~hidden_cells(before[:, heads[0], None])
    same = all(torch.equal(~hidden_cells(before[:, head, None]), first) for head in heads[1:])
    return first if same else None


def _sample(call: SoftmaxCall, product: Product, visible: Tensor, heads: Sequence[int]) -> _Sample:
    count = call.shape[2]
    rows = torch.linspace(0, count - 1, min(SAMPLED, count), device=visible.device).long()
    factors = product.queries[:, :, rows], product.keys
    queries, keys = (pick_heads(each, heads, call.shape[1]).float() for each in factors)
    shown = visible[:, :, rows]
    scores = call.before[:, :, rows][:, list(heads)].float().masked_fill(~shown, 0)
    products = (queries @ keys.transpose(-1, -2)).masked_fill(~shown, 0)
    rounding = ROUNDING if _is_exact(call) else HALF_ROUNDING
    return _Sample(rows, scores, products, shown, queries.shape[-1], rounding)


def _fitted(
    sample: _Sample, shape: tuple[int, ...], heads: Sequence[int], by_distance: bool | None
) -> tuple[float, Added | None]:
    """The scale that explains best how scores differ among cells of one place, and what is added there on average.

    Args:
        sample: what is explained.
        shape: of the call.
        heads: which heads the sample is of.
        by_distance: whether a place is a distance or a key; ``None`` where nothing is added.
    """
    if by_distance is None:
        return _scale(sample.products, sample.scores, sample), None
    batch, count, queries, keys = shape
    places = places_of(sample.rows, queries, keys, by_distance).expand(len(sample.rows), keys)
    size = queries + keys - 1 if by_distance else keys
    products, scores = (_mean(each, sample.visible, places, size) for each in (sample.products, sample.scores))
    scale = _scale(
        (sample.products - products[:, :, places]).masked_fill_(~sample.visible, 0),
        (sample.scores - scores[:, :, places]).masked_fill_(~sample.visible, 0),
        sample,
    )
    numbers = torch.zeros(batch, count, size, device=scores.device)
    numbers[:, list(heads)] = scores - scale * products
    return scale, Added(numbers, by_distance)


def _scale(products: Tensor, scores: Tensor, sample: _Sample) -> float:
    """The factor of least squares, or what it nearly is: one over the root of the features, or of four digits."""
    above, below = ((products * each).sum(-1).cpu().double().sum() for each in (scores, products))
    scale = float(above / below)
    likely = (sample.features**-0.5, float(f"{scale:.4g}"))
    return next((number for number in likely if abs(scale - number) < sample.rounding * abs(scale)), scale)


def _mean(values: Tensor, visible: Tensor, places: Tensor, size: int) -> Tensor:
    """The mean over the visible cells of each place, ``(batch, heads, places)``; 0 where there is none."""
    shown = visible.expand_as(values).flatten(-2).to(values.dtype)
    index = places.flatten().expand_as(shown)
    total, count = (
        torch.zeros(*values.shape[:2], size, device=values.device).scatter_add_(-1, index, each)
        for each in (values.flatten(-2), shown)
    )
    return total / count.clamp_min(1)


def _compared(found: FactoredCall, call: SoftmaxCall, heads: Sequence[int], rows: slice | Tensor) -> Tensor | None:
    """The largest score that each query sees, ``(batch, heads, rows)``, if all are the model's but for rounding."""
    ours = found.seen_scores(heads, rows)
    theirs = call.before[:, :, rows][:, list(heads)].to(ours.dtype)
    largest = ours.amax(-1)
    allowed = SCORE_AGREEMENT if _is_exact(call) else HALF_AGREEMENT
    apart = ours.sub_(theirs).masked_fill_(~found.visible_cells()[:, :, rows], 0).abs_()
    agree = bool(apart.amax() <= allowed) or bool((apart <= allowed * (1 + theirs.abs())).all())
    return largest if agree else None


def _is_exact(call: SoftmaxCall) -> bool:
    """Whether scores and weights are in float32 at least: under autocast the scores alone may be rounded."""
    return call.before.dtype in EXACT and call.after.dtype in EXACT


def _bands(call: SoftmaxCall) -> list[slice]:
    return [slice(start, start + BAND) for start in range(0, call.shape[2], BAND)]
