"""Combines many heads into one map: their mean, their maximum, or attention rollout.

Rollout follows Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3: it averages each
layer's heads and models the residual connection as an identity matrix with a fixed share of every row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.derived import MAX_BAND_CELLS, DerivedMaps, without_sink
from attnviz.maps.layer_maps import CellMaps, Window
from attnviz.maps.recording import head_name
from attnviz.streaming.overview import bands_of_queries

MAX_ROLLOUT_TOKENS = 8_192  # 512 MB for a matrix in float64; three are in memory at once
MAX_NAMED_HEADS = 6  # in the name of a combination; of more, it gives their number
METHOD_WORDS = {"mean": "mean", "max": "maximum", "rollout": "rollout"}
Heads = list[tuple[CellMaps, int]]


def combined_name(method: str, names: Sequence[str]) -> str:
    """Returns the name of a combination, such as ``mean of heads 0.1, 0.2``.

    More than `MAX_NAMED_HEADS` heads are counted, not named.
    """
    if len(names) > MAX_NAMED_HEADS:
        return f"{METHOD_WORDS[method]} of {len(names)} heads"
    plural = "s" if len(names) > 1 else ""
    return f"{METHOD_WORDS[method]} of head{plural} {', '.join(names)}"


def reduce_heads(heads: Heads, method: str, residual: float = 0.5) -> CellMaps:
    """Returns one map that combines the weights of heads; its scores are NaN.

    Returns:
        Maps with one head, number 0, in the layer of the last head.
    """
    if len({maps.item for maps, _ in heads}) > 1:
        raise AttnvizError(f"{option('reduce')} takes one text, and this recording has several; record them one by one")
    if len({(maps.kind, maps.query_tokens.labels, maps.key_tokens.labels) for maps, _ in heads}) > 1:
        raise AttnvizError(
            f"{option('reduce')} takes heads over the same tokens; choose layers of one kind with {option('layers')}"
        )
    if method == "rollout":
        return rollout(heads, residual)
    return CombinedMaps(
        **_fields(heads, method),
        sources=tuple(heads),
        method="mean" if method == "mean" else "max",
    ).dense_if_small()


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CombinedMaps(DerivedMaps):
    """Maps whose only head, number 0, is the mean or the maximum of several heads."""

    sources: tuple[tuple[CellMaps, int], ...]  # the heads that are combined, over the same queries and keys
    method: Literal["mean", "max"]  # ``mean`` or ``max``

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a window of the combined map, once for each of ``heads``.

        A cell has the mean or the maximum of the source heads in which it is visible. It is masked, with the weight 0,
        if it is visible in none.
        """
        accumulate = np.add if self.method == "mean" else np.maximum
        shape = queries.stop - queries.start, keys.stop - keys.start
        combined_weights, visible_counts = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        for maps, head in self.sources:
            window = maps.window((head,), queries, keys)
            accumulate(combined_weights, window.weights[0], out=combined_weights)
            visible_counts += window.visible
        if self.method == "mean":
            combined_weights /= np.maximum(visible_counts, 1)
        return _repeated_window(combined_weights, visible_counts > 0, len(heads))

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns all heads as one group, since there is one map."""
        return [heads]


def rollout(heads: Heads, residual: float) -> DenseMaps:
    """Returns attention rollout: each input token's share of each token after the last layer, as a map of one head.

    It multiplies the layers' matrices, each with its residual, from the last to the first. Rows sum to one, and the
    product is causal if every layer is. Source: Abnar and Zuidema 2020, section 3, equation 1.
    """
    heads = [(without_sink(maps), head) for maps, head in heads]  # a sink mixes nothing into a token
    maps = heads[0][0]
    if maps.kind == "cross" or len(maps.query_tokens) != len(maps.key_tokens):
        raise AttnvizError(
            f"rollout follows self-attention from layer to layer; use {option('reduce', 'mean')} or max here"
        )
    layers = sorted({maps.layer for maps, _ in heads})
    if layers != list(range(layers[0], layers[-1] + 1)):
        raise AttnvizError(
            f"rollout needs layers that follow one another, not {number_ranges(layers)}; choose 0-{layers[-1]}"
        )
    if len(maps.query_tokens) > MAX_ROLLOUT_TOKENS:
        raise AttnvizError(
            f"rollout multiplies whole maps, and {len(maps.query_tokens)} tokens are too many; "
            f"give at most {MAX_ROLLOUT_TOKENS}, or use {option('reduce', 'mean')} or max, which take any length"
        )
    heads_by_layer = ([head for head in heads if head[0].layer == layer] for layer in layers)
    matrices = (_mixing_matrix(layer_heads, residual) for layer_heads in heads_by_layer)  # one in memory at a time
    weights = next(matrices)
    reached_cells = (weights > 0).astype(np.float32)  # by a path of attention; with a residual, where a weight is
    for matrix in matrices:
        weights = matrix @ weights
        if residual == 0:
            reached_cells = ((matrix > 0).astype(np.float32) @ reached_cells > 0).astype(np.float32)
    window = _repeated_window(weights, reached_cells > 0 if residual == 0 else weights > 0, 1)
    return DenseMaps(**_fields(heads, "rollout"), scores=window.scores, weights=window.weights, visible=window.visible)


def _fields(heads: Heads, method: str) -> dict[str, Any]:
    """Returns what the map of combined heads has from them: the tokens of the first, in the layer of the last."""
    names = ("query_tokens", "key_tokens", "kind", "item", "quantity")
    fields = {name: getattr(heads[0][0], name) for name in names}
    module = combined_name(method, [head_name(*head) for head in heads])
    return {"layer": heads[-1][0].layer, "module": module, "heads": (0,)} | fields


def _mixing_matrix(heads: Heads, residual: float) -> Float64Array:
    """Returns the mean of a layer's heads plus its residual connection, ``(tokens, tokens)``; rows sum to one."""
    first_maps, _ = heads[0]
    count = len(first_maps.query_tokens)
    mixing = np.zeros((count, count))
    for band in bands_of_queries(slice(0, count), count, MAX_BAND_CELLS):
        for maps, head in heads:
            mixing[band] += maps.window((head,), band, slice(0, count)).weights[0]
    mixing /= len(heads)
    if first_maps.quantity == "contribution":
        totals = mixing.sum(axis=-1, keepdims=True)
        np.divide(mixing, totals, out=mixing, where=totals > 0)
    residual_shares = np.where(mixing.sum(axis=-1, keepdims=True) > 0, residual, 1.0)
    mixing *= 1 - residual_shares
    mixing[np.diag_indices(count)] += residual_shares[:, 0]
    mixing /= mixing.sum(axis=-1, keepdims=True)
    return mixing


def _repeated_window(weights: Float64Array, visible: BoolArray, heads: int) -> Window:
    """Returns a window of ``heads`` heads, each with the weights ``(queries, keys)``; all scores are NaN."""
    shape = (heads, *weights.shape)
    scores = np.broadcast_to(np.float32(np.nan), shape)
    return Window(scores, np.broadcast_to(weights.astype(np.float32), shape), visible)
