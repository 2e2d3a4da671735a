"""Tallies: what is counted and summed up over texts for every head, the same whatever the order and the parts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.corpus.sums.bins import HISTOGRAM_BINS, bin_of, offset_bins, position_bins
from attnviz.corpus.sums.exact_sums import ExactSums
from attnviz.metrics.metrics import Metric

SUM_BITS = {"share": 40, "bits": 40, "tokens": 32}  # after the point, by the unit of a number
SQUARE_BITS = {"share": 40, "bits": 40, "tokens": 18}
WEIGHT_BITS, SCORE_BITS, ENTROPY_BITS = 36, 24, 36
NO_SINK, VARIOUS_SINKS = -2, -3  # no text yet; texts that have different ones


@dataclass(frozen=True, eq=False, kw_only=True)
class TextNumbers:
    """What a batch gives, text by text.

    Attributes:
        values: ``(texts, heads, metrics)``, NaN where a number has no meaning.
        places: ``(texts, heads, metrics)``, the query where each is largest; -1 for none.
        sinks: ``(texts, heads)``, a number for the label of the token that receives most.
        weights: ``(texts, heads, offsets)``, summed over pairs of query and key; the middle bins of offsets alone.
        scores: the same of scores.
        pairs: ``(heads, offsets)``, how many pairs these are in all texts.
        entropies: ``(texts, heads, positions)``, summed over queries; the first bins of positions alone.
        rows: ``(heads, positions)``, how many queries these are in all texts.
    """

    values: Float64Array
    places: IntArray
    sinks: IntArray
    weights: Float64Array
    scores: Float64Array
    pairs: IntArray
    entropies: Float64Array
    rows: IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Tallies:
    """Counts and sums over texts; two of them add to those of all their texts, exactly.

    Attributes:
        texts: ``()``, how many texts.
        tokens: ``()``, how many tokens they have.
        count: ``(heads, metrics)``, texts in which a number has a meaning.
        sums: ``(heads, metrics)``, of the number of each text.
        squares: ``(heads, metrics)``, of their squares.
        histogram: ``(heads, metrics, bins)``, how many texts have such a number.
        weights: ``(heads, offset bins)``, over all visible pairs of query and key.
        scores: ``(heads, offset bins)``.
        pairs: ``(heads, offset bins)``, how many pairs these are.
        entropies: ``(heads, position bins)``, over all queries that see two keys or more.
        rows: ``(heads, position bins)``, how many queries these are.
        sinks: ``(heads,)``, a number for the label of what receives most in every text, or for none or several.
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

    @classmethod
    def zeros(cls, heads: int, metrics: tuple[Metric, ...]) -> Self:
        """Those of no text."""
        shape, bits = (heads, len(metrics)), unit_bits(metrics)
        return cls(
            texts=np.array(0, dtype=np.int64),
            tokens=np.array(0, dtype=np.int64),
            count=np.zeros(shape, dtype=np.int64),
            sums=ExactSums.zeros(shape, bits[0]),
            squares=ExactSums.zeros(shape, bits[1]),
            histogram=np.zeros((*shape, HISTOGRAM_BINS), dtype=np.int64),
            weights=ExactSums.zeros((heads, offset_bins()), WEIGHT_BITS),
            scores=ExactSums.zeros((heads, offset_bins()), SCORE_BITS),
            pairs=np.zeros((heads, offset_bins()), dtype=np.int64),
            entropies=ExactSums.zeros((heads, position_bins()), ENTROPY_BITS),
            rows=np.zeros((heads, position_bins()), dtype=np.int64),
            sinks=np.full(heads, NO_SINK, dtype=np.int64),
        )

    @classmethod
    def of(cls, numbers: TextNumbers, metrics: tuple[Metric, ...], tokens: int) -> Self:
        """Those of the texts of a batch."""
        bits, known = unit_bits(metrics), ~np.isnan(numbers.values)
        return cls(
            texts=np.array(len(numbers.values), dtype=np.int64),
            tokens=np.array(tokens, dtype=np.int64),
            count=known.sum(axis=0),
            sums=ExactSums.of(numbers.values, bits[0]),
            squares=ExactSums.of(numbers.values**2, bits[1]),
            histogram=_histogram(numbers.values, known, metrics),
            weights=ExactSums.of(numbers.weights, WEIGHT_BITS).padded(*_around(numbers.pairs)),
            scores=ExactSums.of(numbers.scores, SCORE_BITS).padded(*_around(numbers.pairs)),
            pairs=np.pad(numbers.pairs, [(0, 0), _around(numbers.pairs)]),
            entropies=ExactSums.of(numbers.entropies, ENTROPY_BITS).padded(*_after(numbers.rows)),
            rows=np.pad(numbers.rows, [(0, 0), _after(numbers.rows)]),
            sinks=np.where((numbers.sinks == numbers.sinks[0]).all(axis=0), numbers.sinks[0], VARIOUS_SINKS),
        )

    def of_metrics(self, places: Sequence[int]) -> "Tallies":
        """The same of some metrics, in the order of their places."""
        chosen = {name: getattr(self, name)[:, places] for name in ("count", "histogram")}
        sums = {name: getattr(self, name).at(places) for name in ("sums", "squares")}
        return replace(self, **chosen, **sums)

    def __add__(self, other: "Tallies") -> "Tallies":
        added = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return Tallies(**added | {"sinks": _shared(self.sinks, other.sinks)})


def unit_bits(metrics: Sequence[Metric]) -> tuple[IntArray, IntArray]:
    """How many bits after the point sums and sums of squares of each metric have, ``(metrics,)`` each."""
    units = [metric.unit for metric in metrics]
    return np.array([SUM_BITS[unit] for unit in units]), np.array([SQUARE_BITS[unit] for unit in units])


def _around(pairs: IntArray) -> tuple[int, int]:
    """How many bins of offsets are missing before and after the middle ones."""
    missing = (offset_bins() - pairs.shape[-1]) // 2
    return missing, missing


def _after(rows: IntArray) -> tuple[int, int]:
    """How many bins of positions are missing before and after the first ones."""
    return 0, position_bins() - rows.shape[-1]


def _histogram(values: Float64Array, known: BoolArray, metrics: tuple[Metric, ...]) -> IntArray:
    """How many texts have a number in each bin, ``(heads, metrics, bins)``."""
    _, heads, count = values.shape
    places = np.empty(values.shape, dtype=np.int64)
    for number, metric in enumerate(metrics):
        places[:, :, number] = bin_of(values[:, :, number], metric.unit)
    places += np.arange(heads * count).reshape(heads, count) * HISTOGRAM_BINS
    counted = np.bincount(places[known], minlength=heads * count * HISTOGRAM_BINS)
    return counted.astype(np.int64).reshape(heads, count, HISTOGRAM_BINS)


def _shared(one: IntArray, other: IntArray) -> IntArray:
    """The sink of both parts where it is the same, or where one part has no texts that of the other."""
    either = np.where(one == NO_SINK, other, one)
    return np.where((one == NO_SINK) | (other == NO_SINK) | (one == other), either, VARIOUS_SINKS)
