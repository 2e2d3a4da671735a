"""Represents maps whose visible cells are one array, whatever holds or computes their weights."""

from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CellMaps, LayerMaps, MapTensors
from attnviz.maps.visibility import heads_by_visibility, visibility_header, visible_to_heads
from attnviz.streaming.overview import Overview, pool_weights


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MaskedMaps(CellMaps):
    """Maps whose visible cells are one array.

    Attributes:
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells.
        key_heads: ``(heads,)``, the number of the key head that each head reads; ``None`` if each has its own.
    """

    visible: BoolArray
    key_heads: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_heads is not None and len(self.key_heads) != len(self.heads):
            raise AttnvizError(f"layer {self.layer}: {len(self.heads)} heads, but {len(self.key_heads)} key heads")

    def to_tensors(self) -> MapTensors:
        """Returns scores, weights and visible cells of all heads, as a file stores whole maps."""
        header = {} if self.key_heads is None else {"key_heads": self.key_heads}
        cells = self.window(self.heads, slice(0, len(self.query_tokens)), slice(0, len(self.key_tokens)))
        arrays = {"scores": cells.scores, "weights": cells.weights, "visible": self.visible}
        return MapTensors("dense", header | visibility_header(self.visible), arrays)

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns the heads grouped by their visible cells."""
        return heads_by_visibility(self.visible, heads, self.head_indices(heads))

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a block, sliced from the array."""
        return visible_to_heads(self.visible[..., queries, keys], self.head_indices((head,)))

    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query, ``(queries,)``."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Pools a block to pixels; see `LayerMaps.overview`. Computes the maximum even if ``maximum`` is False."""
        window = self.window(heads, queries, keys)
        return pool_weights(window.weights, window.visible, height, width)

    def cell_factors(self) -> None:
        """Returns ``None``: these maps have cells, not factors."""


def key_head_numbers(maps: LayerMaps) -> tuple[int, ...] | None:
    """Returns the number of the key head that each head reads, ``(heads,)``; ``None`` if it is unknown."""
    if isinstance(maps, MaskedMaps) and maps.key_heads is not None:
        return maps.key_heads
    factors = maps.score_factors()
    return None if factors is None else factors.key_heads
