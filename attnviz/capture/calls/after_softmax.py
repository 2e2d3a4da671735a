"""Recognises what a model does to its weights between softmax and values: nothing, dropout, or another change."""

import torch
from torch import Tensor

RATIO_TOLERANCE, HALF_RATIO_TOLERANCE = 1e-5, 2e-2  # relative, of the factor by which dropout scales weights
EXACT_DTYPES = (torch.float32, torch.float64)
MIXED = "softmaxes are added up before they multiply the values; the maps show one of them"
CHANGED = "the weights are changed between the softmax and the values; the maps show the softmax"


def dropout_factor(after: Tensor, operand: Tensor) -> float | None:
    """Returns the factor by which dropout scaled the weights that it kept; ``None`` if it was not dropout.

    Args:
        after: the weights, ``(batch, heads, queries, keys)``.
        operand: the weights that multiplied the values, of the same shape.
    """
    if operand.shape != after.shape or after.dtype != operand.dtype:
        return None
    index = int(operand.argmax())
    largest_weight = float(after.flatten()[index])
    factor = float(operand.flatten()[index]) / largest_weight if largest_weight > 0 else 0.0
    if not factor > 1:
        return None
    tolerance = RATIO_TOLERANCE if after.dtype in EXACT_DTYPES else HALF_RATIO_TOLERANCE
    difference = (operand - after * factor).abs_().masked_fill_(operand == 0, 0)
    return factor if bool((difference <= tolerance * operand).all()) else None
