"""Fixed bins for the numbers of a survey: histograms of metrics, offsets of keys, positions of queries."""

from functools import cache

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray

HISTOGRAM_BINS = 128
MAX_ENTROPIES = {"bits": 16.0, "nats": 8.0}  # largest edges; nats count spots of an image, e**8 are plenty
MAX_DISTANCE = 2.0**21  # tokens
NEAR_OFFSETS, NEAR_POSITIONS = 16, 32  # distances up to these have one bin each
OFFSETS_PER_OCTAVE, POSITIONS_PER_OCTAVE = 2, 4
OCTAVES = 21 - 4  # up to texts of 2**21 tokens


@cache
def histogram_edges(unit: str) -> Float64Array:
    """Returns the edges of the bins for numbers of a unit, ``(HISTOGRAM_BINS + 1,)``, in that unit.

    Bins of shares are narrow near 0 and 1: ``sin² x`` of even steps. Bins of bits and nats are even, and those
    of tokens grow by a constant factor. The outermost bins also count the numbers outside the edges.
    """
    steps = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    if unit == "share":
        return np.asarray(np.sin(steps * np.pi / 2) ** 2)
    if unit in MAX_ENTROPIES:
        return np.asarray(steps * MAX_ENTROPIES[unit])
    return np.asarray(np.expm1(steps * np.log1p(MAX_DISTANCE)))


def bin_of(numbers: Float64Array, unit: str) -> IntArray:
    """Returns the bin of the histogram that each number falls into, of the shape of ``numbers``.

    Numbers outside the edges fall into the first or the last bin, NaN into the last.
    """
    bins = np.searchsorted(histogram_edges(unit), numbers, side="right") - 1
    return np.asarray(np.clip(bins, 0, HISTOGRAM_BINS - 1), dtype=np.int64)


def quantile(counts: IntArray, unit: str, share: float) -> float:
    """Returns a quantile of the counted numbers, interpolated evenly within a bin; NaN if nothing was counted."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    rank = share * total
    edges, counts_below = histogram_edges(unit), np.concatenate([[0], np.cumsum(counts)])
    bin_index = min(int(np.searchsorted(counts_below, rank, side="right")) - 1, HISTOGRAM_BINS - 1)
    while not counts[bin_index]:  # for share 1, or where the share ends at an empty bin
        bin_index -= 1
    share_of_bin = min((rank - counts_below[bin_index]) / counts[bin_index], 1.0)
    return float(edges[bin_index] + share_of_bin * (edges[bin_index + 1] - edges[bin_index]))


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
