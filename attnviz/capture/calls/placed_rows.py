"""Places the queries and keys of a call at their places among all."""

from dataclasses import replace
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnviz.capture.calls.attention_call import AttentionCall, DenseCall, Dropout, FactoredCall, Product
from attnviz.capture.flow.moved_rows import RowGather
from attnviz.maps.layer_maps import LONG_MAP_TOKENS

UNPLACED = "{} were picked by an index from {} tokens, and are numbered in the order of the index"
SCATTERED = "only {} of {} {} were picked; each is at its place, and the {} of the others are hidden"


class PlacedRows(NamedTuple):
    """The places of some rows, ``(batch or 1, heads or 1, rows)``, among all; ``None`` if unknown."""

    places: Tensor | None
    total: int


def places_of_gather(
    gather: RowGather, folded_numbers: Tensor | None, attention_module: nn.Module, rows: int
) -> PlacedRows:
    """Returns the places from which queries or keys were gathered; ``places=None`` if they are unknown.

    The places are known under three conditions. The attention module gathered the rows, or another module reordered all
    of them. The rows are still in the order of the gather. Each row comes from one place, and all places differ.
    The folded numbers are ``(batch, heads, rows, features)``; ``None`` if they cannot be folded.
    """
    unknown_places = PlacedRows(None, gather.total)
    is_reordering = rows == gather.total
    if folded_numbers is None or not (is_reordering or gather.gatherer is attention_module):
        return unknown_places
    numbers = folded_numbers[..., 0]  # of one feature: position * total + place
    positions, places = numbers // gather.total, numbers % gather.total
    is_in_order = torch.equal(positions, torch.arange(rows, device=positions.device).expand(positions.shape))
    has_one_row_each = bool((numbers >= 0).all()) and torch.equal(numbers, folded_numbers[..., -1])
    places_differ = bool((places.sort(-1).values.diff() > 0).all())
    return PlacedRows(places, gather.total) if is_in_order and has_one_row_each and places_differ else unknown_places


def scatter_rows(call: AttentionCall, queries: PlacedRows | None, keys: PlacedRows | None) -> AttentionCall:
    """Returns the call with gathered queries and keys moved back to their places, and a note on those not gathered.

    If a place is unknown, or the whole map would have too many cells, the rows stay in their order, and a note says
    so. The call is returned unchanged if neither queries nor keys were gathered.
    """
    _, _, rows, columns = call.shape
    height = rows if queries is None else queries.total
    width = columns if keys is None else keys.total
    placed_rows = {name: placed for name, placed in (("queries", queries), ("keys", keys)) if placed is not None}
    if not placed_rows:
        return call
    are_known = all(placed.places is not None for placed in placed_rows.values())
    if not are_known or height * width > max(rows * columns, LONG_MAP_TOKENS**2):
        totals = dict.fromkeys(str(placed.total) for placed in placed_rows.values())  # each once
        notes = [UNPLACED.format(" and ".join(placed_rows), " and ".join(totals))]
    else:
        call, notes = _with_rows_placed(call, queries, keys), []
        for name, count, kind in (("queries", rows, "rows"), ("keys", columns, "columns")):
            if name in placed_rows and count < placed_rows[name].total:
                notes.append(SCATTERED.format(count, placed_rows[name].total, name, kind))
    return replace(call, note="; ".join(filter(None, (call.note, *notes))))


def with_all_keys(call: AttentionCall, column: int, count: int) -> AttentionCall:
    """Returns a call whose keys are ``count`` keys from ``column`` on; the others are masked, with features of 0."""
    if column == 0 and call.shape[3] == count:
        return call
    places = torch.arange(column, column + call.shape[3])
    return _with_rows_placed(call, None, PlacedRows(places[None, None], count))


def _with_rows_placed(call: AttentionCall, queries: PlacedRows | None, keys: PlacedRows | None) -> AttentionCall:
    """Returns a call of some rows with all queries and keys; those that it does not have are hidden."""
    texts_and_heads = call.shape[:2]

    def placed_cells(cells: Tensor, filling: float) -> Tensor:
        # Cells that all texts or heads share stay shared if their places are.
        for rows, axis in ((queries, 2), (keys, 3)):
            if rows is not None and rows.places is not None:
                batch, heads = (
                    size if size == 1 else whole
                    for size, whole in zip(rows.places.shape[:2], texts_and_heads, strict=True)
                )
                cells = cells.expand(max(batch, len(cells)), max(heads, cells.shape[1]), *cells.shape[2:])
                cells = _placed(cells, rows, axis, filling)
        return cells

    values = None if call.values is None else _placed(call.values, keys)
    output = None if call.output is None else _placed(call.output, queries)
    if isinstance(call, FactoredCall):
        mask, logsumexp = call.whole_mask(), call.logsumexp
        return replace(
            call,
            values=values,
            output=output,
            queries=_placed(call.queries, queries),
            keys=_placed(call.keys, keys),
            mask=placed_cells(mask, False if mask.dtype == torch.bool else -inf),
            causal=False,  # the mask contains causality and window
            window=None,
            logsumexp=None if logsumexp is None else _placed(logsumexp[..., None], queries)[..., 0],
        )
    assert isinstance(call, DenseCall)
    product, dropout = call.product, call.dropout
    return replace(
        call,
        values=values,
        output=output,
        logits=placed_cells(call.logits, -inf),
        probabilities=placed_cells(call.probabilities, 0.0),
        sinks=None if call.sinks is None else _placed(call.sinks[..., None], queries, filling=-inf)[..., 0],
        factors=None,
        product=product and Product(_placed(product.queries, queries), _placed(product.keys, keys)),
        dropout=dropout and Dropout(placed_cells(dropout.weights, 0.0), dropout.factor),
    )


def _placed(tensor: Tensor, rows: PlacedRows | None, axis: int = 2, filling: float = 0.0) -> Tensor:
    """Returns a tensor with its rows moved to their places on an axis of ``rows.total``."""
    if rows is None or rows.places is None:
        return tensor
    head_places, heads = rows.places.to(tensor.device), tensor.shape[1]
    if head_places.shape[1] not in (1, heads):  # key heads, each shared by a group of heads
        head_places = head_places.repeat_interleave(heads // head_places.shape[1], 1)
    index = head_places[..., None] if axis == 2 else head_places[:, :, None]
    shape = [*tensor.shape]
    shape[axis] = rows.total
    return tensor.new_full(shape, filling).scatter_(axis, index.expand(tensor.shape), tensor)
