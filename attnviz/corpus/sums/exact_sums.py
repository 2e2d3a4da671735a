"""Sums numbers exactly: the result is the same to the bit, whatever the order and grouping.

Each number is rounded once to a multiple of a power of two; sums of these whole numbers never round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError

WORD_BITS = 32  # bits of the lower word
MASK = (1 << WORD_BITS) - 1
MAX_BITS = 62  # of one scaled number, so that it fits int64 with its sign


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Fixed-point sums of numbers: each is ``(high * 2**32 + low) * 2**-bits``.

    Attributes:
        high: the upper words.
        low: the lower words, from 0 to ``2**32 - 1``; of the same shape.
        bits: the number of bits after the binary point: one number for all sums, or one for each along the last axis.
    """

    high: IntArray
    low: IntArray
    bits: int | IntArray

    @classmethod
    def zeros(cls, shape: tuple[int, ...], bits: int | IntArray) -> Self:
        """Returns empty sums, the identity of ``+``."""
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), bits)

    @classmethod
    def of(cls, numbers: NDArray[Any], bits: int | IntArray) -> Self:
        """Returns the sums over the first axis; NaN counts as 0.

        Raises:
            AttnvizError: for a number that overflows the fixed-point format.
        """
        without_nan = np.where(np.isnan(numbers), 0, numbers).astype(np.float64)
        scaled_numbers = np.rint(np.ldexp(without_nan, bits))
        if np.abs(scaled_numbers).max(initial=0) >= 2.0**MAX_BITS:
            raise AttnvizError(f"a number of {np.abs(without_nan).max():.3g} is too large to sum up; check the model")
        integers = scaled_numbers.astype(np.int64)
        return cls(*_carry((integers >> WORD_BITS).sum(axis=0), (integers & MASK).sum(axis=0)), bits)

    def __add__(self, other: "ExactSums") -> "ExactSums":
        return ExactSums(*_carry(self.high + other.high, self.low + other.low), self.bits)

    def take(self, indices: Sequence[int]) -> "ExactSums":
        """Returns the sums at these indices of the last axis."""
        bits = self.bits if isinstance(self.bits, int) else self.bits[indices]
        return ExactSums(self.high[..., indices], self.low[..., indices], bits)

    def padded(self, count_before: int, count_after: int) -> "ExactSums":
        """Returns the sums padded on the last axis with so many empty sums before and after them."""
        widths = [(0, 0)] * (self.high.ndim - 1) + [(count_before, count_after)]
        return ExactSums(np.pad(self.high, widths), np.pad(self.low, widths), self.bits)

    @property
    def total(self) -> Float64Array:
        """The sums as float64."""
        upper, lower = self.high.astype(np.float64), self.low.astype(np.float64)
        return np.asarray(np.ldexp(upper, WORD_BITS - self.bits) + np.ldexp(lower, -self.bits))


def _carry(high: IntArray, low: IntArray) -> tuple[IntArray, IntArray]:
    """Returns the words after the overflow of the lower words is added to the upper words."""
    return high + (low >> WORD_BITS), low & MASK
