"""Computes a mark for each key of a call: a number that identifies the key in another forward pass."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from attnviz.base.arrays import FloatArray
from attnviz.capture.calls.attention_call import AttentionCall, are_exact

# Relative to the largest mark; a key that is computed twice may be rounded differently.
TOLERANCE, HALF_TOLERANCE = 1e-3, 5e-2
MAX_CACHED = 16


@dataclass(frozen=True, eq=False)
class KeyMarks:
    """The marks of a call's keys, or of its values if the keys are unknown.

    Attributes:
        numbers: ``(batch, key heads, keys)``.
        tolerance: the largest difference between marks of one key, as a share of the largest mark.
    """

    numbers: FloatArray
    tolerance: float

    def first(self, count: int) -> "KeyMarks":
        """Returns the marks of the first ``count`` keys."""
        return KeyMarks(self.numbers[..., :count], self.tolerance)

    def followed_by(self, other: "KeyMarks") -> "KeyMarks":
        """Returns these marks followed by the marks of further keys, with the smaller number of heads of the two."""
        numbers = np.concatenate(_with_equal_heads(self.numbers, other.numbers), axis=-1)
        return KeyMarks(numbers, max(self.tolerance, other.tolerance))

    def has_equal_keys(self, start: int, other: "KeyMarks", count: int) -> bool:
        """True if ``count`` keys from ``start`` on equal the first keys of another call, within the tolerance.

        False if one call has fewer of these keys than the other.
        """
        marks, other_marks = _with_equal_heads(self.numbers[..., start : start + count], other.numbers[..., :count])
        if marks.shape != other_marks.shape:
            return False
        tolerance = max(self.tolerance, other.tolerance) * np.abs(other_marks).max(initial=0)
        return bool((np.abs(marks - other_marks) <= tolerance).all())


def _with_equal_heads(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns two arrays of marks with equally many heads: the one with more keeps every n-th head."""
    heads = min(first.shape[1], second.shape[1])
    return first[:, :: first.shape[1] // heads], second[:, :: second.shape[1] // heads]


def key_marks(call: AttentionCall) -> KeyMarks | None:
    """Returns the marks of a call's keys, or of its values if the keys are unknown; ``None`` if both are unknown."""
    features = call.values if call.known_keys is None else call.known_keys
    if features is None:
        return None
    numbers = features.detach().float() @ _coefficients(features.shape[-1], features.device)
    return KeyMarks(numbers.cpu().numpy(), TOLERANCE if are_exact(features) else HALF_TOLERANCE)


@lru_cache(MAX_CACHED)
def _coefficients(features: int, device: torch.device) -> Tensor:
    """Returns the fixed coefficients, ``(features,)``; a mark is the sum of the features times these."""
    with torch.inference_mode(mode=False):  # the cached tensor must not be an inference tensor: other runs use it too
        indices = torch.arange(features, device=device, dtype=torch.float32)
        return torch.cos(1.7 * indices + 0.3)  # any irregular numbers tell keys apart; random ones would need a seed
