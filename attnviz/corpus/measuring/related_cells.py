"""Sums weights over cells whose query and key are related, such as copies of the same token."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

MAX_GATHERED_SHARE = 1 / 8  # up to this share of cells a gather is quicker than a product with all cells
MAX_GATHERED_SHARE_OF_ONE = 1 / 64  # lower for a single text, whose cells the product reads without a copy


@dataclass(frozen=True, eq=False)
class RelatedCells:
    """The cells of relations: sparse relations gather their cells, and dense ones multiply by a mask.

    Attributes:
        sparse: the numbers of the relations with few cells.
        texts: the text of each gathered cell, ``(cells,)``.
        cells: its flat index among queries x keys, ``(cells,)``.
        sums: the flat index of the sum that it adds to, among queries x sparse x texts, ``(cells,)``.
        dense: the numbers of the other relations.
        factors: their masks of 1 and 0, ``(texts x queries, dense, keys)``.
    """

    sparse: list[int]
    texts: Tensor
    cells: Tensor
    sums: Tensor
    dense: list[int]
    factors: Tensor

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
