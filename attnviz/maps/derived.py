"""Represents maps that are computed from other maps at each access, so that maps of long texts are never whole."""

from dataclasses import dataclass, fields

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
        """Returns the maps as arrays, of any size."""
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        window = self.window(self.heads, slice(0, queries), slice(0, keys))
        common = {field.name: getattr(self, field.name) for field in fields(LayerMaps)}
        return DenseMaps(**common, scores=window.scores, weights=window.weights, visible=window.visible)

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a window."""
        return self.window(heads, queries, keys).scores

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a head's window."""
        return self.window((head,), queries, keys).visible

    def visible_keys(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query, ``(queries,)``."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Pools a block to pixels, a head and a band of queries at a time."""
        sums_of_heads = [self._pixel_sums(head, height, width, queries, keys) for head in heads]
        return Overview(
            mean=np.stack([total / np.maximum(counts, 1) for total, _, counts in sums_of_heads]).astype(np.float32),
            maximum=np.stack([largest for _, largest, _ in sums_of_heads]),
            visible=shared_or_per_head([counts > 0 for _, _, counts in sums_of_heads]),
        )

    def cell_factors(self) -> None:
        """Returns ``None``: cells are computed from cells of other maps, not from factors."""

    def score_factors(self) -> None:
        """Returns ``None``: these cells have no queries and keys, since they are computed from cells of other maps."""

    def to_tensors(self) -> MapTensors:
        """Returns these maps computed to whole arrays, as a file stores them."""
        return self.to_dense().to_tensors()

    def _pixel_sums(
        self, head: int, height: int, width: int, queries: slice, keys: slice
    ) -> tuple[Float64Array, FloatArray, IntArray]:
        """Returns sum, maximum and number of each pixel's visible weights, all ``(height, width)``.

        Args:
            head: number of the head.
            height: pixels along the queries.
            width: pixels along the keys.
            queries: the queries, with start and stop.
            keys: the keys, with start and stop.
        """
        total = np.zeros((height, width))
        largest = np.zeros((height, width), dtype=np.float32)
        counts = np.zeros((height, width), dtype=np.int64)
        edges = (queries.start + block_edges(queries.stop - queries.start, height)).tolist()
        columns = block_edges(keys.stop - keys.start, width)[:-1]
        for row, start in enumerate(edges[:-1]):
            row_queries = slice(start, max(edges[row + 1], start + 1))
            for band in bands_of_queries(row_queries, keys.stop - keys.start, MAX_BAND_CELLS):
                window = self.window((head,), band, keys)
                weights = np.where(window.visible, window.weights[0], np.float32(0))
                total[row] += np.add.reduceat(weights.sum(axis=0, dtype=np.float64), columns)
                largest[row] = np.maximum(largest[row], np.maximum.reduceat(weights.max(axis=0), columns))
                counts[row] += np.add.reduceat(window.visible.sum(axis=0), columns)
        return total, largest, counts
