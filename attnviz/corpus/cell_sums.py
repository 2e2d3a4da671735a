"""Sums weights over the cells of all metrics at once, with one product for each kind of cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

MAX_GATHERED_SHARE = 1 / 8  # up to this share of cells a gather is quicker than a product with all cells
MAX_GATHERED_SHARE_OF_ONE = 1 / 64  # lower for a single text, whose cells the product reads without a copy


@dataclass(frozen=True, eq=False)
class _RelatedCells:
    """The cells of relations: sparse relations gather their cells, and dense ones multiply by a mask."""

    sparse: list[int]  # the numbers of the relations with few cells
    texts: Tensor  # the text of each gathered cell, ``(cells,)``
    cells: Tensor  # its flat index among queries x keys, ``(cells,)``
    sums: Tensor  # the flat index of the sum that it adds to, among queries x sparse x texts, ``(cells,)``
    dense: list[int]  # the numbers of the other relations
    factors: Tensor  # their masks of 1 and 0, ``(texts x queries, dense, keys)``

    @classmethod
    def of(cls, is_related: Tensor) -> Self:
        """Returns the cells of relations, as indices or masks.

        A relation with a small share of related cells keeps the index of each cell, for a gather; any other keeps a
        mask, for a product.
        """
        _, texts, _, keys = is_related.shape
        max_share = MAX_GATHERED_SHARE if texts > 1 else MAX_GATHERED_SHARE_OF_ONE
        is_sparse = is_related.sum((1, 2, 3)) <= max_share * is_related.shape[1:].numel()
        sparse_relations, dense_relations = is_sparse.nonzero()[:, 0].tolist(), (~is_sparse).nonzero()[:, 0].tolist()
        cell_relations, cell_texts, cell_queries, cell_keys = is_related[sparse_relations].nonzero(as_tuple=True)
        return cls(
            sparse=sparse_relations,
            texts=cell_texts,
            cells=cell_queries * keys + cell_keys,
            sums=(cell_queries * len(sparse_relations) + cell_relations) * texts + cell_texts,
            dense=dense_relations,
            factors=is_related[dense_relations].permute(1, 2, 0, 3).flatten(0, 1).float(),
        )

    def write_sums(self, weights: Tensor, out: Tensor) -> None:
        """Writes the sum of each query's weights over the cells of each relation to ``out``, in place.

        Args:
            weights: the weights, ``(texts, heads, queries, keys)``.
            out: the output, ``(queries, relations, texts, heads)``.
        """
        texts, heads, queries, keys = weights.shape
        if self.sparse:
            gathered_weights = weights.flatten(2)[self.texts, :, self.cells]  # (cells, heads)
            sums = weights.new_zeros(queries * texts * len(self.sparse), heads)
            sums.scatter_add_(0, self.sums[:, None].expand(-1, heads), gathered_weights)
            out[:, self.sparse] = sums.view(queries, -1, texts, heads)
        if self.dense:
            weights_by_query = weights.transpose(1, 2).reshape(texts * queries, heads, keys)
            sums = torch.bmm(self.factors, weights_by_query.mT).view(texts, queries, -1, heads)
            out[:, self.dense] = sums.permute(1, 2, 0, 3)


class TextsCells(NamedTuple):
    """The cells that a metric counts, in several texts; hidden cells may be among them, since their weight is 0."""

    # how the cells vary: ``by key`` if they are the same for all queries of a text, ``by place`` if they are the same
    # in all texts, ``by text`` if neither
    varies: Literal["by key", "by place", "by text"]
    # True for the cells, ``(texts, keys)``, ``(queries, keys)`` or ``(texts, queries, keys)`` respectively
    mask: Tensor

    def broadcast_mask(self) -> Tensor:
        """Returns ``mask`` in a shape that broadcasts to ``(texts, queries, keys)``.

        A mask that varies by key gets an axis of queries; any other is returned unchanged.
        """
        return self.mask[:, None] if self.varies == "by key" else self.mask


@dataclass(frozen=True, eq=False)
class CellSums:
    """The factors that sum weights over the cells of metrics; columns are the metrics in the order of computation."""

    row_metrics: list[int]  # the numbers of the metrics that are computed for whole rows; their columns come first
    order: list[int]  # the column of each metric
    distances: Tensor  # the distance from query to key in tokens, and its square, ``(queries, 2, keys)``
    by_place: Tensor  # cells that are the same in all texts, ``(queries, columns, keys)``
    relations: _RelatedCells  # the cells that differ by text and query
    by_key: Tensor  # cells that are the same for all queries of a text, ``(texts, columns, keys)``
    present_by_text: Tensor  # True if a query sees a cell of ``relations``, ``(texts, queries, columns)``

    @classmethod
    def of(
        cls,
        count: int,
        cells: Sequence[tuple[int, TextsCells]],
        visible: Tensor,
        distances: Tensor,
        sum_dtype: torch.dtype,
    ) -> Self:
        """Returns the factors that sum weights over the cells of each metric.

        A metric that is not in ``cells`` is one of whole rows.

        Args:
            visible: the visible cells, ``(texts, queries, keys)``.
            distances: the distances from query to key in tokens, ``(queries, keys)``.
        """
        cells_by_kind = {
            kind: [(number, metric_cells) for number, metric_cells in cells if metric_cells.varies == kind]
            for kind in ("by place", "by text", "by key")
        }
        row_metrics = sorted(set(range(count)) - {number for number, _ in cells})
        columns = list(row_metrics)  # the number of the metric in each column
        for group in cells_by_kind.values():
            columns += [number for number, _ in group]
        cells_by_place, related_cells, cells_by_key = (
            [metric_cells.mask for _, metric_cells in group] for group in cells_by_kind.values()
        )
        relations = torch.stack(related_cells) & visible if related_cells else visible.new_empty(0, *visible.shape)
        return cls(
            row_metrics=row_metrics,
            order=[columns.index(number) for number in range(count)],
            distances=torch.stack([distances, distances**2], dim=1).to(sum_dtype),
            by_place=_stacked(cells_by_place, distances),
            relations=_RelatedCells.of(relations),
            by_key=_stacked(cells_by_key, visible[:, 0]),
            present_by_text=relations.any(-1).permute(1, 2, 0),
        )

    def sees_cells(self, visible: Tensor) -> Tensor:
        """Returns True for each query that sees a cell of a metric, ``(texts, queries, columns)``.

        Columns are the metrics that sum over cells, in the order of computation.

        Args:
            visible: 1 for visible cells, 0 for others, ``(texts, queries, keys)``.
        """
        by_place = torch.einsum("tqk,qck->tqc", visible, self.by_place) > 0
        return torch.cat([by_place, self.present_by_text, visible @ self.by_key.mT > 0], dim=-1)

    def write(self, weights: Tensor, out: Tensor) -> None:
        """Writes the sum of each query's weights over the cells of each metric to ``out``, in place.

        Args:
            weights: the weights, ``(texts, heads, queries, keys)``.
            out: the output, ``(queries, columns of metrics that sum over cells, texts, heads)``.
        """
        # the columns of ``out``: cells by place, then relations, then cells by key
        places_end, relations_end = self.by_place.shape[1], out.shape[1] - self.by_key.shape[1]
        out[:, :places_end] = place_sums(self.by_place, weights)
        self.relations.write_sums(weights, out[:, places_end:relations_end])
        key_sums = self.by_key @ weights.flatten(1, 2).mT  # several times quicker than weights @ factors
        out[:, relations_end:] = key_sums.view(*key_sums.shape[:2], *weights.shape[1:3]).permute(3, 1, 0, 2)


def place_sums(factors: Tensor, weights: Tensor) -> Tensor:
    """Returns the sums of each query's weights times factors of its keys, ``(queries, columns, texts, heads)``.

    Args:
        factors: the factors, which texts and heads share, ``(queries, columns, keys)``.
        weights: the weights, ``(texts, heads, queries, keys)``.
    """
    sums = torch.bmm(factors, weights.to(factors.dtype).flatten(0, 1).permute(1, 2, 0))
    return sums.view(*factors.shape[:2], *weights.shape[:2])


def _stacked(masks: list[Tensor], like: Tensor) -> Tensor:
    """Returns masks ``(rows, keys)`` as 1 and 0, ``(rows, columns, keys)``; without any, rows and keys of ``like``."""
    if not masks:
        return torch.empty(len(like), 0, like.shape[1], device=like.device)
    return torch.stack(masks, dim=1).float()
