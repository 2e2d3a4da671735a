"""Checks whether the weights of a file can come from a softmax, and words a remark if they cannot."""

from collections.abc import Iterable, Iterator

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.layer_maps import CellMaps, LayerMaps

SAMPLED_QUERIES = 8  # queries of each attention call: the first, the last, and some between
ROUNDED_ROWS = 0.02  # tolerance of a row's sum, for weights that were computed in half precision
ROUNDED_FACTORS = 0.3  # tolerance of a row's sum, for queries and keys rounded to bfloat16
OUTSIDE = 1e-3  # tolerance of a weight below 0 or above 1


def suspicious_weights(maps: Iterable[LayerMaps]) -> tuple[str, ...]:
    """Returns a sentence if weights are outside 0 to 1, and one if rows do not sum to 1; empty if neither."""
    rows = [row for each in maps if isinstance(each, CellMaps) for heads in _groups(each) for row in _rows(each, heads)]
    if not rows:
        return ()
    smallest, largest, least, most = np.array(rows).T
    remarks = []
    if smallest.min() < -OUTSIDE or largest.max() > 1 + OUTSIDE:
        remarks.append(
            f"Warning: this file has weights from {smallest.min():.3g} to {largest.max():.3g}, and attention weights "
            "are from 0 to 1."
        )
    if least.min() < 0 or most.max() > 0:
        remarks.append(
            f"Rows of weights sum to {1 + least.min():.3g} to {1 + most.max():.3g} and not to 1: they are not the "
            "softmax over these keys alone."
        )
    return tuple(remarks)


def _groups(maps: CellMaps) -> list[tuple[int, ...]]:
    """Returns the heads to check, grouped by visible cells; of factored maps only the first, as cells cost time."""
    return maps.head_groups(maps.heads if maps.cell_factors() is None else maps.heads[:1])


def _rows(maps: CellMaps, heads: tuple[int, ...]) -> Iterator[Float64Array]:
    """Yields four numbers per sampled query: smallest and largest weight, and the errors of the sums below and above 1.

    Errors within the tolerance of rounding count as 0.
    """
    tolerance = ROUNDED_FACTORS if getattr(maps, "rounding", 0) else ROUNDED_ROWS
    count = len(maps.query_tokens)
    for query in sorted(set(np.linspace(0, count - 1, min(SAMPLED_QUERIES, count)).astype(int).tolist())):
        window = maps.window(heads, slice(query, query + 1), slice(0, len(maps.key_tokens)))
        weights = window.weights[:, 0, window.visible[0]].astype(np.float64)
        weights = weights[np.isfinite(weights).all(axis=1)]
        if weights.size:
            sums = weights.sum(axis=1) - 1
            below, above = (float(error) if abs(error) > tolerance else 0.0 for error in (sums.min(), sums.max()))
            yield np.array([weights.min(), weights.max(), min(below, 0.0), max(above, 0.0)])
