"""Compares two recordings head by head: total variation and Jensen-Shannon divergence of their weights."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, number_ranges
from attnviz.base.progress import track
from attnviz.maps.grouped import block_cells
from attnviz.maps.layer_maps import CellMaps
from attnviz.maps.recording import Recording, cell_heads, chosen_heads
from attnviz.metrics.call_metrics import measured_frame, normalized_rows
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.streaming.overview import bands_of_queries
from attnviz.text.selection import Selection

CHANGE_MEASURES = (  # columns of a table of heads that compares two recordings
    Measure("change", "change", "share", "mean total variation between A and B over the queries"),
    Measure("divergence", "divergence", "bits", "mean Jensen-Shannon divergence of A and B over the queries"),
)
COMPARISON_MEASURES = (  # columns in files; queries that see no key in either recording are left out
    Measure("variation_mean", "variation", "share", CHANGE_MEASURES[0].meaning),
    Measure("variation_max", "max variation", "share", "maximum total variation between A and B"),
    Measure("divergence_mean", "divergence", "bits", CHANGE_MEASURES[1].meaning),
    Measure("divergence_max", "max divergence", "bits", "maximum Jensen-Shannon divergence of A and B"),
    Measure("entropy_a", "entropy A", "bits", "mean entropy of a row of A, over queries that see two keys or more"),
    Measure("entropy_b", "entropy B", "bits", "mean entropy of a row of B, over queries that see two keys or more"),
)
BAND_CELLS = 2**20  # cells of a head that are compared at once, so that long maps are never in memory as a whole


def compare(a: Recording, b: Recording, selection: Selection | None = None) -> HeadFrame:
    """Returns the `COMPARISON_MEASURES` of the selected heads, in order; pooled maps are compared block by block."""
    selection = selection or Selection()
    refuse_mismatch(a, b)
    cells_a, cells_b = block_cells((a, b), selection)
    heads = zip(*(cell_heads(chosen_heads(cells, selection)) for cells in (cells_a, cells_b)), strict=True)
    pairs = [(maps_a, maps_b, head) for (maps_a, head), (maps_b, _) in heads]
    heads_a, heads_b = [(maps, head) for maps, _, head in pairs], [(maps, head) for _, maps, head in pairs]
    changes = [_head_change(*pair) for pair in track(pairs, "comparing heads")]
    change_columns = np.array(changes).reshape(len(pairs), 4)  # the four numbers of a head, also for no head
    return HeadFrame(
        rows=tuple(HeadRow.of(maps, head) for maps, _, head in pairs),
        measures=COMPARISON_MEASURES,
        values=np.column_stack([change_columns, _entropies(heads_a), _entropies(heads_b)]),
    )


def change_frame(comparison: HeadFrame) -> HeadFrame:
    """Returns the mean variation and divergence from a frame of `compare`, as the columns of `CHANGE_MEASURES`."""
    return replace(comparison.select(("variation_mean", "divergence_mean")), measures=CHANGE_MEASURES)


def total_variation(a: NDArray[Any], b: NDArray[Any]) -> Float64Array:
    """Returns half the sum of absolute differences over keys, ``(..., keys)`` to ``(...)``; 0 to 1."""
    return np.asarray(np.abs(a.astype(np.float64) - b).sum(axis=-1) / 2)


def jensen_shannon(a: NDArray[Any], b: NDArray[Any]) -> Float64Array:
    """Returns the Jensen-Shannon divergence in bits, ``(..., keys)`` to ``(...)``; 0 to 1 (Lin 1991, equation 4.1)."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    middle = (a + b) / 2
    # The divergence of nearly equal rows is 0 but for rounding, which can leave it below 0.
    return np.maximum((_relative_entropy(a, middle) + _relative_entropy(b, middle)) / 2, 0)


def refuse_mismatch(a: Recording, b: Recording) -> None:
    """Raises AttnvizError if the layers, heads, or numbers of queries or keys of two recordings differ."""
    layers_a, layers_b = ([maps.layer for maps in recording.maps] for recording in (a, b))
    if layers_a != layers_b:
        raise AttnvizError(
            f"A and B have different attention calls, {len(layers_a)} in layers {number_ranges(layers_a)} and "
            f"{len(layers_b)} in layers {number_ranges(layers_b)}; compare runs with the same layers"
        )
    for maps_a, maps_b in zip(a.maps, b.maps, strict=True):
        if maps_a.heads != maps_b.heads:
            raise AttnvizError(
                f"A and B have different heads in layer {maps_a.layer}, {number_ranges(maps_a.heads)} and "
                f"{number_ranges(maps_b.heads)}; compare runs with the same heads"
            )
        for tokens_a, tokens_b in ((maps_a.key_tokens, maps_b.key_tokens), (maps_a.query_tokens, maps_b.query_tokens)):
            if len(tokens_a) != len(tokens_b):
                raise AttnvizError(
                    f"A has {len(tokens_a)} tokens and B has {len(tokens_b)}; compare runs with equally many tokens"
                )


def _entropies(heads: list[tuple[CellMaps, int]]) -> Float64Array:
    """Returns the mean entropy of each head's rows in bits, ``(heads,)``; 0 if no query of a head sees two keys."""
    return np.nan_to_num(measured_frame(heads, ("entropy",)).column("entropy"))


def _head_change(a: CellMaps, b: CellMaps, head: int) -> list[float]:
    """Returns mean and maximum of total variation, then of divergence, over queries; all 0 if no query sees a key."""
    bands = list(bands_of_queries(slice(0, len(a.query_tokens)), len(a.key_tokens), BAND_CELLS))
    all_keys, changes = slice(0, len(a.key_tokens)), []
    for band in track(bands, "comparing"):
        window_a, window_b = (normalized_rows(maps).window((head,), band, all_keys) for maps in (a, b))
        sees_key = (window_a.visible | window_b.visible).any(axis=-1)  # in either recording
        rows = window_a.weights[0][sees_key], window_b.weights[0][sees_key]
        changes.append((total_variation(*rows), jensen_shannon(*rows)))
    variations, divergences = (np.concatenate(parts) for parts in zip(*changes, strict=True))
    if not variations.size:
        return [0.0, 0.0, 0.0, 0.0]
    mean_and_max = (variations.mean(), variations.max(), divergences.mean(), divergences.max())
    return [float(number) for number in mean_and_max]


def _relative_entropy(a: Float64Array, reference: Float64Array) -> Float64Array:
    """Returns Σ a · log2(a / reference) over keys, ``(..., keys)`` to ``(...)``, with 0 · log 0 = 0."""
    positive = np.where(a > 0, a, 1.0)  # where a is 0, the term is 0 · log 1
    terms = a * np.log2(positive / np.where(a > 0, reference, 1.0))
    return np.asarray(terms.sum(axis=-1))
