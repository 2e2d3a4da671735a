"""Defines a type for arrays of each dtype, arrays of tensors, and an array of bfloat16, which numpy lacks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
Float64Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
ByteArray = NDArray[np.uint8]


def array_of(values: Any) -> FloatArray:
    """Returns the values of a tensor as an array of float32, on the CPU."""
    array: FloatArray = values.detach().float().cpu().numpy()
    return array


class HalfArray:
    """An array of bfloat16, the upper 16 bits of float32; indexing it returns float32.

    Attributes:
        bits: the upper 16 bits as uint16, of the array's shape.
    """

    def __init__(self, bits: NDArray[np.uint16]) -> None:
        self.bits = bits

    @classmethod
    def rounded(cls, numbers: FloatArray) -> "HalfArray":
        """Returns finite numbers rounded to the nearest bfloat16, ties to even."""
        bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
        # 0x7FFF is just less than half of the lowest bit that stays; adding this bit itself rounds ties to even
        return cls(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.bits.shape

    def __getitem__(self, index: Any) -> FloatArray:
        """Returns the indexed part as float32, whose lower 16 bits are 0."""
        bits = np.asarray(self.bits[index]).astype(np.uint32)
        return np.asarray((bits << np.uint32(16)).view(np.float32))
