"""All heads of all layers in one map: mean, maximum and attention rollout.

Rollout follows Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3: each layer's
heads are averaged, and the residual connection is an identity that takes a share of every row.
"""

from collections.abc import Callable

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import AttnvizError, known_names, number_ranges
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LayerMaps


def reduce_heads(heads: list[tuple[LayerMaps, int]], method: str, residual: float = 0.5) -> DenseMaps:
    """One map of all the given heads, whose scores are absent (NaN), since weights are what is combined.

    Args:
        heads: the maps and the head's number, layers in the order in which they run.
        method: ``mean``, ``max`` or ``rollout``.
        residual: the residual connection's share of a row, for rollout: 0 to below 1.

    Raises:
        AttnvizError: for an unknown method, heads whose tokens differ, and for rollout whatever is not
            self-attention in layers that follow one another.
    """
    if method not in REDUCTIONS:
        raise AttnvizError(f"unknown --reduce {method!r}; {known_names(REDUCTIONS)} works")
    if not 0 <= residual < 1:
        raise AttnvizError(f"--residual {residual:g} is out of range; from 0 to below 1 works")
    _refuse_unlike(heads)
    weights, visible = REDUCTIONS[method](heads, residual)
    maps = heads[0][0]
    return DenseMaps(
        layer=heads[-1][0].layer,
        module=f"{method} of {len(heads)} heads",
        heads=(0,),
        query_tokens=maps.query_tokens,
        key_tokens=maps.key_tokens,
        kind=maps.kind,
        item=maps.item,
        scores=np.full((1, *weights.shape), np.nan, dtype=np.float32),
        weights=weights.astype(np.float32)[None],
        visible=visible,
    )


def mean(heads: list[tuple[LayerMaps, int]], residual: float) -> tuple[Float64Array, BoolArray]:
    """The mean over heads that see the cell, ``(queries, keys)``, and what any head sees."""
    total = sum(_weights(maps, head) for maps, head in heads)
    seen = sum(_visible(maps).astype(np.int64) for maps, _ in heads)
    return np.asarray(total / np.maximum(seen, 1)), np.asarray(seen > 0)


def largest(heads: list[tuple[LayerMaps, int]], residual: float) -> tuple[Float64Array, BoolArray]:
    """The largest weight of any head, ``(queries, keys)``, and what any head sees."""
    visible = np.logical_or.reduce([_visible(maps) for maps, _ in heads])
    return np.maximum.reduce([_weights(maps, head) for maps, head in heads]), np.asarray(visible)


def rollout(heads: list[tuple[LayerMaps, int]], residual: float) -> tuple[Float64Array, BoolArray]:
    """How much of each input token every last token is made of, ``(queries, keys)`` (section 3, equation 1).

    The layers' matrices with their residual, multiplied from the last to the first. Rows sum to one; where no layer
    looks ahead, neither does the product.
    """
    layers = mixed_layers(heads, residual)
    rolled = layers[0]
    for layer in layers[1:]:
        rolled = layer @ rolled
    return rolled, rolled > 0 if residual else reachable(layers)


REDUCTIONS: dict[str, Callable[[list[tuple[LayerMaps, int]], float], tuple[Float64Array, BoolArray]]] = {
    "mean": mean,
    "max": largest,
    "rollout": rollout,
}


def mixed_layers(heads: list[tuple[LayerMaps, int]], residual: float) -> list[Float64Array]:
    """Each layer's mean over heads with its residual, ``(tokens, tokens)``, first layer first; rows sum to one.

    A row that sees nothing passes on its own token alone.

    Raises:
        AttnvizError: for cross-attention, fewer queries than keys, or layers that do not follow one another.
    """
    _refuse_unconnected(heads)
    layers = []
    for layer in sorted({maps.layer for maps, _ in heads}):
        ours = [_weights(maps, head) for maps, head in heads if maps.layer == layer]
        mean_weights = np.mean(ours, axis=0)
        own = np.eye(len(mean_weights))
        share = np.where(mean_weights.sum(axis=-1, keepdims=True) > 0, residual, 1.0)
        mixed = share * own + (1 - share) * mean_weights
        layers.append(np.asarray(mixed / mixed.sum(axis=-1, keepdims=True)))
    return layers


def reachable(layers: list[Float64Array]) -> BoolArray:
    """Whether anything of each input token reaches each last token, ``(queries, keys)``."""
    reached = layers[0] > 0
    for layer in layers[1:]:
        reached = np.asarray((layer > 0) @ reached)
    return reached


def _weights(maps: LayerMaps, head: int) -> Float64Array:
    everything = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
    return np.asarray(maps.window((head,), *everything).weights[0], dtype=np.float64)


def _visible(maps: LayerMaps) -> BoolArray:
    return maps.visibility(slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens)))


def _refuse_unlike(heads: list[tuple[LayerMaps, int]]) -> None:
    """Raises AttnvizError where the heads do not look from the same tokens to the same tokens."""
    if len({maps.item for maps, _ in heads}) > 1:
        raise AttnvizError("--reduce takes one text, and this recording has several; record them one by one")
    if len({(maps.kind, maps.query_tokens.labels, maps.key_tokens.labels) for maps, _ in heads}) > 1:
        raise AttnvizError("--reduce takes heads over the same tokens; --layers chooses those of one kind")


def _refuse_unconnected(heads: list[tuple[LayerMaps, int]]) -> None:
    """Raises AttnvizError where the output of a layer is not the input of the next."""
    maps = heads[0][0]
    if maps.kind == "cross" or len(maps.query_tokens) != len(maps.key_tokens):
        raise AttnvizError("rollout follows self-attention from layer to layer; --reduce mean or max works here")
    layers = sorted({maps.layer for maps, _ in heads})
    if layers != list(range(layers[0], layers[-1] + 1)):
        raise AttnvizError(
            f"rollout needs layers that follow one another, not {number_ranges(layers)}; 0-{layers[-1]} works"
        )
