"""Encodes numbers for a page: weights as codes or as float32, deflated, and written in base 85."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError

ABSENT_WEIGHT = np.float32(-2)  # marks a masked cell among float32 weights, which are never negative
DIGITS = np.frombuffer(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~", dtype=np.uint8
)  # the digits of Python's base64.b85encode, with a comma for "<", so that no tag and no comment can begin


@dataclass(frozen=True)
class Precision:
    """The precision with which a page stores a weight.

    An integer ``code`` of at most ``largest`` stands for the weight ``high · (code / largest)²``, where ``high`` is
    the head's largest weight (or a little more, so that codes stay short): small weights are stored more finely than
    large ones, with an error of at most ``√(weight · high) / largest``. The next two codes stand for a masked cell and
    for NaN. Scores follow from a weight and its row's log-sum-exp: ``ln(weight) + lse``. With float32, weights and
    scores are both stored unchanged.

    Attributes:
        dtype: the type of a stored weight: float32, uint16 or uint8.
        max_cells: the largest number of cells on a page with this precision.
        bytes_per_cell: the most bytes of a cell in the page, with its score, deflated and encoded.
    """

    dtype: str
    max_cells: int
    bytes_per_cell: int

    @property
    def exact(self) -> bool:
        """True if numbers are stored unchanged."""
        return self.dtype == "float32"

    @property
    def largest(self) -> int:
        """The code of the largest weight; 0 if there are no codes."""
        return 0 if self.exact else int(np.iinfo(self.dtype).max) - 2

    @property
    def sentence(self) -> str:
        """The precision in one sentence."""
        if self.exact:
            return "Weights are stored exactly, as float32."
        bits = np.dtype(self.dtype).itemsize * 8
        error, small = (rounded_up(100 * root / self.largest) for root in (1, 0.1))
        return (
            f"Weights are stored in {bits} bits on a square-root scale: within {error:g} percentage points, and within "
            f"{small:g} below 1%."
        )


def rounded_up(number: float) -> float:
    """Returns the number rounded up to two significant digits."""
    step = 10.0 ** (np.floor(np.log10(number)) - 1)
    return float(np.ceil(number / step) * step)


PRECISIONS = (Precision("float32", 250_000, 11), Precision("uint16", 3_000_000, 3), Precision("uint8", 2**62, 1))


def encode_weights(weights: FloatArray, visible: BoolArray, precision: Precision, high: float = 1.0) -> NDArray[Any]:
    """Returns the weights as the page stores them, ``(queries, keys)``.

    Args:
        weights: ``(queries, keys)``.
        visible: ``(queries, keys)``, False for masked cells.
        precision: the type of the codes.
        high: the weight that the largest code stands for.

    Raises:
        AttnvizError: if there are codes and a weight is not within 0 to 1.
    """
    if precision.exact:
        return np.asarray(np.where(visible, weights, ABSENT_WEIGHT))
    roots = np.where(visible, weights, np.float32(0))
    least, most = (float(roots.min()), float(roots.max())) if roots.size else (0.0, 0.0)  # NaN if any root is
    nothing = np.isnan(roots) if np.isnan(most) else None
    if nothing is not None:
        roots[nothing] = 0
        least, most = float(roots.min()), float(roots.max())
    if least < 0 or most > 1 + 1e-3:
        raise AttnvizError("weights outside 0 to 1 do not fit a page of this many cells; use fewer heads or tokens")
    np.sqrt(np.minimum(roots, np.float32(high), out=roots), out=roots)
    roots *= np.float32(precision.largest / np.sqrt(high))
    codes = np.rint(roots, out=roots).astype(precision.dtype)
    if nothing is not None:
        codes[nothing] = precision.largest + 2
    np.copyto(codes, precision.largest + 1, where=~visible)
    return np.asarray(codes)


def without_nan(values: FloatArray) -> FloatArray:
    """Returns the values with -1 for NaN; the same array if it has none."""
    return np.nan_to_num(values, nan=-1) if np.isnan(values.max(initial=-1)) else values


def deflated(arrays: Iterable[NDArray[Any]]) -> bytes:
    """Returns the bytes of the arrays, little-endian, deflated.

    Run lengths and Huffman codes are all that noise of few values gains from, so matches are not searched.
    """
    deflate = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    parts = [deflate.compress(one.astype(one.dtype.newbyteorder("<"), copy=False).tobytes()) for one in arrays]
    return b"".join((*parts, deflate.flush()))


def base85(content: bytes) -> bytes:
    """Returns the bytes in characters, five per four bytes, as ``base64.b85encode`` writes them except for the comma."""
    missing = -len(content) % 4
    words = np.frombuffer(content + bytes(missing), dtype=">u4").astype(np.uint32)
    places = np.empty((len(words), 5), dtype=np.uint8)
    for place in range(4, -1, -1):
        words, places[:, place] = np.divmod(words, np.uint32(85))
    characters = DIGITS[places].tobytes()
    return characters[: len(characters) - missing]
