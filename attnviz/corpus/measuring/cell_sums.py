"""CellSums: sums of weights over the cells of all metrics of cells at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from attnviz.corpus.measuring.related_cells import RelatedCells


class TextsCells(NamedTuple):
    """Some cells of texts, visible or not: what is not visible has no weight.

    Attributes:
        alike: ``by key`` for all queries, ``by place`` in all texts, or ``by text`` neither.
        counted: ``(texts, keys)``, ``(queries, keys)`` or ``(texts, queries, keys)``.
    """

    alike: Literal["by key", "by place", "by text"]
    counted: Tensor

    def of_cells(self) -> Tensor:
        """The same, to be broadcast to ``(texts, queries, keys)``."""
        return self.counted[:, None] if self.alike == "by key" else self.counted


@dataclass(frozen=True, eq=False)
class CellSums:
    """How weights are summed over cells; columns are the metrics in the order in which they are computed.

    Attributes:
        of_rows: the numbers of the metrics that are no sums over cells; their columns come first.
        order: the column of each metric.
        by_place: ``(queries, keys, 2 + columns)``, the distance, its square, and cells that are alike in all texts.
        relations: cells that are not alike.
        by_key: ``(texts, keys, columns)``, cells that are alike for all queries.
        present_by_text: ``(texts, queries, columns)``, whether a query sees such a cell, of ``relations``.
    """

    of_rows: list[int]
    order: list[int]
    by_place: Tensor
    relations: RelatedCells
    by_key: Tensor
    present_by_text: Tensor

    @classmethod
    def of(
        cls, count: int, cells: Sequence[tuple[int, TextsCells]], visible: Tensor, distances: Tensor, wide: torch.dtype
    ) -> Self:
        """The sums of a grid.

        Args:
            count: how many metrics there are.
            cells: the cells of some, by the number of the metric.
            visible: ``(texts, queries, keys)``.
            distances: from query to key, ``(queries, keys)``.
            wide: the type of sums of distances. Float64: of a variance float32 leaves little where a head looks at one
                far token.
        """
        kinds = {kind: [each for each in cells if each[1].alike == kind] for kind in ("by place", "by text", "by key")}
        of_rows = sorted(set(range(count)) - {number for number, _ in cells})
        columns = [*of_rows, *(number for alike in kinds.values() for number, _ in alike)]
        placed, related, keyed = ([each.counted for _, each in alike] for alike in kinds.values())
        texts = torch.stack(related) & visible if related else visible.new_empty(0, *visible.shape)
        by_key = torch.stack(keyed, -1).float() if keyed else distances.new_empty(len(visible), visible.shape[2], 0)
        return cls(
            of_rows=of_rows,
            order=[columns.index(number) for number in range(count)],
            by_place=torch.stack([each.to(wide) for each in (distances, distances**2, *placed)], dim=-1),
            relations=RelatedCells.of(texts),
            by_key=by_key.float(),
            present_by_text=texts.any(-1).permute(1, 2, 0),
        )

    def present(self, ones: Tensor) -> Tensor:
        """Whether each query sees a cell of each metric of cells, ``(texts, queries, columns)``.

        Args:
            ones: 1 for visible cells, ``(texts, queries, keys)``.
        """
        by_place = torch.einsum("tqk,qkc->tqc", ones, self.by_place[..., 2:].float()) > 0
        return torch.cat([by_place, self.present_by_text, ones @ self.by_key > 0], dim=-1)

    def write(self, weights: Tensor, placed: Tensor, out: Tensor) -> None:
        """Writes the sums of each query.

        Args:
            weights: ``(texts, heads, queries, keys)``.
            placed: their sums with ``by_place``, ``(queries, 2 + columns, texts, heads)``.
            out: ``(queries, columns of metrics of cells, texts, heads)``, which is written to.
        """
        count, heads, height, width = weights.shape
        first, last = placed.shape[1] - 2, out.shape[1] - self.by_key.shape[-1]
        out[:, :first] = placed[:, 2:]
        self.relations.write_sums(weights, out[:, first:last])
        by_key = (weights.view(count, heads * height, width) @ self.by_key).view(count, heads, height, -1)
        out[:, last:] = by_key.permute(2, 3, 0, 1)
