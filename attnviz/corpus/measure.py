"""An attention call of a batch to the numbers of each of its texts: computed where the model runs, then forgotten.

The definitions are those of `attnviz.metrics.metrics`, computed for all texts and heads of a block at once: what cells
count for a metric is a matrix that the weights are multiplied by.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls import AttentionCall, AttentionMaps, FactoredCall
from attnviz.corpus.text_batch import BY_CELL, BY_KEY, wide_of
from attnviz.corpus.visible_cells import OF_ROWS, HeldCells, VisibleCells, diagonal_room, diagonal_sums
from attnviz.metrics.metrics import STRIPES
from attnviz.streaming.workers import side_by_side

BLOCK_CELLS = 2**18  # heads x queries x keys that are in memory at once: few enough for a processor's cache
MIN_ROWS = 16
OF_COLUMNS = ("sink", "stripe")
TINY = 1e-30  # a weight whose share of the entropy is none
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
    return (*OF_ROWS, *BY_KEY, *own, *BY_CELL, *OF_COLUMNS)


def measure_call(call: AttentionCall, heads: Sequence[int], held: HeldCells) -> CallNumbers:
    """The numbers of these heads of a self-attention call over a batch, whose visible cells are held."""
    blocks = list(_blocks(call, heads))

    def measured(block: _Block) -> _Band:
        return _measure_block(call.of_texts(block.texts), heads, held, block)

    on_processor = held.batch.device.type == "cpu"
    bands = side_by_side(measured, blocks) if on_processor else [measured(block) for block in blocks]
    parts = list[_Band]()
    for block, band in zip(blocks, bands, strict=True):
        if block.rows.start == 0:
            parts.append(band)
        else:
            parts[-1] = parts[-1].joined(band)
    return _numbers(parts[0] if len(parts) == 1 else _Band(*(torch.cat(each) for each in zip(*parts, strict=True))))


class _Block(NamedTuple):
    """Some texts and some of their queries, whose maps are few cells."""

    texts: slice
    rows: slice


def _blocks(call: AttentionCall, heads: Sequence[int]) -> Iterator[_Block]:
    """All texts of a call, some at once; of a long text a band of queries at a time."""
    texts, _, queries, keys = call.shape
    together = max(1, BLOCK_CELLS // (len(heads) * queries * keys))
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


def _measure_block(call: AttentionCall, heads: Sequence[int], held: HeldCells, block: _Block) -> _Band:
    """The numbers of a block, of a call of its texts alone."""
    maps, all_scores = call.maps(heads, block.rows), isinstance(call, FactoredCall)
    return _measure_band(maps, held.of(maps.visible.to(maps.weights.device), block.texts, block.rows, all_scores))


def _measure_band(maps: AttentionMaps, visible: VisibleCells) -> _Band:
    """What the rows of some texts add, whose maps are ``(texts, heads, queries, keys)``."""
    weights, scores = maps.weights.float(), maps.scores.float()
    if visible.batch.is_padded:
        weights *= visible.cells[:, None]
    of_rows = _row_numbers(weights, scores, visible)
    best, places = of_rows.max(2)
    places = torch.where(best > 0, places + visible.rows.start, visible.first_rows[:, None])
    room = diagonal_room(weights)
    if visible.hides:
        cells = visible.cells[:, None]
        scores = scores.mul_(cells) if visible.all_scores else scores.masked_fill(cells == 0, 0)
    return _Band(
        sums=of_rows.sum(2),
        counts=visible.counts,
        best=best.masked_fill_((visible.counts == 0)[:, None], UNSEEN),
        places=places,
        received=(visible.has_choice[:, None, None] @ weights)[:, :, 0],
        seen=visible.seen,
        chosen=visible.has_choice.sum(1),
        weights=diagonal_sums(weights, room) @ visible.offset_bins,
        scores=diagonal_sums(scores, room) @ visible.offset_bins,
        pairs=visible.pairs,
        entropies=of_rows[..., 0] @ visible.position_bins,
        rows=visible.has_choice @ visible.position_bins,
    )


def _row_numbers(weights: Tensor, scores: Tensor, visible: VisibleCells) -> Tensor:
    """The number of each row, ``(texts, heads, queries, metrics)``; 0 where a query does not have it."""
    count, heads, height, width = weights.shape
    counted, classes = visible.counted, visible.key_classes
    out = weights.new_empty(count, heads, height, len(OF_ROWS) + classes.shape[-1] + len(BY_CELL))
    entropy = -weights.clamp(min=TINY).log_().mul_(weights).sum(-1) / math.log(2)
    exact = weights.to(wide_of(weights.device)).permute(2, 0, 1, 3).reshape(height, count * heads, width)
    moments = torch.bmm(exact, visible.distances).view(height, count, heads, 2).permute(3, 1, 2, 0)
    spread = (moments[1] - moments[0] ** 2).clamp_(min=0).sqrt_()
    hidden = _hidden(scores, visible)
    alone = (entropy, entropy / visible.most_bits, weights.amax(-1), hidden, spread, moments[0])
    for place, numbers in enumerate(alone):
        out[..., place] = numbers
    by_key = weights.view(count, heads * height, width) @ classes
    out[..., len(OF_ROWS) : -len(BY_CELL)] = by_key.view(count, heads, height, -1)
    by_cell = torch.bmm(weights.transpose(1, 2).reshape(-1, heads, width), counted.flatten(0, 1).mT)
    out[..., -len(BY_CELL) :] = by_cell.view(count, height, heads, -1).transpose(1, 2)
    return out.mul_(visible.has_choice[:, None, :, None])


def _hidden(scores: Tensor, visible: VisibleCells) -> Tensor | float:
    """The share of the softmax that a causal mask hid, ``(texts, heads, queries)``."""
    if not visible.has_later:
        return 0.0
    inner = scores.masked_fill(~visible.shown[:, None], -math.inf).logsumexp(-1)
    beyond = scores.masked_fill(~visible.later[:, None], -math.inf).logsumexp(-1)
    return torch.sigmoid((beyond - inner).nan_to_num(nan=0.0)) * visible.sees_later[:, None]
