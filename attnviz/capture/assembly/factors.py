"""Finds the factors of a call: queries, keys and rules on positions, which grow with the tokens and give every cell.

A kernel's arguments are factors. For attention written by hand, the input and output of the softmax are known: if the
input is the product of queries and keys, times one scale or one for each head, plus a mask and biases by position, the
maps can be computed from these alone. Factors are used only if every visible score that they give equals the model's.

The mask is then split into what it hides (causal, window, chunk, prefix, padding) and what it adds (a bias for each
key, or for each distance, as linear and relative biases do). If no rule describes the cells, each cell is stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import BoolArray, FloatArray
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
    shared_or_per_head_cells,
)

WEIGHT_TOLERANCE, HALF_WEIGHT_TOLERANCE = 1e-4, 1e-2  # errors that rounding explains, absolute
SCORE_TOLERANCE = 1e-5  # in float32, relative to 1 + |score|
SINK_TOLERANCE = 1e-3  # of a score that follows from what a row lacks to 1
SCALE_TOLERANCE, HALF_SCALE_TOLERANCE = 1e-6, 1e-3  # relative
SPACED_QUERIES, LAST_QUERIES = 48, 16  # queries to which scale and biases are fitted
# Conjugate gradients stop at this relative squared residual; the limit of steps is rarely reached.
RELATIVE_RESIDUAL, MAX_STEPS = 1e-18, 200
MIN_DIVISOR = 1e-300  # replaces smaller divisors, so that an exact fit does not divide 0 by 0
SAMPLED_QUERIES = 64  # queries from which the bias of each distance is read, the first and the last among them
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
        sinks=_constant_sinks(call),
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


def _constant_sinks(call: DenseCall) -> Tensor | None:
    """Returns the score of each head's sink, ``(heads,)``; ``None`` if there is none, or if it differs among rows."""
    if call.sinks is None:
        return None
    scores = call.sinks.transpose(0, 1).flatten(1)
    sinks = scores.nanmedian(-1).values
    differs = (scores - sinks[:, None]).abs() > SINK_TOLERANCE * (1 + sinks.abs())[:, None]
    return None if bool(differs.any() | sinks.isnan().any()) else sinks


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


class PositionRules(NamedTuple):
    """The mask of one text: the visible cells, and the bias added to their scores."""

    mask: Mask
    bias: Bias


def position_rules(call: FactoredCall, heads: Sequence[int]) -> list[PositionRules] | None:
    """Returns the mask and the bias of these heads in each text; ``None`` if heads see different cells.

    Without a mask tensor, the rules are the causality and window of the call. The bias comes from the numbers of a
    floating-point mask, else from the position biases of the call.
    """
    batch, _, queries, keys = call.shape
    if call.mask is None:
        mask = Mask(causal=call.causal, window=call.window)
        return [PositionRules(mask, _position_bias(call, heads, item)) for item in range(batch)]
    head_cells = call.visible_cells()
    visible = shared_or_per_head_cells(head_cells if head_cells.shape[1] == 1 else head_cells[:, list(heads)])
    if visible.shape[1] > 1:
        return None
    cells: BoolArray = visible[:, 0].expand(batch, queries, keys).cpu().numpy()
    if call.causal or call.window is not None:
        cells = cells & Mask(causal=call.causal, window=call.window).visible(slice(0, queries), slice(0, keys))
    masks = [mask_of(text) for text in cells]
    if not call.mask.is_floating_point():
        return [PositionRules(mask, _position_bias(call, heads, item)) for item, mask in enumerate(masks)]
    head_masks = call.mask if call.mask.shape[1] == 1 else call.mask[:, list(heads)]
    numbers = head_masks.expand(batch, -1, queries, keys).detach().float().cpu().numpy()
    biases = [_bias_of_mask(text, text_cells, len(heads)) for text, text_cells in zip(numbers, cells, strict=True)]
    return [PositionRules(mask, bias) for mask, bias in zip(masks, biases, strict=True)]


def _position_bias(call: FactoredCall, heads: Sequence[int], item: int) -> Bias:
    """Returns the position biases of these heads in one text as a `Bias`; empty if the call has none."""
    by_key: FloatArray | None = None
    relative: FloatArray | None = None
    for bias in call.position_biases:
        numbers: FloatArray = bias.of_heads(heads).numbers[item].float().cpu().numpy()
        if bias.by_distance:
            relative = numbers
        else:
            by_key = numbers
    return Bias(by_key=by_key, relative=relative, origin=0 if relative is None else call.shape[2] - 1)


def mask_of(cells: BoolArray) -> Mask:
    """Returns a mask by rules that gives exactly these cells, ``(queries, keys)``, else a mask that stores them."""
    visible_keys: BoolArray = np.asarray(cells.any(axis=0))
    keys = slice(0, cells.shape[1])
    for rules in _candidate_masks(cells):
        mask = replace(rules, padding=None if visible_keys.all() else visible_keys)
        if all(np.array_equal(mask.visible(band, keys), cells[band]) for band in query_bands(len(cells))):
            return mask
    return Mask(explicit=np.ascontiguousarray(cells))


def _candidate_masks(cells: BoolArray) -> Iterator[Mask]:
    """Yields masks that may give these cells apart from padding, simple ones first."""
    queries, keys = cells.shape
    yield Mask()
    seeing_rows = np.arange(queries)[cells.any(axis=1)]
    if not len(seeing_rows):
        return
    first_keys, last_keys = cells[seeing_rows].argmax(axis=1), keys - 1 - cells[seeing_rows, ::-1].argmax(axis=1)
    for offset in dict.fromkeys((0, keys - queries)):
        positions = seeing_rows + offset
        causal = bool((last_keys <= positions).all())
        yield Mask(causal=causal, offset=offset)
        distances = positions - first_keys
        if not causal:
            distances = np.maximum(np.abs(distances), np.abs(last_keys - positions))
        yield Mask(causal=causal, window=int(distances.max()) + 1, offset=offset)
        second_chunk_starts = first_keys[first_keys > 0]
        if len(second_chunk_starts):
            yield Mask(causal=causal, chunk=int(second_chunk_starts[0]), offset=offset)
        if first_keys[0] == 0 < last_keys[0]:  # the first query sees keys after its own
            yield Mask(causal=True, prefix=int(last_keys[0]) + 1, offset=offset)


def _bias_of_mask(mask: FloatArray, cells: BoolArray, heads: int) -> Bias:
    """Returns the bias that a mask, ``(heads or 1, queries, keys)``, adds to visible scores; empty if it adds none."""
    by_key = mask[:, cells.argmax(axis=0), np.arange(cells.shape[1])]  # read from the first query that sees the key
    by_key[:, ~cells.any(axis=0)] = 0
    if _equals_mask(mask, cells, by_key[:, None]):
        return Bias(by_key=_repeated_for_heads(by_key, heads)) if by_key.any() else Bias()

    # The bias of each distance key − query, from 1 − queries on, is read from at most 64 sampled queries.
    queries, keys = cells.shape
    by_distance = np.zeros((len(mask), queries + keys - 1), dtype=np.float32)
    rows = np.flatnonzero(cells.any(axis=1))
    samples = np.linspace(0, len(rows) - 1, SAMPLED_QUERIES).astype(np.int64) if len(rows) else rows
    for query in rows[samples].tolist():
        start, visible = queries - 1 - query, cells[query]
        by_distance[:, start : start + keys][:, visible] = mask[:, query, visible]
    # Row q is a window of the distances, and the window of row q + 1 begins one distance earlier.
    if _equals_mask(mask, cells, sliding_window_view(by_distance, cells.shape[1], axis=-1)[:, ::-1]):
        return Bias(relative=_repeated_for_heads(by_distance, heads), origin=len(cells) - 1)
    return Bias(explicit=_repeated_for_heads(np.where(cells, mask, np.float32(0)), heads))


def _equals_mask(mask: FloatArray, cells: BoolArray, bias: FloatArray) -> bool:
    bias_cells = np.broadcast_to(bias, mask.shape)
    return all(((mask[:, band] == bias_cells[:, band]) | ~cells[band]).all() for band in query_bands(len(cells)))


def _repeated_for_heads(array: FloatArray, heads: int) -> FloatArray:
    """Returns an array ``(1 or heads, ...)`` as ``(heads, ...)``."""
    return np.ascontiguousarray(np.broadcast_to(array, (heads, *array.shape[1:])))
