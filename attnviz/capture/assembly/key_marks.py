"""KeyMarks: one number for each key of a call, by which it is known again in another forward pass."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from attnviz.base.arrays import FloatArray
from attnviz.capture.calls.attention_call import AttentionCall, FactoredCall, SoftmaxCall

TOLERANCE, HALF_TOLERANCE = (
    1e-3,
    5e-2,
)  # of the largest: a key that is computed again is rounded
MAX_REMEMBERED = 16
EXACT_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class KeyMarks:
    """The marks of a call's keys, or of its values where the keys are not known.

    Attributes:
        numbers: ``(batch, key heads, keys)``.
        tolerance: how far they may differ from those of the same keys, as a share of the largest.
    """

    numbers: FloatArray
    tolerance: float

    def first(self, count: int) -> "KeyMarks":
        """The marks of the first keys."""
        return KeyMarks(self.numbers[..., :count], self.tolerance)

    def followed_by(self, other: "KeyMarks") -> "KeyMarks":
        """These marks and then others."""
        numbers = np.concatenate(_of_shared_heads(self.numbers, other.numbers), axis=-1)
        return KeyMarks(numbers, max(self.tolerance, other.tolerance))

    def equal(self, start: int, other: "KeyMarks", count: int) -> bool:
        """Whether the keys from a place on are the first ones of another call."""
        ours, theirs = _of_shared_heads(self.numbers[..., start : start + count], other.numbers[..., :count])
        if ours.shape != theirs.shape:
            return False
        allowed = max(self.tolerance, other.tolerance) * np.abs(theirs).max(initial=0)
        return bool((np.abs(ours - theirs) <= allowed).all())


def _of_shared_heads(ours: FloatArray, theirs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The marks of the heads that both have: one pass may repeat a key for each query of its group, another not."""
    heads = min(ours.shape[1], theirs.shape[1])
    return ours[:, :: ours.shape[1] // heads], theirs[:, :: theirs.shape[1] // heads]


def key_marks(call: AttentionCall) -> KeyMarks | None:
    """The marks of a call's keys; ``None`` where neither keys nor values are known."""
    tensor = _keys_of(call)
    if tensor is None:
        return None
    numbers = tensor.detach().float() @ _directions(tensor.shape[-1], tensor.device)
    return KeyMarks(numbers.cpu().numpy(), TOLERANCE if tensor.dtype in EXACT_DTYPES else HALF_TOLERANCE)


@lru_cache(MAX_REMEMBERED)
def _directions(features: int, device: torch.device) -> Tensor:
    """What each feature of a key is multiplied by."""
    with torch.inference_mode(False):  # it is used by other runs as well
        return torch.cos(1.7 * torch.arange(features, device=device, dtype=torch.float32) + 0.3)


def _keys_of(call: AttentionCall) -> Tensor | None:
    """The keys, or the values, ``(batch, key heads, keys, features)``."""
    if isinstance(call, FactoredCall):
        return call.keys
    if isinstance(call, SoftmaxCall) and call.product is not None:
        return call.product.keys
    return call.values
