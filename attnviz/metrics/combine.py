"""All heads of all layers in one map: mean, maximum and attention rollout.

Rollout follows Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3: each layer's
heads are averaged, and the residual connection is an identity that takes a share of every row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import AttnvizError, known_names, nearest, number_ranges, option
from attnviz.maps.dense import DenseMaps
from attnviz.maps.derived import MAX_BAND_CELLS, DerivedMaps
from attnviz.maps.layer_maps import CellMaps, Window
from attnviz.streaming.overview import bands

REDUCTIONS = ("mean", "max", "rollout")
MAX_ROLLOUT_TOKENS = 8_192  # 512 MB a matrix of float64, of which three are held
Heads = list[tuple[CellMaps, int]]


def reduce_heads(heads: Heads, method: str, residual: float = 0.5) -> CellMaps:
    """One map of all the given heads, whose scores are absent (NaN), since weights are what is combined.

    Args:
        heads: the maps and the head's number, layers in the order in which they run.
        method: ``mean``, ``max`` or ``rollout``.
        residual: the residual connection's share of a row, for rollout: 0 to below 1.

    Raises:
        AttnvizError: for an unknown method, heads whose tokens differ, and for rollout whatever is not
            self-attention in layers that follow one another, or is too long.
    """
    if method not in REDUCTIONS:
        raise AttnvizError(
            f"unknown {option('reduce')} {method!r}; {nearest(method, REDUCTIONS)}{known_names(REDUCTIONS)} works"
        )
    if not 0 <= residual < 1:
        raise AttnvizError(f"{option('residual')} {residual:g} is out of range; from 0 to below 1 works")
    _refuse_unlike(heads)
    if method == "rollout":
        return rolled_out(heads, residual)
    maps = heads[0][0]
    return CombinedMaps(
        layer=heads[-1][0].layer,
        module=f"{method} of {len(heads)} heads",
        heads=(0,),
        query_tokens=maps.query_tokens,
        key_tokens=maps.key_tokens,
        kind=maps.kind,
        item=maps.item,
        quantity=maps.quantity,
        sources=tuple(heads),
        method="mean" if method == "mean" else "max",
    ).held()


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CombinedMaps(DerivedMaps):
    """The mean or the maximum of several heads as one head, number 0.

    Attributes:
        sources: the heads, of the same queries and keys.
        method: which of the two.
    """

    sources: tuple[tuple[CellMaps, int], ...]
    method: Literal["mean", "max"]

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The block of each head in turn, combined: the mean is over those that see the cell."""
        add = np.add if self.method == "mean" else np.maximum
        shape = queries.stop - queries.start, keys.stop - keys.start
        total, seen = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        for maps, head in self.sources:
            window = maps.window((head,), queries, keys)
            add(total, window.weights[0], out=total)
            seen += window.visible
        if self.method == "mean":
            total /= np.maximum(seen, 1)
        return _window_of(total, seen > 0, len(heads))

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """One: there is one head."""
        return [heads]


def rolled_out(heads: Heads, residual: float) -> DenseMaps:
    """How much of each input token every last token is made of, ``(queries, keys)`` (section 3, equation 1).

    The layers' matrices with their residual, multiplied from the last to the first. Rows sum to one; where no layer
    looks ahead, neither does the product.

    Raises:
        AttnvizError: for cross-attention, fewer queries than keys, layers that do not follow one another, or more
            than ``MAX_ROLLOUT_TOKENS`` tokens.
    """
    _refuse_unconnected(heads)
    layers = sorted({maps.layer for maps, _ in heads})
    mixed = (_mixed([each for each in heads if each[0].layer == layer], residual) for layer in layers)
    weights, visible = _product(mixed, paths=residual == 0)
    maps = heads[0][0]
    window = _window_of(weights, visible, 1)
    return DenseMaps(
        layer=heads[-1][0].layer,
        module=f"rollout of {len(heads)} heads",
        heads=(0,),
        query_tokens=maps.query_tokens,
        key_tokens=maps.key_tokens,
        kind=maps.kind,
        item=maps.item,
        quantity=maps.quantity,
        scores=window.scores,
        weights=window.weights,
        visible=window.visible,
    )


def _product(layers: Iterator[Float64Array], *, paths: bool) -> tuple[Float64Array, BoolArray]:
    """The product of the layers, the last first, and where anything arrives.

    With a residual that is where the product is positive; without one, small terms may vanish, so that ``paths``
    follows which token reaches which by itself.
    """
    product = next(layers)
    reached = (product > 0).astype(np.float32)
    for layer in layers:
        product = layer @ product
        if paths:
            reached = ((layer > 0).astype(np.float32) @ reached > 0).astype(np.float32)
    return product, reached > 0 if paths else product > 0


def _mixed(heads: Heads, residual: float) -> Float64Array:
    """A layer's mean over heads with its residual, ``(tokens, tokens)``; rows sum to one.

    Of contributions it is how a layer mixes tokens by what its heads move: c_ij = Σ_h ‖α_h,ij f_h(x_j)‖ / Σ_h,k
    ‖α_h,ik f_h(x_k)‖, so that a head which moves more counts for more (the norm-based mixing of Kobayashi et al. 2021,
    "Incorporating Residual and Normalization Layers", with the layers multiplied as in Ferrando et al. 2022,
    "Measuring the Mixing of Contextual Information"; heads are added by their norms, and the residual has the share
    that is given).

    A row that sees nothing passes on its own token alone.
    """
    count = len(heads[0][0].query_tokens)
    mixed = np.zeros((count, count))
    for band in bands(slice(0, count), count, MAX_BAND_CELLS):
        for maps, head in heads:
            mixed[band] += maps.window((head,), band, slice(0, count)).weights[0]
    mixed /= len(heads)
    if heads[0][0].quantity == "contribution":
        totals = mixed.sum(axis=-1, keepdims=True)
        np.divide(mixed, totals, out=mixed, where=totals > 0)
    share = np.where(mixed.sum(axis=-1, keepdims=True) > 0, residual, 1.0)
    mixed *= 1 - share
    mixed[np.diag_indices(count)] += share[:, 0]
    mixed /= mixed.sum(axis=-1, keepdims=True)
    return mixed


def _window_of(weights: Float64Array, visible: BoolArray, heads: int) -> Window:
    """The same map for each of so many heads, without scores."""
    shape = (heads, *weights.shape)
    nothing = np.broadcast_to(np.float32(np.nan), shape)
    return Window(nothing, np.broadcast_to(weights.astype(np.float32), shape), visible)


def _refuse_unlike(heads: Heads) -> None:
    """Raises AttnvizError where the heads do not look from the same tokens to the same tokens."""
    if len({maps.item for maps, _ in heads}) > 1:
        raise AttnvizError(f"{option('reduce')} takes one text, and this recording has several; record them one by one")
    if len({(maps.kind, maps.query_tokens.labels, maps.key_tokens.labels) for maps, _ in heads}) > 1:
        raise AttnvizError(
            f"{option('reduce')} takes heads over the same tokens; {option('layers')} chooses those of one kind"
        )


def _refuse_unconnected(heads: Heads) -> None:
    """Raises AttnvizError where the output of a layer is not the input of the next."""
    maps = heads[0][0]
    if maps.kind == "cross" or len(maps.query_tokens) != len(maps.key_tokens):
        works = f"{option('reduce', 'mean')} or max works here"
        raise AttnvizError(f"rollout follows self-attention from layer to layer; {works}")
    layers = sorted({maps.layer for maps, _ in heads})
    if layers != list(range(layers[0], layers[-1] + 1)):
        raise AttnvizError(
            f"rollout needs layers that follow one another, not {number_ranges(layers)}; 0-{layers[-1]} works"
        )
    if len(maps.query_tokens) > MAX_ROLLOUT_TOKENS:
        raise AttnvizError(
            f"rollout multiplies whole maps, and {len(maps.query_tokens)} tokens are too many; "
            f"up to {MAX_ROLLOUT_TOKENS} work, and {option('reduce', 'mean')} or max at any length"
        )
