"""Splits the numbers of a head into pieces of some rows each, so that a page can read one token without the others."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray
from attnviz.render.page.encoding import base85, deflated_bytes

MIN_BYTES = 32_768  # smallest piece, except the last
MAX_PIECES = 16


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
    """Returns the ranges of rows of at most `MAX_PIECES` pieces; each except the last has at least `MIN_BYTES`."""
    # -(-a // b) is a / b rounded up
    rows_a_piece = max(1, -(-rows // MAX_PIECES), -(-MIN_BYTES // bytes_of_row))
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
