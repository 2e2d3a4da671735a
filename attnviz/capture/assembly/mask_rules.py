"""Describes a call's mask by rules on positions, so that memory does not grow with the square of a text's length.

A mask is split into what it hides (causal, window, chunk, prefix, padding) and what it adds (a bias for each key, or
for each distance, as linear and relative biases do); if no rule describes the cells, each cell is stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.capture.calls.attention_call import FactoredCall, query_bands, shared_or_per_head_cells

SAMPLED_QUERIES = 64  # queries from which the bias of each distance is read, the first and the last among them


class PositionRules(NamedTuple):
    """The mask of one text: the visible cells, and the bias added to their scores."""

    mask: Mask
    bias: Bias


def position_rules(call: FactoredCall, heads: Sequence[int]) -> list[PositionRules] | None:
    """Returns the mask and the bias of these heads in each text; ``None`` if heads see different cells.

    Without a mask tensor, the rules are the causality and window of the call. The bias comes from the numbers of a
    floating-point mask, else from the position biases of the call.
    """
    batch, _, queries, keys = call.shape
    if call.mask is None:
        mask = Mask(causal=call.causal, window=call.window)
        return [PositionRules(mask, _position_bias(call, heads, item)) for item in range(batch)]
    head_cells = call.visible_cells()
    visible = shared_or_per_head_cells(head_cells if head_cells.shape[1] == 1 else head_cells[:, list(heads)])
    if visible.shape[1] > 1:
        return None
    cells: BoolArray = visible[:, 0].expand(batch, queries, keys).cpu().numpy()
    if call.causal or call.window is not None:
        cells = cells & Mask(causal=call.causal, window=call.window).visible(slice(0, queries), slice(0, keys))
    masks = [mask_of(text) for text in cells]
    if not call.mask.is_floating_point():
        return [PositionRules(mask, _position_bias(call, heads, item)) for item, mask in enumerate(masks)]
    head_masks = call.mask if call.mask.shape[1] == 1 else call.mask[:, list(heads)]
    numbers = head_masks.expand(batch, -1, queries, keys).detach().float().cpu().numpy()
    biases = [_bias_of_mask(text, text_cells, len(heads)) for text, text_cells in zip(numbers, cells, strict=True)]
    return [PositionRules(mask, bias) for mask, bias in zip(masks, biases, strict=True)]


def _position_bias(call: FactoredCall, heads: Sequence[int], item: int) -> Bias:
    """Returns the position biases of these heads in one text as a `Bias`; empty if the call has none."""
    by_key: FloatArray | None = None
    relative: FloatArray | None = None
    for bias in call.position_biases:
        numbers: FloatArray = bias.of_heads(heads).numbers[item].float().cpu().numpy()
        if bias.by_distance:
            relative = numbers
        else:
            by_key = numbers
    return Bias(by_key=by_key, relative=relative, origin=0 if relative is None else call.shape[2] - 1)


def mask_of(cells: BoolArray) -> Mask:
    """Returns a mask by rules that gives exactly these cells, ``(queries, keys)``, else a mask that stores them."""
    visible_keys: BoolArray = np.asarray(cells.any(axis=0))
    keys = slice(0, cells.shape[1])
    for rules in _candidate_masks(cells):
        mask = replace(rules, padding=None if visible_keys.all() else visible_keys)
        if all(np.array_equal(mask.visible(band, keys), cells[band]) for band in query_bands(len(cells))):
            return mask
    return Mask(explicit=np.ascontiguousarray(cells))


def _candidate_masks(cells: BoolArray) -> Iterator[Mask]:
    """Yields masks that may give these cells apart from padding, simple ones first."""
    queries, keys = cells.shape
    yield Mask()
    seeing_rows = np.arange(queries)[cells.any(axis=1)]
    if not len(seeing_rows):
        return
    first_keys, last_keys = cells[seeing_rows].argmax(axis=1), keys - 1 - cells[seeing_rows, ::-1].argmax(axis=1)
    for offset in dict.fromkeys((0, keys - queries)):
        positions = seeing_rows + offset
        causal = bool((last_keys <= positions).all())
        yield Mask(causal=causal, offset=offset)
        distances = positions - first_keys
        if not causal:
            distances = np.maximum(np.abs(distances), np.abs(last_keys - positions))
        yield Mask(causal=causal, window=int(distances.max()) + 1, offset=offset)
        second_chunk_starts = first_keys[first_keys > 0]
        if len(second_chunk_starts):
            yield Mask(causal=causal, chunk=int(second_chunk_starts[0]), offset=offset)
        if first_keys[0] == 0 < last_keys[0]:  # the first query sees keys after its own
            yield Mask(causal=True, prefix=int(last_keys[0]) + 1, offset=offset)


def _bias_of_mask(mask: FloatArray, cells: BoolArray, heads: int) -> Bias:
    """Returns the bias that a mask, ``(heads or 1, queries, keys)``, adds to visible scores; empty if it adds none."""
    by_key = mask[:, cells.argmax(axis=0), np.arange(cells.shape[1])]  # read from the first query that sees the key
    by_key[:, ~cells.any(axis=0)] = 0
    if _equals_mask(mask, cells, by_key[:, None]):
        return Bias(by_key=_repeated_for_heads(by_key, heads)) if by_key.any() else Bias()

    # The bias of each distance key − query, from 1 − queries on, is read from at most 64 sampled queries.
    queries, keys = cells.shape
    by_distance = np.zeros((len(mask), queries + keys - 1), dtype=np.float32)
    rows = np.flatnonzero(cells.any(axis=1))
    samples = np.linspace(0, len(rows) - 1, SAMPLED_QUERIES).astype(np.int64) if len(rows) else rows
    for query in rows[samples].tolist():
        start, visible = queries - 1 - query, cells[query]
        by_distance[:, start : start + keys][:, visible] = mask[:, query, visible]
    # Row q is a window of the distances, and the window of row q + 1 begins one distance earlier.
    if _equals_mask(mask, cells, sliding_window_view(by_distance, cells.shape[1], axis=-1)[:, ::-1]):
        return Bias(relative=_repeated_for_heads(by_distance, heads), origin=len(cells) - 1)
    return Bias(explicit=_repeated_for_heads(np.where(cells, mask, np.float32(0)), heads))


def _equals_mask(mask: FloatArray, cells: BoolArray, bias: FloatArray) -> bool:
    bias_cells = np.broadcast_to(bias, mask.shape)
    return all(((mask[:, band] == bias_cells[:, band]) | ~cells[band]).all() for band in query_bands(len(cells)))


def _repeated_for_heads(array: FloatArray, heads: int) -> FloatArray:
    """Returns an array ``(1 or heads, ...)`` as ``(heads, ...)``."""
    return np.ascontiguousarray(np.broadcast_to(array, (heads, *array.shape[1:])))
