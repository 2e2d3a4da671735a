"""The fixed edges that numbers of a survey are counted between: histograms, offsets of keys, positions of queries."""

from functools import cache

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray

HISTOGRAM_BINS = 128
MAX_ENTROPY_BITS = 16.0
MAX_DISTANCE = 2.0**21  # tokens
NEAR_OFFSETS, NEAR_POSITIONS = 16, 32  # each with a bin of its own
OFFSETS_PER_OCTAVE, POSITIONS_PER_OCTAVE = 2, 4
OCTAVES = 21 - 4  # up to texts of 2**21 tokens


@cache
def histogram_edges(unit: str) -> Float64Array:
    """The edges for a number of this unit, ``(HISTOGRAM_BINS + 1,)``; what lies outside counts in the outermost bins.

    Shares are narrow near 0 and 1, ``sin² x`` of even steps, and distances grow by the same factor.
    """
    steps = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    if unit == "share":
        return np.asarray(np.sin(steps * np.pi / 2) ** 2)
    return steps * MAX_ENTROPY_BITS if unit == "bits" else np.expm1(steps * np.log1p(MAX_DISTANCE))


def bin_of(numbers: Float64Array, unit: str) -> IntArray:
    """In which bin of the histogram each number is."""
    places = np.searchsorted(histogram_edges(unit), numbers, side="right") - 1
    return np.asarray(np.clip(places, 0, HISTOGRAM_BINS - 1), dtype=np.int64)


def quantile(counts: IntArray, unit: str, share: float) -> float:
    """The number below which this share of those counted is, numbers of a bin spread evenly; NaN of none."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    edges, reached = histogram_edges(unit), np.concatenate([[0], np.cumsum(counts)])
    place = min(int(np.searchsorted(reached, share * total, side="right")) - 1, HISTOGRAM_BINS - 1)
    while not counts[place]:  # the last number of all, or the end of an empty bin
        place -= 1
    within = (share * total - reached[place]) / counts[place]
    return float(edges[place] + min(within, 1.0) * (edges[place + 1] - edges[place]))


@cache
def distance_edges(near: int, per_octave: int) -> IntArray:
    """The first distance of each bin, from 0: one by one up to ``near``, then so many bins to each doubling."""
    far = np.ceil((near + 1) * 2.0 ** (np.arange(OCTAVES * per_octave + 1) / per_octave)).astype(np.int64)
    return np.concatenate([np.arange(near + 1, dtype=np.int64), np.unique(far)])


def offset_bins() -> int:
    """How many bins of offsets there are: those of keys before the query, its own, and those after it."""
    return 2 * len(distance_edges(NEAR_OFFSETS, OFFSETS_PER_OCTAVE)) - 1


def offset_bin(offsets: IntArray) -> IntArray:
    """The bin of each offset ``key - query``; the bins go from far before to far after."""
    edges = distance_edges(NEAR_OFFSETS, OFFSETS_PER_OCTAVE)
    places = np.searchsorted(edges, np.abs(offsets), side="right") - 1
    return np.asarray(len(edges) - 1 + np.sign(offsets) * places, dtype=np.int64)


def offset_spans() -> list[tuple[int, int]]:
    """The first and the last offset of each bin."""
    edges = distance_edges(NEAR_OFFSETS, OFFSETS_PER_OCTAVE)
    after = [(int(first), int(last) - 1) for first, last in zip(edges, [*edges[1:], 2 * edges[-1]], strict=True)]
    return [(-last, -first) for first, last in reversed(after[1:])] + after


def position_bins() -> int:
    """How many bins of positions there are."""
    return len(distance_edges(NEAR_POSITIONS - 1, POSITIONS_PER_OCTAVE))


def position_bin(positions: IntArray) -> IntArray:
    """The bin of each position."""
    edges = distance_edges(NEAR_POSITIONS - 1, POSITIONS_PER_OCTAVE)
    return np.asarray(np.searchsorted(edges, positions, side="right") - 1, dtype=np.int64)


def position_spans() -> list[tuple[int, int]]:
    """The first and the last position of each bin."""
    edges = distance_edges(NEAR_POSITIONS - 1, POSITIONS_PER_OCTAVE)
    return [(int(first), int(last) - 1) for first, last in zip(edges, [*edges[1:], 2 * edges[-1]], strict=True)]
