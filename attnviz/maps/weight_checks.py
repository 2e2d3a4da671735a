"""Checks if the weights of a file can come from a softmax, and warns if they cannot."""

from collections.abc import Iterable, Iterator

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.layer_maps import CellMaps, LayerMaps

SAMPLED_QUERIES = 8  # queries of each attention call: the first, the last, and some between
HALF_PRECISION_TOLERANCE = 0.02  # tolerance of a row's sum, for weights that were computed in half precision
BFLOAT16_TOLERANCE = 0.3  # tolerance of a row's sum, for queries and keys rounded to bfloat16
RANGE_TOLERANCE = 1e-3  # tolerance of a weight below 0 or above 1


def weight_warnings(maps: Iterable[LayerMaps]) -> tuple[str, ...]:
    """Returns a warning if weights are below 0 or above 1, and one if rows do not sum to 1; else an empty tuple.

    Checks a few rows of each attention call, but no pooled maps and no rows that are not finite.
    """
    rows: list[Float64Array] = []
    for layer_maps in maps:
        if isinstance(layer_maps, CellMaps):
            # only the first head of factored maps, which are slow
            checked = layer_maps.heads if layer_maps.cell_factors() is None else layer_maps.heads[:1]
            for heads in layer_maps.head_groups(checked):
                rows.extend(_row_extremes(layer_maps, heads))
    if not rows:
        return ()
    minima, maxima, lowest_deviations, highest_deviations = np.array(rows).T  # see `_row_extremes`
    warnings = []
    if minima.min() < -RANGE_TOLERANCE or maxima.max() > 1 + RANGE_TOLERANCE:
        warnings.append(
            f"Warning: this file has weights from {minima.min():.3g} to {maxima.max():.3g}, and attention weights "
            "are from 0 to 1."
        )
    lowest_deviation, highest_deviation = lowest_deviations.min(), highest_deviations.max()
    if lowest_deviation < 0 or highest_deviation > 0:
        lowest_sum, highest_sum = f"{1 + lowest_deviation:.3g}", f"{1 + highest_deviation:.3g}"
        sums = lowest_sum if lowest_sum == highest_sum else f"{lowest_sum} to {highest_sum}"
        warnings.append(f"Rows of weights sum to {sums}; those of a softmax over these keys alone would sum to 1.")
    return tuple(warnings)


def _row_extremes(maps: CellMaps, heads: tuple[int, ...]) -> Iterator[Float64Array]:
    """Yields for each sampled query its smallest and largest weight, then the smallest and largest row sum minus 1."""
    tolerance = BFLOAT16_TOLERANCE if getattr(maps, "rounding", 0) else HALF_PRECISION_TOLERANCE
    count = len(maps.query_tokens)
    for query in sorted(set(np.linspace(0, count - 1, min(SAMPLED_QUERIES, count)).astype(int).tolist())):
        window = maps.window(heads, slice(query, query + 1), slice(0, len(maps.key_tokens)))
        weights = window.weights[:, 0, window.visible[0]].astype(np.float64)
        weights = weights[np.isfinite(weights).all(axis=1)]
        if weights.size:
            deviations = weights.sum(axis=1) - 1
            deviations = np.where(np.abs(deviations) > tolerance, deviations, 0.0)
            yield np.array([weights.min(), weights.max(), deviations.min(), deviations.max()])
