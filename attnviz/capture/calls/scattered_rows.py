"""Places queries or keys that a module gathered by index at their positions among all."""

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
    """The places of gathered rows.

    Attributes:
        places: ``(batch or 1, heads, rows)``; ``None`` if unknown.
        total: the number of rows before the gather.
    """

    places: Tensor | None
    total: int


def places_of_gather(
    gather: RowGather, folded_numbers: Tensor | None, attention_module: nn.Module, rows: int
) -> PlacedRows:
    """Returns the places from which queries or keys were gathered; ``places=None`` if they are unknown.

    The places are known under three conditions. The attention module gathered the rows, or another module reordered all
    of them. The rows are still in the order of the gather. Each row comes from one place, and all places differ.

    Args:
        folded_numbers: these numbers as ``(batch, heads, rows, features)``; ``None`` if they cannot be folded.
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
    batch, heads, rows, columns = call.shape
    height = rows if queries is None else queries.total
    width = columns if keys is None else keys.total
    placed_rows = {name: placed for name, placed in (("queries", queries), ("keys", keys)) if placed is not None}
    if not placed_rows:
        return call
    are_known = all(placed.places is not None for placed in placed_rows.values())
    if not are_known or height * width > max(rows * columns, LONG_MAP_TOKENS**2):
        totals = dict.fromkeys(str(placed.total) for placed in placed_rows.values())  # each once
        return _with_notes(call, UNPLACED.format(" and ".join(placed_rows), " and ".join(totals)))
    notes = []
    for name, count, kind in (("queries", rows, "rows"), ("keys", columns, "columns")):
        if name in placed_rows and count < placed_rows[name].total:
            notes.append(SCATTERED.format(count, placed_rows[name].total, name, kind))
    return _with_notes(_RowScatter((batch, heads), queries, keys).scattered_call(call), *notes)


def _with_notes(call: AttentionCall, *notes: str) -> AttentionCall:
    """Returns the call with these notes after its own; unchanged in content if there are none."""
    return replace(call, note="; ".join(filter(None, (call.note, *notes))))


class _RowScatter:
    """Scatters rows of tensors to their places."""

    def __init__(self, texts_and_heads: tuple[int, int], queries: PlacedRows | None, keys: PlacedRows | None) -> None:
        self.texts_and_heads, self.queries, self.keys = texts_and_heads, queries, keys

    def scattered_call(self, call: AttentionCall) -> AttentionCall:
        """Returns a call of gathered rows with all queries and keys; those that were not gathered are hidden."""
        values = None if call.values is None else _scattered_tensor(call.values, self.keys)
        output = None if call.output is None else _scattered_tensor(call.output, self.queries)
        if isinstance(call, FactoredCall):
            mask, logsumexp = call.whole_mask(), call.logsumexp
            if logsumexp is not None:
                logsumexp = _scattered_tensor(logsumexp[..., None], self.queries)[..., 0]
            return replace(
                call,
                values=values,
                output=output,
                queries=_scattered_tensor(call.queries, self.queries),
                keys=_scattered_tensor(call.keys, self.keys),
                mask=self._scattered_cells(mask, False if mask.dtype == torch.bool else -inf),
                causal=False,  # the mask contains causality and window
                window=None,
                logsumexp=logsumexp,
            )
        assert isinstance(call, DenseCall)
        product, dropout = call.product, call.dropout
        if product is not None:
            product = Product(
                _scattered_tensor(product.queries, self.queries), _scattered_tensor(product.keys, self.keys)
            )
        return replace(
            call,
            values=values,
            output=output,
            logits=self._scattered_cells(call.logits, -inf),
            probabilities=self._scattered_cells(call.probabilities, 0.0),
            factors=None,
            product=product,
            dropout=None if dropout is None else Dropout(self._scattered_cells(dropout.weights, 0.0), dropout.factor),
        )

    def _scattered_cells(self, cells: Tensor, filling: float) -> Tensor:
        """Returns cells, broadcast to ``(batch, heads, queries, keys)``, at their places among all cells of a map."""
        all_cells = cells.expand(*self.texts_and_heads, *cells.shape[2:])
        all_rows = _scattered_tensor(all_cells, self.queries, axis=2, filling=filling)
        return _scattered_tensor(all_rows, self.keys, axis=3, filling=filling)


def _scattered_tensor(tensor: Tensor, rows: PlacedRows | None, axis: int = 2, filling: float = 0.0) -> Tensor:
    """Returns a tensor with its rows moved to their places on an axis of ``rows.total``."""
    if rows is None or rows.places is None:
        return tensor
    head_places, heads = rows.places, tensor.shape[1]
    if head_places.shape[1] not in (1, heads):  # key heads, each shared by a group of heads
        head_places = head_places.repeat_interleave(heads // head_places.shape[1], 1)
    index = head_places[..., None] if axis == 2 else head_places[:, :, None]
    shape = [*tensor.shape]
    shape[axis] = rows.total
    return tensor.new_full(shape, filling).scatter_(axis, index.expand(tensor.shape), tensor)
