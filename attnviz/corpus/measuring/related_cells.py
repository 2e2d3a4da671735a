"""Sums weights over the cells of relations between tokens, such as earlier copies of the query's token."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

MAX_PICKED = 1 / 8  # the share of cells up to which a gather is quicker than a product with all of them
MAX_PICKED_OF_ONE = 1 / 64  # lower for a single text, whose cells the product reads without a copy


@dataclass(frozen=True, eq=False)
class RelatedCells:
    """The cells of relations: sparse relations gather their cells, and dense ones multiply by a mask.

    Attributes:
        few: the numbers of the relations with few cells.
        texts: the text of each gathered cell, ``(cells,)``.
        cells: its flat index among queries x keys, ``(cells,)``.
        sums: the flat index of the sum that it adds to, among queries x few x texts, ``(cells,)``.
        many: the numbers of the other relations.
        factors: their masks of 1 and 0, ``(texts x queries, keys, many)``.
    """

    few: list[int]
    texts: Tensor
    cells: Tensor
    sums: Tensor
    many: list[int]
    factors: Tensor

    @classmethod
    def of(cls, related: Tensor) -> Self:
        """Returns the cells of relations, given True for each related cell, ``(relations, texts, queries, keys)``."""
        _, texts, _, keys = related.shape
        most = MAX_PICKED if texts > 1 else MAX_PICKED_OF_ONE
        is_few = related.sum((1, 2, 3)) <= most * related.shape[1:].numel()
        few, many = is_few.nonzero()[:, 0].tolist(), (~is_few).nonzero()[:, 0].tolist()
        relation, text, query, key = related[few].nonzero(as_tuple=True)
        return cls(
            few=few,
            texts=text,
            cells=query * keys + key,
            sums=(query * len(few) + relation) * texts + text,
            many=many,
            factors=related[many].permute(1, 2, 3, 0).flatten(0, 1).float(),
        )

    def write_sums(self, weights: Tensor, out: Tensor) -> None:
        """Writes the sums over the cells of each relation to ``out``.

        Args:
            weights: the weights, ``(texts, heads, queries, keys)``.
            out: the output, ``(queries, relations, texts, heads)``.
        """
        texts, heads, queries, keys = weights.shape
        if self.few:
            picked = weights.flatten(2)[self.texts, :, self.cells]
            sums = weights.new_zeros(queries * texts * len(self.few), heads)
            sums.scatter_add_(0, self.sums[:, None].expand(-1, heads), picked)
            out[:, self.few] = sums.view(queries, -1, texts, heads)
        if self.many:
            by_query = weights.transpose(1, 2).reshape(texts * queries, heads, keys)
            sums = torch.bmm(by_query, self.factors).view(texts, queries, heads, -1)
            out[:, self.many] = sums.permute(1, 3, 0, 2)
