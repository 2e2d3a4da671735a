"""TextsGrid: which cells of a block of texts an attention call lets be seen, and all that follows from that alone.

It is the same for the heads that are measured together, and for most models in all layers: a batch holds it from one
layer to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import torch
from torch import Tensor

from attnviz.corpus.measuring.cell_sums import CellSums, TextsCells
from attnviz.corpus.measuring.text_batch import TextBatch, wide_of
from attnviz.metrics.grid import Grid
from attnviz.metrics.metrics import Metric

MAX_HELD_CELLS = 2**21  # of a batch whose visible cells are held for the next layer
MAX_BINNED = 2**12  # queries x keys up to which their bins of offsets are multiplied
HIDDEN = -1e30  # a score so low that nothing is left of its weight


class KnownNumbers(NamedTuple):
    """Which queries have which number, metrics in the order in which they are computed.

    Attributes:
        counts: ``(texts, metrics)``, how many queries have each.
        first_rows: ``(texts, metrics)``, the first query that has each; -1 for none.
        partly: the metrics of rows that not all queries have.
    """

    counts: Tensor
    first_rows: Tensor
    partly: list[int]


@dataclass(frozen=True, eq=False, kw_only=True)
class TextsGrid(Grid):
    """Some queries of some texts of a batch with all keys, of a self-attention call.

    Attributes:
        batch: the texts.
        texts: which of them.
        rows: which queries.
        given: what the call lets be seen, padding or not, ``(texts, queries, keys)``.
        all_scores: whether scores of hidden cells are known.
        metrics: what is measured, but for metrics of columns.
        visible: which cells are visible, of real queries and keys, ``(texts, queries, keys)``.
        keys: the number of each key, ``(keys,)``.
        positions: the number of each query, ``(queries,)``.
        in_sequence: whether tokens follow one another.
    """

    batch: TextBatch
    texts: slice
    rows: slice
    given: Tensor
    all_scores: bool
    metrics: Sequence[Metric]
    visible: Tensor
    keys: Tensor
    positions: Tensor
    in_sequence: bool
    cross: bool = False

    @classmethod
    def of(
        cls, batch: TextBatch, texts: slice, rows: slice, given: Tensor, all_scores: bool, metrics: Sequence[Metric]
    ) -> Self:
        """The grid of a call: see the attributes."""
        visible = given
        if batch.is_padded:
            real = batch.real[texts]
            visible = given & real[:, rows, None] & real[:, None]
        return cls(
            batch=batch,
            texts=texts,
            rows=rows,
            given=given,
            all_scores=all_scores,
            metrics=metrics,
            visible=visible,
            keys=batch.places,
            positions=batch.places[rows],
            in_sequence=batch.in_sequence,
        )

    def is_of(self, given: Tensor, all_scores: bool) -> bool:
        """Whether another call lets the same be seen."""
        return self.all_scores == all_scores and torch.equal(self.given, given)

    def query(self, name: str) -> Tensor:
        """The numbers of each query's token, ``(texts, queries, 1)``."""
        return self.batch.of(name)[self.texts, self.rows, None]

    def key(self, name: str) -> Tensor:
        """The numbers of each key's token, ``(texts, 1, keys)``."""
        return self.batch.of(name)[self.texts, None]

    def all_keys(self, name: str) -> Tensor:
        """The same: a grid has all keys of its texts."""
        return self.key(name)

    def cells(self, counted: Tensor) -> TextsCells:
        """The cells as they are summed: alike for all queries, alike in all texts, or any."""
        if counted.ndim == 3 and counted.shape[1] == 1:
            return TextsCells("by key", counted[:, 0].expand(len(self.visible), -1))
        return TextsCells("by place" if counted.ndim == 2 else "by text", counted)

    def at_keys(self, keys: Tensor) -> TextsCells:
        """One key of each query, ``(texts, queries)`` or ``(queries,)``."""
        return self.cells(keys[..., None] == self.keys)

    def at_offsets(self, first: int, last: int) -> TextsCells:
        """The keys whose position less that of the query is from ``first`` to ``last``."""
        return self.cells((self.offsets >= first) & (self.offsets <= last))

    def next_keys(self, cells: Tensor) -> Tensor:
        """The cells of the keys after some cells, ``(..., queries, keys)``."""
        following = torch.zeros_like(cells)
        following[..., 1:] = cells[..., :-1]
        return following

    @cached_property
    def offsets(self) -> Tensor:
        """The position of each key less that of the query, ``(queries, keys)``."""
        return self.keys - self.positions[:, None]

    @cached_property
    def distances(self) -> Tensor:
        """How many tokens lie between query and key, ``(queries, keys)``."""
        return self.offsets.abs()

    @cached_property
    def first_key(self) -> Tensor:
        """True for the first key, ``(1, 1, keys)``: padding is at the ends."""
        return (self.keys == 0)[None, None]

    @cached_property
    def barrier(self) -> Tensor:
        """What is added to scores so that hidden cells have no weight, ``(texts, 1, queries, keys)``."""
        return torch.where(self.visible, 0.0, HIDDEN)[:, None]

    @cached_property
    def ones(self) -> Tensor:
        """1 for visible cells, 0 for others, ``(texts, queries, keys)``."""
        return self.visible.float()

    @cached_property
    def hides(self) -> bool:
        """True if any cell is not visible."""
        return not bool(self.visible.all())

    @cached_property
    def seen(self) -> Tensor:
        """Which keys any query sees, ``(texts, keys)``."""
        return self.visible.any(1)

    @cached_property
    def choices(self) -> Tensor:
        """How many keys each query sees, ``(texts, 1, queries)``."""
        return self.ones.sum(-1)[:, None]

    @cached_property
    def has_choice(self) -> Tensor:
        """Which queries see two keys or more, 1 or 0, ``(texts, queries)``: only these are measured."""
        return (self.choices[:, 0] > 1).float()

    @cached_property
    def has_lone(self) -> bool:
        """True if a query sees one key alone."""
        return bool((self.choices == 1).any())

    @cached_property
    def most_bits(self) -> Tensor:
        """The largest entropy that each query can have, of at least two keys, ``(texts, 1, queries)``."""
        return self.choices.clamp(min=2).log2()

    @cached_property
    def later(self) -> Tensor:
        """Which later keys are hidden, ``(texts, queries, keys)``."""
        return (self.offsets > 0) & ~self.visible & self.batch.real[self.texts][:, None]

    @cached_property
    def has_later(self) -> Tensor:
        """Which queries see some keys and have later ones hidden whose scores are known, ``(texts, 1, queries)``."""
        if not self.all_scores:
            return torch.zeros_like(self.choices, dtype=torch.bool)
        return self.later.any(-1)[:, None] & (self.choices > 0)

    @cached_property
    def hides_scores(self) -> bool:
        """True if scores of hidden later keys are known."""
        return bool(self.has_later.any())

    @cached_property
    def sums(self) -> CellSums:
        """How weights are summed over the cells of all metrics of cells."""
        cells = [(number, self.counted_by(metric.cells)) for number, metric in enumerate(self.metrics) if metric.cells]
        fitting = [(number, each) for number, each in cells if self.metrics[number].fits(self)]
        return CellSums.of(len(self.metrics), fitting, self.visible, self.distances, wide_of(self.batch.device))

    @cached_property
    def _known(self) -> list[KnownNumbers]:
        return []

    def known(self, of_rows: Tensor) -> KnownNumbers:
        """Which queries have which number, told once: heads and layers have the same.

        Args:
            of_rows: the numbers of metrics of rows, ``(queries, metrics, texts, heads)``, NaN where there is none.
        """
        if not self._known:
            there = ~of_rows[..., 0].isnan().permute(2, 0, 1)
            known = torch.cat([there, self.sums.present(self.ones)], dim=-1).float() * self.has_choice[..., None]
            counts = known.sum(1)
            first_rows = torch.where(counts > 0, known.argmax(1) + self.rows.start, -1)
            partly = (~there.all(1).all(0)).nonzero()[:, 0].tolist()
            self._known.append(KnownNumbers(counts, first_rows, partly))
        return self._known[0]

    @cached_property
    def offset_bins(self) -> Tensor:
        """Which bin each offset ``key - query`` of these queries is in, 1 or 0, ``(offsets, bins)``."""
        width = self.batch.width
        return self.batch.offset_bins[width - self.rows.stop : 2 * width - 1 - self.rows.start]

    @cached_property
    def binned(self) -> Tensor | None:
        """Which bin of offsets each cell is in, 1 or 0, ``(queries x keys, bins)``; ``None`` where cells are many."""
        count, width = self.given.shape[1:]
        return self.batch.binned if count == self.batch.width and count * width <= MAX_BINNED else None

    @cached_property
    def position_bins(self) -> Tensor:
        """Which bin the position of each query is in, 1 or 0, ``(queries, bins)``."""
        return self.batch.position_bins[self.rows]

    @cached_property
    def pairs(self) -> Tensor:
        """How many visible pairs are in each bin of offsets, ``(texts, bins)``."""
        return diagonal_sums(self.ones) @ self.offset_bins


class HeldGrids:
    """The grids of a batch, held from one layer to the next.

    Args:
        batch: the texts.
        metrics: what is measured, but for metrics of columns.
    """

    def __init__(self, batch: TextBatch, metrics: Sequence[Metric]) -> None:
        self.batch, self.metrics = batch, metrics
        self.found: dict[tuple[int, int], TextsGrid] = {}

    def of(self, given: Tensor, texts: slice, rows: slice, all_scores: bool) -> TextsGrid:
        """The grid of a call: that of the layer before, where the same is visible."""
        found = self.found.get((texts.start, rows.start))
        if found is None or not found.is_of(given, all_scores):
            found = TextsGrid.of(self.batch, texts, rows, given, all_scores, self.metrics)
            if len(self.batch.texts) * self.batch.width**2 <= MAX_HELD_CELLS:
                self.found[texts.start, rows.start] = found
        return found


def diagonal_sums(cells: Tensor, room: Tensor | None = None) -> Tensor:
    """The sums over cells of the same key - query, ``(..., queries, keys)`` to ``(..., queries + keys - 1)``.

    The last query with the first key comes first. Each row is written one place further to the left than the row
    before it, so that what was a diagonal stands in one column.

    Args:
        cells: what is summed.
        room: what `diagonal_room` made for cells of this shape, to be written to again.
    """
    *outer, queries, keys = cells.shape
    width = queries + keys - 1
    room = diagonal_room(cells) if room is None else room
    room[..., : queries * width].view(*outer, queries, width)[..., queries - 1 :] = cells
    strides = (*room.stride()[:-1], width + 1, 1)
    return room.as_strided((*outer, queries, width), strides).sum(-2)


def diagonal_room(cells: Tensor) -> Tensor:
    """Zeros around cells of such a shape, which `diagonal_sums` leaves as they are."""
    *outer, queries, keys = cells.shape
    return cells.new_zeros(*outer, queries * (queries + keys - 1) + queries - 1)
