"""An attention call of a batch to the numbers of each of its texts: computed where the model runs, then forgotten.

The definitions are those of `attnviz.metrics.metrics`, computed for all texts and heads of a block at once: what cells
count for a metric is a matrix that the weights are multiplied by.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import AttentionCall, FactoredCall
from attnviz.corpus.text_batch import BY_KEY, BY_PLACE, BY_RELATION, wide_of
from attnviz.corpus.visible_cells import OF_ROWS, HeldCells, VisibleCells, diagonal_room, diagonal_sums
from attnviz.corpus.weighed_rows import WeighedRows, taken, weigh
from attnviz.metrics.metrics import STRIPES
from attnviz.streaming.workers import side_by_side

BLOCK_CELLS = 2**19  # heads x queries x keys that are in memory at once, in each thread
MIN_ROWS = 16
OF_COLUMNS = ("sink", "stripe")
UNSEEN = -1.0  # below any number of a row


class CallNumbers(NamedTuple):
    """What one call gives for each text.

    Attributes:
        values: ``(texts, heads, metrics)``, in the order of ``measured_names``; NaN where one has no meaning.
        places: ``(texts, heads, metrics)``, the query where each is largest; -1 where no query has it.
        sinks: ``(texts, heads)``, the key that receives most.
        weights: ``(texts, heads, offset bins)``, summed over the pairs of query and key.
        scores: the same of scores.
        pairs: ``(texts, offset bins)``, how many pairs these are.
        entropies: ``(texts, heads, position bins)``, bits, summed over queries.
        rows: ``(texts, position bins)``, how many queries these are.
    """

    values: Tensor
    places: Tensor
    sinks: Tensor
    weights: Tensor
    scores: Tensor
    pairs: Tensor
    entropies: Tensor
    rows: Tensor


def measured_names(own: Sequence[str]) -> tuple[str, ...]:
    """The names of what is measured, in the order of ``CallNumbers.values``; the user's own classes among them."""
    return (*OF_ROWS, *BY_PLACE, *BY_RELATION, *BY_KEY, *own, *OF_COLUMNS)


def measure_call(
    call: AttentionCall, heads: Sequence[int], held: HeldCells
) -> list[tuple[tuple[int, ...], CallNumbers]]:
    """The numbers of these heads of a self-attention call over a batch, whose visible cells are held.

    All heads are measured together, or each alone where they see different cells.
    """
    blocks = list(_blocks(call, heads))
    if isinstance(call, FactoredCall) and len(held.batch.texts) > 1:  # so that no product of them copies them first
        call = replace(call, queries=call.queries.contiguous(), keys=call.keys.contiguous())

    def measured(block: _Block) -> _Band | None:
        return _measure_block(call.of_texts(block.texts), heads, held, block)

    on_processor = held.batch.device.type == "cpu"
    found = side_by_side(measured, blocks) if on_processor else [measured(block) for block in blocks]
    bands = [band for band in found if band is not None]
    if len(bands) < len(found):
        return [numbers for head in heads for numbers in measure_call(call, [head], held)]
    parts = list[_Band]()
    for block, band in zip(blocks, bands, strict=True):
        if block.rows.start == 0:
            parts.append(band)
        else:
            parts[-1] = parts[-1].joined(band)
    joined = parts[0] if len(parts) == 1 else _Band(*(torch.cat(each) for each in zip(*parts, strict=True)))
    return [(tuple(heads), _numbers(joined))]


class _Block(NamedTuple):
    """Some texts and some of their queries, whose maps are few cells."""

    texts: slice
    rows: slice


def _blocks(call: AttentionCall, heads: Sequence[int]) -> Iterator[_Block]:
    """All texts of a call, some at once; of a long text a band of queries at a time."""
    texts, _, queries, keys = call.shape
    together = max(1, min(BLOCK_CELLS // (len(heads) * queries * keys), -(-texts // torch.get_num_threads())))
    height = queries if min(together, texts) > 1 else max(MIN_ROWS, BLOCK_CELLS // (len(heads) * keys))
    for start in range(0, texts, together):
        for first in range(0, queries, height):
            yield _Block(slice(start, min(start + together, texts)), slice(first, min(first + height, queries)))


class _Band(NamedTuple):
    """What some rows add: see ``CallNumbers``; ``sums`` and ``counts`` are those of rows, ``best`` their largest."""

    sums: Tensor
    counts: Tensor
    best: Tensor
    places: Tensor
    received: Tensor
    seen: Tensor
    chosen: Tensor
    weights: Tensor
    scores: Tensor
    pairs: Tensor
    entropies: Tensor
    rows: Tensor

    def joined(self, other: "_Band") -> "_Band":
        """These rows and later ones."""
        added = {name: getattr(self, name) + getattr(other, name) for name in self._fields}
        later = (other.best > self.best) | (self.places < 0)
        return _Band(**added)._replace(
            best=torch.maximum(self.best, other.best),
            places=torch.where(later, other.places, self.places),
            seen=self.seen | other.seen,
        )


def _numbers(band: _Band) -> CallNumbers:
    """What all rows of some texts give."""
    values = (band.sums / band.counts[:, None]).masked_fill_((band.counts == 0)[:, None], math.nan)
    received = band.received / band.chosen[:, None, None]
    sink, stripe = received.amax(-1), received.topk(min(STRIPES, received.shape[-1]), dim=-1).values.sum(-1)
    stripe = stripe.masked_fill((band.seen.sum(-1) <= STRIPES)[:, None], math.nan)
    columns = torch.stack([sink, stripe], dim=-1).masked_fill((band.chosen == 0)[:, None, None], math.nan)
    return CallNumbers(
        values=torch.cat([values, columns], dim=-1),
        places=torch.cat([band.places, torch.full_like(columns, -1, dtype=band.places.dtype)], dim=-1),
        sinks=received.argmax(-1),
        weights=band.weights,
        scores=band.scores,
        pairs=band.pairs,
        entropies=band.entropies,
        rows=band.rows,
    )


def _measure_block(call: AttentionCall, heads: Sequence[int], held: HeldCells, block: _Block) -> _Band | None:
    """The numbers of a block, of a call of its texts alone; ``None`` where heads see different cells."""
    if isinstance(call, FactoredCall):
        weighed = weigh(call, heads, held, block.texts, block.rows)
        return None if weighed is None else _measure_band(*weighed)
    maps = call.maps(heads, block.rows)
    if maps.visible.shape[1] > 1:
        return None
    visible = held.of(maps.visible[:, 0], block.texts, block.rows, False)
    return _measure_band(taken(maps, visible), visible)


def _measure_band(rows: WeighedRows, visible: VisibleCells) -> _Band:
    """What the rows of some texts add."""
    of_rows = _row_numbers(rows, visible)
    best = of_rows.amax(0)
    room = None if visible.binned is not None else diagonal_room(rows.weights)

    def by_offset(cells: Tensor) -> Tensor:
        if visible.binned is not None:
            return (cells.flatten(2).flatten(0, 1) @ visible.binned).view(*cells.shape[:2], -1)
        return diagonal_sums(cells, room) @ visible.offset_bins

    return _Band(
        sums=of_rows.sum(0).permute(1, 2, 0),
        counts=visible.counts,
        best=best.permute(1, 2, 0).masked_fill((visible.counts == 0)[:, None], UNSEEN),
        places=_places(of_rows, best, visible),
        received=_received(rows.weights, visible),
        seen=visible.seen,
        chosen=visible.has_choice.sum(1),
        weights=by_offset(rows.weights),
        scores=by_offset(rows.scores),
        pairs=visible.pairs,
        entropies=torch.einsum("qth,qb->thb", of_rows[:, 0], visible.position_bins),
        rows=visible.has_choice @ visible.position_bins,
    )


def _received(weights: Tensor, visible: VisibleCells) -> Tensor:
    """What each key receives from queries that see two keys or more, ``(texts, heads, keys)``."""
    if visible.has_lone:
        return (visible.has_choice[:, None, None] @ weights)[:, :, 0]
    return weights.sum(2)


def _places(numbers: Tensor, best: Tensor, visible: VisibleCells) -> Tensor:
    """The first query where each number is largest, ``(texts, heads, metrics)``."""
    count = len(numbers)
    left = torch.arange(count, 0, -1, dtype=numbers.dtype, device=numbers.device)
    first = (numbers - best).sign_().mul_(count).add_(left[:, None, None, None]).amax(0)
    places = count - first.long() + visible.rows.start
    return torch.where(best > 0, places, visible.first_rows.T[..., None]).permute(1, 2, 0)


def _row_numbers(rows: WeighedRows, visible: VisibleCells) -> Tensor:
    """The number of each row, ``(queries, metrics, texts, heads)``; 0 where a query does not have it."""
    weights, classes = rows.weights, visible.key_classes
    count, heads, height, width = weights.shape
    exact = weights.to(wide_of(weights.device)).view(count * heads, height, width).transpose(0, 1)
    by_place = torch.bmm(exact, visible.by_place).view(height, count, heads, -1).permute(0, 3, 1, 2)
    distance, spread = by_place[:, 0], (by_place[:, 1] - by_place[:, 0] ** 2).clamp_(min=0).sqrt_()
    by_key = (weights.view(count, heads * height, width) @ classes).view(count, heads, height, -1)
    related = len(OF_ROWS) + len(BY_PLACE)
    by_class = related + len(BY_RELATION)
    out = weights.new_empty(height, by_class + classes.shape[-1], count, heads)
    for place, numbers in enumerate((rows.entropy, rows.entropy / visible.most_bits, rows.peak, rows.hidden)):
        out[:, place] = numbers.permute(2, 0, 1)
    out[:, len(OF_ROWS) - 2], out[:, len(OF_ROWS) - 1] = spread, distance
    out[:, len(OF_ROWS) : related] = by_place[:, 2:]
    visible.relations.write_sums(weights, out[:, related:by_class])
    out[:, by_class:] = by_key.permute(2, 3, 0, 1)
    return out.mul_(visible.has_choice.T[:, None, :, None])
