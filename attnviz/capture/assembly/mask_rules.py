"""Describes a call's mask by rules of positions, so that memory does not grow with the square of a text's length.

A mask is split into what it hides (causal, window, chunk, prefix, padding) and what it adds (a bias for each key, or
for each distance, as linear and relative biases do); cells that no rule describes are kept one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.capture.calls.attention_call import FactoredCall, shared_or_each

MAX_BAND_QUERIES = 256  # queries that are compared at once, to bound memory
SAMPLED_QUERIES = 64  # queries from which the bias of each distance is read, the first and the last among them


class PositionRules(NamedTuple):
    """The mask of one text: the visible cells, and the bias added to their scores."""

    mask: Mask
    bias: Bias


def position_rules(call: FactoredCall, heads: Sequence[int]) -> list[PositionRules] | None:
    """Returns the rules of each text's mask for these heads; ``None`` if heads see different cells."""
    batch, _, queries, keys = call.shape
    if call.mask is None:
        rule = Mask(causal=call.causal, window=call.window)
        return [PositionRules(rule, _position_bias(call, heads, item)) for item in range(batch)]
    cells = _shared_cells(call, heads)
    if cells is None:
        return None
    masks = [mask_of(text) for text in cells]
    if not call.mask.is_floating_point():
        return [PositionRules(mask, _position_bias(call, heads, item)) for item, mask in enumerate(masks)]
    added = call.mask if call.mask.shape[1] == 1 else call.mask[:, list(heads)]
    numbers = added.expand(batch, -1, queries, keys).detach().float().cpu().numpy()
    biases = [bias_of(text, visible, len(heads)) for text, visible in zip(numbers, cells, strict=True)]
    return [PositionRules(mask, bias) for mask, bias in zip(masks, biases, strict=True)]


def _shared_cells(call: FactoredCall, heads: Sequence[int]) -> BoolArray | None:
    """Returns the cells that these heads see, ``(batch, queries, keys)``; ``None`` if heads see different cells."""
    batch, _, queries, keys = call.shape
    cells = call.visible_cells()
    cells = shared_or_each(cells if cells.shape[1] == 1 else cells[:, list(heads)])
    if cells.shape[1] > 1:
        return None
    shared: BoolArray = cells[:, 0].expand(batch, queries, keys).cpu().numpy()
    if call.causal or call.window is not None:
        by_position = Mask(causal=call.causal, window=call.window)
        shared = shared & by_position.visible(slice(0, queries), slice(0, keys))
    return shared


def _position_bias(call: FactoredCall, heads: Sequence[int], item: int) -> Bias:
    """Returns the biases by position of these heads in one text, for a mask that is not a bias itself."""
    numbers: dict[bool, FloatArray] = {
        each.by_distance: each.of(heads).numbers[item].float().cpu().numpy() for each in call.position_biases
    }
    relative = numbers.get(True)
    return Bias(by_key=numbers.get(False), relative=relative, origin=0 if relative is None else call.shape[2] - 1)


def mask_of(cells: BoolArray) -> Mask:
    """Returns the rule that gives these visible cells, ``(queries, keys)``; an explicit mask if there is none."""
    padding: BoolArray = np.asarray(cells.any(axis=0))
    for rule in _candidates(cells):
        whole = replace(rule, padding=None if padding.all() else padding)
        if all(np.array_equal(whole.visible(band, slice(0, cells.shape[1])), cells[band]) for band in _bands(cells)):
            return whole
    return Mask(explicit=np.ascontiguousarray(cells))


def _candidates(cells: BoolArray) -> Iterator[Mask]:
    """Yields rules that may give these cells, guessed from the first and last visible key of each query."""
    queries, keys = cells.shape
    yield Mask()
    rows = np.arange(queries)[cells.any(axis=1)]
    if not len(rows):
        return
    first, last = cells[rows].argmax(axis=1), keys - 1 - cells[rows, ::-1].argmax(axis=1)
    for offset in dict.fromkeys((0, keys - queries)):
        positions = rows + offset
        causal = bool((last <= positions).all())
        yield Mask(causal=causal, offset=offset)
        reach = positions - first if causal else np.maximum(np.abs(positions - first), np.abs(last - positions))
        yield Mask(causal=causal, window=int(reach.max()) + 1, offset=offset)
        yield from _chunks(causal, offset, first)
        if first[0] == 0 < last[0]:
            yield Mask(causal=True, prefix=int(last[0]) + 1, offset=offset)


def _chunks(causal: bool, offset: int, first: IntArray) -> Iterator[Mask]:
    """Yields the rule of chunks as long as the first one, if there is a second."""
    later = first[first > 0]
    if len(later):
        yield Mask(causal=causal, chunk=int(later[0]), offset=offset)


def bias_of(numbers: FloatArray, cells: BoolArray, heads: int) -> Bias:
    """Returns the bias that a mask adds to the scores of visible cells, as the shortest rule.

    Args:
        numbers: the mask, ``(heads or 1, queries, keys)``.
        cells: ``(queries, keys)``, True where visible.
        heads: the number of heads of the bias.
    """
    by_key = numbers[:, cells.argmax(axis=0), np.arange(cells.shape[1])]
    by_key[:, ~cells.any(axis=0)] = 0
    if _agrees(numbers, cells, by_key[:, None]):
        return Bias(by_key=_for_heads(by_key, heads)) if by_key.any() else Bias()
    relative = _by_distance(numbers, cells)
    if _agrees(numbers, cells, sliding_window_view(relative, cells.shape[1], axis=-1)[:, ::-1]):
        return Bias(relative=_for_heads(relative, heads), origin=len(cells) - 1)
    return Bias(explicit=_for_heads(np.where(cells, numbers, np.float32(0)), heads))


def _by_distance(numbers: FloatArray, cells: BoolArray) -> FloatArray:
    """Returns the bias of each distance key − query from ``1 − queries`` on, by sampled queries; 0 if unknown."""
    count, keys = cells.shape
    found = np.zeros((len(numbers), count + keys - 1), dtype=np.float32)
    rows = np.flatnonzero(cells.any(axis=1))
    sampled = np.linspace(0, len(rows) - 1, SAMPLED_QUERIES).astype(np.int64) if len(rows) else rows
    for query in rows[sampled].tolist():
        start, row = count - 1 - query, cells[query]
        found[:, start : start + keys][:, row] = numbers[:, query, row]
    return found


def _agrees(numbers: FloatArray, cells: BoolArray, rule: FloatArray) -> bool:
    """True if every visible cell equals the rule, ``(heads, queries or 1, keys)``, to the bit."""
    everywhere = np.broadcast_to(rule, numbers.shape)
    return all(((numbers[:, band] == everywhere[:, band]) | ~cells[band]).all() for band in _bands(cells))


def _for_heads(array: FloatArray, heads: int) -> FloatArray:
    """Returns the array repeated for every head."""
    return np.ascontiguousarray(np.broadcast_to(array, (heads, *array.shape[1:])))


def _bands(cells: BoolArray) -> Iterator[slice]:
    return (slice(start, min(start + MAX_BAND_QUERIES, len(cells))) for start in range(0, len(cells), MAX_BAND_QUERIES))
