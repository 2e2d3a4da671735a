"""A head's numbers in pieces of some rows each: a reader who asks for one token need not read all."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray
from attnviz.render.page.encoding import base85, deflated

MIN_BYTES = 32_768  # of a piece, unless it is the last
MAX_PIECES = 16


def weight_pieces(weights: NDArray[Any], rest: NDArray[Any]) -> bytes:
    """The characters of weights or their codes, ``(queries, keys)``, then of what goes with them."""
    spans = row_spans(len(weights), weights[:1].nbytes)
    return _characters([*([weights[span]] for span in spans), [rest]])


def half_pieces(half: NDArray[np.float16], rest: Iterable[NDArray[Any]] = ()) -> bytes:
    """The characters of queries or keys, ``(tokens, features)``, then of what goes with them."""
    spans, rest = row_spans(len(half), 2 * half.shape[1]), list(rest)
    return _characters([*(planes(half[span]) for span in spans), *([rest] if rest else [])])


def row_spans(rows: int, bytes_of_row: int) -> list[slice]:
    """The rows of each piece."""
    each = max(1, -(-rows // MAX_PIECES), -(-MIN_BYTES // bytes_of_row))
    return [slice(first, first + each) for first in range(0, rows, each)]


def planes(half: NDArray[np.float16]) -> tuple[ByteArray, ByteArray]:
    """All high bytes, then all low ones: signs and exponents are few, and deflate when they are together."""
    pairs = np.ascontiguousarray(half, dtype="<f2").view(np.uint8).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 1]), np.ascontiguousarray(pairs[:, 0])


def _characters(pieces: Iterable[Iterable[NDArray[Any]]]) -> bytes:
    """Each piece deflated, in characters of which a space is none."""
    return b" ".join(base85(deflated(piece)) for piece in pieces)
