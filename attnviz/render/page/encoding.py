"""Encodes numbers for a page: weights as codes or as float32, in pieces of some rows each, deflated, and in base 85."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, ByteArray, FloatArray
from attnviz.base.errors import AttnvizError

ABSENT_WEIGHT = np.float32(-2)  # marks a masked cell among float32 weights, which are never negative
MIN_PIECE_BYTES = 32_768  # smallest piece, except the last; a page reads one token without the other pieces
MAX_PIECES = 16
MAX_EXCESS = 1e-3  # above 1, which a weight may have because it was rounded
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
    """

    dtype: str  # the type of a stored weight: float32, uint16 or uint8
    max_cells: int  # the largest number of cells on a page with this precision
    bytes_per_cell: int  # the largest number of bytes of a cell in the page, with its score, deflated and encoded

    @property
    def is_exact(self) -> bool:
        """True if weights are stored unchanged, as float32."""
        return self.dtype == "float32"

    @property
    def largest(self) -> int:
        """The code of the largest weight; 0 if there are no codes."""
        return 0 if self.is_exact else int(np.iinfo(self.dtype).max) - 2

    @property
    def sentence(self) -> str:
        """A sentence that weights are exact, or that gives the bits and the largest error of a stored weight."""
        if self.is_exact:
            return "Weights are stored exactly, as float32."
        bits = np.dtype(self.dtype).itemsize * 8
        # The bound of the error is √(weight · high) / largest; the root is at most 1, and 0.1 for a weight below 1%.
        error, error_below_one_percent = (_rounded_up(100 * root / self.largest) for root in (1, 0.1))
        return (
            f"Weights are stored in {bits} bits on a square-root scale: each is within {error:g} percentage points of "
            f"the true weight, and within {error_below_one_percent:g} if that is below 1%."
        )


def _rounded_up(number: float) -> float:
    """Returns a number above 0 rounded up to two significant digits."""
    step = 10.0 ** (np.floor(np.log10(number)) - 1)
    return float(np.ceil(number / step) * step)


PRECISIONS = (Precision("float32", 250_000, 11), Precision("uint16", 3_000_000, 3), Precision("uint8", 2**62, 1))


def encode_weights(weights: FloatArray, visible: BoolArray, precision: Precision, high: float = 1.0) -> NDArray[Any]:
    """Returns weights as the page stores them, ``(queries, keys)``: float32, or codes of the precision.

    A masked cell has the code after ``precision.largest``, and NaN the next one. As float32, masked cells are
    `ABSENT_WEIGHT` and NaN stays.

    Args:
        weights: ``(queries, keys)``.
        visible: ``(queries, keys)``, False for masked cells.
    """
    if precision.is_exact:
        return np.asarray(np.where(visible, weights, ABSENT_WEIGHT))
    # One array holds the weights, then their numbers, then the codes, to bound memory.
    numbers = np.where(visible, weights, np.float32(0))
    lowest, highest = 0.0, 0.0
    if numbers.size:
        lowest, highest = float(numbers.min()), float(numbers.max())  # both are NaN if any weight is
    is_nan = np.isnan(numbers) if np.isnan(highest) else None
    if is_nan is not None:
        numbers[is_nan] = 0
        lowest, highest = float(numbers.min()), float(numbers.max())
    if lowest < 0 or highest > 1 + MAX_EXCESS:
        raise AttnvizError("weights outside 0 to 1 do not fit a page of this many cells; use fewer heads or tokens")
    np.sqrt(np.minimum(numbers, np.float32(high), out=numbers), out=numbers)
    numbers *= np.float32(precision.largest / np.sqrt(high))
    codes = np.rint(numbers, out=numbers).astype(precision.dtype)
    if is_nan is not None:
        codes[is_nan] = precision.largest + 2
    np.copyto(codes, precision.largest + 1, where=~visible)
    return np.asarray(codes)


def without_nan(values: FloatArray) -> FloatArray:
    """Returns values with -1 in place of NaN; the array itself if it has no NaN."""
    return np.nan_to_num(values, nan=-1) if np.isnan(values.max(initial=-1)) else values


def rounded_fractions(numbers: NDArray[Any], dropped_bits: int) -> NDArray[Any]:
    """Returns floats whose fractions lose so many bits, which compress better; numbers that are not finite stay."""
    bits = np.ascontiguousarray(numbers).view(f"u{numbers.itemsize}")
    step = bits.dtype.type(1 << dropped_bits)
    # Adding half a step and clearing the bits below it rounds to the nearest step.
    rounded = ((bits + step // 2) & ~(step - 1)).view(numbers.dtype)
    return np.asarray(np.where(np.isfinite(numbers), rounded, numbers))


def deflated_bytes(arrays: Iterable[NDArray[Any]]) -> bytes:
    """Returns the bytes of arrays, one after another, little-endian and deflated.

    Codes of weights look like noise of few values: run lengths and Huffman codes compress them as well as a search for
    repeated strings does.
    """
    deflate = zlib.compressobj(level=6, method=zlib.DEFLATED, wbits=15, memLevel=9, strategy=zlib.Z_RLE)
    parts = [deflate.compress(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()) for array in arrays]
    return b"".join((*parts, deflate.flush()))


def base85(content: bytes) -> bytes:
    """Returns bytes in base 85, five characters for every four bytes, as ``base64.b85encode`` but with other digits.

    The digits are `DIGITS`.
    """
    padding = -len(content) % 4
    words = np.frombuffer(content + bytes(padding), dtype=">u4").astype(np.uint32)
    digits = np.empty((len(words), 5), dtype=np.uint8)
    for index in range(4, -1, -1):  # the last digit is the remainder of the first division
        words, digits[:, index] = np.divmod(words, np.uint32(85))
    characters = DIGITS[digits].tobytes()
    return characters[: len(characters) - padding]


def weight_pieces(weights: NDArray[Any], last_array: NDArray[Any]) -> bytes:
    """Returns weights or codes, ``(queries, keys)``, as encoded pieces of rows; the last piece is ``last_array``."""
    spans = row_spans(len(weights), weights[:1].nbytes)
    return _encoded_pieces([*([weights[span]] for span in spans), [last_array]])


def half_pieces(half: NDArray[np.float16], last_arrays: Iterable[NDArray[Any]] = ()) -> bytes:
    """Returns queries or keys as encoded pieces of rows.

    Args:
        half: ``(tokens, features)``, the queries or keys.
    """
    spans, last_arrays = row_spans(len(half), 2 * half.shape[1]), list(last_arrays)
    return _encoded_pieces([*(planes(half[span]) for span in spans), *([last_arrays] if last_arrays else [])])


def row_spans(rows: int, bytes_of_row: int) -> list[slice]:
    """Returns the ranges of rows of at most `MAX_PIECES` pieces; all but the last have `MIN_PIECE_BYTES` or more."""
    # -(-a // b) is a / b rounded up
    rows_a_piece = max(1, -(-rows // MAX_PIECES), -(-MIN_PIECE_BYTES // bytes_of_row))
    return [slice(first, first + rows_a_piece) for first in range(0, rows, rows_a_piece)]


def planes(half: NDArray[np.float16]) -> tuple[ByteArray, ByteArray]:
    """Returns the high bytes, then the low bytes of float16 numbers, ``(numbers,)`` each.

    Signs and exponents, which are in the high bytes, vary little and deflate well together.
    """
    pairs = np.ascontiguousarray(half, dtype="<f2").view(np.uint8).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 1]), np.ascontiguousarray(pairs[:, 0])


def _encoded_pieces(pieces: Iterable[Iterable[NDArray[Any]]]) -> bytes:
    """Returns pieces deflated, encoded in base 85 and joined by spaces, which no encoded piece contains."""
    return b" ".join(base85(deflated_bytes(piece)) for piece in pieces)
