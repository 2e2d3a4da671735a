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


def places_of_gather(
    gather: RowGather, folded_numbers: Tensor | None, attention_module: nn.Module, rows: int
) -> PlacedRows:
    """Returns the places of gathered queries or keys; its places are ``None`` if they are unknown.

    They are known if the attention module gathered the rows, or another module gathered as many rows as there were; if
    the rows are still in the order of the gathering; and if each comes from one place, no two of them from the same.

    Args:
        gather: the numbers of the rows.
        folded_numbers: these numbers as ``(batch, heads, rows, features)``; ``None`` if they cannot be folded.
        attention_module: the module that attends.
        rows: the number of gathered rows.
    """
    unknown_places = PlacedRows(None, gather.total)
    if folded_numbers is None or (gather.gatherer is not attention_module and rows != gather.total):
        return unknown_places
    numbers = folded_numbers[..., 0]
    positions, places = numbers // gather.total, numbers % gather.total
    is_in_order = torch.equal(positions, torch.arange(rows, device=positions.device).expand(positions.shape))
    has_one_row_each = bool((numbers >= 0).all()) and torch.equal(numbers, folded_numbers[..., -1])
    are_different = bool((places.sort(-1).values.diff() > 0).all())
    return PlacedRows(places, gather.total) if is_in_order and has_one_row_each and are_different else unknown_places


def scatter_rows(call: AttentionCall, queries: PlacedRows | None, keys: PlacedRows | None) -> AttentionCall:
    """Returns the call with gathered queries and keys at their places, and a remark on those that were left out.

    If a place is unknown, or the whole map would be too long, the rows stay in their order, and a remark says so. The
    call is unchanged if neither queries nor keys were gathered.

    Args:
        call: the call of the gathered rows.
        queries: the places of the queries; ``None`` if they were not gathered.
        keys: the places of the keys; ``None`` if they were not gathered.
    """
    batch, heads, rows, columns = call.shape
    height = rows if queries is None else queries.total
    width = columns if keys is None else keys.total
    gathered_axes = {name: axis for name, axis in (("queries", queries), ("keys", keys)) if axis is not None}
    if not gathered_axes:
        return call
    are_known = all(axis.places is not None for axis in gathered_axes.values())
    if not are_known or height * width > max(rows * columns, LONG_MAP_TOKENS**2):
        total = next(iter(gathered_axes.values())).total
        return _with_notes(call, UNPLACED.format(" and ".join(gathered_axes), total))
    notes = []
    for name, count, kind in (("queries", rows, "rows"), ("keys", columns, "columns")):
        if name in gathered_axes and count < gathered_axes[name].total:
            notes.append(SCATTERED.format(count, gathered_axes[name].total, name, kind))
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
        """Returns a call of gathered rows with all queries and keys; those that were not gathered are hidden."""
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
        """Returns cells, broadcast to ``(batch, heads, queries, keys)``, at their places among all cells of a map.

        Args:
            cells: the cells of gathered queries and keys.
            filling: the number in all other cells.
        """
        all_cells = cells.expand(*self.leading, *cells.shape[2:])
        return _scattered(_scattered(all_cells, self.queries, 2, filling), self.keys, 3, filling)

    def _product(self, product: Product) -> Product:
        """Returns the queries and keys of a product at their places among all, the others 0."""
        return Product(_scattered(product.queries, self.queries, 2, 0.0), _scattered(product.keys, self.keys, 2, 0.0))


def _scattered(tensor: Tensor, rows: PlacedRows | None, axis: int, filling: float) -> Tensor:
    """Returns a tensor with its rows at their places among all.

    Args:
        tensor: ``(batch, heads, rows, ...)``, or ``(batch, heads, ..., rows)``.
        rows: the places of the rows; the tensor is returned unchanged if it is ``None``, or the places are unknown.
        axis: the axis of the rows, 2 or 3.
        filling: the number that stands at all other places.
    """
    if rows is None or rows.places is None:
        return tensor
    head_places, heads = rows.places, tensor.shape[1]
    if head_places.shape[1] not in (1, heads):  # key heads, each shared by a group of heads
        head_places = head_places.repeat_interleave(heads // head_places.shape[1], 1)
    index = head_places[..., None] if axis == 2 else head_places[:, :, None]
    shape = [*tensor.shape]
    shape[axis] = rows.total
    return tensor.new_full(shape, filling).scatter_(axis, index.expand(tensor.shape), tensor)
