"""Packs queries and keys of a page: instead of the weights of long texts, or beside those of short ones."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import FloatArray
from attnviz.maps.layer_maps import LayerMaps
from attnviz.render.page.encoding import base85, deflated_bytes, half_pieces, planes, rounded_fractions
from attnviz.report.picture.report import HeadCells
from attnviz.streaming.overview import Factors, Overview

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


class KeyPool:
    """The keys of a page's heads; query heads that share keys share one entry.

    Attributes:
        contents: the encoded keys of each entry, divided by a power of two.
        entries: by factors, key/value head and range of keys the index of its entry, the exponent of the power, and
            True if float16 rounds none of its numbers.
    """

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.entries: dict[tuple[int, int, int, int], tuple[int, int, bool]] = {}

    def entry(self, factors: Factors, key_head: int, keys: slice) -> tuple[int, int, bool]:
        """Returns the entry of keys; packs and adds them if the pool does not have them."""
        identity = (id(factors), key_head, keys.start, keys.stop)
        if identity not in self.entries:
            half_keys, exponent, is_exact = scaled_float16(np.asarray(factors.keys[key_head, keys]))
            self.entries[identity] = len(self.contents), exponent, is_exact
            self.contents.append(half_pieces(half_keys))
        return self.entries[identity]


def pack_factors(maps: LayerMaps, factors: Factors, head: HeadCells, key_pool: KeyPool) -> tuple[bytes, dict[str, Any]]:
    """Packs what a page computes the cells of one head of one recording from; adds its keys to the pool if needed.

    Returns:
        Encoded pieces of the queries, then of the log-sum-exps and other arrays of this head alone; and the layout of
        these and the rules of bias and mask, as JSON values.
    """
    [head_index] = maps.head_indices((head.head,))
    half_queries, exponent, is_exact = scaled_float16(np.asarray(factors.queries[head_index, head.queries]))
    keys_index, key_exponent, keys_exact = key_pool.entry(factors, factors.key_heads[head_index], head.keys)
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
    about = {
        "features": int(factors.queries.shape[-1]),
        "unit": factors.scale * 2.0 ** (exponent + key_exponent),
        "rounding": 0.0 if is_exact and keys_exact else FLOAT16_ROUNDING,
        "softcap": factors.softcap,
        "parts": {name: len(part) for name, part in present_parts.items()},
        # The rules of the mask, with the positions of the page's first query and first key.
        "mask": {name: getattr(mask, name) for name in ("causal", "window", "chunk", "prefix", "tail")}
        | {"firstQuery": head.queries.start + mask.offset, "firstKey": head.keys.start},
        "keys": keys_index,
    }
    return half_pieces(half_queries, present_parts.values()), about


def factored_overview(maps: LayerMaps, head: HeadCells, features: int) -> Overview:
    """Returns the overview of a head that a page has queries and keys of, in proportion to their bytes."""
    queries, keys = head.queries.stop - head.queries.start, head.keys.stop - head.keys.start
    # A pixel is a byte, and a feature as float16 is two.
    side = int(math.sqrt(OVERVIEW_SHARE * 2 * features * (queries + keys)))
    side = min(MAX_OVERVIEW_SIDE, max(MIN_OVERVIEW_SIDE, side))
    return maps.overview((head.head,), min(side, queries), min(side, keys), head.queries, head.keys)


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


def pack_scores(heads: Iterable[HeadCells]) -> tuple[bytes, list[list[dict[str, Any]]]] | None:
    """Packs the queries and keys of short texts, from which a page explains scores.

    Returns:
        Queries, then keys, head after head and recording after recording, as encoded float16; and by head, then by
        recording, how they are read, as JSON values. ``None`` if the queries or keys of a head are unknown or together
        have too many numbers for a page.
    """
    numbers: list[NDArray[Any]] = []
    about: list[list[dict[str, Any]]] = []
    number_count = 0
    for head in heads:
        about.append([])
        for maps in head.sides.values():
            factors = maps.score_factors()
            if factors is None:
                return None
            [head_index] = maps.head_indices((head.head,))
            arrays = factors.queries[head_index, head.queries], factors.keys[factors.key_heads[head_index], head.keys]
            number_count += sum(array.size for array in arrays)
            if BYTES_PER_NUMBER * number_count > MAX_BYTES:
                return None
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
    return base85(deflated_bytes(planes(np.concatenate(numbers)))), about


def _rounded_float16(numbers: NDArray[Any]) -> tuple[NDArray[np.float16], int, bool]:
    """Returns numbers as float16, divided by a power of two and rounded to `KEPT_BITS` bits of their fraction."""
    half_numbers, exponent, is_exact = scaled_float16(numbers)
    short_numbers: NDArray[np.float16] = rounded_fractions(half_numbers, FRACTION_BITS - KEPT_BITS)
    return short_numbers, exponent, is_exact and bool(np.array_equal(short_numbers, half_numbers, equal_nan=True))
