"""Places queries or keys that a module gathered by index at their positions among all."""

from dataclasses import replace
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnviz.capture.calls.attention_call import AttentionCall, DenseCall, Dropout, FactoredCall, Product
from attnviz.capture.flow.gathered_rows import RowGather
from attnviz.maps.layer_maps import LONG_MAP_TOKENS

UNPLACED = "{} were picked by an index from {}, and are numbered in the order in which they were picked"
SCATTERED = "{} of {} {} were picked; they stand at their places, and the {} of others are absent"


class PlacedRows(NamedTuple):
    """The places of gathered rows.

    Attributes:
        places: ``(batch or 1, heads, rows)``; ``None`` if unknown.
        total: the number of rows before the gather.
    """

    places: Tensor | None
    total: int


def places_of_gather(gather: RowGather, folded: Tensor | None, attention_module: nn.Module, rows: int) -> PlacedRows:
    """Returns the places of gathered queries or keys; unknown unless the attention module gathered or reordered them.

    Args:
        gather: the numbers of the rows.
        folded: these numbers as ``(batch, heads, rows, features)``; ``None`` if they cannot be folded.
        attention_module: the module that attends.
        rows: the number of gathered rows.
    """
    unknown_places = PlacedRows(None, gather.total)
    if folded is None or (gather.gatherer is not attention_module and rows != gather.total):
        return unknown_places
    numbers = folded[..., 0]
    positions, places = numbers // gather.total, numbers % gather.total
    is_whole = torch.equal(positions, torch.arange(rows, device=positions.device).expand(positions.shape))
    is_known = bool((numbers >= 0).all()) and is_whole and torch.equal(numbers, folded[..., -1])
    ordered_places = places.sort(-1).values
    return PlacedRows(places, gather.total) if is_known and bool((ordered_places.diff() > 0).all()) else unknown_places


def scatter_rows(call: AttentionCall, queries: PlacedRows | None, keys: PlacedRows | None) -> AttentionCall:
    """Returns the call with gathered queries and keys at their places, and a remark on it.

    Args:
        call: the call of the gathered rows.
        queries: the places of the queries; ``None`` if they were not gathered.
        keys: the places of the keys; ``None`` if they were not gathered.
    """
    batch, heads, rows, columns = call.shape
    height, width = (rows if queries is None else queries.total), (columns if keys is None else keys.total)
    are_known = all(rows_of_axis is None or rows_of_axis.places is not None for rows_of_axis in (queries, keys))
    if not are_known or height * width > max(rows * columns, LONG_MAP_TOKENS**2):
        first, subject = (queries, "queries") if queries is not None else (keys, "keys")
        subject = "queries and keys" if queries is not None and keys is not None else subject
        return call if first is None else _with_notes(call, UNPLACED.format(subject, first.total))
    parts = ((queries, rows, "queries", "rows"), (keys, columns, "keys", "columns"))
    notes = [
        SCATTERED.format(count, rows_of_axis.total, *names)
        for rows_of_axis, count, *names in parts
        if rows_of_axis and count < rows_of_axis.total
    ]
    return _with_notes(_RowScatter((batch, heads), queries, keys).scattered(call), *notes)


def _with_notes(call: AttentionCall, *notes: str) -> AttentionCall:
    """Returns the call with further notes."""
    return replace(call, note="; ".join(filter(None, (call.note, *notes))))


class _RowScatter:
    """Scatters rows of tensors to their places.

    Args:
        leading: the numbers of texts and heads.
        queries: the places of the queries; ``None`` if they were not gathered.
        keys: the places of the keys; ``None`` if they were not gathered.
    """

    def __init__(self, leading: tuple[int, int], queries: PlacedRows | None, keys: PlacedRows | None) -> None:
        self.leading, self.queries, self.keys = leading, queries, keys

    def scattered(self, call: AttentionCall) -> AttentionCall:
        """Returns the call with all queries and keys."""
        values = None if call.values is None else _scattered(call.values, self.keys, 2, 0.0)
        output = None if call.output is None else _scattered(call.output, self.queries, 2, 0.0)
        if isinstance(call, FactoredCall):
            mask, logsumexp = call.whole_mask(), call.logsumexp
            return replace(
                call,
                values=values,
                output=output,
                queries=_scattered(call.queries, self.queries, 2, 0.0),
                keys=_scattered(call.keys, self.keys, 2, 0.0),
                mask=self._cells(mask, False if mask.dtype == torch.bool else -inf),
                causal=False,
                window=None,
                logsumexp=None if logsumexp is None else _scattered(logsumexp[..., None], self.queries, 2, 0.0)[..., 0],
            )
        assert isinstance(call, DenseCall)
        product, dropout = call.product, call.dropout
        return replace(
            call,
            values=values,
            output=output,
            logits=self._cells(call.logits, -inf),
            probabilities=self._cells(call.probabilities, 0.0),
            factors=None,
            product=product and self._product(product),
            dropout=dropout and Dropout(self._cells(dropout.weights, 0.0), dropout.factor),
        )

    def _cells(self, cells: Tensor, filling: float) -> Tensor:
        """Returns cells ``(batch, heads, queries, keys)`` at their places, the others filled with a number."""
        all_cells = cells.expand(*self.leading, *cells.shape[2:])
        return _scattered(_scattered(all_cells, self.queries, 2, filling), self.keys, 3, filling)

    def _product(self, product: Product) -> Product:
        return Product(_scattered(product.queries, self.queries, 2, 0.0), _scattered(product.keys, self.keys, 2, 0.0))


def _scattered(tensor: Tensor, rows: PlacedRows | None, axis: int, filling: float) -> Tensor:
    """Returns the tensor with its rows along an axis scattered to their places."""
    if rows is None or rows.places is None:
        return tensor
    shape = [*tensor.shape]
    head_places = rows.places
    if head_places.shape[1] not in (1, shape[1]):  # key heads, each shared by a group of heads
        head_places = head_places.repeat_interleave(shape[1] // head_places.shape[1], 1)
    index = head_places[..., None] if axis == 2 else head_places[:, :, None]
    shape_of_index = [*shape]
    shape[axis] = rows.total
    return tensor.new_full(shape, filling).scatter_(axis, index.expand(shape_of_index), tensor)
