"""Represents the cells of one head of given arrays, which are computed when the head is first read."""

from functools import cached_property
from typing import final

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray

SMALLEST_WEIGHT = float(np.finfo(np.float32).tiny)  # replaces a weight of 0, whose logarithm would be −inf
LOWEST_PEAK = -1e30  # finite, in place of the −inf that is the largest score of a query that sees no key


@final
class WeightCells:
    """Given weights of one head; scores that were not given are the logarithms of the weights.

    Args:
        weights: ``(queries, keys)``.
        scores: ``(queries, keys)``; ``None`` for the logarithms.
    """

    def __init__(self, weights: FloatArray, scores: FloatArray | None) -> None:
        self.given_weights, self.given_scores = weights, scores

    def weights(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of a block, sliced from the array."""
        return self.given_weights[queries, keys]

    def scores(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block: sliced from the array if they were given, else computed from the weights."""
        if self.given_scores is not None:
            return self.given_scores[queries, keys]
        logarithms = np.maximum(self.given_weights[queries, keys], np.float32(SMALLEST_WEIGHT))
        return np.log(logarithms, out=logarithms)


@final
class ScoreCells:
    """Given scores of one head; weights are their softmax, computed in float64 and then kept.

    Args:
        scores: ``(queries, keys)``, without NaN and +inf.
        visible: ``(queries, keys)``; a query without a visible key has weights of 0.
    """

    def __init__(self, scores: FloatArray, visible: BoolArray) -> None:
        self.given_scores, self.visible = scores, visible

    @cached_property
    def softmax(self) -> FloatArray:
        """The weights of the head, ``(queries, keys)``."""
        visible_scores = np.where(self.visible, self.given_scores, -np.inf).astype(np.float64)
        visible_scores -= np.maximum(visible_scores.max(axis=1, keepdims=True), LOWEST_PEAK)
        powers = np.exp(visible_scores, out=visible_scores)
        weights = powers / np.maximum(powers.sum(axis=1, keepdims=True), SMALLEST_WEIGHT)
        return np.asarray(weights, dtype=np.float32)

    def weights(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of a block."""
        return self.softmax[queries, keys]

    def scores(self, queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block, sliced from the array."""
        return self.given_scores[queries, keys]
