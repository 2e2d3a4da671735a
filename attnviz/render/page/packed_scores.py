"""Packs queries and keys of short texts for a page, from which it explains a score feature by feature."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.maps.layer_maps import LayerMaps
from attnviz.render.page.encoding import base85, deflated_bytes, planes, rounded_fractions
from attnviz.render.page.packed_factors import scaled_float16
from attnviz.render.page.packing import PagePlan
from attnviz.report.picture.numbers import HeadCells

FRACTION_BITS = 10  # of a float16
KEPT_BITS = 8  # of these bits: enough for three digits of a product
BYTES_PER_NUMBER = 1.9  # approximate, in the page
MAX_BYTES = 1_000_000  # of all queries and keys in a page
ROUNDING = 2.0**-KEPT_BITS + 2.0**-10  # relative error bound of a product of two rounded numbers


@dataclass(frozen=True, eq=False)
class _PackedScores:
    """The queries and keys of a page's heads.

    Attributes:
        content: queries, then keys, head after head and recording after recording, as encoded float16.
        about: by head, then by recording, how its numbers are read, as JSON values.
    """

    content: bytes
    about: list[list[dict[str, Any]]]


def pack_scores(heads: tuple[HeadCells, ...], plan: PagePlan) -> _PackedScores | None:
    """Returns the queries and keys of the heads, packed, from which a page explains scores.

    Returns:
        ``None`` if the queries or keys of a head are unknown or together have too many numbers for a page. Also
        ``None`` for a page that has queries and keys instead of weights, and for a page that pools tokens.
    """
    if plan.factored or plan.block > 1:
        return None
    sizes = [_number_count(maps, head) for head in heads for maps in head.sides.values()]
    known_sizes = [size for size in sizes if size is not None]
    if len(known_sizes) < len(sizes) or BYTES_PER_NUMBER * sum(known_sizes) > MAX_BYTES:
        return None
    sides_of_heads = [[_packed_head(maps, head) for maps in head.sides.values()] for head in heads]
    numbers = np.concatenate([side_numbers for sides in sides_of_heads for side_numbers, _ in sides])
    about = [[description for _, description in sides] for sides in sides_of_heads]
    return _PackedScores(base85(deflated_bytes(planes(numbers))), about)


def _number_count(maps: LayerMaps, head: HeadCells) -> int | None:
    """Returns how many numbers a head's queries and keys have together; ``None`` if queries and keys are unknown."""
    factors = maps.score_factors()
    if factors is None:
        return None
    features = factors.queries.shape[-1]
    tokens = head.queries.stop - head.queries.start + head.keys.stop - head.keys.start
    return int(features * tokens)


def _packed_head(maps: LayerMaps, head: HeadCells) -> tuple[NDArray[np.float16], dict[str, Any]]:
    """Returns the queries, then the keys of a head as one array, ``(numbers,)``, and JSON values on how to read it."""
    factors = maps.score_factors()
    assert factors is not None
    [head_index] = maps.head_indices((head.head,))
    arrays = factors.queries[head_index, head.queries], factors.keys[factors.key_heads[head_index], head.keys]
    (queries, query_exponent, queries_exact), (keys, key_exponent, keys_exact) = (
        _rounded_float16(np.asarray(array)) for array in arrays
    )
    about = {
        "features": queries.shape[-1],
        "unit": factors.scale * 2.0 ** (query_exponent + key_exponent),
        "rounding": 0.0 if queries_exact and keys_exact else ROUNDING,
    }
    return np.concatenate([queries.ravel(), keys.ravel()]), about


def _rounded_float16(numbers: NDArray[Any]) -> tuple[NDArray[np.float16], int, bool]:
    """Returns numbers as float16, divided by a power of two and rounded to `KEPT_BITS` bits of their fraction."""
    half_numbers, exponent, is_exact = scaled_float16(numbers)
    short_numbers: NDArray[np.float16] = rounded_fractions(half_numbers, FRACTION_BITS - KEPT_BITS)
    return short_numbers, exponent, is_exact and bool(np.array_equal(short_numbers, half_numbers, equal_nan=True))
