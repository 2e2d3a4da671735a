"""Recognises keys in later passes by their marks: a few sums of each key's features."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.capture.calls.attention_call import AttentionCall, are_exact

MARKS = 3  # of a key; two different keys rarely have all in common
# Relative to the largest mark; a key that is computed twice may be rounded differently.
TOLERANCE, HALF_TOLERANCE = 1e-3, 5e-2
LARGEST_CHANGE = 0.5  # of a key that a cache rounded, relative to the key; unrelated keys differ by 1.4
MAX_CACHED = 16


@dataclass(frozen=True, eq=False)
class KeyMarks:
    """The marks of a call's keys, or of its values if the keys are unknown."""

    numbers: FloatArray  # ``(texts, key heads, keys, marks)``
    tolerance: float  # the largest difference between marks of one key, as a share of the largest mark

    def first(self, count: int) -> "KeyMarks":
        """Returns the marks of the first ``count`` keys."""
        return replace(self, numbers=self.numbers[:, :, :count])

    def of_texts(self, texts: Sequence[int]) -> "KeyMarks":
        """Returns the marks of these texts."""
        return replace(self, numbers=self.numbers[list(texts)])

    def followed_by(self, other: "KeyMarks") -> "KeyMarks":
        """Returns these marks followed by those of further keys, with the smaller number of heads of the two."""
        numbers = np.concatenate(_with_equal_heads(self.numbers, other.numbers), axis=2)
        return KeyMarks(numbers, max(self.tolerance, other.tolerance))

    def equals(self, other: "KeyMarks") -> bool:
        """True if both are the marks of the same keys, of one tensor or of copies."""
        if self.numbers.shape != other.numbers.shape:
            return False
        # The last number tells most keys apart: each call of a pass is compared with all before it.
        may_be_equal = not self.numbers.size or self.numbers.item(-1) == other.numbers.item(-1)
        return may_be_equal and np.array_equal(self.numbers, other.numbers)

    def starts_of(self, other: "KeyMarks", count: int) -> list[int]:
        """Returns each key from which on ``count`` keys equal the first ones of another call of the same texts."""
        marks, other_marks = _with_equal_heads(self.numbers, other.numbers[:, :, :count])
        if marks.shape[2] < count or other_marks.shape[2] < count:
            return []
        tolerance = self._tolerance_beside(other, other_marks)
        if marks.shape[2] == count:  # as of a cache that grows
            return [0] if np.abs(marks - other_marks).max(initial=0) <= tolerance else []
        equals_last_key = (np.abs(marks - other_marks[:, :, -1:]) <= tolerance).all(axis=(0, 1, 3))
        starts = np.flatnonzero(equals_last_key) + 1 - count
        return [
            int(start)
            for start in starts[starts >= 0]
            if (np.abs(marks[:, :, start : start + count] - other_marks) <= tolerance).all()
        ]

    def equal_texts(self, start: int, other: "KeyMarks", count: int) -> BoolArray:
        """Returns ``(texts of the other, texts)``: True where ``count`` keys from ``start`` on equal the other's."""
        marks, other_marks = _with_equal_heads(self.numbers[:, :, start : start + count], other.numbers[:, :, :count])
        tolerance = self._tolerance_beside(other, other_marks)
        equal: BoolArray = np.stack(
            [(np.abs(marks - text_marks) <= tolerance).all(axis=(1, 2, 3)) for text_marks in other_marks]
        )
        return equal

    def changed_keys(self, start: int, other: "KeyMarks", count: int) -> int | None:
        """Returns how many of ``count`` keys from ``start`` on differ a little from the other's; ``None`` if by more.

        A cache may round its keys. Keys of another text differ by more.
        """
        marks, other_marks = _with_equal_heads(self.numbers[:, :, start : start + count], other.numbers[:, :, :count])
        changes = np.abs(marks - other_marks)
        sizes = np.linalg.norm(marks, axis=(1, 3))
        if (np.linalg.norm(changes, axis=(1, 3)) > LARGEST_CHANGE * sizes).any():
            return None
        return int((changes > self._tolerance_beside(other, other_marks)).any(axis=(0, 1, 3)).sum())

    def columns_of(self, other: "KeyMarks", keys: Sequence[int], new_keys: int) -> IntArray | None:
        """Returns where each of some keys of another call stands among these, in any order; -1 for ``new_keys`` others.

        The result is ``(texts, 1, keys)``, or ``(texts, key heads, keys)`` if a cache dropped other keys in each head;
        ``None`` if not all other keys are known.
        """
        marks, other_marks = _with_equal_heads(self.numbers, other.numbers[:, :, list(keys)])
        tolerance = self._tolerance_beside(other, other_marks)
        texts, heads, _, _ = marks.shape
        for groups in dict.fromkeys((1, heads)):
            columns = np.full((texts, groups, len(keys)), -1)
            for text, group in np.ndindex(texts, groups):
                of_group = slice(None) if groups == 1 else slice(group, group + 1)
                pair = other_marks[text, of_group], marks[text, of_group]
                columns[text, group] = _matching_columns(*pair, tolerance)
            if ((columns < 0).sum(axis=-1) == new_keys).all():
                return columns
        return None

    def known_keys(self, other: "KeyMarks", count: int) -> int:
        """Returns how many of the first ``count`` keys of another call, in its first text, are among these."""
        marks, other_marks = _with_equal_heads(self.numbers[:1], other.numbers[:1, :, :count])
        tolerance = self._tolerance_beside(other, other_marks)
        return int((_matching_columns(other_marks[0], marks[0], tolerance) >= 0).sum())

    def _tolerance_beside(self, other: "KeyMarks", other_marks: FloatArray) -> float:
        return float(max(self.tolerance, other.tolerance) * np.abs(other_marks).max(initial=0))


def key_marks(call: AttentionCall) -> KeyMarks | None:
    """Returns the marks of a call's keys, or of its values if the keys are unknown; ``None`` if both are unknown."""
    features = call.values if call.known_keys is None else call.known_keys
    if features is None:
        return None
    numbers = features.detach().float() @ _coefficients(features.shape[-1], features.device)
    return KeyMarks(numbers.cpu().numpy(), TOLERANCE if are_exact(features) else HALF_TOLERANCE)


@lru_cache(MAX_CACHED)
def _coefficients(features: int, device: torch.device) -> Tensor:
    """Returns the fixed coefficients, ``(features, marks)``; a mark is the sum of the features times these."""
    with torch.inference_mode(mode=False):  # the cached tensor must not be an inference tensor: other runs use it too
        indices = torch.arange(features, device=device, dtype=torch.float32)
        # Any irregular numbers tell keys apart; random ones would need a seed.
        return torch.stack([torch.cos((1.7 + 0.9 * mark) * indices + 0.3) for mark in range(MARKS)], dim=-1)


def _with_equal_heads(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns two arrays of marks with equally many heads: the one with more keeps every n-th head."""
    heads = min(first.shape[1], second.shape[1])
    return first[:, :: first.shape[1] // heads], second[:, :: second.shape[1] // heads]


def _matching_columns(keys: FloatArray, known_keys: FloatArray, tolerance: float) -> IntArray:
    """Returns the known key that each key, ``(heads, keys, marks)``, equals in all heads; -1 if it equals none."""
    # Of several equal ones it is the last before that of the next key: most caches keep the order, and the latest keys.
    columns = np.full(keys.shape[1], -1)
    is_free = np.ones(known_keys.shape[1], dtype=bool)
    next_column = known_keys.shape[1]
    for key in reversed(range(keys.shape[1])):
        differences = np.where(is_free, np.abs(known_keys - keys[:, key, None]).max(axis=(0, 2)), np.inf)
        smallest = differences.min(initial=np.inf)
        equal_columns = np.flatnonzero((differences <= tolerance) & (differences <= smallest + tolerance / 1000))
        if len(equal_columns):
            earlier_columns = equal_columns[equal_columns < next_column]
            columns[key] = next_column = int((earlier_columns if len(earlier_columns) else equal_columns)[-1])
            is_free[next_column] = False
    return columns
