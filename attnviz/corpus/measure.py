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
from attnviz.corpus.text_batch import BY_CELL, BY_KEY, TextBatch, wide_of
from attnviz.metrics.metrics import STRIPES

BLOCK_CELLS = 2**18  # heads x queries x keys that are in memory at once: few enough for a processor's cache
MIN_ROWS = 16
OF_ROWS = ("entropy", "relative-entropy", "peak", "hidden", "spread", "distance")
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


def measure_call(call: AttentionCall, heads: Sequence[int], batch: TextBatch) -> CallNumbers:
    """The numbers of these heads of a self-attention call over a batch."""
    parts = [_measure_texts(call.of_texts(texts), heads, batch, texts) for texts in _text_blocks(call, heads)]
    return CallNumbers(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _text_blocks(call: AttentionCall, heads: Sequence[int]) -> Iterator[slice]:
    """The texts in runs whose maps are few cells."""
    texts, _, queries, keys = call.shape
    together = max(1, BLOCK_CELLS // (len(heads) * queries * keys))
    return (slice(start, min(start + together, texts)) for start in range(0, texts, together))


def _measure_texts(call: AttentionCall, heads: Sequence[int], batch: TextBatch, texts: slice) -> CallNumbers:
    """The numbers of some texts, a band of queries at a time."""
    count, width = texts.stop - texts.start, batch.width
    height = width if count > 1 else max(MIN_ROWS, BLOCK_CELLS // (len(heads) * width))
    totals: _Band | None = None
    for start in range(0, width, height):
        rows = slice(start, min(start + height, width))
        band = _measure_band(call.maps(heads, rows), batch, texts, rows, isinstance(call, FactoredCall))
        totals = band if totals is None else totals.joined(band)
    assert totals is not None
    return totals.numbers()


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
        later = other.best > self.best
        return _Band(**added)._replace(
            best=torch.maximum(self.best, other.best),
            places=torch.where(later, other.places, self.places),
            seen=self.seen | other.seen,
        )

    def numbers(self) -> CallNumbers:
        """What all rows of some texts give."""
        values = (self.sums / self.counts[:, None]).masked_fill_((self.counts == 0)[:, None], math.nan)
        received = self.received / self.chosen[:, None, None]
        sink, stripe = received.amax(-1), received.topk(min(STRIPES, received.shape[-1]), dim=-1).values.sum(-1)
        stripe = stripe.masked_fill((self.seen.sum(-1) <= STRIPES)[:, None], math.nan)
        columns = torch.stack([sink, stripe], dim=-1).masked_fill((self.chosen == 0)[:, None, None], math.nan)
        places = self.places.masked_fill(self.best == UNSEEN, -1)
        return CallNumbers(
            values=torch.cat([values, columns], dim=-1),
            places=torch.cat([places, torch.full_like(columns, -1, dtype=places.dtype)], dim=-1),
            sinks=received.argmax(-1),
            weights=self.weights,
            scores=self.scores,
            pairs=self.pairs,
            entropies=self.entropies,
            rows=self.rows,
        )


def _measure_band(maps: AttentionMaps, batch: TextBatch, texts: slice, rows: slice, all_scores: bool) -> _Band:
    """What the rows of some texts add.

    Args:
        maps: of these rows, ``(texts, heads, queries, keys)``.
        batch: the texts.
        texts: which of them.
        rows: which queries.
        all_scores: whether scores of hidden cells are known.
    """
    weights, scores = maps.weights.float(), maps.scores.float()
    visible = maps.visible.to(weights.device)
    if batch.is_padded:
        real = batch.real[texts]
        visible = visible & real[:, rows, None] & real[:, None]
        weights *= visible[:, None]
    seen, choices = visible.any(1), visible.sum(-1)
    has_choice, cells = choices > 1, visible.float()
    of_rows, present = _row_numbers(weights, cells, batch, texts, rows)
    hidden, has_later = _hidden(scores, batch, texts, rows, visible) if all_scores else (0.0, False)
    of_rows[..., OF_ROWS.index("hidden")] = hidden
    present[..., OF_ROWS.index("hidden")] = has_later
    present = present & has_choice[..., None]
    known = present.float()
    best, places = of_rows.masked_fill(~present[:, None], UNSEEN).max(2)
    scores = scores.mul_(cells[:, None]) if all_scores else scores.masked_fill(~visible[:, None], 0)
    bins = batch.offset_bins[batch.width - rows.stop : 2 * batch.width - 1 - rows.start]
    return _Band(
        sums=torch.einsum("bhrm,brm->bhm", of_rows, known),
        counts=known.sum(1),
        best=best,
        places=places + rows.start,
        received=(has_choice[:, None, None].float() @ weights)[:, :, 0],
        seen=seen,
        chosen=has_choice.sum(1).float(),
        weights=diagonal_sums(weights) @ bins,
        scores=diagonal_sums(scores) @ bins,
        pairs=(diagonal_sums(cells[:, None]) @ bins)[:, 0],
        entropies=(of_rows[..., 0] * has_choice[:, None]) @ batch.position_bins[rows],
        rows=has_choice.float() @ batch.position_bins[rows],
    )


def _row_numbers(weights: Tensor, cells: Tensor, batch: TextBatch, texts: slice, rows: slice) -> tuple[Tensor, Tensor]:
    """The number of each row, ``(texts, heads, queries, metrics)``, and whether a query has it, without the heads."""
    counted, classes = batch.counted(texts, rows), batch.key_classes[texts]
    count, heads, height, width = weights.shape
    by_cell = torch.bmm(weights.transpose(1, 2).reshape(-1, heads, width), counted.flatten(0, 1).mT)
    by_cell = by_cell.view(count, height, heads, -1).transpose(1, 2)
    by_key = (weights.view(count, heads * height, width) @ classes).view(count, heads, height, -1)
    entropy = -weights.clamp(min=TINY).log_().mul_(weights).sum(-1) / math.log(2)
    choices = cells.sum(-1)
    most = choices.clamp(min=2).log2()[:, None]
    by_query = weights.to(wide_of(weights.device)).permute(2, 0, 1, 3).reshape(height, count * heads, width)
    moments = torch.bmm(by_query, batch.distances(rows)).view(height, count, heads, 2).permute(1, 2, 0, 3)
    distance, spread = moments[..., 0], (moments[..., 1] - moments[..., 0] ** 2).clamp(min=0).sqrt()
    alone = torch.stack([entropy, entropy / most, weights.amax(-1), torch.zeros_like(entropy)], -1)
    alone = torch.cat([alone, torch.stack([spread, distance], -1).float()], -1)
    sees_cell = torch.bmm(cells.reshape(-1, 1, width), counted.flatten(0, 1).mT).view(count, height, -1) > 0
    sees_key = cells @ classes > 0
    always = (choices > 0)[..., None].expand(-1, -1, len(OF_ROWS))
    present = torch.cat([always, sees_key, sees_cell], dim=-1)
    return torch.cat([alone, by_key, by_cell], dim=-1), present


def _hidden(
    scores: Tensor, batch: TextBatch, texts: slice, rows: slice, visible: Tensor
) -> tuple[Tensor | float, Tensor | bool]:
    """The share of the softmax that a causal mask hid, ``(texts, heads, queries)``, and which queries have it."""
    places = torch.arange(batch.width, device=visible.device)
    later = (places > places[rows, None]) & ~visible & batch.real[texts][:, None]
    if not later.any():
        return 0.0, False
    inner = scores.masked_fill(~visible[:, None], -math.inf).logsumexp(-1)
    beyond = scores.masked_fill(~later[:, None], -math.inf).logsumexp(-1)
    return torch.sigmoid((beyond - inner).nan_to_num(nan=0.0)), later.any(-1) & visible.any(-1)


def diagonal_sums(cells: Tensor) -> Tensor:
    """The sums over cells of the same key - query, ``(..., queries, keys)`` to ``(..., queries + keys - 1)``.

    The last query with the first key comes first. Each row is written one place further to the left than the row
    before it, so that what was a diagonal stands in one column.
    """
    *outer, queries, keys = cells.shape
    width = queries + keys - 1
    room = cells.new_zeros(*outer, queries * width + queries - 1)
    room[..., : queries * width].view(*outer, queries, width)[..., queries - 1 :] = cells
    strides = (*room.stride()[:-1], width + 1, 1)
    return room.as_strided((*outer, queries, width), strides).sum(-2)
