"""Makes maps from queries and keys: heads of short texts are computed when they are read; long texts keep factors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from attnviz.arrays.head_cells import LOWEST_PEAK
from attnviz.arrays.layers import (
    CAUSAL,
    AxisLabels,
    float_array,
    layers_of,
    refuse_layers_of_mask,
    refuse_not_finite,
    rule_cells,
    visible_cells,
)
from attnviz.attention.mask import Mask
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.layer_maps import LayerMaps, Window, is_long
from attnviz.maps.on_demand import OnDemandMaps
from attnviz.streaming.factors import Factors
from attnviz.text.tokens import Tokens

BLOCK_CELLS = 2**22  # cells whose scores are in memory at once while a log-sum-exp is computed


def maps_of_factors(
    queries: Any, keys: Any, mask: Any, scale: float | None, axis_labels: AxisLabels, may_change: bool = True
) -> Iterator[LayerMaps]:
    """Yields the maps of each layer and text: factors of long texts; heads of others are computed when they are read.

    Raises:
        AttnvizError: if queries and keys do not fit each other, a number is not finite, or the mask differs by head.
    """
    query_layers, key_layers = layers_of(queries, "queries", may_change), layers_of(keys, "keys", may_change)
    if len(query_layers) != len(key_layers):
        raise AttnvizError(
            f"queries have {len(query_layers)} layers and keys {len(key_layers)}; give the same number of layers"
        )
    refuse_layers_of_mask(mask, len(query_layers))
    for index, (query_layer, key_layer) in enumerate(zip(query_layers, key_layers, strict=True)):
        heads, key_heads = query_layer.array.shape[1], key_layer.array.shape[1]
        has_equal_features = query_layer.array.shape[-1] == key_layer.array.shape[-1]
        if len(query_layer.array) != len(key_layer.array):
            raise AttnvizError(
                f"queries have {len(query_layer.array)} texts and keys {len(key_layer.array)}; give the same texts"
            )
        if heads % key_heads or not has_equal_features:
            raise AttnvizError(
                f"queries of shape {query_layer.array.shape[1:]} do not fit keys of shape {key_layer.array.shape[1:]}; "
                "give the same features, and a number of key heads that divides the number of heads"
            )
        for item, (text_queries, text_keys) in enumerate(zip(query_layer.array, key_layer.array, strict=True)):
            query_tokens, key_tokens = axis_labels.of_axes(text_queries.shape[1], text_keys.shape[1])
            maps_fields: dict[str, Any] = {
                "layer": query_layer.number,
                "module": query_layer.name,
                "heads": tuple(range(heads)),
                "query_tokens": query_tokens,
                "key_tokens": key_tokens,
                "kind": "self" if query_tokens is key_tokens else "cross",
                "item": item,
            }
            query_array, key_array = float_array(text_queries, may_change), float_array(text_keys, may_change)
            location = f"layer {query_layer.number}"
            refuse_not_finite(query_array, "queries", location)
            refuse_not_finite(key_array, "keys", location)
            products = _products(query_array, key_array, mask, scale, index)
            if is_long(len(query_tokens), len(key_tokens)):
                yield FactoredMaps(**maps_fields, factors=products.factors())
            else:
                cells = tuple(ProductCells(products, head) for head in range(heads))
                visible = rule_cells(len(query_tokens), len(key_tokens), is_causal=products.mask.causal)
                if products.mask.explicit is not None:
                    visible = products.mask.explicit
                sharing = tuple(map(products.key_head, range(heads))) if key_heads < heads else None
                yield OnDemandMaps(**maps_fields, scale=products.scale, cells=cells, visible=visible, key_heads=sharing)


@dataclass(frozen=True, eq=False)
class _Products:
    """Queries and keys of one text in one layer, with the rules that turn their products into weights.

    Attributes:
        queries: ``(heads, queries, features)``.
    """

    queries: FloatArray
    keys: FloatArray
    scale: float
    mask: Mask

    def key_head(self, head: int) -> int:
        """Returns the index of the key head of a head: in grouped-query attention, a run of heads shares one."""
        return head * len(self.keys) // len(self.queries)

    def factors(self) -> Factors:
        """Returns the factors of all heads, with their log-sum-exps."""
        key_heads = tuple(map(self.key_head, range(len(self.queries))))
        logsumexp = [
            _logsumexp(head_queries, self.keys[key_head], self.scale, self.mask)
            for head_queries, key_head in zip(self.queries, key_heads, strict=True)
        ]
        return Factors(
            queries=self.queries,
            keys=self.keys,
            key_heads=key_heads,
            scale=self.scale,
            logsumexp=np.array(logsumexp),
            mask=self.mask,
        )

    def of_head(self, head: int) -> "_Products":
        """Returns the queries and keys of one head."""
        key_head = self.key_head(head)
        return replace(self, queries=self.queries[head : head + 1], keys=self.keys[key_head : key_head + 1])


@final
class ProductCells:
    """The cells of one head, computed from its queries and keys when they are first read, and then kept."""

    def __init__(self, products: _Products, head: int) -> None:
        self.products, self.head = products, head

    @cached_property
    def window(self) -> Window:
        """All cells of the head, as a window with one head."""
        factors = self.products.of_head(self.head).factors()
        queries, keys = factors.queries.shape[1], factors.keys.shape[1]
        maps = FactoredMaps(
            layer=0,
            module="",
            heads=(self.head,),
            query_tokens=Tokens.numbered(queries),
            key_tokens=Tokens.numbered(keys),
            factors=factors,
        )
        return maps.window(maps.heads, slice(0, queries), slice(0, keys))

    def weights(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of a block."""
        return self.window.weights[0, queries, keys]

    def scores(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block."""
        return self.window.scores[0, queries, keys]


def _products(queries: FloatArray, keys: FloatArray, mask: Any, scale: float | None, layer: int) -> _Products:
    """Returns the queries and keys of one text in one layer, with their scale and mask."""
    heads, query_count, features = queries.shape
    effective_scale = features**-0.5 if scale is None else float(scale)
    mask_rule = _mask(mask, heads, query_count, keys.shape[1], layer)
    return _Products(queries, keys, effective_scale, mask_rule)


def _mask(mask: Any, heads: int, queries: int, keys: int, layer: int) -> Mask:
    """Returns the mask of a layer as a rule; without a mask, every cell is visible."""
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
    """Returns the log-sum-exp of each query of one head, ``(queries,)``, computed in float64 in blocks of queries."""
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
