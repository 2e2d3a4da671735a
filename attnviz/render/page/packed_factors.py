"""Packs queries and keys of a page: instead of the weights of long texts, or beside those of short ones."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import FloatArray
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.render.page.encoding import base85, deflated_bytes, half_pieces, planes, rounded_fractions
from attnviz.report.picture.numbers import HeadCells
from attnviz.streaming.factors import Factors
from attnviz.streaming.overview import Overview

FLOAT16_ROUNDING = 2.0**-10 + 2.0**-22  # relative error bound of a product of two numbers that were rounded to float16
MAX_FLOAT16_EXPONENT = 15  # the numbers of a head are scaled below 2 to this power, well within float16
OVERVIEW_SHARE = 0.015  # bytes of an overview, relative to those of the factors
MIN_OVERVIEW_SIDE, MAX_OVERVIEW_SIDE = 48, 512  # pixels
PAGE_BYTES_PER_BYTE = 1.1  # approximate, for float16 factors: deflated, then five characters for four bytes
FACTORS_SENTENCE = "The browser computes weights and scores from queries and keys in float16, and shows their error."
FRACTION_BITS = 10  # of a float16
KEPT_BITS = 8  # of these bits: enough for three digits of a product
BYTES_PER_NUMBER = 1.9  # approximate, in the page
MAX_BYTES = 1_000_000  # of all queries and keys in a page
ROUNDING = 2.0**-KEPT_BITS + 2.0**-10  # relative error bound of a product of two rounded numbers


@dataclass(frozen=True, eq=False)
class PackedFactors:
    """The data from which a page computes the cells of one head of one recording."""

    content: bytes  # encoded pieces of the queries, then of the log-sum-exps and other arrays of this head alone
    keys: int  # the index of its keys among the page's
    about: dict[str, Any]  # the layout of the content and the rules of bias and mask, as JSON values
    overview: Overview  # the mean and maximum of all cells pooled to ``(height, width)``, for the first look


class KeyPool:
    """The keys of a page's heads; query heads that share keys share one entry.

    Attributes:
        index_of_keys: the index of each entry by factors, key/value head and range of keys.
        contents: the encoded keys of each entry, divided by a power of two.
        exponents: the exponent of this power for each entry.
        are_exact: for each entry, True if float16 rounds none of its numbers.
    """

    def __init__(self) -> None:
        self.index_of_keys: dict[tuple[int, int, int, int], int] = {}
        self.contents: list[bytes] = []
        self.exponents: list[int] = []
        self.are_exact: list[bool] = []

    def index(self, factors: Factors, head_index: int, head: HeadCells) -> int:
        """Returns the index of a head's keys in the pool; packs and adds them if the pool does not have them."""
        key_head = factors.key_heads[head_index]
        identity = (id(factors), key_head, head.keys.start, head.keys.stop)
        if identity not in self.index_of_keys:
            half_keys, exponent, is_exact = scaled_float16(np.asarray(factors.keys[key_head, head.keys]))
            self.index_of_keys[identity] = len(self.contents)
            self.contents.append(half_pieces(half_keys))
            self.exponents.append(exponent)
            self.are_exact.append(is_exact)
        return self.index_of_keys[identity]


def factored_bytes(heads: Iterable[HeadCells]) -> int | None:
    """Returns the approximate bytes of the heads' queries and keys in a page; ``None`` if a head has no `page_factors`.

    Keys that heads share count once.
    """
    total, counted_keys = 0.0, set()
    for head in heads:
        for maps in head.sides.values():
            factors = page_factors(maps)
            if factors is None:
                return None
            queries, keys = head.queries.stop - head.queries.start, head.keys.stop - head.keys.start
            features = factors.queries.shape[-1]
            identity = (id(factors), factors.key_heads[maps.heads.index(head.head)])
            new_keys = 0 if identity in counted_keys else keys
            # Features are float16; each query also has its log-sum-exp and may have other numbers, as float32.
            total += 2 * features * (queries + new_keys) + 8 * queries
            counted_keys.add(identity)
    return math.ceil(PAGE_BYTES_PER_BYTE * (1 + 2 * OVERVIEW_SHARE) * total)


def page_factors(maps: LayerMaps) -> Factors | None:
    """Returns the factors from which a page computes cells; ``None`` if it cannot.

    It can if the maps have factors, and their mask and bias follow rules instead of being given cell by cell.
    """
    factors = maps.cell_factors()
    if factors is None or factors.mask.explicit is not None or factors.bias.explicit is not None:
        return None
    return factors


def pack_factors(maps: LayerMaps, factors: Factors, head: HeadCells, key_pool: KeyPool) -> PackedFactors:
    """Returns the queries, keys and rules of one head of one recording, packed; adds its keys to the pool if needed."""
    [head_index] = maps.head_indices((head.head,))
    half_queries, exponent, is_exact = scaled_float16(np.asarray(factors.queries[head_index, head.queries]))
    keys_index = key_pool.index(factors, head_index, head)
    mask, bias = factors.mask, factors.bias
    # The bias of each distance key − query on the page.
    first_distance = bias.origin + head.keys.start - (head.queries.stop - 1)
    stop_distance = bias.origin + head.keys.stop - head.queries.start
    parts = {
        "sums": np.asarray(factors.logsumexp[head_index, head.queries], dtype=np.float32),
        "relative": None if bias.relative is None else bias.relative[head_index, first_distance:stop_distance],
        "byKey": None if bias.by_key is None else bias.by_key[head_index, head.keys],
        "real": None if mask.padding is None else mask.padding[head.keys].astype(np.float32),
    }
    present_parts = {name: part for name, part in parts.items() if part is not None}
    features = int(factors.queries.shape[-1])
    about = {
        "features": features,
        "unit": factors.scale * 2.0 ** (exponent + key_pool.exponents[keys_index]),
        "rounding": 0.0 if is_exact and key_pool.are_exact[keys_index] else FLOAT16_ROUNDING,
        "softcap": factors.softcap,
        "parts": {name: len(part) for name, part in present_parts.items()},
        # The rules of the mask, with the positions of the page's first query and first key.
        "mask": {name: getattr(mask, name) for name in ("causal", "window", "chunk", "prefix")}
        | {"firstQuery": head.queries.start + mask.offset, "firstKey": head.keys.start},
        "keys": keys_index,
    }

    queries, keys = head.queries.stop - head.queries.start, head.keys.stop - head.keys.start
    # A pixel is a byte, and a feature as float16 is two.
    side_of_share = int(math.sqrt(OVERVIEW_SHARE * 2 * features * (queries + keys)))
    side = min(MAX_OVERVIEW_SIDE, max(MIN_OVERVIEW_SIDE, side_of_share))
    shape = (min(side, queries), min(side, keys))
    overview = maps.overview((head.head,), *shape, head.queries, head.keys)
    return PackedFactors(half_pieces(half_queries, present_parts.values()), keys_index, about, overview)


def scaled_float16(numbers: FloatArray) -> tuple[NDArray[np.float16], int, bool]:
    """Returns numbers as float16, divided by a power of two so that they are below ``2 ** MAX_FLOAT16_EXPONENT``.

    Returns:
        The divided numbers, the exponent of the power, and True if no number was rounded.
    """
    largest = float(np.max(np.abs(numbers), where=np.isfinite(numbers), initial=0.0))
    exponent = math.frexp(largest)[1] - MAX_FLOAT16_EXPONENT if largest else 0
    scaled_numbers = np.ldexp(numbers, -exponent)
    half_numbers = scaled_numbers.astype(np.float16)
    return half_numbers, exponent, bool(np.array_equal(half_numbers.astype(np.float32), scaled_numbers, equal_nan=True))


def peak_of(maps: LayerMaps, head: HeadCells, overview: Overview) -> tuple[int, int, float] | None:
    """Returns the row, the column and the value of the largest weight; ``None`` if every cell is masked or NaN.

    The row and the column count from the starts of the head's ranges.
    """
    # -1 is below every weight.
    maxima = np.where(overview.visible & ~np.isnan(overview.maximum[0]), overview.maximum[0], np.float32(-1))
    if maxima.max() < 0:
        return None
    pixel = np.unravel_index(int(maxima.argmax()), maxima.shape)
    rows, columns = (
        slice(
            span.start + int(pixel_index) * (span.stop - span.start) // count,
            span.start + (int(pixel_index) + 1) * (span.stop - span.start) // count,
        )
        for span, pixel_index, count in zip((head.queries, head.keys), pixel, maxima.shape, strict=True)
    )
    window = cell_maps(maps).window((head.head,), rows, columns)
    cells = np.where(window.visible & ~np.isnan(window.weights[0]), window.weights[0], np.float32(-1))
    row, column = np.unravel_index(int(cells.argmax()), cells.shape)
    value = float(cells[row, column])
    return rows.start - head.queries.start + int(row), columns.start - head.keys.start + int(column), value


@dataclass(frozen=True, eq=False)
class _PackedScores:
    """The queries and keys of a page's heads."""

    content: bytes  # queries, then keys, head after head and recording after recording, as encoded float16
    about: list[list[dict[str, Any]]]  # by head, then by recording, how its numbers are read, as JSON values


def pack_scores(heads: tuple[HeadCells, ...]) -> _PackedScores | None:
    """Returns the queries and keys of the heads, packed, from which a page explains scores.

    Returns:
        ``None`` if the queries or keys of a head are unknown or together have too many numbers for a page.
    """
    number_count = 0
    for head in heads:
        for maps in head.sides.values():
            factors = maps.score_factors()
            if factors is None:
                return None
            tokens = head.queries.stop - head.queries.start + head.keys.stop - head.keys.start
            number_count += factors.queries.shape[-1] * tokens
    if BYTES_PER_NUMBER * number_count > MAX_BYTES:
        return None
    numbers: list[NDArray[np.float16]] = []  # of each head's sides the queries, then the keys
    about: list[list[dict[str, Any]]] = []
    for head in heads:
        about.append([])
        for maps in head.sides.values():
            factors = maps.score_factors()
            assert factors is not None
            [head_index] = maps.head_indices((head.head,))
            arrays = factors.queries[head_index, head.queries], factors.keys[factors.key_heads[head_index], head.keys]
            (queries, query_exponent, queries_exact), (keys, key_exponent, keys_exact) = (
                _rounded_float16(np.asarray(array)) for array in arrays
            )
            numbers += [queries.ravel(), keys.ravel()]
            description = {
                "features": queries.shape[-1],
                "unit": factors.scale * 2.0 ** (query_exponent + key_exponent),
                "rounding": 0.0 if queries_exact and keys_exact else ROUNDING,
            }
            about[-1].append(description)
    return _PackedScores(base85(deflated_bytes(planes(np.concatenate(numbers)))), about)


def _rounded_float16(numbers: NDArray[Any]) -> tuple[NDArray[np.float16], int, bool]:
    """Returns numbers as float16, divided by a power of two and rounded to `KEPT_BITS` bits of their fraction."""
    half_numbers, exponent, is_exact = scaled_float16(numbers)
    short_numbers: NDArray[np.float16] = rounded_fractions(half_numbers, FRACTION_BITS - KEPT_BITS)
    return short_numbers, exponent, is_exact and bool(np.array_equal(short_numbers, half_numbers, equal_nan=True))
