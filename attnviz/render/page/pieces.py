"""Splits a head's numbers into pieces of some rows each, so that a page can read one token without the rest."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray
from attnviz.render.page.encoding import base85, deflated

MIN_BYTES = 32_768  # smallest piece, except the last
MAX_PIECES = 16


def weight_pieces(weights: NDArray[Any], rest: NDArray[Any]) -> bytes:
    """Returns weights or their codes, ``(queries, keys)``, in pieces, then ``rest`` as the last piece, as characters."""
    spans = row_spans(len(weights), weights[:1].nbytes)
    return _characters([*([weights[span]] for span in spans), [rest]])


def half_pieces(half: NDArray[np.float16], rest: Iterable[NDArray[Any]] = ()) -> bytes:
    """Returns queries or keys, ``(tokens, features)``, in pieces, then ``rest`` as the last piece, as characters."""
    spans, rest = row_spans(len(half), 2 * half.shape[1]), list(rest)
    return _characters([*(planes(half[span]) for span in spans), *([rest] if rest else [])])


def row_spans(rows: int, bytes_of_row: int) -> list[slice]:
    """Returns the range of rows of each piece."""
    each = max(1, -(-rows // MAX_PIECES), -(-MIN_BYTES // bytes_of_row))
    return [slice(first, first + each) for first in range(0, rows, each)]


def planes(half: NDArray[np.float16]) -> tuple[ByteArray, ByteArray]:
    """Returns all high bytes, then all low bytes: signs and exponents vary little and deflate well when they are together."""
    pairs = np.ascontiguousarray(half, dtype="<f2").view(np.uint8).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 1]), np.ascontiguousarray(pairs[:, 0])


def _characters(pieces: Iterable[Iterable[NDArray[Any]]]) -> bytes:
    """Returns the pieces deflated, encoded in base 85 and joined by spaces, which no encoded piece contains."""
    return b" ".join(base85(deflated(piece)) for piece in pieces)
