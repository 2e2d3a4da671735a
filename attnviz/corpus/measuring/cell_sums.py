"""Sums weights over the cells of all metrics at once, with one product for each kind of cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from attnviz.corpus.measuring.related_cells import RelatedCells


class TextsCells(NamedTuple):
    """The cells that a metric counts, in several texts; hidden cells may be among them, since their weight is 0.

    Attributes:
        varies: how the cells vary: ``by key`` if they are the same for all queries of a text, ``by place`` if they are
            the same in all texts, ``by text`` if neither.
        mask: True for the cells, ``(texts, keys)``, ``(queries, keys)`` or ``(texts, queries, keys)`` respectively.
    """

    varies: Literal["by key", "by place", "by text"]
    mask: Tensor

    def broadcast_mask(self) -> Tensor:
        """Returns ``mask`` in a shape that broadcasts to ``(texts, queries, keys)``.

        A mask that varies by key gets an axis of queries; any other is returned unchanged.
        """
        return self.mask[:, None] if self.varies == "by key" else self.mask


@dataclass(frozen=True, eq=False)
class CellSums:
    """The factors that sum weights over the cells of metrics; columns are the metrics in the order of computation.

    Attributes:
        row_metrics: the numbers of the metrics that are computed for whole rows; their columns come first.
        order: the column of each metric.
        by_place: the distance, its square, and cells that are the same in all texts, ``(queries, keys, 2 + columns)``.
        relations: the cells that differ by text and query.
        by_key: cells that are the same for all queries of a text, ``(texts, keys, columns)``.
        present_by_text: True if a query sees a cell of ``relations``, ``(texts, queries, columns)``.
    """

    row_metrics: list[int]
    order: list[int]
    by_place: Tensor
    relations: RelatedCells
    by_key: Tensor
    present_by_text: Tensor

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
            count: the number of all metrics.
            cells: pairs of number and cells, for each metric that sums over cells.
            visible: the visible cells, ``(texts, queries, keys)``.
            distances: the distances from query to key in tokens, ``(queries, keys)``.
            sum_dtype: the dtype of sums of distances: float64 where the device has it, because in float32 the variance
                cancels if a head attends to one distant token.
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
        if cells_by_key:
            by_key = torch.stack(cells_by_key, -1)
        else:
            by_key = distances.new_empty(len(visible), visible.shape[2], 0)  # no columns
        return cls(
            row_metrics=row_metrics,
            order=[columns.index(number) for number in range(count)],
            by_place=torch.stack(
                [factor.to(sum_dtype) for factor in (distances, distances**2, *cells_by_place)], dim=-1
            ),
            relations=RelatedCells.of(relations),
            by_key=by_key.float(),
            present_by_text=relations.any(-1).permute(1, 2, 0),
        )

    def sees_cells(self, visible: Tensor) -> Tensor:
        """Returns True for each query that sees a cell of a metric, ``(texts, queries, columns)``.

        Columns are the metrics that sum over cells, in the order of computation.

        Args:
            visible: 1 for visible cells, 0 for others, ``(texts, queries, keys)``.
        """
        by_place = torch.einsum("tqk,qkc->tqc", visible, self.by_place[..., 2:].float()) > 0
        return torch.cat([by_place, self.present_by_text, visible @ self.by_key > 0], dim=-1)

    def write(self, weights: Tensor, place_sums: Tensor, out: Tensor) -> None:
        """Writes the sum of each query's weights over the cells of each metric to ``out``, in place.

        Args:
            weights: the weights, ``(texts, heads, queries, keys)``.
            place_sums: their products with ``by_place``, ``(queries, 2 + columns, texts, heads)``.
            out: the output, ``(queries, columns of metrics that sum over cells, texts, heads)``.
        """
        texts, heads, queries, keys = weights.shape
        cell_sums = place_sums[:, 2:]  # the first two columns are distances, which are no metrics
        # the columns of ``out``: cells by place, then relations, then cells by key
        places_end, relations_end = cell_sums.shape[1], out.shape[1] - self.by_key.shape[-1]
        out[:, :places_end] = cell_sums
        self.relations.write_sums(weights, out[:, places_end:relations_end])
        key_sums = (weights.view(texts, heads * queries, keys) @ self.by_key).view(texts, heads, queries, -1)
        out[:, relations_end:] = key_sums.permute(2, 3, 0, 1)
