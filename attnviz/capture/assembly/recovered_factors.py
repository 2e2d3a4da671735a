"""Recovers the factors of a call (queries, keys, mask) from a softmax and the product before it.

For attention written by hand, the input and output of the softmax are known. If the input is the product of queries and
keys, times one scale or one for each head, plus a mask and biases by position, the maps can be computed from these
alone. Factors are used only if every visible score that they give equals the model's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attnviz.capture.assembly.fitted_scores import Fit, Sample, fit
from attnviz.capture.calls.attention_call import (
    AttentionCall,
    DenseCall,
    FactoredCall,
    PositionBias,
    Product,
    checked_rows,
    hidden_cells,
    pick_heads,
)

WEIGHT_TOLERANCE, HALF_WEIGHT_TOLERANCE = 1e-4, 1e-2  # errors that rounding explains, absolute
SCORE_TOLERANCE = 1e-5  # in float32, relative to 1 + |score|
SCALE_TOLERANCE, HALF_SCALE_TOLERANCE = 1e-6, 1e-3  # relative
SPACED_QUERIES, LAST_QUERIES = 48, 16  # queries to which scale and biases are fitted
MAX_BAND_QUERIES = 256  # queries that are compared at once, to bound memory
SCALE_PER_HEAD = "each head multiplies q·k by a scale of its own, which is part of the queries shown"
EXACT_DTYPES = (torch.float32, torch.float64)


def factors_of(call: AttentionCall, heads: Sequence[int]) -> FactoredCall | None:
    """Returns factors that give the maps of these heads: known ones, else recovered ones; ``None`` if there are
    none.
    """
    if isinstance(call, FactoredCall):
        return call
    assert isinstance(call, DenseCall)
    if call.factors is not None and call.factors.shape == call.shape and _give_weights(call.factors, call, heads):
        return call.factors
    factors = None if call.product is None else _recovered_factors(call, call.product, heads)
    return factors if factors is not None and _give_weights(factors, call, heads) else None


def _give_weights(factors: FactoredCall, call: DenseCall, heads: Sequence[int]) -> bool:
    """True if the factors give the model's weights of these heads within the tolerance, on at most 32 queries."""
    rows = checked_rows(call.shape[2])
    tolerance = _weight_tolerance(call, factors.masked_scores(heads, rows))
    errors = (factors.weights(heads, rows).float() - call.weights(heads, rows).float()).abs()
    return bool((errors < tolerance).all())


def _weight_tolerance(call: DenseCall, scores: Tensor) -> float:
    """Returns the largest error of a weight that rounding explains."""
    if not _is_exact(call):
        return HALF_WEIGHT_TOLERANCE
    largest_score = float(scores.nan_to_num(neginf=0.0).abs().amax())
    return max(WEIGHT_TOLERANCE, SCALE_TOLERANCE * largest_score)


def _recovered_factors(call: DenseCall, product: Product, heads: Sequence[int]) -> FactoredCall | None:
    """Returns factors that give every visible score of these heads, with a bias by key, by distance, both or none."""
    visible = _common_visible_cells(call.logits, heads)
    if visible is None:
        return None
    factors_product = product
    if call.logits.dtype not in EXACT_DTYPES:  # autocast rounds queries and keys before the product
        factors_product = Product(*(tensor.to(call.logits.dtype) for tensor in product))
    sample = _sample(call, factors_product, visible, heads)
    small_sample = sample.last_rows_of_first_head(LAST_QUERIES)
    for by_distance in ((), (False,), (True,), (False, True)):  # no bias, one by key, one by distance, both
        if not _fits_scores(small_sample, by_distance, call):  # a small sample rejects most biases at low cost
            continue
        for factors in _candidate_factors(call, factors_product, visible, fit(sample, by_distance), heads):
            if _largest_scores_if_equal(factors, call, heads, sample.rows) is not None:
                return _with_logsumexp_if_equal(factors, call, heads)
    return None


def _fits_scores(sample: Sample, by_distance: Sequence[bool], call: DenseCall) -> bool:
    """True if a fit with these biases leaves only residuals that rounding explains."""
    tolerance = SCORE_TOLERANCE if _is_exact(call) else HALF_WEIGHT_TOLERANCE
    return bool((fit(sample, by_distance).residuals.abs() <= tolerance * (1 + sample.scores.abs())).all())


def _candidate_factors(
    call: DenseCall, product: Product, visible: Tensor, fit_of_scores: Fit, heads: Sequence[int]
) -> Iterator[FactoredCall]:
    """Yields factors with the biases of a fit: first with the mean scale, then with queries times a scale per head."""
    head_count, features = call.shape[1], product.queries.shape[-1]
    rounding = SCALE_TOLERANCE if _is_exact(call) else HALF_SCALE_TOLERANCE
    mean_scale = float(fit_of_scores.scales.mean())
    with_shared_scale = FactoredCall(
        queries=product.queries,
        keys=product.keys,
        values=call.values,
        output=call.output,
        scale=_rounded_scale(mean_scale, features, rounding),
        mask=visible,
        position_biases=tuple(
            _bias_of_all_heads(bias, heads, head_count, call.logits.device) for bias in fit_of_scores.biases
        ),
    )
    yield with_shared_scale
    scales_differ = float((fit_of_scores.scales - mean_scale).abs().max()) > rounding * abs(mean_scale)
    if scales_differ and product.queries.shape[1] == head_count:
        head_scales = torch.ones(head_count)
        head_scales[list(heads)] = torch.tensor(
            [_rounded_scale(float(scale), features, rounding) for scale in fit_of_scores.scales]
        )
        queries = product.queries * head_scales.to(product.queries)[:, None, None]
        yield replace(with_shared_scale, queries=queries, scale=1.0, note=SCALE_PER_HEAD)


def _bias_of_all_heads(bias: PositionBias, heads: Sequence[int], count: int, device: torch.device) -> PositionBias:
    """Returns a bias of all heads that is 0 for those that were not chosen."""
    numbers = torch.zeros(len(bias.numbers), count, bias.numbers.shape[-1], device=device)
    numbers[:, list(heads)] = bias.numbers.to(device)
    return bias._replace(numbers=numbers)


def _rounded_scale(scale: float, features: int, rounding: float) -> float:
    """Returns a fitted scale rounded to 1/√features, else to four digits; unchanged if both differ too much from it."""
    candidates = (features**-0.5, float(f"{scale:.4g}"))
    return next((number for number in candidates if abs(scale - number) < rounding * abs(scale)), scale)


def _with_logsumexp_if_equal(factors: FactoredCall, call: DenseCall, heads: Sequence[int]) -> FactoredCall | None:
    """Returns the factors with the log-sum-exp that the model's weights imply; ``None`` if a visible score differs."""
    batch, count, queries, _ = call.shape
    logsumexp = torch.zeros(batch, count, queries, device=call.probabilities.device)
    for head in heads:
        for rows in _bands(call):
            largest_scores = _largest_scores_if_equal(factors, call, [head], rows)
            if largest_scores is None:
                return None
            weights = call.probabilities[:, [head], rows].amax(-1).float()
            logsumexp[:, [head], rows] = largest_scores - weights.log()
    return replace(factors, logsumexp=logsumexp if _is_exact(call) else None)


def _common_visible_cells(logits: Tensor, heads: Sequence[int]) -> Tensor | None:
    """Returns the cells of these heads that the logits show as visible, ``(batch, 1, queries, keys)``."""
    first_visible = ~hidden_cells(logits[:, heads[0], None])
    all_equal = all(torch.equal(~hidden_cells(logits[:, head, None]), first_visible) for head in heads[1:])
    return first_visible if all_equal else None


def _sample(call: DenseCall, product: Product, visible: Tensor, heads: Sequence[int]) -> Sample:
    """Returns a sample of spaced queries and of the last queries."""
    count = call.shape[2]
    spaced_rows = torch.linspace(0, count - 1, min(SPACED_QUERIES, count)).long()
    rows = torch.unique(torch.cat([spaced_rows, torch.arange(max(0, count - LAST_QUERIES), count)])).to(visible.device)
    queries = pick_heads(product.queries[:, :, rows], heads, call.shape[1]).double().cpu()
    keys = pick_heads(product.keys, heads, call.shape[1]).double().cpu()
    visible_rows = visible[:, :, rows].cpu()
    scores = call.logits[:, :, rows][:, list(heads)].double().cpu().masked_fill(~visible_rows, 0)
    products = (queries @ keys.transpose(-1, -2)).masked_fill_(~visible_rows, 0)
    return Sample(rows.cpu(), scores, products, visible_rows, count)


def _largest_scores_if_equal(
    factors: FactoredCall, call: DenseCall, heads: Sequence[int], rows: slice | Tensor
) -> Tensor | None:
    """Returns each query's largest score, ``(batch, heads, rows)``; ``None`` if a visible score is not the model's."""
    scores = factors.masked_scores(heads, rows)
    model_scores = call.logits[:, :, rows][:, list(heads)].to(scores.dtype)
    largest_scores = scores.amax(-1)  # before `scores` is overwritten below
    tolerance = SCORE_TOLERANCE if _is_exact(call) else HALF_WEIGHT_TOLERANCE
    difference = scores.sub_(model_scores).masked_fill_(~factors.visible_cells()[:, :, rows], 0).abs_()
    if bool(difference.amax() <= tolerance):  # stricter than the test below, and cheaper
        return largest_scores
    return largest_scores if bool((difference <= tolerance * (1 + model_scores.abs())).all()) else None


def _is_exact(call: DenseCall) -> bool:
    """True if scores and weights are both in float32 or finer; under autocast only one of them may be."""
    return call.logits.dtype in EXACT_DTYPES and call.probabilities.dtype in EXACT_DTYPES


def _bands(call: DenseCall) -> list[slice]:
    """Returns the queries in bands of at most ``MAX_BAND_QUERIES``."""
    return [slice(start, start + MAX_BAND_QUERIES) for start in range(0, call.shape[2], MAX_BAND_QUERIES)]
