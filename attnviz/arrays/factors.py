"""Makes maps from queries and keys: whole maps of short texts; factors of long ones, which give any window exactly."""

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


def maps_of_factors(
    queries: Any, keys: Any, mask: Any, scale: float | None, axis_labels: AxisLabels
) -> Iterator[LayerMaps]:
    """Yields the maps of each layer and text: whole maps if the text is short, else factors.

    Args:
        queries: queries in a form that `from_arrays` takes.
        keys: keys in such a form.
        mask: the mask of `from_arrays`.
        scale: the factor of q·k; ``None`` for 1/√features.
        axis_labels: the labels of both axes.

    Raises:
        AttnvizError: if queries and keys do not fit each other, a number is NaN, or the mask differs by head.
    """
    query_layers, key_layers = layers_of(queries, "queries"), layers_of(keys, "keys")
    if len(query_layers) != len(key_layers):
        raise AttnvizError(
            f"queries have {len(query_layers)} layers and keys {len(key_layers)}; give the same number of layers"
        )
    for index, (query_layer, key_layer) in enumerate(zip(query_layers, key_layers, strict=True)):
        heads, key_heads = query_layer.array.shape[1], key_layer.array.shape[1]
        has_equal_features = query_layer.array.shape[-1] == key_layer.array.shape[-1]
        has_equal_texts = len(query_layer.array) == len(key_layer.array)
        if heads % key_heads or not has_equal_features or not has_equal_texts:
            raise AttnvizError(
                f"queries of shape {query_layer.array.shape[1:]} do not fit keys of shape {key_layer.array.shape[1:]}; "
                "give the same features, and a number of key heads that divides the number of heads"
            )
        for item, (text_queries, text_keys) in enumerate(zip(query_layer.array, key_layer.array, strict=True)):
            query_tokens, key_tokens = axis_labels.of_axes(text_queries.shape[1], text_keys.shape[1])
            maps = FactoredMaps(
                layer=query_layer.number,
                module=query_layer.name,
                heads=tuple(range(heads)),
                query_tokens=query_tokens,
                key_tokens=key_tokens,
                kind="self" if query_tokens is key_tokens else "cross",
                item=item,
                factors=_factors(text_queries, text_keys, mask, scale, index),
            )
            yield maps if is_long(len(query_tokens), len(key_tokens)) else _dense_maps(maps)


def _factors(queries: NDArray[Any], keys: NDArray[Any], mask: Any, scale: float | None, layer: int) -> Factors:
    """Returns the factors of one text in one layer.

    Args:
        queries: ``(heads, queries, features)``.
        keys: ``(key heads, keys, features)``.
        mask: the mask of `from_arrays`.
        scale: the factor of q·k; ``None`` for 1/√features.
        layer: the index of the layer.

    Raises:
        AttnvizError: if a number is NaN, or `_mask` refuses the mask.
    """
    query_numbers, key_numbers = (np.array(array, dtype=np.float32) for array in (queries, keys))
    refuse_nan(query_numbers, "queries", f"layer {layer}")
    refuse_nan(key_numbers, "keys", f"layer {layer}")
    heads, query_count, features = query_numbers.shape
    # the key head of each head: in grouped-query attention, a run of heads shares one
    key_heads = tuple(head * len(key_numbers) // heads for head in range(heads))
    effective_scale = features**-0.5 if scale is None else float(scale)
    mask_rule = _mask(mask, heads, query_count, key_numbers.shape[1], layer)
    logsumexp = [
        _logsumexp(head_queries, key_numbers[key_head], effective_scale, mask_rule)
        for head_queries, key_head in zip(query_numbers, key_heads, strict=True)
    ]
    return Factors(
        queries=query_numbers,
        keys=key_numbers,
        key_heads=key_heads,
        scale=effective_scale,
        logsumexp=np.array(logsumexp),
        mask=mask_rule,
    )


def _mask(mask: Any, heads: int, queries: int, keys: int, layer: int) -> Mask:
    """Returns the mask of a layer as a rule; without a mask, every cell is visible.

    Args:
        mask: the mask of `from_arrays`.
        heads: the number of heads.
        queries: the number of queries.
        keys: the number of keys.
        layer: the index of the layer, for a mask with an axis of layers.

    Raises:
        AttnvizError: if heads see different cells, or `visible_cells` refuses the mask.
    """
    if mask is None or (isinstance(mask, str) and mask == CAUSAL):
        is_causal = mask is not None
        return Mask(causal=is_causal, offset=keys - queries if is_causal else 0)
    visible = visible_cells(mask, (heads, queries, keys), layer)
    if visible is not None and visible.ndim == 3:
        raise AttnvizError(
            "a mask that differs by head needs weights or scores; give these instead of queries and keys"
        )
    return Mask(explicit=visible)


def _logsumexp(queries: FloatArray, keys: FloatArray, scale: float, mask: Mask) -> FloatArray:
    """Returns the log-sum-exp of each query of one head, ``(queries,)``, computed in float64 in blocks of queries.

    A query that sees no key has −inf.

    Args:
        queries: ``(queries, features)``.
        keys: ``(keys, features)``.
        scale: the factor of q·k.
        mask: the visible cells.
    """
    block_queries = max(BLOCK_CELLS // len(keys), 1)
    logsumexp = np.empty(len(queries), dtype=np.float32)
    transposed_keys = keys.T.astype(np.float64)
    for start in range(0, len(queries), block_queries):
        stop = min(start + block_queries, len(queries))
        scores = (queries[start:stop].astype(np.float64) * scale) @ transposed_keys
        scores[~mask.visible(slice(start, stop), slice(0, len(keys)))] = -np.inf
        peaks = np.maximum(scores.max(axis=1, keepdims=True), LOWEST_PEAK)  # finite where a query sees no key
        with np.errstate(divide="ignore"):  # log(0) is the −inf of a query that sees no key
            logsumexp[start:stop] = np.log(np.exp(scores - peaks).sum(axis=1)) + peaks[:, 0]
    return logsumexp


def _dense_maps(maps: FactoredMaps) -> DenseMaps:
    """Returns dense maps with every cell of factored maps."""
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
