"""Counts and sums the numbers of every head over texts; the totals depend on neither order nor grouping.

Sums are exact, so they are the same to the bit, and histograms, offsets and positions have fixed bins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.metrics.metrics import Metric
from attnviz.metrics.patterns import REST_METRICS

WORD_BITS = 32  # bits of the lower word
MASK = (1 << WORD_BITS) - 1
MAX_BITS = 62  # of one scaled number, so that it fits int64 with its sign
HISTOGRAM_BINS = 128
MAX_ENTROPIES = {"bits": 16.0, "nats": 8.0}  # largest edges; nats count spots of an image, e**8 are plenty
MAX_DISTANCE = 2.0**21  # tokens
NEAR_OFFSETS, NEAR_POSITIONS = 16, 32  # distances up to these have one bin each
OFFSETS_PER_OCTAVE, POSITIONS_PER_OCTAVE = 2, 4
OCTAVES = 21 - 4  # up to texts of 2**21 tokens
SUM_BITS = {
    "share": 40,
    "bits": 40,
    "nats": 40,
    "tokens": 32,
    "": 32,
}  # bits after the binary point of a sum, by the unit of its numbers
SQUARE_BITS = {"share": 40, "bits": 40, "nats": 40, "tokens": 18, "": 18}
WEIGHT_BITS, SCORE_BITS, ENTROPY_BITS, REST_BITS = 36, 24, 36, 40
NO_SINK = -2  # in place of a label's number before the first text
VARIOUS_SINKS = -3  # in place of a label's number if the sinks of texts differ


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Fixed-point sums of numbers: each is ``(high * 2**32 + low) * 2**-bits``."""

    high: IntArray  # the upper words
    low: IntArray  # the lower words, from 0 to ``2**32 - 1``; of the same shape
    # the number of bits after the binary point: one number for all sums, or one for each along the last axis
    bits: int | IntArray

    @classmethod
    def zeros(cls, shape: tuple[int, ...], bits: int | IntArray) -> Self:
        """Returns empty sums, the identity of ``+``."""
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), bits)

    @classmethod
    def of(cls, numbers: NDArray[Any], bits: int | IntArray) -> Self:
        """Returns the sums over the first axis; NaN counts as 0."""
        without_nan = np.where(np.isnan(numbers), 0, numbers).astype(np.float64)
        scaled_numbers = np.rint(np.ldexp(without_nan, bits))
        if np.abs(scaled_numbers).max(initial=0) >= 2.0**MAX_BITS:
            raise AttnvizError(f"a number of {np.abs(without_nan).max():.3g} is too large to sum up; check the model")
        integers = scaled_numbers.astype(np.int64)
        return cls(*_carry((integers >> WORD_BITS).sum(axis=0), (integers & MASK).sum(axis=0)), bits)

    def __add__(self, other: "ExactSums") -> "ExactSums":
        return ExactSums(*_carry(self.high + other.high, self.low + other.low), self.bits)

    def take(self, indices: Sequence[int]) -> "ExactSums":
        """Returns the sums at these indices of the last axis."""
        bits = self.bits if isinstance(self.bits, int) else self.bits[indices]
        return ExactSums(self.high[..., indices], self.low[..., indices], bits)

    def padded(self, count_before: int, count_after: int) -> "ExactSums":
        """Returns the sums padded on the last axis with so many empty sums before and after them."""
        widths = [(0, 0)] * (self.high.ndim - 1) + [(count_before, count_after)]
        return ExactSums(np.pad(self.high, widths), np.pad(self.low, widths), self.bits)

    @property
    def total(self) -> Float64Array:
        """The sums as float64."""
        upper, lower = self.high.astype(np.float64), self.low.astype(np.float64)
        return np.asarray(np.ldexp(upper, WORD_BITS - self.bits) + np.ldexp(lower, -self.bits))


def _carry(high: IntArray, low: IntArray) -> tuple[IntArray, IntArray]:
    """Returns the words after the overflow of the lower words is added to the upper words."""
    return high + (low >> WORD_BITS), low & MASK


@cache
def histogram_edges(unit: str) -> Float64Array:
    """Returns the edges of the bins for numbers of a unit, ``(HISTOGRAM_BINS + 1,)``, in that unit.

    Bins of shares are narrow near 0 and 1: ``sin² x`` of even steps. Bins of bits and nats are even, and those
    of tokens grow by a constant factor, as those of numbers without a unit do on both sides of 0. The outermost bins
    also count the numbers outside the edges.
    """
    steps = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    if unit == "share":
        return np.asarray(np.sin(steps * np.pi / 2) ** 2)
    if unit in MAX_ENTROPIES:
        return np.asarray(steps * MAX_ENTROPIES[unit])
    if not unit:
        return np.asarray(np.sinh((2 * steps - 1) * np.arcsinh(MAX_DISTANCE)))
    return np.asarray(np.expm1(steps * np.log1p(MAX_DISTANCE)))


def bin_of(numbers: Float64Array, unit: str) -> IntArray:
    """Returns the bin of the histogram that each number falls into, of the shape of ``numbers``.

    Numbers outside the edges fall into the first or the last bin, NaN into the last.
    """
    bins = np.searchsorted(histogram_edges(unit), numbers, side="right") - 1
    return np.asarray(np.clip(bins, 0, HISTOGRAM_BINS - 1), dtype=np.int64)


def quantiles(counts: IntArray, unit: str, shares: Sequence[float]) -> Float64Array:
    """Returns quantiles of the counted numbers, ``(..., shares)``; NaN if nothing was counted.

    A quantile is interpolated evenly within its bin.

    Args:
        counts: ``(..., bins)``, of histograms of one unit.
    """
    edges, bins = histogram_edges(unit), np.arange(HISTOGRAM_BINS)
    counts_below = np.cumsum(counts, axis=-1) - counts
    total = counts.sum(axis=-1)
    filled_bins = np.maximum.accumulate(np.where(counts > 0, bins, 0), axis=-1)  # the last filled one up to each bin
    found = []
    for share in shares:
        rank = share * total
        last_bin = (counts_below <= rank[..., None]).sum(axis=-1, keepdims=True) - 1
        bin_index = np.take_along_axis(filled_bins, last_bin, axis=-1)
        count, below = (np.take_along_axis(array, bin_index, axis=-1)[..., 0] for array in (counts, counts_below))
        low, high = edges[bin_index[..., 0]], edges[bin_index[..., 0] + 1]
        share_of_bin = np.minimum((rank - below) / np.maximum(count, 1), 1.0)
        found.append(np.where(total > 0, low + share_of_bin * (high - low), np.nan))
    return np.stack(found, axis=-1)


@cache
def _distance_edges(near: int, per_octave: int) -> IntArray:
    """Returns the first distance of each bin, ``(bins,)``, in tokens."""
    far = np.ceil((near + 1) * 2.0 ** (np.arange(OCTAVES * per_octave + 1) / per_octave)).astype(np.int64)
    return np.concatenate([np.arange(near + 1, dtype=np.int64), np.unique(far)])


def offset_bins() -> int:
    """Returns the number of bins of offsets: for keys before the query, for its own position, and for keys after it."""
    return 2 * len(_distance_edges(NEAR_OFFSETS, OFFSETS_PER_OCTAVE)) - 1


def offset_bin(offsets: IntArray) -> IntArray:
    """Returns the bin of each offset ``key - query``; bins go from far before the query to far after it."""
    edges = _distance_edges(NEAR_OFFSETS, OFFSETS_PER_OCTAVE)
    distance_bins = np.searchsorted(edges, np.abs(offsets), side="right") - 1
    return np.asarray(len(edges) - 1 + np.sign(offsets) * distance_bins, dtype=np.int64)


def offset_spans() -> list[tuple[int, int]]:
    """Returns the first and the last offset of each bin; the outermost bins have no end and get a finite one."""
    edges = _distance_edges(NEAR_OFFSETS, OFFSETS_PER_OCTAVE)
    ends = [*edges[1:], 2 * edges[-1]]  # the last bin has no end
    later_keys = [(int(first), int(end) - 1) for first, end in zip(edges, ends, strict=True)]
    # mirrored, and without the bin of the query's own position
    earlier_keys = [(-last, -first) for first, last in reversed(later_keys[1:])]
    return earlier_keys + later_keys


def position_bins() -> int:
    """Returns the number of bins of positions."""
    return len(_distance_edges(NEAR_POSITIONS - 1, POSITIONS_PER_OCTAVE))


def position_bin(positions: IntArray) -> IntArray:
    """Returns the bin of each position."""
    edges = _distance_edges(NEAR_POSITIONS - 1, POSITIONS_PER_OCTAVE)
    return np.asarray(np.searchsorted(edges, positions, side="right") - 1, dtype=np.int64)


def position_spans() -> list[tuple[int, int]]:
    """Returns the first and the last position of each bin; the last bin has no end and gets a finite one."""
    edges = _distance_edges(NEAR_POSITIONS - 1, POSITIONS_PER_OCTAVE)
    ends = [*edges[1:], 2 * edges[-1]]  # the last bin has no end
    return [(int(first), int(end) - 1) for first, end in zip(edges, ends, strict=True)]


@dataclass(frozen=True, eq=False, kw_only=True)
class TextNumbers:
    """The numbers of each text of a batch."""

    values: Float64Array  # the metrics, ``(texts, heads, metrics)``; NaN where one is undefined
    queries: IntArray  # the query where each metric is largest, ``(texts, heads, metrics)``; -1 for none
    sinks: IntArray  # a number for the label of the token that receives the most weight, ``(texts, heads)``
    # the metrics beside the sink that decide patterns, ``(texts, heads, REST_METRICS)``; NaN where one is undefined
    beside_sink: Float64Array
    # weights summed over pairs of query and key, ``(texts, heads, offsets)``, in the middle bins of offsets that the
    # batch reaches
    weights: Float64Array
    scores: Float64Array  # scores summed in the same way
    pairs: IntArray  # the number of these pairs in all texts, ``(heads, offsets)``
    # entropies summed over queries, ``(texts, heads, positions)``, in the first bins of positions that the batch
    # reaches
    entropies: Float64Array
    rows: IntArray  # the number of these queries in all texts, ``(heads, positions)``


@dataclass(frozen=True, eq=False, kw_only=True)
class Tallies:
    """Counts and sums over texts; ``+`` returns exactly those over the texts of both."""

    texts: IntArray  # the number of texts, ``()``
    tokens: IntArray  # the number of their tokens, ``()``
    count: IntArray  # the number of texts in which a metric is defined, ``(heads, metrics)``
    sums: ExactSums  # the sums of a metric over texts, ``(heads, metrics)``
    squares: ExactSums  # the sums of its squares, ``(heads, metrics)``
    histogram: IntArray  # the number of texts in each bin of a metric, ``(heads, metrics, bins)``
    weights: ExactSums  # the sums of weights over all visible pairs of query and key, ``(heads, offset bins)``
    scores: ExactSums  # the sums of scores over the same pairs, ``(heads, offset bins)``
    pairs: IntArray  # the number of these pairs, ``(heads, offset bins)``
    # the sums of entropies in bits over all queries that see two keys or more, ``(heads, position bins)``
    entropies: ExactSums
    rows: IntArray  # the number of these queries, ``(heads, position bins)``
    # the number of the label that receives the most weight in every text, ``(heads,)``; `VARIOUS_SINKS` if texts
    # differ, `NO_SINK` before the first text
    sinks: IntArray
    beside_sums: ExactSums  # the sums of the metrics beside the sink over texts, ``(heads, REST_METRICS)``
    beside_count: IntArray  # the number of texts in which they are defined, in the same shape

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
        _, heads, metric_count = numbers.values.shape
        bins = np.empty(numbers.values.shape, dtype=np.int64)
        for number, metric in enumerate(metrics):
            bins[:, :, number] = bin_of(numbers.values[:, :, number], metric.unit)
        # one count for all histograms: each head and metric has bins of its own in a row of all bins
        bins += np.arange(heads * metric_count).reshape(heads, metric_count) * HISTOGRAM_BINS
        counts = np.bincount(bins[is_defined], minlength=heads * metric_count * HISTOGRAM_BINS)
        return cls(
            texts=np.array(len(numbers.values), dtype=np.int64),
            tokens=np.array(tokens, dtype=np.int64),
            count=is_defined.sum(axis=0),
            sums=ExactSums.of(numbers.values, sum_bits),
            squares=ExactSums.of(numbers.values**2, square_bits),
            histogram=counts.astype(np.int64).reshape(heads, metric_count, HISTOGRAM_BINS),
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
