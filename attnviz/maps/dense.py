"""DenseMaps: the maps of one attention call, held whole."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CallFields, CellMaps, MapTensors, Window
from attnviz.maps.seen_cells import groups_of, seen_by, seen_header, seen_shape
from attnviz.streaming.overview import Overview, pool_weights

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DenseMaps(CellMaps):
    """The maps themselves, held whole.

    Attributes:
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax, before dropout.
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` where heads see different cells.
    """

    saved_as: ClassVar = "dense"

    scores: FloatArray
    weights: FloatArray
    visible: BoolArray

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (len(self.heads), len(self.query_tokens), len(self.key_tokens))
        seen = shape if self.visible.ndim == 3 else shape[1:]
        for name, expected in (("scores", shape), ("weights", shape), ("visible", seen)):
            array = getattr(self, name)
            if array.shape != expected:
                raise AttnvizError(f"layer {self.layer}: {name} of shape {array.shape}, expected {expected}")
            array.setflags(write=False)

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The block, cut out of the arrays."""
        chosen = self.positions(heads)
        return Window(
            scores=self.scores[chosen, queries, keys],
            weights=self.weights[chosen, queries, keys],
            visible=seen_by(self.visible[..., queries, keys], chosen),
        )

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """The scores, cut out of the array."""
        return self.scores[self.positions(heads), queries, keys]

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The heads with equal cells together."""
        return groups_of(self.visible, heads, self.positions(heads))

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """The block, cut out of the array."""
        return seen_by(self.visible[..., queries, keys], self.positions((head,)))

    def visible_keys(self, head: int, queries: slice) -> Float64Array:
        """The visible cells of each query, counted."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """The block, reduced to pixels."""
        window = self.window(heads, queries, keys)
        return pool_weights(window.weights, window.visible, height, width)

    def cell_factors(self) -> None:
        """None: the cells themselves are held."""

    def to_tensors(self) -> MapTensors:
        """The three arrays."""
        arrays = {"scores": self.scores, "weights": self.weights, "visible": self.visible}
        return MapTensors(self.saved_as, seen_header(self.visible), arrays)

    @classmethod
    def from_tensors(cls, stored: "StoredEntry", call: CallFields) -> Self:
        """The maps that a file holds.

        Raises:
            AttnvizError: if an array is missing, or of another type or shape.
        """
        shape = len(call["heads"]), len(call["query_tokens"]), len(call["key_tokens"])
        return cls(
            **call,
            scores=stored.array("scores", "float32", shape),
            weights=stored.array("weights", "float32", shape),
            visible=stored.array("visible", "bool", seen_shape(shape, stored.value)),
        )
