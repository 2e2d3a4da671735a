"""Counts and sums the numbers of every head over texts; the totals depend on neither order nor grouping."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.corpus.sums.bins import HISTOGRAM_BINS, bin_of, offset_bins, position_bins
from attnviz.corpus.sums.exact_sums import ExactSums
from attnviz.metrics.metrics import Metric
from attnviz.metrics.patterns import REST_METRICS

SUM_BITS = {
    "share": 40,
    "bits": 40,
    "nats": 40,
    "tokens": 32,
}  # bits after the binary point of a sum, by the unit of its numbers
SQUARE_BITS = {"share": 40, "bits": 40, "nats": 40, "tokens": 18}
WEIGHT_BITS, SCORE_BITS, ENTROPY_BITS, REST_BITS = 36, 24, 36, 40
NO_SINK = -2  # in place of a label's number before the first text
VARIOUS_SINKS = -3  # in place of a label's number if the sinks of texts differ


@dataclass(frozen=True, eq=False, kw_only=True)
class TextNumbers:
    """The numbers of each text of a batch.

    Attributes:
        values: the metrics, ``(texts, heads, metrics)``; NaN where one is undefined.
        places: the query where each metric is largest, ``(texts, heads, metrics)``; -1 for none.
        sinks: a number for the label of the token that receives the most weight, ``(texts, heads)``.
        beside_sink: the metrics beside the sink that decide patterns, ``(texts, heads, REST_METRICS)``; NaN where one
            is undefined.
        weights: weights summed over pairs of query and key, ``(texts, heads, offsets)``, in the middle bins of offsets
            that the batch reaches.
        scores: scores summed in the same way.
        pairs: the number of these pairs in all texts, ``(heads, offsets)``.
        entropies: entropies summed over queries, ``(texts, heads, positions)``, in the first bins of positions that
            the batch reaches.
        rows: the number of these queries in all texts, ``(heads, positions)``.
    """

    values: Float64Array
    places: IntArray
    sinks: IntArray
    beside_sink: Float64Array
    weights: Float64Array
    scores: Float64Array
    pairs: IntArray
    entropies: Float64Array
    rows: IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Tallies:
    """Counts and sums over texts; ``+`` returns exactly those over the texts of both.

    Attributes:
        texts: the number of texts, ``()``.
        tokens: the number of their tokens, ``()``.
        count: the number of texts in which a metric is defined, ``(heads, metrics)``.
        sums: the sums of a metric over texts, ``(heads, metrics)``.
        squares: the sums of its squares, ``(heads, metrics)``.
        histogram: the number of texts in each bin of a metric, ``(heads, metrics, bins)``.
        weights: the sums of weights over all visible pairs of query and key, ``(heads, offset bins)``.
        scores: the sums of scores over the same pairs, ``(heads, offset bins)``.
        pairs: the number of these pairs, ``(heads, offset bins)``.
        entropies: the sums of entropies in bits over all queries that see two keys or more, ``(heads, position bins)``.
        rows: the number of these queries, ``(heads, position bins)``.
        sinks: the number of the label that receives the most weight in every text, ``(heads,)``; `VARIOUS_SINKS` if
            texts differ, `NO_SINK` before the first text.
        beside_sums: the sums of the metrics beside the sink over texts, ``(heads, REST_METRICS)``.
        beside_count: the number of texts in which they are defined, in the same shape.
    """

    texts: IntArray
    tokens: IntArray
    count: IntArray
    sums: ExactSums
    squares: ExactSums
    histogram: IntArray
    weights: ExactSums
    scores: ExactSums
    pairs: IntArray
    entropies: ExactSums
    rows: IntArray
    sinks: IntArray
    beside_sums: ExactSums
    beside_count: IntArray

    @classmethod
    def zeros(cls, heads: int, metrics: tuple[Metric, ...]) -> Self:
        """Returns tallies of no text, the identity of ``+``."""
        shape = heads, len(metrics)
        sum_bits, square_bits = unit_bits(metrics)
        return cls(
            texts=np.array(0, dtype=np.int64),
            tokens=np.array(0, dtype=np.int64),
            count=np.zeros(shape, dtype=np.int64),
            sums=ExactSums.zeros(shape, sum_bits),
            squares=ExactSums.zeros(shape, square_bits),
            histogram=np.zeros((*shape, HISTOGRAM_BINS), dtype=np.int64),
            weights=ExactSums.zeros((heads, offset_bins()), WEIGHT_BITS),
            scores=ExactSums.zeros((heads, offset_bins()), SCORE_BITS),
            pairs=np.zeros((heads, offset_bins()), dtype=np.int64),
            entropies=ExactSums.zeros((heads, position_bins()), ENTROPY_BITS),
            rows=np.zeros((heads, position_bins()), dtype=np.int64),
            sinks=np.full(heads, NO_SINK, dtype=np.int64),
            beside_sums=ExactSums.zeros((heads, len(REST_METRICS)), REST_BITS),
            beside_count=np.zeros((heads, len(REST_METRICS)), dtype=np.int64),
        )

    @classmethod
    def of(cls, numbers: TextNumbers, metrics: tuple[Metric, ...], tokens: int) -> Self:
        """Returns the tallies of a batch."""
        sum_bits, square_bits = unit_bits(metrics)
        is_defined = ~np.isnan(numbers.values)
        has_common_sink = (numbers.sinks == numbers.sinks[0]).all(axis=0)
        return cls(
            texts=np.array(len(numbers.values), dtype=np.int64),
            tokens=np.array(tokens, dtype=np.int64),
            count=is_defined.sum(axis=0),
            sums=ExactSums.of(numbers.values, sum_bits),
            squares=ExactSums.of(numbers.values**2, square_bits),
            histogram=_histogram(numbers.values, is_defined, metrics),
            weights=ExactSums.of(numbers.weights, WEIGHT_BITS).padded(*_missing_offset_bins(numbers.pairs)),
            scores=ExactSums.of(numbers.scores, SCORE_BITS).padded(*_missing_offset_bins(numbers.pairs)),
            pairs=np.pad(numbers.pairs, [(0, 0), _missing_offset_bins(numbers.pairs)]),
            entropies=ExactSums.of(numbers.entropies, ENTROPY_BITS).padded(*_missing_position_bins(numbers.rows)),
            rows=np.pad(numbers.rows, [(0, 0), _missing_position_bins(numbers.rows)]),
            sinks=np.where(has_common_sink, numbers.sinks[0], VARIOUS_SINKS),
            beside_sums=ExactSums.of(numbers.beside_sink, REST_BITS),
            beside_count=(~np.isnan(numbers.beside_sink)).sum(axis=0),
        )

    def of_metrics(self, indices: Sequence[int]) -> "Tallies":
        """Returns the tallies with the metrics at these indices only."""
        counts = {name: getattr(self, name)[:, indices] for name in ("count", "histogram")}
        sums = {name: getattr(self, name).take(indices) for name in ("sums", "squares")}
        return replace(self, **counts, **sums)

    def __add__(self, other: "Tallies") -> "Tallies":
        """Returns the tallies over the texts of both, to the bit the same in any order and grouping."""
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        # a head's sink is known if both parts share it, or one part has no texts
        lacks_texts = (self.sinks == NO_SINK) | (other.sinks == NO_SINK)
        known_sinks = np.where(self.sinks == NO_SINK, other.sinks, self.sinks)
        sinks = np.where(lacks_texts | (self.sinks == other.sinks), known_sinks, VARIOUS_SINKS)
        return Tallies(**sums | {"sinks": sinks})


def unit_bits(metrics: Sequence[Metric]) -> tuple[IntArray, IntArray]:
    """Returns the bits after the binary point of the sums and of the sums of squares, ``(metrics,)`` each."""
    units = [metric.unit for metric in metrics]
    return np.array([SUM_BITS[unit] for unit in units]), np.array([SQUARE_BITS[unit] for unit in units])


def _missing_offset_bins(pairs: IntArray) -> tuple[int, int]:
    """Returns the numbers of bins that a batch lacks before and after its bins of offsets, which are in the middle."""
    missing_bins = (offset_bins() - pairs.shape[-1]) // 2
    return missing_bins, missing_bins


def _missing_position_bins(rows: IntArray) -> tuple[int, int]:
    """Returns the numbers of bins that a batch lacks before (0) and after its bins of positions, which come first."""
    return 0, position_bins() - rows.shape[-1]


def _histogram(values: Float64Array, is_defined: BoolArray, metrics: tuple[Metric, ...]) -> IntArray:
    """Returns the number of texts in each bin of each metric, ``(heads, metrics, bins)``."""
    _, heads, metric_count = values.shape
    bins = np.empty(values.shape, dtype=np.int64)
    for number, metric in enumerate(metrics):
        bins[:, :, number] = bin_of(values[:, :, number], metric.unit)
    # one count for all histograms: each head and metric has bins of its own in a row of all bins
    bins += np.arange(heads * metric_count).reshape(heads, metric_count) * HISTOGRAM_BINS
    counts = np.bincount(bins[is_defined], minlength=heads * metric_count * HISTOGRAM_BINS)
    return counts.astype(np.int64).reshape(heads, metric_count, HISTOGRAM_BINS)
