"""Fits scores by least squares to products of queries and keys: one scale per head, biases by key and distance."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import PositionBias, bias_indices

# Conjugate gradients stop at this relative squared residual; the limit of steps is rarely reached.
RELATIVE_RESIDUAL, MAX_STEPS = 1e-18, 200
MIN_DIVISOR = 1e-300  # replaces smaller divisors, so that an exact fit does not divide 0 by 0


class Sample(NamedTuple):
    """Some rows of the chosen heads, in float64 on the CPU.

    Attributes:
        rows: ``(rows,)``, the indices of the queries.
        scores: ``(batch, heads, rows, keys)``, the input of the softmax, 0 where masked.
        products: ``(batch, heads, rows, keys)``, queries · keys, 0 where masked.
        visible: ``(batch, 1, rows, keys)``, bool.
        queries: the number of all queries.
    """

    rows: Tensor
    scores: Tensor
    products: Tensor
    visible: Tensor
    queries: int

    def last_rows_of_first_head(self, rows: int) -> "Sample":
        """Returns a sample of only the last ``rows`` queries, in the first head of the first text."""
        scores, products = (tensor[:1, :1, -rows:] for tensor in (self.scores, self.products))
        return self._replace(
            rows=self.rows[-rows:], scores=scores, products=products, visible=self.visible[:1, :, -rows:]
        )


class Fit(NamedTuple):
    """A fit of the scores of a sample.

    Attributes:
        scales: ``(heads,)``, the factors of q·k.
        biases: the biases by position.
        residuals: ``(batch, heads, rows, keys)``, the residuals.
    """

    scales: Tensor
    biases: tuple[PositionBias, ...]
    residuals: Tensor


def fit(sample: Sample, by_distance: Sequence[bool]) -> Fit:
    """Returns the scale of each head and the biases that fit the scores with the least squared residuals.

    Biases are fitted to the scores and to the products of queries and keys; the scale then fits the residuals of both.
    """
    terms = _Terms.from_sample(sample, by_distance)
    score_biases, product_biases = terms.solve(sample.scores), terms.solve(sample.products)
    scores = sample.scores - terms.cells(score_biases)
    products = sample.products - terms.cells(product_biases)
    scales = (scores * products).sum((0, 2, 3)) / products.square().sum((0, 2, 3))
    biases = tuple(
        PositionBias((score_bias - scales[:, None] * product_bias).float(), is_by_distance)
        for score_bias, product_bias, is_by_distance in zip(score_biases, product_biases, by_distance, strict=True)
    )
    return Fit(scales, biases, scores - scales[:, None, None] * products)


class _Terms(NamedTuple):
    """The unknowns of the least squares: biases by key or by distance, whose sum is a map.

    Attributes:
        visible: ``(batch, 1, rows, keys)``, 1 or 0.
        places: for each bias the place of each cell, a key or a distance, ``(rows or 1, keys)``.
    """

    visible: Tensor
    places: tuple[Tensor, ...]
    sizes: tuple[int, ...]

    @classmethod
    def from_sample(cls, sample: Sample, by_distance: Sequence[bool]) -> "_Terms":
        """Returns the unknowns of a fit to a sample; arguments as in `fit`."""
        keys = sample.scores.shape[-1]
        places = tuple(bias_indices(sample.rows, sample.queries, keys, is_distance) for is_distance in by_distance)
        sizes = tuple(sample.queries + keys - 1 if is_distance else keys for is_distance in by_distance)
        return cls(sample.visible.double(), places, sizes)

    def cells(self, biases: Sequence[Tensor]) -> Tensor:
        """Returns the sum of the biases of each cell, ``(batch, heads, rows, keys)``; 0 where hidden."""
        total = torch.zeros((), dtype=torch.float64)
        for bias, places_of_cells in zip(biases, self.places, strict=True):
            total = total + bias[..., places_of_cells]
        return total * self.visible

    def sums(self, cells: Tensor) -> list[Tensor]:
        """Returns for each bias the sum of the visible cells at each of its places, which are keys or distances."""
        visible_cells = (cells * self.visible).flatten(-2)
        rows, keys = cells.shape[-2:]
        return [
            torch.zeros(*cells.shape[:2], size, dtype=torch.float64).index_add_(
                -1, places_of_cells.expand(rows, keys).flatten(), visible_cells
            )
            for places_of_cells, size in zip(self.places, self.sizes, strict=True)
        ]

    def solve(self, cells: Tensor) -> list[Tensor]:
        """Returns the biases whose sum fits the cells with the least squared error, ``(batch, heads, places)`` each."""
        cell_counts = [count.clamp_min(1) for count in self.sums(torch.ones_like(cells))]
        biases = [torch.zeros_like(count) for count in cell_counts]
        residuals = self.sums(cells)
        target = RELATIVE_RESIDUAL * _dot(residuals, residuals).clamp_min(MIN_DIVISOR)
        direction = _quotients(residuals, cell_counts)
        residual_size = _dot(residuals, direction)
        for _ in range(MAX_STEPS if biases else 0):
            image = self.sums(self.cells(direction))
            step_length = residual_size / _dot(direction, image).clamp_min(MIN_DIVISOR)
            biases = _plus_multiple(biases, step_length, direction)
            residuals = _plus_multiple(residuals, -step_length, image)
            if bool((_dot(residuals, residuals) <= target).all()):
                break
            scaled_residuals = _quotients(residuals, cell_counts)
            previous_size, residual_size = residual_size, _dot(residuals, scaled_residuals)
            growth = residual_size / previous_size.clamp_min(MIN_DIVISOR)
            direction = _plus_multiple(scaled_residuals, growth, direction)
        return biases


def _quotients(dividends: Sequence[Tensor], divisors: Sequence[Tensor]) -> list[Tensor]:
    """Returns each tensor of the first list divided by its partner in the second."""
    return [dividend / divisor for dividend, divisor in zip(dividends, divisors, strict=True)]


def _plus_multiple(summands: Sequence[Tensor], factor: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
    """Returns each tensor of the first list plus ``factor``, ``(batch, heads, 1)``, times its partner in the second."""
    return [summand + factor * other for summand, other in zip(summands, others, strict=True)]


def _dot(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Returns the dot products of the last axes, summed over pairs from two lists of tensors, ``(batch, heads, 1)``."""
    total = torch.zeros((), dtype=torch.float64)
    for left_part, right_part in zip(left, right, strict=True):
        total = total + (left_part * right_part).sum(-1, keepdim=True)
    return total
