"""Splits the numbers of a head into pieces of some rows each, so that a page can read one token without the others."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray
from attnviz.render.page.encoding import base85, deflated

MIN_BYTES = 32_768  # smallest piece, except the last
MAX_PIECES = 16


def weight_pieces(weights: NDArray[Any], last: NDArray[Any]) -> bytes:
    """Returns weights or codes, ``(queries, keys)``, as encoded pieces of rows, and ``last`` as the last piece."""
    spans = row_spans(len(weights), weights[:1].nbytes)
    return _characters([*([weights[span]] for span in spans), [last]])


def half_pieces(half: NDArray[np.float16], last: Iterable[NDArray[Any]] = ()) -> bytes:
    """Returns queries or keys, ``(tokens, features)``, as encoded pieces of rows, and ``last`` as the last piece."""
    spans, last = row_spans(len(half), 2 * half.shape[1]), list(last)
    return _characters([*(planes(half[span]) for span in spans), *([last] if last else [])])


def row_spans(rows: int, bytes_of_row: int) -> list[slice]:
    """Returns the range of rows of each piece."""
    rows_a_piece = max(1, -(-rows // MAX_PIECES), -(-MIN_BYTES // bytes_of_row))
    return [slice(first, first + rows_a_piece) for first in range(0, rows, rows_a_piece)]


def planes(half: NDArray[np.float16]) -> tuple[ByteArray, ByteArray]:
    """Returns all high bytes, then all low bytes; signs and exponents, which vary little, deflate well together."""
    pairs = np.ascontiguousarray(half, dtype="<f2").view(np.uint8).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 1]), np.ascontiguousarray(pairs[:, 0])


def _characters(pieces: Iterable[Iterable[NDArray[Any]]]) -> bytes:
    """Returns pieces deflated, encoded in base 85 and joined by spaces, which no encoded piece contains."""
    return b" ".join(base85(deflated(piece)) for piece in pieces)
