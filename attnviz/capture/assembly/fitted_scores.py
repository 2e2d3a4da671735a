"""Fits scores to products of queries and keys by least squares: a scale a head, and biases by key and distance."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import PositionBias, places_of

# Conjugate gradients: the squared residual, relative, at which they stop, and a bound that they rarely come near.
SOLVED, MAX_STEPS = 1e-18, 200


class Sample(NamedTuple):
    """Some rows of the chosen heads, in float64 on the CPU.

    Attributes:
        rows: ``(rows,)``, the numbers of the queries.
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

    def last_of_first(self, rows: int) -> "Sample":
        """Returns the last rows of the first head of the first text."""
        scores, products = (each[:1, :1, -rows:] for each in (self.scores, self.products))
        return self._replace(
            rows=self.rows[-rows:], scores=scores, products=products, visible=self.visible[:1, :, -rows:]
        )


class Fit(NamedTuple):
    """A fit of the scores of a sample.

    Attributes:
        scales: ``(heads,)``, the factors of q·k.
        biases: the biases by position.
        rest: ``(batch, heads, rows, keys)``, the residuals.
    """

    scales: Tensor
    biases: tuple[PositionBias, ...]
    rest: Tensor


def fit(sample: Sample, by_distance: Sequence[bool]) -> Fit:
    """Returns the scale of each head and the biases with the least squared residuals.

    The part of the products that biases explain is first removed from products and scores, so that the scale fits the
    rest alone.

    Args:
        sample: the scores to fit.
        by_distance: for each bias, True if it depends on the distance, False if on the key; empty for no bias.
    """
    terms = _Terms.of(sample, by_distance)
    of_scores, of_products = (terms.solve(each) for each in (sample.scores, sample.products))
    scores, products = sample.scores - terms.cells(of_scores), sample.products - terms.cells(of_products)
    scales = (scores * products).sum((0, 2, 3)) / products.square().sum((0, 2, 3))
    numbers = [one - scales[:, None] * other for one, other in zip(of_scores, of_products, strict=True)]
    biases = tuple(PositionBias(each.float(), kind) for each, kind in zip(numbers, by_distance, strict=True))
    return Fit(scales, biases, scores - scales[:, None, None] * products)


class _Terms(NamedTuple):
    """Biases along some axes, whose sum is a map: the unknowns of the least squares.

    Attributes:
        visible: ``(batch, 1, rows, keys)``, 1 or 0.
        places: for each axis the place of each cell, ``(rows or 1, keys)``.
        sizes: for each axis the number of places.
    """

    visible: Tensor
    places: tuple[Tensor, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, sample: Sample, by_distance: Sequence[bool]) -> "_Terms":
        keys = sample.scores.shape[-1]
        places = tuple(places_of(sample.rows, sample.queries, keys, each) for each in by_distance)
        sizes = tuple(sample.queries + keys - 1 if each else keys for each in by_distance)
        return cls(sample.visible.double(), places, sizes)

    def cells(self, numbers: Sequence[Tensor]) -> Tensor:
        """Returns the sum of the biases of each visible cell, ``(batch, heads, rows, keys)``."""
        total = torch.zeros((), dtype=torch.float64)
        for each, place in zip(numbers, self.places, strict=True):
            total = total + each[..., place]
        return total * self.visible

    def sums(self, cells: Tensor) -> list[Tensor]:
        """Returns the sum of each place's visible cells, ``(batch, heads, places)`` an axis: `cells` transposed."""
        shown = (cells * self.visible).flatten(-2)
        rows, keys = cells.shape[-2:]
        return [
            torch.zeros(*cells.shape[:2], size, dtype=torch.float64).index_add_(
                -1, place.expand(rows, keys).flatten(), shown
            )
            for place, size in zip(self.places, self.sizes, strict=True)
        ]

    def solve(self, cells: Tensor) -> list[Tensor]:
        """Returns the biases that fit the cells, by preconditioned conjugate gradients; of one axis these are means."""
        counts = [each.clamp_min(1) for each in self.sums(torch.ones_like(cells))]
        numbers = [torch.zeros_like(each) for each in counts]
        rest = self.sums(cells)
        goal = SOLVED * _dot(rest, rest).clamp_min(1e-300)
        step = [each / count for each, count in zip(rest, counts, strict=True)]
        size = _dot(rest, step)
        for _ in range(MAX_STEPS if numbers else 0):
            ahead = self.sums(self.cells(step))
            length = size / _dot(step, ahead).clamp_min(1e-300)
            numbers = [each + length * other for each, other in zip(numbers, step, strict=True)]
            rest = [each - length * other for each, other in zip(rest, ahead, strict=True)]
            if bool((_dot(rest, rest) <= goal).all()):
                break
            scaled = [each / count for each, count in zip(rest, counts, strict=True)]
            size, before = _dot(rest, scaled), size
            step = [each + size / before.clamp_min(1e-300) * other for each, other in zip(scaled, step, strict=True)]
        return numbers


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """Returns the dot product of each head, ``(batch, heads, 1)``."""
    total = torch.zeros((), dtype=torch.float64)
    for each, beside in zip(one, other, strict=True):
        total = total + (each * beside).sum(-1, keepdim=True)
    return total
