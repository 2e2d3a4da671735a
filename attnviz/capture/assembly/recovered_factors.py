"""Recovers the factors of a call (queries, keys, mask) from a softmax and the product before it.

For attention written by hand, the input and output of the softmax are known. If the input is the product of queries and
keys, times one scale or one for each head, plus a mask and biases by position, the maps can be computed from these
alone. Factors are used only if every visible score that they give equals the model's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import (
    AttentionCall,
    DenseCall,
    FactoredCall,
    PositionBias,
    Product,
    are_exact,
    bias_indices,
    checked_rows,
    hidden_cells,
    pick_heads,
    query_bands,
)

WEIGHT_TOLERANCE, HALF_WEIGHT_TOLERANCE = 1e-4, 1e-2  # errors that rounding explains, absolute
SCORE_TOLERANCE = 1e-5  # in float32, relative to 1 + |score|
SCALE_TOLERANCE, HALF_SCALE_TOLERANCE = 1e-6, 1e-3  # relative
SPACED_QUERIES, LAST_QUERIES = 48, 16  # queries to which scale and biases are fitted
# Conjugate gradients stop at this relative squared residual; the limit of steps is rarely reached.
RELATIVE_RESIDUAL, MAX_STEPS = 1e-18, 200
MIN_DIVISOR = 1e-300  # replaces smaller divisors, so that an exact fit does not divide 0 by 0
SCALE_PER_HEAD = "each head multiplies q·k by a scale of its own, which is part of the queries shown"


class _Sample(NamedTuple):
    """Some rows of the chosen heads, in float64 on the CPU."""

    rows: Tensor  # ``(rows,)``, the indices of the queries
    scores: Tensor  # ``(batch, heads, rows, keys)``, the input of the softmax, 0 where masked
    products: Tensor  # ``(batch, heads, rows, keys)``, queries · keys, 0 where masked
    visible: Tensor  # ``(batch, 1, rows, keys)``, bool
    queries: int  # the number of all queries


class _Fit(NamedTuple):
    """A fit of the scores of a sample."""

    scales: Tensor  # ``(heads,)``, the factors of q·k
    biases: tuple[PositionBias, ...]  # the biases by position
    residuals: Tensor  # ``(batch, heads, rows, keys)``, the residuals


def factors_of(call: AttentionCall, heads: Sequence[int]) -> FactoredCall | None:
    """Returns factors that give the maps of these heads: known ones, else recovered ones, else ``None``."""
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
    tolerance = HALF_WEIGHT_TOLERANCE
    if _is_exact(call):
        largest_score = float(factors.masked_scores(heads, rows).nan_to_num(neginf=0.0).abs().amax())
        tolerance = max(WEIGHT_TOLERANCE, SCALE_TOLERANCE * largest_score)
    errors = (factors.weights(heads, rows).float() - call.weights(heads, rows).float()).abs()
    return bool((errors < tolerance).all())


def _recovered_factors(call: DenseCall, product: Product, heads: Sequence[int]) -> FactoredCall | None:
    """Returns factors that give every visible score of these heads, with a bias by key, by distance, both or none."""
    visible = ~hidden_cells(call.logits[:, heads[0], None])
    if not all(torch.equal(~hidden_cells(call.logits[:, head, None]), visible) for head in heads[1:]):
        return None
    factors_product = product
    if not are_exact(call.logits):  # autocast rounds queries and keys before the product
        factors_product = Product(*(tensor.to(call.logits.dtype) for tensor in product))

    count = call.shape[2]
    spaced_rows = torch.linspace(0, count - 1, min(SPACED_QUERIES, count)).long()
    rows = torch.unique(torch.cat([spaced_rows, torch.arange(max(0, count - LAST_QUERIES), count)])).to(visible.device)
    queries = pick_heads(factors_product.queries[:, :, rows], heads, call.shape[1]).double().cpu()
    keys = pick_heads(factors_product.keys, heads, call.shape[1]).double().cpu()
    visible_rows = visible[:, :, rows].cpu()
    scores = call.logits[:, :, rows][:, list(heads)].double().cpu().masked_fill(~visible_rows, 0)
    products = (queries @ keys.transpose(-1, -2)).masked_fill_(~visible_rows, 0)
    sample = _Sample(rows.cpu(), scores, products, visible_rows, count)

    # The last rows of one head reject most biases at low cost.
    last_rows = slice(-LAST_QUERIES, None)
    small_sample = _Sample(
        sample.rows[last_rows],
        scores[:1, :1, last_rows],
        products[:1, :1, last_rows],
        visible_rows[:1, :, last_rows],
        count,
    )
    small_limit = _score_tolerance(call) * (1 + small_sample.scores.abs())
    for by_distance in ((), (False,), (True,), (False, True)):  # no bias, one by key, one by distance, both
        if not bool((_fit(small_sample, by_distance).residuals.abs() <= small_limit).all()):
            continue
        for factors in _candidate_factors(call, factors_product, visible, _fit(sample, by_distance), heads):
            if _largest_scores_if_equal(factors, call, heads, sample.rows) is not None:
                return _with_logsumexp_if_equal(factors, call, heads)
    return None


def _candidate_factors(
    call: DenseCall, product: Product, visible: Tensor, fit_of_scores: _Fit, heads: Sequence[int]
) -> Iterator[FactoredCall]:
    """Yields factors with the biases of a fit: first with the mean scale, then with queries times a scale per head."""
    head_count, features = call.shape[1], product.queries.shape[-1]
    rounding = SCALE_TOLERANCE if _is_exact(call) else HALF_SCALE_TOLERANCE
    mean_scale = float(fit_of_scores.scales.mean())
    biases = []
    for bias in fit_of_scores.biases:
        numbers = torch.zeros(len(bias.numbers), head_count, bias.numbers.shape[-1], device=call.logits.device)
        numbers[:, list(heads)] = bias.numbers.to(numbers.device)  # 0 for heads that were not chosen
        biases.append(bias._replace(numbers=numbers))
    with_shared_scale = FactoredCall(
        queries=product.queries,
        keys=product.keys,
        values=call.values,
        output=call.output,
        scale=_rounded_scale(mean_scale, features, rounding),
        mask=visible,
        position_biases=tuple(biases),
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


def _rounded_scale(scale: float, features: int, rounding: float) -> float:
    """Returns a fitted scale rounded to 1/√features, else to four digits; unchanged if both differ too much from it."""
    candidates = (features**-0.5, float(f"{scale:.4g}"))
    return next((number for number in candidates if abs(scale - number) < rounding * abs(scale)), scale)


def _with_logsumexp_if_equal(factors: FactoredCall, call: DenseCall, heads: Sequence[int]) -> FactoredCall | None:
    """Returns the factors with the log-sum-exp that the model's weights imply; ``None`` if a visible score differs."""
    batch, count, queries, _ = call.shape
    logsumexp = torch.zeros(batch, count, queries, device=call.probabilities.device)
    for head in heads:
        for rows in query_bands(queries):
            largest_scores = _largest_scores_if_equal(factors, call, [head], rows)
            if largest_scores is None:
                return None
            weights = call.probabilities[:, [head], rows].amax(-1).float()
            logsumexp[:, [head], rows] = largest_scores - weights.log()
    return replace(factors, logsumexp=logsumexp if _is_exact(call) else None)


def _largest_scores_if_equal(
    factors: FactoredCall, call: DenseCall, heads: Sequence[int], rows: slice | Tensor
) -> Tensor | None:
    """Returns each query's largest score, ``(batch, heads, rows)``; ``None`` if a visible score is not the model's."""
    scores = factors.masked_scores(heads, rows)
    model_scores = call.logits[:, :, rows][:, list(heads)].to(scores.dtype)
    largest_scores = scores.amax(-1)  # before `scores` is overwritten below
    tolerance = _score_tolerance(call)
    difference = scores.sub_(model_scores).masked_fill_(~factors.visible_cells()[:, :, rows], 0).abs_()
    if bool(difference.amax() <= tolerance):  # stricter than the test below, and cheaper
        return largest_scores
    return largest_scores if bool((difference <= tolerance * (1 + model_scores.abs())).all()) else None


def _is_exact(call: DenseCall) -> bool:
    return are_exact(call.logits, call.probabilities)


def _score_tolerance(call: DenseCall) -> float:
    """Returns the error of a score that rounding explains, relative to 1 + |score|."""
    return SCORE_TOLERANCE if _is_exact(call) else HALF_WEIGHT_TOLERANCE


def _fit(sample: _Sample, by_distance: Sequence[bool]) -> _Fit:
    """Returns the scale of each head and the biases that fit the scores with the least squared residuals."""
    # Biases are fitted to the scores and to the products; the scale then fits the residuals of both.
    terms = _Terms.from_sample(sample, by_distance)
    score_biases, product_biases = terms.solve(sample.scores), terms.solve(sample.products)
    scores = sample.scores - terms.cells(score_biases)
    products = sample.products - terms.cells(product_biases)
    scales = (scores * products).sum((0, 2, 3)) / products.square().sum((0, 2, 3))
    biases = tuple(
        PositionBias((score_bias - scales[:, None] * product_bias).float(), is_by_distance)
        for score_bias, product_bias, is_by_distance in zip(score_biases, product_biases, by_distance, strict=True)
    )
    return _Fit(scales, biases, scores - scales[:, None, None] * products)


class _Terms(NamedTuple):
    """The unknowns of the least squares: biases by key or by distance, whose sum is a map."""

    visible: Tensor  # ``(batch, 1, rows, keys)``, 1 or 0
    places: tuple[Tensor, ...]  # for each bias the place of each cell, a key or a distance, ``(rows or 1, keys)``
    sizes: tuple[int, ...]

    @classmethod
    def from_sample(cls, sample: _Sample, by_distance: Sequence[bool]) -> "_Terms":
        keys = sample.scores.shape[-1]
        places = tuple(bias_indices(sample.rows, sample.queries, keys, is_distance) for is_distance in by_distance)
        sizes = tuple(sample.queries + keys - 1 if is_distance else keys for is_distance in by_distance)
        return cls(sample.visible.double(), places, sizes)

    def cells(self, biases: Sequence[Tensor]) -> Tensor:
        """Returns the sum of the biases of each cell, ``(batch, heads, rows, keys)``; 0 where hidden."""
        total = torch.zeros((), dtype=torch.float64)
        for bias, places_of_cells in zip(biases, self.places, strict=True):
            total = total + bias[..., places_of_cells]
        return total * self.visible

    def sums(self, cells: Tensor) -> list[Tensor]:
        """Returns for each bias the sum of the visible cells at each of its places, which are keys or distances."""
        visible_cells = (cells * self.visible).flatten(-2)
        rows, keys = cells.shape[-2:]
        return [
            torch.zeros(*cells.shape[:2], size, dtype=torch.float64).index_add_(
                -1, places_of_cells.expand(rows, keys).flatten(), visible_cells
            )
            for places_of_cells, size in zip(self.places, self.sizes, strict=True)
        ]

    def solve(self, cells: Tensor) -> list[Tensor]:
        """Returns the biases whose sum fits the cells with the least squared error, ``(batch, heads, places)`` each."""
        cell_counts = [count.clamp_min(1) for count in self.sums(torch.ones_like(cells))]
        biases = [torch.zeros_like(count) for count in cell_counts]
        residuals = self.sums(cells)
        target = RELATIVE_RESIDUAL * _dot(residuals, residuals).clamp_min(MIN_DIVISOR)
        direction = _quotients(residuals, cell_counts)
        residual_size = _dot(residuals, direction)
        for _ in range(MAX_STEPS if biases else 0):
            image = self.sums(self.cells(direction))
            step_length = residual_size / _dot(direction, image).clamp_min(MIN_DIVISOR)
            biases = _plus_multiple(biases, step_length, direction)
            residuals = _plus_multiple(residuals, -step_length, image)
            if bool((_dot(residuals, residuals) <= target).all()):
                break
            scaled_residuals = _quotients(residuals, cell_counts)
            previous_size, residual_size = residual_size, _dot(residuals, scaled_residuals)
            growth = residual_size / previous_size.clamp_min(MIN_DIVISOR)
            direction = _plus_multiple(scaled_residuals, growth, direction)
        return biases


def _quotients(dividends: Sequence[Tensor], divisors: Sequence[Tensor]) -> list[Tensor]:
    return [dividend / divisor for dividend, divisor in zip(dividends, divisors, strict=True)]


def _plus_multiple(summands: Sequence[Tensor], factor: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
    """Returns each tensor of the first list plus ``factor``, ``(batch, heads, 1)``, times its partner in the second."""
    return [summand + factor * other for summand, other in zip(summands, others, strict=True)]


def _dot(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Returns the dot products of the last axes, summed over pairs from two lists of tensors, ``(batch, heads, 1)``."""
    total = torch.zeros((), dtype=torch.float64)
    for left_part, right_part in zip(left, right, strict=True):
        total = total + (left_part * right_part).sum(-1, keepdim=True)
    return total
