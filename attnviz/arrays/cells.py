"""Makes maps from weights or scores: checks all rows, and computes one from the other for heads that are read."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.head_cells import ScoreCells, WeightCells
from attnviz.arrays.layers import (
    CAUSAL,
    ArrayLayer,
    AxisLabels,
    float_array,
    is_shared,
    layers_of,
    refuse_layers_of_mask,
    refuse_nan,
    rule_cells,
    visible_cells,
)
from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import refuse_without_memory
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.on_demand import HeadArrays, OnDemandMaps

ROW_TOLERANCE = 1e-2  # the largest error of a row's sum; bfloat16 keeps 3 digits of each weight
MASKED_SCORE = -1e9  # scores up to this are masked: libraries write -1e9 and less into masked cells
BAND_CELLS = 2**17  # weights that are checked at once: half a megabyte, which stays in the processor's cache
ASSUMED_CAUSAL = "Every weight above the diagonal is 0, so a causal mask is assumed; give a mask if there is another."
LOG_WEIGHTS = "The scores are logarithms of the weights: they differ from the model's scores by a constant in each row."


def maps_of_cells(
    weights: Any, scores: Any, mask: Any, axis_labels: AxisLabels, may_change: bool = True
) -> tuple[list[LayerMaps], list[str]]:
    """Returns the maps of each layer and text, with every cell, and remarks on what was assumed or computed.

    Raises:
        AttnvizError: if shapes differ, a weight is NaN or negative, rows of weights do not sum to 1, scores without
            weights hold NaN or +inf, or the mask hides weights or does not fit.
    """
    weight_layers = None if weights is None else layers_of(weights, "weights", may_change)
    score_layers = None if scores is None else layers_of(scores, "scores", may_change)
    refuse_layers_of_mask(mask, len(weight_layers or score_layers or []))
    if weight_layers is None:
        return _maps_of_scores(score_layers or [], mask, axis_labels), []
    if score_layers and _shapes(weight_layers) != _shapes(score_layers):
        raise AttnvizError("weights and scores are of different shapes; give both of the same heads, queries and keys")
    text_arrays = [
        _TextArray(layer, index, item) for index, layer in enumerate(weight_layers) for item in range(len(layer.array))
    ]
    rows_of_texts = [_checked_rows(text_array) for text_array in text_arrays]
    is_causal = mask is None and all(rows.is_zero_above for rows in rows_of_texts)
    maps: list[LayerMaps] = []
    for text_array, rows in zip(text_arrays, rows_of_texts, strict=True):
        visible = visible_cells(CAUSAL if is_causal else mask, text_array.shape, text_array.layer_index)
        if mask is not None:
            _refuse_hidden_weights(rows, mask, visible, text_array)
        score_layer = None if score_layers is None else score_layers[text_array.layer_index]
        given_scores = None if score_layer is None else float_array(score_layer.array[text_array.item], may_change)
        cells = tuple(
            WeightCells(head_weights, None if given_scores is None else given_scores[head])
            for head, head_weights in enumerate(rows.weights)
        )
        maps.append(
            _maps(text_array, cells, _without_empty_rows(rows.sums != 0, visible, text_array.shape), axis_labels)
        )
    remarks = [ASSUMED_CAUSAL] if is_causal else []
    if scores is None:
        remarks.append(LOG_WEIGHTS)
    return maps, remarks


@dataclass(frozen=True, eq=False)
class _TextArray:
    """One text of one layer."""

    layer: ArrayLayer
    layer_index: int
    item: int

    @property
    def array(self) -> NDArray[Any]:
        """The given numbers, ``(heads, queries, keys)``."""
        return np.asarray(self.layer.array[self.item])

    @property
    def shape(self) -> tuple[int, ...]:
        """Heads, queries and keys."""
        return self.array.shape

    @property
    def location(self) -> str:
        """The layer, and the text if there are several, for messages."""
        return f"layer {self.layer.number}" + (f", text {self.item}" if len(self.layer.array) > 1 else "")


@dataclass(frozen=True, eq=False)
class _CheckedRows:
    """Weights of one text in one layer, checked.

    Attributes:
        weights: ``(heads, queries, keys)``.
        sums: ``(heads, queries)``, the sum of each row; 0 for a query that sees no key.
    """

    weights: FloatArray
    sums: FloatArray
    is_zero_above: bool


def _shapes(layers: list[ArrayLayer]) -> list[tuple[int, ...]]:
    """Returns the shape of each layer's array."""
    return [layer.array.shape for layer in layers]


def _maps(
    text_array: _TextArray, cells: tuple[HeadArrays, ...], visible: BoolArray, axis_labels: AxisLabels
) -> OnDemandMaps:
    """Returns the maps of one text in one layer."""
    heads, queries, keys = text_array.shape
    query_tokens, key_tokens = axis_labels.of_axes(queries, keys)
    return OnDemandMaps(
        layer=text_array.layer.number,
        module=text_array.layer.name,
        heads=tuple(range(heads)),
        query_tokens=query_tokens,
        key_tokens=key_tokens,
        kind="self" if query_tokens is key_tokens else "cross",
        item=text_array.item,
        cells=cells,
        visible=visible,
    )


def _checked_rows(text_array: _TextArray) -> _CheckedRows:
    """Checks the weights of a text and returns them as float32, without a copy if `is_shared`."""
    heads, queries, keys = text_array.shape
    shares_memory = is_shared(text_array.array, text_array.layer.may_change)
    weights = text_array.array if shares_memory else _empty_maps(text_array.shape)
    sums = np.empty((heads, queries), dtype=np.float32)
    smallest_weight, is_zero_above = 0.0, queries == keys > 1
    band_queries = max(BAND_CELLS // keys, 1)
    for head, head_weights in enumerate(weights):
        for start in range(0, queries, band_queries):
            rows = slice(start, start + band_queries)
            band = head_weights[rows]
            if not shares_memory:
                np.copyto(band, text_array.array[head, rows], casting="unsafe")
            np.einsum("qk->q", band, out=sums[head, rows])  # far within the tolerance, and faster than np.sum
            band_minimum = float(band.min())
            smallest_weight = min(smallest_weight, band_minimum)
            is_zero_above = is_zero_above and band_minimum >= 0 and _is_zero_after(band, start)
    _refuse_unnormalized(weights, sums, smallest_weight, text_array.location)
    return _CheckedRows(weights, sums, is_zero_above)


def _empty_maps(shape: tuple[int, ...]) -> FloatArray:
    """Returns float32 maps that are not filled yet; refuses those that do not fit the memory."""
    heads, queries, keys = shape
    needed_bytes = heads * queries * keys * np.dtype(np.float32).itemsize
    refuse_without_memory(needed_bytes, f"{heads} maps of {queries} x {keys} cells", "give fewer heads")
    return np.empty(shape, dtype=np.float32)


def _refuse_unnormalized(weights: FloatArray, sums: FloatArray, smallest_weight: float, location: str) -> None:
    """Raises AttnvizError if a weight is NaN or negative, or a row does not sum to 1 or 0."""
    if np.isnan(sums).any():  # of a NaN, or of infinite weights of both signs
        refuse_nan(weights, "weights", location)
    sees_key = sums != 0  # a query that sees no key, such as padding, has a row of 0
    checked_sums = sums[sees_key] if sees_key.any() else np.ones(1)  # one valid sum if there is none to check
    smallest, largest = float(checked_sums.min()), float(checked_sums.max())
    are_sums_one = smallest >= 1 - ROW_TOLERANCE and largest <= 1 + ROW_TOLERANCE
    advice = "give them as scores if no softmax was applied yet"
    if smallest_weight < -ROW_TOLERANCE:
        raise AttnvizError(f"{location}: weights as low as {smallest_weight:.3g} are negative; {advice}")
    if not are_sums_one:
        raise AttnvizError(
            f"{location}: rows of weights sum to {smallest:.3g} at least and {largest:.3g} at most, not to 1; {advice}"
        )


def _is_zero_after(band: FloatArray, start: int) -> bool:
    """True if each row of a band is 0 after its own key."""
    stop = start + len(band)
    if band[0, start + 1 :].any() or np.einsum("qk->", band[:, stop:]):
        return False
    with np.errstate(invalid="ignore"):  # 0 times an infinite weight, which is refused later by its row's sum
        return bool(np.einsum("qk,qk->", band[:, start:stop], _later_keys(len(band))) == 0)


@cache
def _later_keys(count: int) -> FloatArray:
    """Returns 1 where a key is later than the query, else 0, ``(count, count)``."""
    return np.triu(np.ones((count, count), dtype=np.float32), 1)


def _refuse_hidden_weights(rows: _CheckedRows, mask: Any, visible: BoolArray | None, text_array: _TextArray) -> None:
    """Raises AttnvizError if a cell that the given mask hides has a weight above `ROW_TOLERANCE`."""
    if visible is None or (isinstance(mask, str) and rows.is_zero_above):  # causal and 0 above the diagonal
        return
    hidden_weight = max(
        float(np.abs(np.where(visible if visible.ndim == 2 else visible[head], 0, head_weights)).max())
        for head, head_weights in enumerate(rows.weights)
    )
    if hidden_weight > ROW_TOLERANCE:
        raise AttnvizError(
            f"{text_array.location}: cells that the mask hides have weights up to {hidden_weight:.3g}; "
            "give the model's mask"
        )


def _without_empty_rows(sees_key: BoolArray, visible: BoolArray | None, shape: tuple[int, ...]) -> BoolArray:
    """Returns the cells that the mask shows, without those of queries whose weights are all 0."""
    if sees_key.all():
        return rule_cells(*shape[1:], is_causal=False) if visible is None else visible
    cells = np.broadcast_to(sees_key[..., None], shape)
    return _without_equal_heads(cells if visible is None else cells & visible)


def _maps_of_scores(layers: list[ArrayLayer], mask: Any, axis_labels: AxisLabels) -> list[LayerMaps]:
    """Returns the maps of scores: the weights of a head are their softmax, computed when the head is first read."""
    maps: list[LayerMaps] = []
    for index, layer in enumerate(layers):
        for item in range(len(layer.array)):
            text_array = _TextArray(layer, index, item)
            scores = float_array(text_array.array, layer.may_change)
            visible = _cells_of_scores(scores, visible_cells(mask, text_array.shape, index), text_array.location)
            cells = tuple(
                ScoreCells(head_scores, visible if visible.ndim == 2 else visible[head])
                for head, head_scores in enumerate(scores)
            )
            maps.append(_maps(text_array, cells, visible, axis_labels))
    return maps


def _cells_of_scores(scores: FloatArray, visible: BoolArray | None, location: str) -> BoolArray:
    """Returns the visible cells of scores ``(heads, queries, keys)``; refuses NaN and +inf."""
    largest = scores.max()
    if np.isnan(largest):
        refuse_nan(scores, "scores", location)
    if largest == np.inf:
        raise AttnvizError(f"{location}: scores hold +inf, whose softmax is undefined; give finite numbers")
    if scores.min() > MASKED_SCORE:
        cells = rule_cells(*scores.shape[1:], is_causal=False) if visible is None else visible
    else:
        cells = scores > MASKED_SCORE if visible is None else (scores > MASKED_SCORE) & visible
    return cells if cells.ndim == 2 else _without_equal_heads(cells)


def _without_equal_heads(cells: BoolArray) -> BoolArray:
    """Returns the visible cells as ``(queries, keys)`` if all heads see the same, else ``(heads, queries, keys)``."""
    return np.array(cells if (cells != cells[:1]).any() else cells[0])
