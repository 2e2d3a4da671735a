"""Holds a batch of texts on the model's device: its tokens, and the visible cells of a block with what depends on them.

What depends on visible cells alone is the same for the heads that are measured together, and in most models for all
layers, so it is kept from one layer to the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import BoolArray
from attnviz.corpus.cell_sums import CellSums, TextsCells
from attnviz.corpus.sums import offset_bin, position_bin
from attnviz.corpus.token_classes import SURVEYED_NUMBERS, class_numbers_name
from attnviz.metrics.grid import Grid
from attnviz.metrics.metrics import Metric
from attnviz.metrics.query_grid import is_sequence, token_numbers
from attnviz.text.tokens import Tokens

MAX_CACHED_CELLS = 2**21  # grids of more texts x queries x keys are not kept for the next layer
HIDDEN = -1e30  # added to a score, it makes the weight underflow to 0


class Diagonals:
    """Sums over diagonals, with buffers that later calls use again, since new memory takes longer than the sums.

    Attributes:
        buffers: the buffers that no call uses, by the shape of the cells.
    """

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, ...], list[Tensor]] = {}

    def sums(self, cells: Tensor) -> Tensor:
        """Returns the sums over diagonals, ``(..., queries + keys - 1)``, that of last query and first key first.

        Each row is written one column further left than the row before it, so that each diagonal becomes a column. The
        zeros between the rows are written once.
        """
        *batch_axes, queries, keys = cells.shape
        width = queries + keys - 1
        buffers = self.buffers.setdefault(cells.shape, [])
        try:
            buffer = buffers.pop()
        except IndexError:
            buffer = cells.new_zeros(*batch_axes, queries * (width + 1))
        buffer[..., : queries * width].view(*batch_axes, queries, width)[..., queries - 1 :] = cells
        sums = buffer.view(*batch_axes, queries, width + 1)[..., :width].sum(-2)
        buffers.append(buffer)
        return sums


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Texts that run together, each padded at its end."""

    texts: Sequence[Tokens]  # the tokens of each text
    device: torch.device  # the device of the model
    # for each class that the user defined, by name, True for its tokens in each text, ``(tokens,)``
    custom_classes: Mapping[str, Sequence[BoolArray]] = field(default_factory=dict)
    diagonals: Diagonals = field(default_factory=Diagonals)  # the buffers for sums over diagonals, which all layers use

    @cached_property
    def width(self) -> int:
        """The number of tokens of the longest text."""
        return max(map(len, self.texts))

    @cached_property
    def positions(self) -> Tensor:
        """The position of each token, ``(tokens,)``."""
        return torch.arange(self.width, device=self.device)

    @cached_property
    def is_token(self) -> Tensor:
        """True for tokens that are not padding, ``(texts, tokens)``."""
        return self._padded([np.ones(len(tokens), dtype=bool) for tokens in self.texts])

    @cached_property
    def is_padded(self) -> bool:
        """True if the texts differ in length."""
        return len({len(tokens) for tokens in self.texts}) > 1

    @cached_property
    def in_sequence(self) -> bool:
        """True if the tokens of each text follow one another."""
        return all(map(is_sequence, self.texts))

    @cached_property
    def _cached_numbers(self) -> dict[str, Tensor]:
        """The results of `token_numbers` by name, so that each is computed once."""
        return {}

    def token_numbers(self, name: str) -> Tensor:
        """Returns a number for each token, or True for the tokens of a custom class, ``(texts, tokens)``.

        Padding has -1, or False in the mask of a class. The result is cached by its name.
        """
        if name not in self._cached_numbers:
            class_masks = {class_numbers_name(class_name): masks for class_name, masks in self.custom_classes.items()}
            if name in class_masks:
                numbers = class_masks[name]
            else:
                surveyed = SURVEYED_NUMBERS.get(name)
                numbers = [surveyed(tokens) if surveyed else token_numbers(tokens, name) for tokens in self.texts]
            self._cached_numbers[name] = self._padded(numbers)
        return self._cached_numbers[name]

    @cached_property
    def offset_bins(self) -> Tensor:
        """The bin of each offset ``key - query`` from ``1 - width`` to ``width - 1``, one-hot, ``(offsets, bins)``.

        Only bins of such offsets are columns; the first column is the bin of ``1 - width``.
        """
        return self._one_hot(offset_bin(np.arange(1 - self.width, self.width)))

    @cached_property
    def position_bins(self) -> Tensor:
        """The bin of each position, one-hot, ``(positions, bins)``."""
        return self._one_hot(position_bin(np.arange(self.width)))

    def _one_hot(self, bins: NDArray[Any]) -> Tensor:
        """Returns ascending bins as one-hot rows on the device; the first column is the first of these bins."""
        return torch.nn.functional.one_hot(torch.from_numpy(bins - bins[0])).float().to(self.device)

    def _padded(self, arrays: Sequence[NDArray[Any]]) -> Tensor:
        """Returns the arrays of all texts stacked, padded with -1 or False."""
        dtype = arrays[0].dtype
        out = np.full((len(arrays), self.width), False if dtype == np.bool_ else -1, dtype=dtype)
        for row, array in zip(out, arrays, strict=True):
            row[: len(array)] = array
        return torch.from_numpy(out).to(self.device)


class DefinedQueries(NamedTuple):
    """The queries for which each metric is defined; metrics are in the order of computation."""

    has_number: Tensor  # True for queries that have each metric, ``(texts, queries, metrics)``
    counts: Tensor  # the number of queries that have each metric, ``(texts, metrics)``
    first_rows: Tensor  # the first query that has it, ``(texts, metrics)``; -1 for none
    partial_columns: list[int]  # the columns of the metrics of rows that some queries lack


@dataclass(frozen=True, eq=False, kw_only=True)
class TextsGrid(Grid):
    """The cells of some queries and all keys of a self-attention call, in some texts of a batch."""

    batch: TextBatch  # the batch
    texts: slice  # the range of texts
    rows: slice  # the range of queries
    mask: Tensor  # the call's mask, ``(texts, queries, keys)``: True for visible cells, padding among them
    knows_hidden_scores: bool  # True if scores of hidden cells are known
    metrics: Sequence[Metric]  # the measured metrics, without those of columns
    visible: Tensor  # the visible cells without padding, ``(texts, queries, keys)``
    keys: Tensor  # the position of each key, ``(keys,)``
    positions: Tensor  # the position of each query, ``(queries,)``
    in_sequence: bool  # True if the tokens of each text follow one another
    cross: bool = False

    @classmethod
    def of(
        cls,
        batch: TextBatch,
        texts: slice,
        rows: slice,
        mask: Tensor,
        knows_hidden_scores: bool,
        metrics: Sequence[Metric],
    ) -> Self:
        """Returns the grid of a call; cells of padding are not visible.

        Args:
            mask: the call's mask, ``(texts, queries, keys)``, True for visible cells.
        """
        visible = mask
        if batch.is_padded:
            is_token = batch.is_token[texts]
            visible = mask & is_token[:, rows, None] & is_token[:, None]
        return cls(
            batch=batch,
            texts=texts,
            rows=rows,
            mask=mask,
            knows_hidden_scores=knows_hidden_scores,
            metrics=metrics,
            visible=visible,
            keys=batch.positions,
            positions=batch.positions[rows],
            in_sequence=batch.in_sequence,
        )

    @classmethod
    def of_sink(cls, batch: TextBatch, texts: slice, sink: int, metrics: Sequence[Metric]) -> Self:
        """Returns the grid of all queries and one key, after the key before it; it ignores which cells are visible."""
        keys, rows = batch.positions[max(0, sink - 1) : sink + 1], slice(0, batch.width)
        visible = torch.ones(len(batch.is_token[texts]), batch.width, len(keys), dtype=torch.bool, device=batch.device)
        return cls(
            batch=batch,
            texts=texts,
            rows=rows,
            mask=visible,
            knows_hidden_scores=False,
            metrics=metrics,
            visible=visible,
            keys=keys,
            positions=batch.positions,
            in_sequence=batch.in_sequence,
        )

    def matches(self, mask: Tensor, knows_hidden_scores: bool) -> bool:
        """True if this grid was made for the same mask and the same ``knows_hidden_scores``."""
        return self.knows_hidden_scores == knows_hidden_scores and torch.equal(self.mask, mask)

    def query_numbers(self, name: str) -> Tensor:
        """Returns the numbers of each query's token, ``(texts, queries, 1)``."""
        return self.batch.token_numbers(name)[self.texts, self.rows, None]

    def key_numbers(self, name: str) -> Tensor:
        """Returns the numbers of each key's token, ``(texts, 1, keys)``."""
        return self.all_key_numbers(name)[..., self.keys]

    def all_key_numbers(self, name: str) -> Tensor:
        """Returns the numbers of each token of the texts, ``(texts, 1, tokens)``."""
        return self.batch.token_numbers(name)[self.texts, None]

    def cells(self, mask: Tensor) -> TextsCells:
        """Returns the cells with the kind that decides how they are summed.

        Args:
            mask: True for the cells: ``(queries, keys)`` if they are the same in all texts, ``(texts, 1, keys)`` if
                they are the same for all queries of a text, else ``(texts, queries, keys)``.
        """
        if mask.ndim == 3 and mask.shape[1] == 1:
            return TextsCells("by key", mask[:, 0].expand(len(self.visible), -1))
        return TextsCells("by place" if mask.ndim == 2 else "by text", mask)

    def at_keys(self, keys: Tensor) -> TextsCells:
        """Returns the cells of the key at a position for each query, ``(texts, queries)`` or ``(queries,)``."""
        return self.cells(keys[..., None] == self.keys)

    def at_offsets(self, first: int, last: int) -> TextsCells:
        """Returns the cells whose offset ``key - query`` is from ``first`` to ``last``, both included."""
        return self.cells((self.offsets >= first) & (self.offsets <= last))

    def next_keys(self, cells: Tensor) -> Tensor:
        """Returns cells shifted one key to the right, ``(..., queries, keys)``; those of the first key are False."""
        shifted_cells = torch.zeros_like(cells)
        shifted_cells[..., 1:] = cells[..., :-1]
        return shifted_cells

    @cached_property
    def offsets(self) -> Tensor:
        """The position of each key less that of the query, ``(queries, keys)``."""
        return self.keys - self.positions[:, None]

    @cached_property
    def distances(self) -> Tensor:
        """The distance between query and key in tokens, ``(queries, keys)``."""
        return self.offsets.abs()

    @cached_property
    def first_key(self) -> Tensor:
        """True for the first key, ``(1, 1, keys)``; it is the same in all texts, since padding is at the ends."""
        return (self.keys == 0)[None, None]

    @cached_property
    def additive_mask(self) -> Tensor:
        """The additive mask for scores: 0, or `HIDDEN` for hidden cells, ``(texts, 1, queries, keys)``."""
        return torch.where(self.visible, 0.0, HIDDEN)[:, None]

    @cached_property
    def visible_as_float(self) -> Tensor:
        """1 for visible cells, 0 for others, ``(texts, queries, keys)``."""
        return self.visible.float()

    @cached_property
    def has_hidden(self) -> bool:
        """True if any cell is not visible."""
        return not bool(self.visible.all())

    @cached_property
    def visible_keys(self) -> Tensor:
        """True for keys that any query sees, ``(texts, keys)``."""
        return self.visible.any(1)

    @cached_property
    def visible_counts(self) -> Tensor:
        """The number of keys that each query sees, ``(texts, 1, queries)``."""
        return self.visible_as_float.sum(-1)[:, None]

    @cached_property
    def has_choice(self) -> Tensor:
        """1 for queries that see two keys or more, the only ones that are measured; else 0, ``(texts, queries)``."""
        return (self.visible_counts[:, 0] > 1).float()

    @cached_property
    def has_single_key(self) -> bool:
        """True if any of the queries sees exactly one key."""
        return bool((self.visible_counts == 1).any())

    @cached_property
    def max_entropy(self) -> Tensor:
        """The largest entropy in bits that each query can have, for at least two keys, ``(texts, 1, queries)``."""
        return self.visible_counts.clamp(min=2).log2()

    @cached_property
    def hidden_future(self) -> Tensor:
        """True for keys after the query that are hidden and not padding, ``(texts, queries, keys)``."""
        return (self.offsets > 0) & ~self.visible & self.batch.is_token[self.texts][:, None]

    @cached_property
    def has_hidden_later(self) -> Tensor:
        """True for queries that see a key while later keys are hidden from them, ``(texts, 1, queries)``.

        False for all queries if scores of hidden cells are unknown.
        """
        if not self.knows_hidden_scores:
            return torch.zeros_like(self.visible_counts, dtype=torch.bool)
        return self.hidden_future.any(-1)[:, None] & (self.visible_counts > 0)

    @cached_property
    def knows_hidden_future(self) -> bool:
        """True if a query has hidden later keys whose scores are known."""
        return bool(self.has_hidden_later.any())

    @cached_property
    def sums(self) -> CellSums:
        """The factors that sum weights over cells, for all metrics that count cells and apply to this grid."""
        cells = [(number, self.cells_of(metric.cells)) for number, metric in enumerate(self.metrics) if metric.cells]
        applicable = [(number, metric_cells) for number, metric_cells in cells if self.metrics[number].fits(self)]
        # the widest dtype of the device: Apple's GPUs have no float64
        sum_dtype = torch.float32 if self.batch.device.type == "mps" else torch.float64
        return CellSums.of(len(self.metrics), applicable, self.visible, self.distances, sum_dtype)

    @cached_property
    def _cached_queries(self) -> list[DefinedQueries]:
        """The result of `defined_queries`; empty before its first call."""
        return []

    def defined_queries(self, row_metrics: Tensor) -> DefinedQueries:
        """Returns for each metric, in the order of computation, how many queries have it, and the first of them.

        Later calls return the result of the first one, since all heads and layers share it.

        Args:
            row_metrics: the metrics of whole rows, ``(queries, metrics, texts, heads)``; NaN where one is undefined.
        """
        if not self._cached_queries:
            # Whether a metric of whole rows is defined depends on the visible cells alone, so one head shows it.
            is_defined_for_row = ~row_metrics[..., 0].isnan().permute(2, 0, 1)  # (texts, queries, columns)
            is_defined = torch.cat([is_defined_for_row, self.sums.sees_cells(self.visible_as_float)], dim=-1)
            ones_if_defined = is_defined.float() * self.has_choice[..., None]
            counts = ones_if_defined.sum(1)
            first_rows = torch.where(counts > 0, ones_if_defined.argmax(1) + self.rows.start, -1)
            partial_columns = (~is_defined_for_row.all(1).all(0)).nonzero()[:, 0].tolist()
            self._cached_queries.append(DefinedQueries(is_defined, counts, first_rows, partial_columns))
        return self._cached_queries[0]

    @cached_property
    def offset_bins(self) -> Tensor:
        """The bin of each offset ``key - query`` of these queries, one-hot, ``(offsets, bins)``."""
        width = self.batch.width
        return self.batch.offset_bins[width - self.rows.stop : 2 * width - 1 - self.rows.start]

    @cached_property
    def position_bins(self) -> Tensor:
        """The bin of the position of each query, one-hot, ``(queries, bins)``."""
        return self.batch.position_bins[self.rows]

    @cached_property
    def pairs(self) -> Tensor:
        """The number of visible pairs in each bin of offsets, ``(texts, bins)``."""
        return self.by_offset(self.visible_as_float)

    def by_offset(self, cells: Tensor) -> Tensor:
        """Returns the sums of cells ``(..., queries, keys)`` in each bin of the offsets ``key - query``."""
        return self.batch.diagonals.sums(cells) @ self.offset_bins


class CachedGrids:
    """A cache of the grids of a batch, from one layer to the next."""

    def __init__(self, batch: TextBatch, metrics: Sequence[Metric]) -> None:
        self.batch, self.metrics = batch, metrics
        self.grids: dict[tuple[int, int], TextsGrid] = {}

    def of(self, mask: Tensor, texts: slice, rows: slice, knows_hidden_scores: bool) -> TextsGrid:
        """Returns the grid of a call, the one of the previous layer if the mask is the same.

        A grid of a small enough batch is kept for the next layer.

        Args:
            mask: the call's mask, ``(texts, queries, keys)``, True for visible cells.
        """
        grid = self.grids.get((texts.start, rows.start))
        if grid is None or not grid.matches(mask, knows_hidden_scores):
            grid = TextsGrid.of(self.batch, texts, rows, mask, knows_hidden_scores, self.metrics)
            if len(self.batch.texts) * self.batch.width**2 <= MAX_CACHED_CELLS:
                self.grids[texts.start, rows.start] = grid
        return grid
