"""Maps from weights or scores: each row is checked, and what was not given is computed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.layers import CAUSAL, ArrayLayer, AxisLabels, layers_of, refuse_nan, visible_cells
from attnviz.base.arrays import BoolArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import refuse_without_memory
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LayerMaps

ROW_TOLERANCE = 1e-2  # the largest error of the sum of a row: bfloat16 keeps 3 digits of each weight
MASKED_SCORE = -1e9  # scores from here down are what libraries write into masked cells
SMALLEST_WEIGHT = float(np.finfo(np.float32).tiny)  # whose logarithm stands for that of 0
TAKEN_AS_CAUSAL = "Every weight above the diagonal is 0: the mask is taken to be causal; give a mask if it is not."
LOG_WEIGHTS = "Scores were not given: they are the logarithms of the weights, which leaves out a constant of each row."


def maps_of_cells(weights: Any, scores: Any, mask: Any, names: AxisLabels) -> tuple[list[LayerMaps], list[str]]:
    """Returns maps that hold each weight and score, and remarks about them."""
    of_weights = None if weights is None else layers_of(weights, "weights")
    of_scores = None if scores is None else layers_of(scores, "scores")
    if (
        of_weights
        and of_scores
        and [each.array.shape for each in of_weights] != [each.array.shape for each in of_scores]
    ):
        raise AttnvizError("weights and scores are of different shapes; give both of the same heads, queries and keys")
    causal = of_weights is not None and mask is None and all(map(_is_causal, of_weights))
    maps: list[LayerMaps] = []
    for place, layer in enumerate(of_weights or of_scores or []):
        visible = visible_cells(CAUSAL if causal else mask, layer.array.shape[1:], place)
        for item in range(len(layer.array)):
            cells = [None if each is None else each[place].array[item] for each in (of_weights, of_scores)]
            maps.append(_dense_maps(layer, item, *cells, visible=visible, names=names))
    return maps, [TAKEN_AS_CAUSAL] * causal + [LOG_WEIGHTS] * (scores is None)


def _dense_maps(
    layer: ArrayLayer,
    item: int,
    weights: NDArray[Any] | None,
    scores: NDArray[Any] | None,
    *,
    visible: BoolArray | None,
    names: AxisLabels,
) -> DenseMaps:
    """Returns the maps of one text in one layer; its arrays are ``(heads, queries, keys)``."""
    heads, queries, keys = layer.array.shape[1:]
    needed = 3 * heads * queries * keys * np.dtype(np.float32).itemsize
    refuse_without_memory(needed, f"{heads} maps of {queries} x {keys} cells", "give fewer heads")
    query_tokens, key_tokens = names.of_axes(queries, keys)
    where = f"layer {layer.number}" + (f", text {item}" if len(layer.array) > 1 else "")
    cells = _of_scores(scores, visible, where) if weights is None else _of_weights(weights, scores, visible, where)
    return DenseMaps(
        layer=layer.number,
        module=layer.name,
        heads=tuple(range(heads)),
        query_tokens=query_tokens,
        key_tokens=key_tokens,
        kind="self" if query_tokens is key_tokens else "cross",
        item=item,
        **cells,
    )


def _is_causal(layer: ArrayLayer) -> bool:
    queries, keys = layer.array.shape[2:]
    if queries != keys or keys == 1 or layer.array[..., 0, 1:].any():  # one row tells most others apart
        return False
    return not any(np.triu(head, 1).any() for text in layer.array for head in text)


def _of_weights(
    given: NDArray[Any], scores: NDArray[Any] | None, visible: BoolArray | None, where: str
) -> dict[str, Any]:
    """Returns the arrays of ``DenseMaps`` for weights ``(heads, queries, keys)``; scores not given are logarithms."""
    weights = np.array(given, dtype=np.float32)
    sums = weights.sum(axis=-1, dtype=np.float64)
    if np.isnan(sums).any():
        refuse_nan(weights, "weights", where)
    seeing = sums != 0  # a query that sees no key, as one of padding, has no weights
    of_seeing = sums[seeing] if seeing.any() else np.ones(1)
    least, most = float(of_seeing.min()), float(of_seeing.max())
    if weights.min() < -ROW_TOLERANCE or least < 1 - ROW_TOLERANCE or most > 1 + ROW_TOLERANCE:
        raise AttnvizError(
            f"{where}: rows of weights sum to {least:.3g} to {most:.3g}, not to 1; give them as scores "
            "if the softmax comes after them"
        )
    cells = _seen(seeing, visible, weights.shape)
    hidden = 0.0 if cells.all() else float(np.abs(np.where(cells, 0, weights)).max())
    if hidden > ROW_TOLERANCE:
        raise AttnvizError(f"{where}: cells that the mask hides have weights up to {hidden:.3g}; give another mask")
    if scores is None:
        known = np.maximum(weights, np.float32(SMALLEST_WEIGHT))
        np.log(known, out=known)
    else:
        known = np.array(scores, dtype=np.float32)
    return {"weights": weights, "scores": known, "visible": cells}


def _seen(seeing: BoolArray, visible: BoolArray | None, shape: tuple[int, ...]) -> BoolArray:
    """Returns the cells that a mask shows to queries ``(heads, queries)`` that see any key."""
    if seeing.all():
        return np.ones(shape[1:], dtype=bool) if visible is None else visible
    cells = np.broadcast_to(seeing[..., None], shape)
    return _one_mask(cells if visible is None else cells & visible)


def _of_scores(given: NDArray[Any] | None, visible: BoolArray | None, where: str) -> dict[str, Any]:
    """Returns the arrays of ``DenseMaps`` for scores ``(heads, queries, keys)``: their softmax over visible cells."""
    scores = np.array(given, dtype=np.float32)
    refuse_nan(scores, "scores", where)
    if np.isposinf(scores).any():
        raise AttnvizError(f"{where}: scores hold +inf, of which a softmax makes no weights; give finite numbers")
    cells = scores > MASKED_SCORE if visible is None else (scores > MASKED_SCORE) & visible
    weights = np.zeros_like(scores)
    for head, allowed, out in zip(scores, cells, weights, strict=True):
        exact = np.where(allowed, head, -np.inf).astype(np.float64)
        peaks = np.maximum(exact.max(axis=1, keepdims=True), MASKED_SCORE)  # finite where a query sees no key
        powers = np.exp(exact - peaks)
        out[...] = powers / np.maximum(powers.sum(axis=1, keepdims=True), SMALLEST_WEIGHT)
    return {"weights": weights, "scores": scores, "visible": _one_mask(cells)}


def _one_mask(cells: BoolArray) -> BoolArray:
    """Returns the mask ``(queries, keys)`` if all heads have the same, else ``(heads, queries, keys)``."""
    return np.array(cells if (cells != cells[:1]).any() else cells[0])
