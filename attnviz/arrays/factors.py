"""Maps from queries and keys: short ones whole, long ones as factors of which any window is exact."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.layers import CAUSAL, AxisLabels, layers_of, refuse_nan, visible_cells
from attnviz.attention.mask import Mask
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.dense import DenseMaps
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.layer_maps import LayerMaps, is_long
from attnviz.streaming.factors import Factors

BLOCK_CELLS = 2**22  # cells whose scores are in memory at once while a log-sum-exp is computed
LOWEST_PEAK = -1e30  # finite, in place of the −inf that is the largest score of a query that sees no key


def maps_of_factors(queries: Any, keys: Any, mask: Any, scale: float | None, names: AxisLabels) -> Iterator[LayerMaps]:
    """Yields maps computed from queries and keys: every cell of short ones, and of long ones what is asked for."""
    both = layers_of(queries, "queries"), layers_of(keys, "keys")
    if len(both[0]) != len(both[1]):
        raise AttnvizError(f"queries of {len(both[0])} layers and keys of {len(both[1])}; give as many of both")
    for place, (layer, other) in enumerate(zip(*both, strict=True)):
        heads, key_heads = layer.array.shape[1], other.array.shape[1]
        if heads % key_heads or layer.array.shape[-1] != other.array.shape[-1] or len(layer.array) != len(other.array):
            raise AttnvizError(
                f"queries of shape {layer.array.shape[1:]} do not fit keys of shape {other.array.shape[1:]}; give as "
                "many features, and a number of key heads that divides that of the heads"
            )
        for item, (rows, columns) in enumerate(zip(layer.array, other.array, strict=True)):
            query_tokens, key_tokens = names.of_axes(rows.shape[1], columns.shape[1])
            maps = FactoredMaps(
                layer=layer.number,
                module=layer.name,
                heads=tuple(range(heads)),
                query_tokens=query_tokens,
                key_tokens=key_tokens,
                kind="self" if query_tokens is key_tokens else "cross",
                item=item,
                factors=_factors(rows, columns, mask, scale, place),
            )
            yield maps if is_long(len(query_tokens), len(key_tokens)) else _whole(maps)


def _factors(queries: NDArray[Any], keys: NDArray[Any], mask: Any, scale: float | None, layer: int) -> Factors:
    """Returns the factors of one layer, ``(heads, tokens, features)``, with the log-sum-exp of each row."""
    rows, columns = (np.array(array, dtype=np.float32) for array in (queries, keys))
    refuse_nan(rows, "queries", f"layer {layer}")
    refuse_nan(columns, "keys", f"layer {layer}")
    heads, count, features = rows.shape
    key_heads = tuple(head * len(columns) // heads for head in range(heads))
    factor = features**-0.5 if scale is None else float(scale)
    rule = _mask(mask, heads, count, columns.shape[1], layer)
    sums = [_logsumexp(row, columns[place], factor, rule) for row, place in zip(rows, key_heads, strict=True)]
    return Factors(queries=rows, keys=columns, key_heads=key_heads, scale=factor, logsumexp=np.array(sums), mask=rule)


def _mask(mask: Any, heads: int, queries: int, keys: int, layer: int) -> Mask:
    if mask is None or (isinstance(mask, str) and mask == CAUSAL):
        return Mask(causal=mask is not None, offset=0 if mask is None else keys - queries)
    visible = visible_cells(mask, (heads, queries, keys), layer)
    if visible is not None and visible.ndim == 3:
        raise AttnvizError(
            "a mask of each head its own needs the weights or scores; give them instead of queries and keys"
        )
    return Mask(explicit=visible)


def _logsumexp(queries: FloatArray, keys: FloatArray, scale: float, mask: Mask) -> FloatArray:
    """Returns the log-sum-exp of each row of one head, ``(queries,)``, computed in float64 block by block."""
    rows = max(BLOCK_CELLS // len(keys), 1)
    sums = np.empty(len(queries), dtype=np.float32)
    columns = keys.T.astype(np.float64)
    for start in range(0, len(queries), rows):
        stop = min(start + rows, len(queries))
        scores = (queries[start:stop].astype(np.float64) * scale) @ columns
        scores[~mask.visible(slice(start, stop), slice(0, len(keys)))] = -np.inf
        peaks = np.maximum(scores.max(axis=1, keepdims=True), LOWEST_PEAK)
        with np.errstate(divide="ignore"):
            sums[start:stop] = np.log(np.exp(scores - peaks).sum(axis=1)) + peaks[:, 0]
    return sums


def _whole(maps: FactoredMaps) -> DenseMaps:
    """Returns the maps with every cell computed."""
    queries, keys = len(maps.query_tokens), len(maps.key_tokens)
    window = maps.window(maps.heads, slice(0, queries), slice(0, keys))
    return DenseMaps(
        layer=maps.layer,
        module=maps.module,
        heads=maps.heads,
        query_tokens=maps.query_tokens,
        key_tokens=maps.key_tokens,
        kind=maps.kind,
        item=maps.item,
        scale=maps.scale,
        scores=window.scores,
        weights=window.weights,
        visible=window.visible,
    )
