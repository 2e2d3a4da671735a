"""Maps that are computed from other maps as they are read, so that those of long texts are never whole."""

from dataclasses import dataclass, fields

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, MapTensors
from attnviz.maps.seen_cells import shared_or_each
from attnviz.streaming.overview import Overview, bands, block_edges

MAX_BAND_CELLS = 2**20  # of a head that are computed at once
MAX_HELD_CELLS = 2**24  # of all heads of maps that are computed once and held


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DerivedMaps(CellMaps):
    """Maps whose windows are computed from those of others: pooled in bands of queries."""

    def held(self) -> CellMaps:
        """The same maps computed once, where they are small enough to be held; else these."""
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        if len(self.heads) * queries * keys > MAX_HELD_CELLS:
            return self
        return self.whole()

    def whole(self) -> DenseMaps:
        """The same maps computed once, however large."""
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        whole = self.window(self.heads, slice(0, queries), slice(0, keys))
        common = {each.name: getattr(self, each.name) for each in fields(LayerMaps)}
        return DenseMaps(**common, scores=whole.scores, weights=whole.weights, visible=whole.visible)

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """The scores of the window."""
        return self.window(heads, queries, keys).scores

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """What the window of the head shows."""
        return self.window((head,), queries, keys).visible

    def visible_keys(self, head: int, queries: slice) -> Float64Array:
        """The visible cells of each query, counted."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """The block in pixels, a head and a band of queries at a time."""
        pooled = [self._pooled(head, height, width, queries, keys) for head in heads]
        return Overview(
            mean=np.stack([total / np.maximum(counts, 1) for total, _, counts in pooled]).astype(np.float32),
            maximum=np.stack([largest for _, largest, _ in pooled]),
            visible=shared_or_each([counts > 0 for _, _, counts in pooled]),
        )

    def cell_factors(self) -> None:
        """None: cells are computed from those of other maps."""

    def to_tensors(self) -> MapTensors:
        """Those of the same maps held whole."""
        return self.whole().to_tensors()

    def _pooled(
        self, head: int, height: int, width: int, queries: slice, keys: slice
    ) -> tuple[Float64Array, FloatArray, IntArray]:
        """Sum and maximum of each pixel's visible weights and how many they are, all ``(height, width)``."""
        total = np.zeros((height, width))
        largest = np.zeros((height, width), dtype=np.float32)
        counts = np.zeros((height, width), dtype=np.int64)
        edges = (queries.start + block_edges(queries.stop - queries.start, height)).tolist()
        columns = block_edges(keys.stop - keys.start, width)[:-1]
        for row, start in enumerate(edges[:-1]):
            for band in bands(slice(start, max(edges[row + 1], start + 1)), keys.stop - keys.start, MAX_BAND_CELLS):
                window = self.window((head,), band, keys)
                shown = np.where(window.visible, window.weights[0], np.float32(0))
                total[row] += np.add.reduceat(shown.sum(axis=0, dtype=np.float64), columns)
                largest[row] = np.maximum(largest[row], np.maximum.reduceat(shown.max(axis=0), columns))
                counts[row] += np.add.reduceat(window.visible.sum(axis=0), columns)
        return total, largest, counts
