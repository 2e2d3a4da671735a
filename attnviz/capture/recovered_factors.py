"""The factors of a call: the arguments of its kernel, or recovered from a softmax and the product before it.

Of attention written by hand the input and output of its softmax are known. Where the input is the product of queries
and keys, times a scale, plus what a mask and positions add, the maps can be computed from these alone. The factors are
used only after every visible score that they give has been compared with the model's.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls import (
    MAX_CHECKED_QUERIES,
    AttentionCall,
    FactoredCall,
    PositionBias,
    Product,
    SoftmaxCall,
    hidden_cells,
    pick_heads,
    places_of,
)

WEIGHT_TOLERANCE, HALF_WEIGHT_TOLERANCE = 1e-4, 1e-2  # what rounding explains, in float32 and in half precision
SCORE_TOLERANCE = 1e-5  # in float32, times 1 + |score|
SCALE_TOLERANCE, HALF_SCALE_TOLERANCE = 1e-6, 1e-3  # relative
SAMPLED_QUERIES = 64  # from which scale and bias are fitted, the first and the last among them
MAX_BAND_QUERIES = 256  # queries that are compared at once
EXACT_DTYPES = (torch.float32, torch.float64)


def factors_of(call: AttentionCall, heads: Sequence[int]) -> FactoredCall | None:
    """Queries, keys and mask from which the maps of these heads can be computed; ``None`` where they are not known."""
    if isinstance(call, FactoredCall):
        return call
    assert isinstance(call, SoftmaxCall)
    if call.factors is not None and call.factors.shape == call.shape and _gives_weights(call.factors, call, heads):
        return call.factors
    found = None if call.product is None else _recovered(call, call.product, heads)
    return found if found is not None and _gives_weights(found, call, heads) else None


def _gives_weights(factors: FactoredCall, call: SoftmaxCall, heads: Sequence[int]) -> bool:
    """Whether the factors give the model's own weights, compared on at most 32 queries."""
    rows = slice(None, None, -(-call.shape[2] // MAX_CHECKED_QUERIES))
    ours, real = (each.weights(heads, rows).float() for each in (factors, call))
    return bool(((ours - real).abs() < _weight_tolerance(call, factors.masked_scores(heads, rows))).all())


def _weight_tolerance(call: SoftmaxCall, scores: Tensor) -> float:
    """How far rounding may move a weight: the more, the larger the scores (steep slopes reach thousands)."""
    if not _is_exact(call):
        return HALF_WEIGHT_TOLERANCE
    largest = float(scores.nan_to_num(neginf=0.0).abs().amax())
    return max(WEIGHT_TOLERANCE, SCALE_TOLERANCE * largest)


class _Sample(NamedTuple):
    """Some queries of the chosen heads.

    Attributes:
        rows: ``(rows,)``, which queries.
        scores: ``(batch, heads, rows, keys)``, the input of the softmax.
        products: ``(batch, heads, rows, keys)``, queries · keys.
        visible: ``(batch, 1, rows, keys)``.
        features: the number of features that a product sums over.
        rounding: relative error allowed in the scale.
    """

    rows: Tensor
    scores: Tensor
    products: Tensor
    visible: Tensor
    features: int
    rounding: float


def _recovered(call: SoftmaxCall, product: Product, heads: Sequence[int]) -> FactoredCall | None:
    """The factors that give every visible score of these heads, if positions add one number to a key or a distance."""
    visible = _shared_visible(call.before, heads)
    if visible is None:
        return None
    if call.before.dtype not in EXACT_DTYPES:  # under autocast they were rounded before they were multiplied
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
            position_bias=added,
        )
        if _largest_if_equal(found, call, heads, sample.rows) is not None:
            return _confirmed(found, call, heads)
    return None


def _confirmed(found: FactoredCall, call: SoftmaxCall, heads: Sequence[int]) -> FactoredCall | None:
    """The factors with the log-sum-exp that follows from the model's weights, if they give all of its scores."""
    batch, count, queries, _ = call.shape
    logsumexp = torch.zeros(batch, count, queries, device=call.after.device)
    for head in heads:
        for rows in _bands(call):
            largest = _largest_if_equal(found, call, [head], rows)
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
    rows = torch.linspace(0, count - 1, min(SAMPLED_QUERIES, count), device=visible.device).long()
    factors = product.queries[:, :, rows], product.keys
    queries, keys = (pick_heads(each, heads, call.shape[1]).float() for each in factors)
    shown = visible[:, :, rows]
    scores = call.before[:, :, rows][:, list(heads)].float().masked_fill(~shown, 0)
    products = (queries @ keys.transpose(-1, -2)).masked_fill(~shown, 0)
    rounding = SCALE_TOLERANCE if _is_exact(call) else HALF_SCALE_TOLERANCE
    return _Sample(rows, scores, products, shown, queries.shape[-1], rounding)


def _fitted(
    sample: _Sample, shape: tuple[int, ...], heads: Sequence[int], by_distance: bool | None
) -> tuple[float, PositionBias | None]:
    """The scale fitted by least squares to how scores differ among cells of one place, and the mean bias of the place.

    Args:
        sample: the scores to fit.
        shape: of the call.
        heads: the heads of the sample.
        by_distance: whether a place is a distance or a key; ``None`` to fit no bias.
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
    return scale, PositionBias(numbers, by_distance)


def _scale(products: Tensor, scores: Tensor, sample: _Sample) -> float:
    """The least-squares factor, or the likely number next to it: 1 / √features, or one of four digits."""
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


def _largest_if_equal(
    found: FactoredCall, call: SoftmaxCall, heads: Sequence[int], rows: slice | Tensor
) -> Tensor | None:
    """The largest visible score of each query, ``(batch, heads, rows)``, if all equal the model's but for rounding."""
    ours = found.masked_scores(heads, rows)
    theirs = call.before[:, :, rows][:, list(heads)].to(ours.dtype)
    largest = ours.amax(-1)
    allowed = SCORE_TOLERANCE if _is_exact(call) else HALF_WEIGHT_TOLERANCE
    difference = ours.sub_(theirs).masked_fill_(~found.visible_cells()[:, :, rows], 0).abs_()
    agree = bool(difference.amax() <= allowed) or bool((difference <= allowed * (1 + theirs.abs())).all())
    return largest if agree else None


def _is_exact(call: SoftmaxCall) -> bool:
    """Whether scores and weights are in float32 at least: under autocast the scores alone may be rounded."""
    return call.before.dtype in EXACT_DTYPES and call.after.dtype in EXACT_DTYPES


def _bands(call: SoftmaxCall) -> list[slice]:
    return [slice(start, start + MAX_BAND_QUERIES) for start in range(0, call.shape[2], MAX_BAND_QUERIES)]
