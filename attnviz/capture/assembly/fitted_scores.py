"""How scores come of products, by least squares: a scale a head, and what is added for each key and each distance."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import PositionBias, places_of

SOLVED, MAX_STEPS = 1e-18, 200  # of conjugate gradients: squared residual that is none; steps, of which few are taken


class Sample(NamedTuple):
    """Some queries of the chosen heads, in float64 on the CPU.

    Attributes:
        rows: ``(rows,)``, which queries.
        scores: ``(batch, heads, rows, keys)``, the input of the softmax, 0 where hidden.
        products: ``(batch, heads, rows, keys)``, queries · keys, 0 where hidden.
        visible: ``(batch, 1, rows, keys)``.
        queries: how many queries there are in all.
    """

    rows: Tensor
    scores: Tensor
    products: Tensor
    visible: Tensor
    queries: int

    def last_of_first(self, rows: int) -> "Sample":
        """The last rows of the first head of the first text alone."""
        scores, products = (each[:1, :1, -rows:] for each in (self.scores, self.products))
        return self._replace(
            rows=self.rows[-rows:], scores=scores, products=products, visible=self.visible[:1, :, -rows:]
        )


class Fit(NamedTuple):
    """What explains the scores of a sample.

    Attributes:
        scales: ``(heads,)``.
        biases: what positions add.
        rest: ``(batch, heads, rows, keys)``, what is left unexplained.
    """

    scales: Tensor
    biases: tuple[PositionBias, ...]
    rest: Tensor


def fit(sample: Sample, by_distance: Sequence[bool]) -> Fit:
    """The scale of each head and the biases that leave the least squares of the scores.

    What the biases explain of the products is taken out of both first, so that the scale is of what is left.

    Args:
        sample: the scores to fit.
        by_distance: of each bias, whether it is of a distance or of a key; none for no bias.
    """
    terms = _Terms.of(sample, by_distance)
    of_scores, of_products = (terms.solve(each) for each in (sample.scores, sample.products))
    scores, products = sample.scores - terms.cells(of_scores), sample.products - terms.cells(of_products)
    scales = (scores * products).sum((0, 2, 3)) / products.square().sum((0, 2, 3))
    numbers = [one - scales[:, None] * other for one, other in zip(of_scores, of_products, strict=True)]
    biases = tuple(PositionBias(each.float(), kind) for each, kind in zip(numbers, by_distance, strict=True))
    return Fit(scales, biases, scores - scales[:, None, None] * products)


class _Terms(NamedTuple):
    """One number for each place of some axes, which add up to a map: the unknowns of the least squares.

    Attributes:
        visible: ``(batch, 1, rows, keys)``, 1 or 0.
        places: of each axis ``(rows or 1, keys)``, the place of each cell.
        sizes: of each axis, how many places there are.
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
        """The sum of the numbers of each visible cell's places, ``(batch, heads, rows, keys)``."""
        total = torch.zeros((), dtype=torch.float64)
        for each, place in zip(numbers, self.places, strict=True):
            total = total + each[..., place]
        return total * self.visible

    def sums(self, cells: Tensor) -> list[Tensor]:
        """The sum over the visible cells of each place, ``(batch, heads, places)`` of each axis."""
        shown = (cells * self.visible).flatten(-2)
        rows, keys = cells.shape[-2:]
        return [
            torch.zeros(*cells.shape[:2], size, dtype=torch.float64).index_add_(
                -1, place.expand(rows, keys).flatten(), shown
            )
            for place, size in zip(self.places, self.sizes, strict=True)
        ]

    def solve(self, cells: Tensor) -> list[Tensor]:
        """The numbers that fit the cells, by conjugate gradients: means where there is one axis."""
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
    """The products of all numbers of each head summed up, ``(batch, heads, 1)``."""
    total = torch.zeros((), dtype=torch.float64)
    for each, beside in zip(one, other, strict=True):
        total = total + (each * beside).sum(-1, keepdim=True)
    return total
