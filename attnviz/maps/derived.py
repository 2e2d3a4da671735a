"""Represents maps that are computed from other maps at each access, so that maps of long texts are never whole."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, MapTensors
from attnviz.maps.visibility import shared_or_per_head
from attnviz.streaming.overview import Overview, bands_of_queries, block_edges

MAX_BAND_CELLS = 2**20  # cells of one head that are computed at once
MAX_DENSE_CELLS = 2**24  # cells of all heads, up to which maps are computed once and kept as arrays


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DerivedMaps(CellMaps):
    """Maps whose windows are computed from windows of other maps; overviews are pooled in bands of queries."""

    def dense_if_small(self) -> CellMaps:
        """Returns the maps as arrays if they have at most `MAX_DENSE_CELLS` cells; else these maps, unchanged."""
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        if len(self.heads) * queries * keys > MAX_DENSE_CELLS:
            return self
        return self.to_dense()

    def to_dense(self) -> DenseMaps:
        """Returns the maps as arrays, whatever their size."""
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        window = self.window(self.heads, slice(0, queries), slice(0, keys))
        return DenseMaps(**self.shared_fields(), scores=window.scores, weights=window.weights, visible=window.visible)

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a window, ``(heads, queries, keys)``."""
        return self.window(heads, queries, keys).scores

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a head's window, ``(queries, keys)``."""
        return self.window((head,), queries, keys).visible

    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query, ``(queries,)``."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Returns mean, maximum and visibility of the weights of each pixel of a block; see `LayerMaps.overview`.

        Computes the maximum even if ``maximum`` is False. Pixels without visible cells have mean and maximum 0.
        """
        pixels_of_heads = [self._pixel_statistics(head, height, width, queries, keys) for head in heads]
        return Overview(
            mean=np.stack([sums / np.maximum(counts, 1) for sums, _, counts in pixels_of_heads]).astype(np.float32),
            maximum=np.stack([maxima for _, maxima, _ in pixels_of_heads]),
            visible=shared_or_per_head([counts > 0 for _, _, counts in pixels_of_heads]),
        )

    def cell_factors(self) -> None:
        """Returns ``None``: cells are computed from cells of other maps, not from factors."""

    def score_factors(self) -> None:
        """Returns ``None``: these cells have no queries and keys, since they are computed from cells of other maps."""

    def to_tensors(self) -> MapTensors:
        """Returns these maps as whole arrays, as a file stores them."""
        return self.to_dense().to_tensors()

    def _pixel_statistics(
        self, head: int, height: int, width: int, queries: slice, keys: slice
    ) -> tuple[Float64Array, FloatArray, IntArray]:
        """Returns sum, maximum and number of each pixel's visible weights, ``(height, width)`` each; 0 without any."""
        sums = np.zeros((height, width))
        maxima = np.zeros((height, width), dtype=np.float32)
        counts = np.zeros((height, width), dtype=np.int64)
        row_edges = (queries.start + block_edges(queries.stop - queries.start, height)).tolist()
        column_starts = block_edges(keys.stop - keys.start, width)[:-1]
        for row, start in enumerate(row_edges[:-1]):
            # With more pixels than queries, a row of pixels still shows one query.
            row_queries = slice(start, max(row_edges[row + 1], start + 1))
            for band in bands_of_queries(row_queries, keys.stop - keys.start, MAX_BAND_CELLS):
                window = self.window((head,), band, keys)
                weights = np.where(window.visible, window.weights[0], np.float32(0))
                sums[row] += np.add.reduceat(weights.sum(axis=0, dtype=np.float64), column_starts)
                maxima[row] = np.maximum(maxima[row], np.maximum.reduceat(weights.max(axis=0), column_starts))
                counts[row] += np.add.reduceat(window.visible.sum(axis=0), column_starts)
        return sums, maxima, counts


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SourceMaps(DerivedMaps):
    """Derived maps whose heads are those of one source, each with its visible cells.

    Attributes:
        source: the maps that windows are computed from.
    """

    source: LayerMaps

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns the heads in groups, as the source groups them."""
        return self.source.head_groups(heads)
