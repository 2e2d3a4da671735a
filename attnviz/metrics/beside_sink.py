"""Computes what a head does beside its sink: metrics of its weights without the sink's key, rows scaled to sum to 1.

The sink of a head is the key that receives most of its weight, if that is `MIN_SINK_SHARE` or more. Half of the heads
of a decoder rest on a sink wherever they find nothing to do, so patterns are named from the rest of their weights.
"""

from collections.abc import Mapping

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray

MIN_SINK_SHARE = 0.3  # of the weight on one key, as in Gu et al. 2025, "When Attention Sink Emerges in Language Models"
MIN_REST = 0.01  # of a row; in a row with less, rounding and chance decide where the rest is
MIN_KEYS = 3  # that a query sees: two beside the sink, else it has no choice beside it
MIN_QUERIES = 3  # that a number is a mean of, so that a single token cannot name a pattern
MIN_COPIES = 2  # the same for metrics of queries with an earlier copy: a short text repeats few tokens
REST_METRICS = (
    "relative-entropy",
    "induction",
    "previous",
    "next",
    "self",
    "duplicate",
    "pair",
    "block",
    "locality",
)  # the metrics that decide patterns, without that of the sink itself
OF_COPIES = ("induction", "duplicate")  # means over the few queries that have an earlier copy
OF_ALL_QUERIES = ("self", "locality")  # a query without such a cell counts with 0; the others leave it out


def numbers_beside_sink(
    numbers: Mapping[str, Float64Array],
    sink_weights: Float64Array,
    sink_cells: Mapping[str, BoolArray],
    visible_counts: IntArray,
) -> Float64Array:
    """Returns the metrics of `REST_METRICS` without the sink's key, ``(..., metrics)``.

    A number is a mean over queries, of which those count that see `MIN_KEYS` or more and keep `MIN_REST`. It is NaN
    for a metric that is not among ``numbers``, and if fewer than `min_queries` count.
    """
    sink_weights = np.where(visible_counts >= MIN_KEYS, sink_weights, 1)  # a query that does not count keeps no rest
    rest = 1 - sink_weights
    is_counted = rest >= MIN_REST
    divisors = np.where(is_counted, rest, 1)
    results = np.full((*rest.shape[:-1], len(REST_METRICS)), np.nan)
    for index, name in enumerate(REST_METRICS):
        if name not in numbers:
            continue
        has_number = is_counted & ~np.isnan(numbers[name])
        known_numbers = np.where(has_number, numbers[name], 0)
        if name == "relative-entropy":
            row_numbers = _relative_entropy(known_numbers, sink_weights, divisors, visible_counts)
        else:
            row_numbers = (known_numbers - sink_weights * sink_cells.get(name, False)) / divisors
        with_number = has_number.sum(axis=-1)
        counts = is_counted.sum(axis=-1) * (with_number > 0) if name in OF_ALL_QUERIES else with_number
        totals = np.sum(row_numbers.clip(0, 1), axis=-1, where=has_number)
        results[..., index] = np.where(counts >= min_queries(name), totals / np.maximum(counts, 1), np.nan)
    return results


def _relative_entropy(
    numbers: Float64Array, sink_weights: Float64Array, rest: Float64Array, visible_counts: IntArray
) -> Float64Array:
    """Returns the relative entropy of each row without its sink, given that of the whole row and the rest's share."""
    keys = np.maximum(visible_counts, MIN_KEYS)
    sink_terms = sink_weights * np.log2(np.where(sink_weights > 0, sink_weights, 1))
    entropy = (numbers * np.log2(keys) + sink_terms) / rest + np.log2(rest)
    return np.asarray(entropy / np.log2(np.where(sink_weights > 0, keys - 1, keys)))


def min_queries(name: str) -> int:
    """Returns how many queries a metric must be a mean of to name a head."""
    return MIN_COPIES if name in OF_COPIES else MIN_QUERIES


def is_sink(shares: Float64Array) -> BoolArray:
    """Returns True for heads with a sink, ``(...)``, given the weight on the key that receives most."""
    return np.asarray(shares >= MIN_SINK_SHARE)
