"""An attention call of a batch to the numbers of each of its texts: computed where the model runs, then forgotten.

The formulas are those of `attnviz.metrics.metrics`, for all texts and heads of a block at once. Weights on the cells of
all metrics are summed together, and what they share is computed once for each row.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import AttentionCall, FactoredCall
from attnviz.corpus.measuring.texts_grid import HeldGrids, KnownNumbers, TextsGrid, diagonal_room, diagonal_sums
from attnviz.corpus.measuring.texts_rows import TextsRows, captured_rows, weigh
from attnviz.streaming.workers import map_parallel

BLOCK_CELLS = 2**19  # heads x queries x keys that are in memory at once, in each thread
MIN_ROWS = 16
UNSEEN = -1.0  # below any number of a row


class CallNumbers(NamedTuple):
    """What one call gives for each text.

    Attributes:
        values: ``(texts, heads, metrics)``, without metrics of columns; NaN where one has no meaning.
        places: ``(texts, heads, metrics)``, the query where each is largest; -1 where no query has it.
        received: ``(texts, heads, keys)``, the weight on each key, as a mean over the queries that have a choice; NaN
            where none has.
        seen: ``(texts, keys)``, whether any query sees the key.
        weights: ``(texts, heads, offset bins)``, summed over the pairs of query and key.
        scores: the same of scores.
        pairs: ``(texts, offset bins)``, how many pairs these are.
        entropies: ``(texts, heads, position bins)``, bits, summed over queries.
        rows: ``(texts, position bins)``, how many queries these are.
    """

    values: Tensor
    places: Tensor
    received: Tensor
    seen: Tensor
    weights: Tensor
    scores: Tensor
    pairs: Tensor
    entropies: Tensor
    rows: Tensor


def measure_call(
    call: AttentionCall, heads: Sequence[int], held: HeldGrids
) -> list[tuple[tuple[int, ...], CallNumbers]]:
    """The numbers of these heads of a self-attention call over a batch, whose grids are held.

    All heads are measured together, or each alone where they see different cells.
    """
    blocks = list(_blocks(call, heads))
    if isinstance(call, FactoredCall) and len(held.batch.texts) > 1:  # so that no product of them copies them first
        call = replace(call, queries=call.queries.contiguous(), keys=call.keys.contiguous())

    def measured(block: _Block) -> _Band | None:
        return _measure_block(call.of_texts(block.texts), heads, held, block)

    on_processor = held.batch.device.type == "cpu"
    found = map_parallel(measured, blocks) if on_processor else [measured(block) for block in blocks]
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
    return CallNumbers(
        values=(band.sums / band.counts[:, None]).masked_fill_((band.counts == 0)[:, None], math.nan),
        places=band.places,
        received=band.received / band.chosen[:, None, None],
        seen=band.seen,
        weights=band.weights,
        scores=band.scores,
        pairs=band.pairs,
        entropies=band.entropies,
        rows=band.rows,
    )


def _measure_block(call: AttentionCall, heads: Sequence[int], held: HeldGrids, block: _Block) -> _Band | None:
    """The numbers of a block, of a call of its texts alone; ``None`` where heads see different cells."""
    if isinstance(call, FactoredCall):
        rows = weigh(call, heads, held, block.texts, block.rows)
        return None if rows is None else _measure_band(rows)
    maps = call.maps(heads, block.rows)
    if maps.visible.shape[1] > 1:
        return None
    return _measure_band(captured_rows(maps, held.of(maps.visible[:, 0], block.texts, block.rows, False)))


def _measure_band(rows: TextsRows) -> _Band:
    """What the rows of some texts add."""
    grid, weights = rows.grid, rows.weighed.weights
    numbers, known = _row_numbers(rows)
    best, order = numbers.amax(0), grid.sums.order
    room = None if grid.binned is not None else diagonal_room(weights)

    def by_offset(cells: Tensor) -> Tensor:
        if grid.binned is not None:
            return (cells.flatten(2).flatten(0, 1) @ grid.binned).view(*cells.shape[:2], -1)
        return diagonal_sums(cells, room) @ grid.offset_bins

    return _Band(
        sums=numbers.sum(0)[order].permute(1, 2, 0),
        counts=known.counts[:, order],
        best=best.permute(1, 2, 0).masked_fill((known.counts == 0)[:, None], UNSEEN)[..., order],
        places=_places(numbers, best, known, grid.rows.start)[order].permute(1, 2, 0),
        received=_received(weights, grid),
        seen=grid.seen,
        chosen=grid.has_choice.sum(1),
        weights=by_offset(weights),
        scores=by_offset(rows.weighed.scores),
        pairs=grid.pairs,
        entropies=torch.einsum("qth,qb->thb", _measured(rows.entropy.permute(2, 0, 1), grid), grid.position_bins),
        rows=grid.has_choice @ grid.position_bins,
    )


def _measured(numbers: Tensor, grid: TextsGrid) -> Tensor:
    """The numbers of queries that see two keys or more, ``(queries, ..., texts, heads)``, and 0 for others."""
    return numbers * grid.has_choice.T.view(-1, *([1] * (numbers.ndim - 3)), len(grid.visible), 1)


def _received(weights: Tensor, grid: TextsGrid) -> Tensor:
    """What each key receives from queries that see two keys or more, ``(texts, heads, keys)``."""
    if grid.has_lone:
        return (grid.has_choice[:, None, None] @ weights)[:, :, 0]
    return weights.sum(2)


def _places(numbers: Tensor, best: Tensor, known: KnownNumbers, start: int) -> Tensor:
    """The first query where each number is largest, ``(metrics, texts, heads)``."""
    count = len(numbers)
    left = torch.arange(count, 0, -1, dtype=numbers.dtype, device=numbers.device)
    first = (numbers - best).sign_().mul_(count).add_(left[:, None, None, None]).amax(0)
    places = count - first.long() + start
    return torch.where(best > 0, places, known.first_rows.T[..., None])


def _row_numbers(rows: TextsRows) -> tuple[Tensor, KnownNumbers]:
    """The number of each row, ``(queries, metrics, texts, heads)``, 0 where a query does not have it; and who has it.

    Metrics come in the order in which they are computed.
    """
    grid, sums = rows.grid, rows.grid.sums
    texts, heads, height = rows.entropy.shape
    out, first = rows.entropy.new_empty(height, len(grid.metrics), texts, heads), len(sums.of_rows)
    for column, number in enumerate(sums.of_rows):
        out[:, column] = grid.metrics[number].of(rows).permute(2, 0, 1)
    known = grid.known(out[:, :first])
    for column in known.partly:
        out[:, column].nan_to_num_()
    sums.write(rows.weighed.weights, rows.placed, out[:, first:])
    return out.mul_(grid.has_choice.T[:, None, :, None]), known
