"""Makes maps from weights or scores: checks each row, and computes the one that is missing from the other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.layers import CAUSAL, ArrayLayer, AxisLabels, layers_of, refuse_nan, visible_cells
from attnviz.base.arrays import BoolArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import refuse_without_memory
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LayerMaps

ROW_TOLERANCE = 1e-2  # the largest error of a row's sum; bfloat16 keeps 3 digits of each weight
MASKED_SCORE = -1e9  # scores up to this are masked: libraries write -1e9 and less into masked cells
SMALL_SQUARE = 64  # queries and keys of a square that is copied to look above its diagonal
SMALLEST_WEIGHT = float(np.finfo(np.float32).tiny)  # replaces a weight of 0, whose logarithm would be −inf
ASSUMED_CAUSAL = "Every weight above the diagonal is 0, so a causal mask is assumed; give a mask if there is another."
LOG_WEIGHTS = "The scores are logarithms of the weights: they differ from the model's scores by a constant in each row."


def maps_of_cells(weights: Any, scores: Any, mask: Any, axis_labels: AxisLabels) -> tuple[list[LayerMaps], list[str]]:
    """Returns the maps of each layer and text, with every cell, and remarks on what was assumed or computed.

    Args:
        weights: weights in a form that `from_arrays` takes; ``None`` to compute them from the scores.
        scores: scores in such a form; ``None`` for the logarithms of the weights.
        mask: the mask of `from_arrays`.
        axis_labels: the labels of both axes.

    Raises:
        AttnvizError: if shapes differ, a number is NaN, a score is +inf, or rows of weights do not sum to 1.
    """
    weight_layers = None if weights is None else layers_of(weights, "weights")
    score_layers = None if scores is None else layers_of(scores, "scores")
    if weight_layers and score_layers and _shapes(weight_layers) != _shapes(score_layers):
        raise AttnvizError("weights and scores are of different shapes; give both of the same heads, queries and keys")
    is_causal = weight_layers is not None and mask is None and all(map(_is_causal, weight_layers))
    maps: list[LayerMaps] = []
    for index, layer in enumerate(weight_layers or score_layers or []):
        visible = visible_cells(CAUSAL if is_causal else mask, layer.array.shape[1:], index)
        for item in range(len(layer.array)):
            maps.append(
                _dense_maps(
                    layer,
                    item,
                    None if weight_layers is None else weight_layers[index].array[item],
                    None if score_layers is None else score_layers[index].array[item],
                    visible=visible,
                    checks_mask=mask is not None,
                    axis_labels=axis_labels,
                )
            )
    remarks = [ASSUMED_CAUSAL] if is_causal else []
    if scores is None:
        remarks.append(LOG_WEIGHTS)
    return maps, remarks


def _shapes(layers: list[ArrayLayer]) -> list[tuple[int, ...]]:
    """Returns the shape of each layer's array."""
    return [layer.array.shape for layer in layers]


def _dense_maps(
    layer: ArrayLayer,
    item: int,
    weights: NDArray[Any] | None,
    scores: NDArray[Any] | None,
    *,
    visible: BoolArray | None,
    checks_mask: bool,
    axis_labels: AxisLabels,
) -> DenseMaps:
    """Returns the maps of one text in one layer; computes weights or scores that are missing.

    Args:
        layer: the layer.
        item: the number of the text.
        weights: ``(heads, queries, keys)``; ``None`` to compute them from the scores.
        scores: ``(heads, queries, keys)``; ``None`` for the logarithms of the weights.
        visible: the mask of the layer; ``None`` if there is none.
        checks_mask: true to refuse weights in cells that the mask hides; a mask read from the weights hides none.
        axis_labels: the labels of both axes.

    Raises:
        AttnvizError: if the maps need more memory than is free, or numbers or labels do not suit the maps.
    """
    heads, queries, keys = layer.array.shape[1:]
    needed_bytes = 3 * heads * queries * keys * np.dtype(np.float32).itemsize
    refuse_without_memory(needed_bytes, f"{heads} maps of {queries} x {keys} cells", "give fewer heads")
    query_tokens, key_tokens = axis_labels.of_axes(queries, keys)
    location = f"layer {layer.number}" + (f", text {item}" if len(layer.array) > 1 else "")
    if weights is None:
        arrays = _arrays_of_scores(scores, visible, location)
    else:
        arrays = _arrays_of_weights(weights, scores, visible, location, checks_mask)
    return DenseMaps(
        layer=layer.number,
        module=layer.name,
        heads=tuple(range(heads)),
        query_tokens=query_tokens,
        key_tokens=key_tokens,
        kind="self" if query_tokens is key_tokens else "cross",
        item=item,
        **arrays,
    )


def _is_causal(layer: ArrayLayer) -> bool:
    """True if all maps of a layer are square, larger than one token, and 0 above the diagonal."""
    queries, keys = layer.array.shape[2:]
    return queries == keys > 1 and _is_zero_above(layer.array)


def _is_zero_above(squares: NDArray[Any]) -> bool:
    """True if square maps ``(..., tokens, tokens)`` are 0 above their diagonals.

    Splits large squares in halves: the block above the diagonal is 0 if its extremes are, which needs no copy. Only
    squares of at most `SMALL_SQUARE` tokens are copied.
    """
    size = squares.shape[-1]
    if size <= SMALL_SQUARE:
        return not np.triu(squares, 1).any()
    half = size // 2
    upper_right = squares[..., :half, half:]
    if upper_right.max() != 0 or upper_right.min() != 0:
        return False
    return _is_zero_above(squares[..., :half, :half]) and _is_zero_above(squares[..., half:, half:])


def _arrays_of_weights(
    raw_weights: NDArray[Any],
    scores: NDArray[Any] | None,
    visible: BoolArray | None,
    location: str,
    checks_mask: bool,
) -> dict[str, Any]:
    """Returns the arrays of ``DenseMaps`` for weights; without scores, the logarithms of the weights replace them.

    Args:
        raw_weights: ``(heads, queries, keys)``; used without a copy if it is read-only float32.
        scores: ``(heads, queries, keys)``, or ``None``.
        visible: the mask of the layer; ``None`` if there is none.
        location: the layer and text, for messages.
        checks_mask: true to refuse weights in cells that the mask hides.

    Raises:
        AttnvizError: if a weight is NaN or negative, a row does not sum to 1 or 0, or a hidden cell has a weight, each
            by more than `ROW_TOLERANCE`.
    """
    is_shared = raw_weights.dtype == np.float32 and _is_frozen(raw_weights)
    weights = raw_weights if is_shared else np.array(raw_weights, dtype=np.float32)
    sums = weights.sum(axis=-1)  # pairwise, and far within the tolerance; float64 would take three times as long
    if np.isnan(sums).any():
        refuse_nan(weights, "weights", location)
    sees_key = sums != 0  # a query that sees no key, such as padding, has a row of 0
    checked_sums = sums[sees_key] if sees_key.any() else np.ones(1)  # one valid sum if there is none to check
    smallest, largest = float(checked_sums.min()), float(checked_sums.max())
    if weights.min() < -ROW_TOLERANCE or smallest < 1 - ROW_TOLERANCE or largest > 1 + ROW_TOLERANCE:
        raise AttnvizError(
            f"{location}: rows of weights sum to {smallest:.3g} to {largest:.3g}, not to 1; give them as scores "
            "if no softmax was applied yet"
        )
    cells = _without_empty_rows(sees_key, visible, weights.shape)
    hidden_weight = float(np.abs(np.where(cells, 0, weights)).max()) if checks_mask and not cells.all() else 0.0
    if hidden_weight > ROW_TOLERANCE:
        raise AttnvizError(
            f"{location}: cells that the mask hides have weights up to {hidden_weight:.3g}; give the mask that they had"
        )
    if scores is None:
        full_scores = np.maximum(weights, np.float32(SMALLEST_WEIGHT))
        np.log(full_scores, out=full_scores)
    else:
        full_scores = np.array(scores, dtype=np.float32)
    return {"weights": weights, "scores": full_scores, "visible": cells}


def _is_frozen(array: NDArray[Any]) -> bool:
    """True if nobody can change an array: it is read-only, and so is every array whose memory it shares."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    return owner is None


def _without_empty_rows(sees_key: BoolArray, visible: BoolArray | None, shape: tuple[int, ...]) -> BoolArray:
    """Returns the cells that the mask shows, without those of queries whose weights are all 0.

    Args:
        sees_key: ``(heads, queries)``, true if the query has any weight.
        visible: the mask of the layer; ``None`` if there is none.
        shape: heads, queries and keys.

    Returns:
        ``(queries, keys)`` if all heads see the same cells, else ``(heads, queries, keys)``.
    """
    if sees_key.all():
        return np.ones(shape[1:], dtype=bool) if visible is None else visible
    cells = np.broadcast_to(sees_key[..., None], shape)
    return _without_equal_heads(cells if visible is None else cells & visible)


def _arrays_of_scores(raw_scores: NDArray[Any] | None, visible: BoolArray | None, location: str) -> dict[str, Any]:
    """Returns the arrays of ``DenseMaps`` for scores ``(heads, queries, keys)``: weights are their softmax.

    Cells are masked if ``visible`` is False or their score is at most `MASKED_SCORE`. A query without a visible key has
    weights of 0. Raises AttnvizError, which names ``location``, if a score is NaN or +inf.
    """
    scores = np.array(raw_scores, dtype=np.float32)
    refuse_nan(scores, "scores", location)
    if np.isposinf(scores).any():
        raise AttnvizError(f"{location}: scores hold +inf, whose softmax is undefined; give finite numbers")
    cells = scores > MASKED_SCORE if visible is None else (scores > MASKED_SCORE) & visible
    weights = np.zeros_like(scores)
    for head_scores, head_visible, head_weights in zip(scores, cells, weights, strict=True):
        visible_scores = np.where(head_visible, head_scores, -np.inf).astype(np.float64)
        peaks = np.maximum(visible_scores.max(axis=1, keepdims=True), MASKED_SCORE)  # finite where a query sees no key
        powers = np.exp(visible_scores - peaks)
        head_weights[...] = powers / np.maximum(powers.sum(axis=1, keepdims=True), SMALLEST_WEIGHT)
    return {"weights": weights, "scores": scores, "visible": _without_equal_heads(cells)}


def _without_equal_heads(cells: BoolArray) -> BoolArray:
    """Returns the visible cells as ``(queries, keys)`` if all heads see the same, else ``(heads, queries, keys)``."""
    return np.array(cells if (cells != cells[:1]).any() else cells[0])
