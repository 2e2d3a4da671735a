"""Recovers the factors of a call, queries, keys and mask, from a softmax and the product before it.

For attention written by hand, the input and output of the softmax are known. If the input is the product of queries and
keys, times one scale or one for each head, plus a mask and biases by position, the maps can be computed from these
alone. Factors are used only after every visible score that they give has been compared with the model's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attnviz.capture.assembly.fitted_scores import Fit, Sample, fit
from attnviz.capture.calls.attention_call import (
    MAX_CHECKED_QUERIES,
    AttentionCall,
    FactoredCall,
    PositionBias,
    Product,
    SoftmaxCall,
    hidden_cells,
    pick_heads,
)

WEIGHT_TOLERANCE, HALF_WEIGHT_TOLERANCE = 1e-4, 1e-2  # errors that rounding explains, absolute
SCORE_TOLERANCE = 1e-5  # in float32, relative to 1 + |score|
SCALE_TOLERANCE, HALF_SCALE_TOLERANCE = 1e-6, 1e-3  # relative
SPACED_QUERIES, LAST_QUERIES = 48, 16  # queries to which scale and biases are fitted
MAX_BAND_QUERIES = 256  # queries that are compared at once, to bound memory
OWN_SCALES = "each head multiplies q·k by its own scale, which is part of its queries"
EXACT_DTYPES = (torch.float32, torch.float64)


def factors_of(call: AttentionCall, heads: Sequence[int]) -> FactoredCall | None:
    """Returns factors from which the maps of these heads can be computed; ``None`` if there are none."""
    if isinstance(call, FactoredCall):
        return call
    assert isinstance(call, SoftmaxCall)
    if call.factors is not None and call.factors.shape == call.shape and _gives_weights(call.factors, call, heads):
        return call.factors
    found = None if call.product is None else _recovered(call, call.product, heads)
    return found if found is not None and _gives_weights(found, call, heads) else None


def _gives_weights(factors: FactoredCall, call: SoftmaxCall, heads: Sequence[int]) -> bool:
    """True if the factors give the model's weights, compared on at most 32 queries."""
    rows = slice(None, None, -(-call.shape[2] // MAX_CHECKED_QUERIES))
    ours, real = (each.weights(heads, rows).float() for each in (factors, call))
    return bool(((ours - real).abs() < _weight_tolerance(call, factors.masked_scores(heads, rows))).all())


def _weight_tolerance(call: SoftmaxCall, scores: Tensor) -> float:
    """Returns how far rounding may move a weight, which grows with the scores (steep slopes reach thousands)."""
    if not _is_exact(call):
        return HALF_WEIGHT_TOLERANCE
    largest = float(scores.nan_to_num(neginf=0.0).abs().amax())
    return max(WEIGHT_TOLERANCE, SCALE_TOLERANCE * largest)


def _recovered(call: SoftmaxCall, product: Product, heads: Sequence[int]) -> FactoredCall | None:
    """Returns factors that give every visible score of these heads, with biases by key, by distance, both or none."""
    visible = _shared_visible(call.before, heads)
    if visible is None:
        return None
    if call.before.dtype not in EXACT_DTYPES:  # autocast rounds queries and keys before the product
        product = Product(*(each.to(call.before.dtype) for each in product))
    sample = _sample(call, product, visible, heads)
    small = sample.last_of_first(LAST_QUERIES)
    for by_distance in ((), (False,), (True,), (False, True)):
        if not _explains(small, by_distance, call):  # a small sample rejects most models at low cost
            continue
        for found in _candidates(call, product, visible, fit(sample, by_distance), heads):
            if _largest_if_equal(found, call, heads, sample.rows) is not None:
                return _confirmed(found, call, heads)
    return None


def _explains(sample: Sample, by_distance: Sequence[bool], call: SoftmaxCall) -> bool:
    """True if the residuals of a sample under these biases are explained by rounding."""
    allowed = SCORE_TOLERANCE if _is_exact(call) else HALF_WEIGHT_TOLERANCE
    return bool((fit(sample, by_distance).rest.abs() <= allowed * (1 + sample.scores.abs())).all())


def _candidates(
    call: SoftmaxCall, product: Product, visible: Tensor, found: Fit, heads: Sequence[int]
) -> Iterator[FactoredCall]:
    """Yields the factors of a fit: with one scale; if heads differ, with their scales multiplied into queries."""
    count, features = call.shape[1], product.queries.shape[-1]
    rounding = SCALE_TOLERANCE if _is_exact(call) else HALF_SCALE_TOLERANCE
    mean = float(found.scales.mean())
    shared = FactoredCall(
        queries=product.queries,
        keys=product.keys,
        values=call.values,
        output=call.output,
        scale=_rounded_scale(mean, features, rounding),
        mask=visible,
        position_biases=tuple(_of_all(each, heads, count, call.before.device) for each in found.biases),
    )
    yield shared
    if float((found.scales - mean).abs().max()) > rounding * abs(mean) and product.queries.shape[1] == count:
        own = torch.ones(count)
        own[list(heads)] = torch.tensor([_rounded_scale(float(each), features, rounding) for each in found.scales])
        queries = product.queries * own.to(product.queries)[:, None, None]
        yield replace(shared, queries=queries, scale=1.0, note=OWN_SCALES)


def _of_all(bias: PositionBias, heads: Sequence[int], count: int, device: torch.device) -> PositionBias:
    """Returns a bias of all heads, 0 for those that were not chosen."""
    numbers = torch.zeros(len(bias.numbers), count, bias.numbers.shape[-1], device=device)
    numbers[:, list(heads)] = bias.numbers.to(device)
    return bias._replace(numbers=numbers)


def _rounded_scale(scale: float, features: int, rounding: float) -> float:
    """Rounds a fitted scale to 1/√features, or to four digits, if that is within the rounding error."""
    candidates = (features**-0.5, float(f"{scale:.4g}"))
    return next((number for number in candidates if abs(scale - number) < rounding * abs(scale)), scale)


def _confirmed(found: FactoredCall, call: SoftmaxCall, heads: Sequence[int]) -> FactoredCall | None:
    """Returns the factors with the log-sum-exp that the model's weights imply, if they give all of its scores."""
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
    """Returns the visible cells, ``(batch, 1, queries, keys)``; ``None`` if heads see different ones."""
    first = ~hidden_cells(before[:, heads[0], None])
    same = all(torch.equal(~hidden_cells(before[:, head, None]), first) for head in heads[1:])
    return first if same else None


def _sample(call: SoftmaxCall, product: Product, visible: Tensor, heads: Sequence[int]) -> Sample:
    """Returns spaced queries and the last ones: spaced ones alone cannot tell a bias by key from one by distance."""
    count = call.shape[2]
    spaced = torch.linspace(0, count - 1, min(SPACED_QUERIES, count)).long()
    rows = torch.unique(torch.cat([spaced, torch.arange(max(0, count - LAST_QUERIES), count)])).to(visible.device)
    factors = product.queries[:, :, rows], product.keys
    queries, keys = (pick_heads(each, heads, call.shape[1]).double().cpu() for each in factors)
    shown = visible[:, :, rows].cpu()
    scores = call.before[:, :, rows][:, list(heads)].double().cpu().masked_fill(~shown, 0)
    products = (queries @ keys.transpose(-1, -2)).masked_fill_(~shown, 0)
    return Sample(rows.cpu(), scores, products, shown, count)


def _largest_if_equal(
    found: FactoredCall, call: SoftmaxCall, heads: Sequence[int], rows: slice | Tensor
) -> Tensor | None:
    """Returns each query's largest score, ``(batch, heads, rows)``, if all visible scores match the model's."""
    ours = found.masked_scores(heads, rows)
    theirs = call.before[:, :, rows][:, list(heads)].to(ours.dtype)
    largest = ours.amax(-1)
    allowed = SCORE_TOLERANCE if _is_exact(call) else HALF_WEIGHT_TOLERANCE
    difference = ours.sub_(theirs).masked_fill_(~found.visible_cells()[:, :, rows], 0).abs_()
    agree = bool(difference.amax() <= allowed) or bool((difference <= allowed * (1 + theirs.abs())).all())
    return largest if agree else None


def _is_exact(call: SoftmaxCall) -> bool:
    """True if scores and weights are in float32 or finer: under autocast scores alone may be rounded."""
    return call.before.dtype in EXACT_DTYPES and call.after.dtype in EXACT_DTYPES


def _bands(call: SoftmaxCall) -> list[slice]:
    return [slice(start, start + MAX_BAND_QUERIES) for start in range(0, call.shape[2], MAX_BAND_QUERIES)]
