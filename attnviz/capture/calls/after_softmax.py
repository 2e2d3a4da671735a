"""Recognises what a model does to its weights between softmax and values: nothing, dropout, or another change."""

import torch
from torch import Tensor

RATIO_TOLERANCE, HALF_RATIO_TOLERANCE = 1e-5, 2e-2  # relative, of the factor by which dropout scales weights
EXACT_DTYPES = (torch.float32, torch.float64)
MIXED = "softmaxes are added up before they multiply the values; the maps show one of them"
CHANGED = "the weights are changed between the softmax and the values; the maps show the softmax"


def dropout_factor(weights: Tensor, used_weights: Tensor) -> float | None:
    """Returns the factor by which dropout scaled the kept weights; ``None`` unless dropout alone changed the weights.

    Dropout sets some weights to 0, and multiplies all others by one factor above 1.

    Args:
        weights: the weights, ``(batch, heads, queries, keys)``.
    """
    if used_weights.shape != weights.shape or weights.dtype != used_weights.dtype:
        return None
    largest_index = int(used_weights.argmax())  # dropout kept this weight
    kept_weight = float(weights.flatten()[largest_index])
    factor = float(used_weights.flatten()[largest_index]) / kept_weight if kept_weight > 0 else 0.0
    if not factor > 1:  # NaN is no factor either
        return None
    tolerance = RATIO_TOLERANCE if weights.dtype in EXACT_DTYPES else HALF_RATIO_TOLERANCE
    difference = (used_weights - weights * factor).abs_().masked_fill_(used_weights == 0, 0)
    return factor if bool((difference <= tolerance * used_weights).all()) else None
