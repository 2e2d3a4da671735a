"""Biases of two papers, as their models add them to the scores."""

import math

import numpy as np

from attnviz.attention.mask import Bias
from attnviz.base.arrays import FloatArray, IntArray


def alibi_bias(slopes: FloatArray, queries: int, keys: int, offset: int = 0) -> Bias:
    """−slope · |key − query|: attention with linear biases (Press et al. 2022, section 3).

    Args:
        slopes: ``(heads,)``.
        queries: how many there are.
        keys: how many there are.
        offset: position of the first query, counted in keys.
    """
    distances = np.abs(np.arange(1 - queries, keys) - offset)
    return Bias(relative=(-np.outer(slopes, distances)).astype(np.float32), origin=queries - 1)


def bucket_bias(table: FloatArray, queries: int, keys: int, *, both_sides: bool, farthest: int = 128) -> Bias:
    """One learned number for each bucket of distances (Raffel et al. 2020, section 2.1, as T5 counts them).

    Args:
        table: ``(buckets, heads)``.
        queries: how many there are.
        keys: how many there are.
        both_sides: whether keys after the query have buckets of their own.
        farthest: distances from here on share the last bucket.
    """
    distances = np.arange(1 - queries, keys)
    chosen = table[bucket_of(distances, len(table), both_sides, farthest)]
    return Bias(relative=np.ascontiguousarray(chosen.T, dtype=np.float32), origin=queries - 1)


def bucket_of(distances: IntArray, buckets: int, both_sides: bool, farthest: int) -> IntArray:
    """The bucket of each distance key − query: half of them one a token, the rest growing with the logarithm."""
    first = np.zeros_like(distances)
    if both_sides:
        buckets //= 2
        first = np.where(distances > 0, buckets, 0)
    away = np.abs(distances) if both_sides else np.maximum(-distances, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(away, 1).astype(np.float32) / exact) / math.log(farthest / exact)
    coarse = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
    return np.asarray(first + np.where(away < exact, away, coarse))
