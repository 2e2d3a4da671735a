"""VisibleCells: which cells of a block of texts an attention call lets be seen, and all that follows from that alone.

It is the same for the heads that are measured together, and for most models in all layers: a batch holds it from one
layer to the next.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attnviz.corpus.related_cells import RelatedCells
from attnviz.corpus.text_batch import TextBatch

MAX_HELD_CELLS = 2**21  # of a batch whose visible cells are held for the next layer
MAX_BINNED = 2**12  # queries x keys up to which their bins of offsets are multiplied
HIDDEN = -1e30  # a score so low that nothing is left of its weight
OF_ROWS = ("entropy", "relative-entropy", "peak", "hidden", "spread", "distance")


@dataclass(frozen=True, eq=False)
class VisibleCells:
    """The visible cells of some queries of some texts of a batch.

    Attributes:
        batch: the texts.
        texts: which of them.
        rows: which queries.
        given: what the call lets be seen, padding or not, ``(texts, queries, keys)``.
        all_scores: whether scores of hidden cells are known.
    """

    batch: TextBatch
    texts: slice
    rows: slice
    given: Tensor
    all_scores: bool

    def is_of(self, given: Tensor, all_scores: bool) -> bool:
        """Whether another call lets the same be seen."""
        return self.all_scores == all_scores and torch.equal(self.given, given)

    @cached_property
    def shown(self) -> Tensor:
        """Which cells are visible, of real queries and keys, ``(texts, queries, keys)``."""
        if not self.batch.is_padded:
            return self.given
        real = self.batch.real[self.texts]
        return self.given & real[:, self.rows, None] & real[:, None]

    @cached_property
    def barrier(self) -> Tensor:
        """What is added to scores so that hidden cells have no weight, ``(texts, 1, queries, keys)``."""
        return torch.where(self.shown, 0.0, HIDDEN)[:, None]

    @cached_property
    def cells(self) -> Tensor:
        """The same, 1 or 0."""
        return self.shown.float()

    @cached_property
    def hides(self) -> bool:
        """Whether any cell is not visible."""
        return not bool(self.shown.all())

    @cached_property
    def seen(self) -> Tensor:
        """Which keys any query sees, ``(texts, keys)``."""
        return self.shown.any(1)

    @cached_property
    def choices(self) -> Tensor:
        """How many keys each query sees, ``(texts, queries)``."""
        return self.cells.sum(-1)

    @cached_property
    def has_choice(self) -> Tensor:
        """Which queries see two keys or more, 1 or 0, ``(texts, queries)``: only these are measured."""
        return (self.choices > 1).float()

    @cached_property
    def has_lone(self) -> bool:
        """Whether a query sees one key alone."""
        return bool((self.choices == 1).any())

    @cached_property
    def most_bits(self) -> Tensor:
        """The largest entropy that each query can have, ``(texts, 1, queries)``."""
        return self.choices.clamp(min=2).log2()[:, None]

    @cached_property
    def later(self) -> Tensor:
        """Which later keys are hidden, ``(texts, queries, keys)``."""
        places = torch.arange(self.batch.width, device=self.given.device)
        return (places > places[self.rows, None]) & ~self.shown & self.batch.real[self.texts][:, None]

    @cached_property
    def sees_later(self) -> Tensor:
        """Which queries have a later key hidden from them, and see others, ``(texts, queries)``."""
        return self.later.any(-1) & (self.choices > 0)

    @cached_property
    def has_later(self) -> bool:
        """Whether scores of hidden later keys are known."""
        return self.all_scores and bool(self.sees_later.any())

    @cached_property
    def key_classes(self) -> Tensor:
        """Which keys are of each class, 1 or 0, ``(texts, keys, classes)``."""
        return self.batch.key_classes[self.texts]

    @cached_property
    def related(self) -> Tensor:
        """Which visible cells are of each of `BY_RELATION`, ``(these, texts, queries, keys)``."""
        return self.batch.related(self.texts, self.rows) & self.shown

    @cached_property
    def known(self) -> Tensor:
        """Which numbers a query has, 1 or 0, ``(texts, queries, metrics)``."""
        always = (self.choices > 0)[..., None].repeat(1, 1, len(OF_ROWS))
        always[..., OF_ROWS.index("hidden")] = self.sees_later if self.has_later else False
        by_place = torch.einsum("tqk,qkc->tqc", self.cells, self.by_place[..., 2:].float()) > 0
        by_relation = self.related.any(-1).permute(1, 2, 0)
        known = torch.cat([always, by_place, by_relation, self.cells @ self.key_classes > 0], dim=-1)
        return known.float() * self.has_choice[..., None]

    @cached_property
    def relations(self) -> RelatedCells:
        """The same, as weights are summed over them."""
        return RelatedCells.of(self.related)

    @cached_property
    def counts(self) -> Tensor:
        """How many queries have each number, ``(texts, metrics)``."""
        return self.known.sum(1)

    @cached_property
    def first_rows(self) -> Tensor:
        """The first query that has each number, ``(texts, metrics)``; -1 for none."""
        return torch.where(self.counts > 0, self.known.argmax(1) + self.rows.start, -1)

    @cached_property
    def by_place(self) -> Tensor:
        """The distance of each cell, its square, and 1 or 0 for each of `BY_PLACE`, ``(queries, keys, these)``."""
        return self.batch.by_place(self.rows)

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
        return diagonal_sums(self.cells) @ self.offset_bins


class HeldCells:
    """The visible cells of a batch, held from one layer to the next.

    Args:
        batch: the texts.
    """

    def __init__(self, batch: TextBatch) -> None:
        self.batch = batch
        self.found: dict[tuple[int, int], VisibleCells] = {}

    def of(self, given: Tensor, texts: slice, rows: slice, all_scores: bool) -> VisibleCells:
        """The visible cells of a call: those of the layer before, where they are the same."""
        found = self.found.get((texts.start, rows.start))
        if found is None or not found.is_of(given, all_scores):
            found = VisibleCells(self.batch, texts, rows, given, all_scores)
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
