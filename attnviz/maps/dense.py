"""Represents maps of one attention call as whole arrays."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CallFields, CellMaps, MapTensors, Window
from attnviz.maps.visibility import heads_by_visibility, stored_shape, visibility_header, visible_to_heads
from attnviz.streaming.overview import Overview, pool_weights

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry
    from attnviz.maps.score_factors import ScoreFactors


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DenseMaps(CellMaps):
    """Maps of one attention call as whole arrays.

    Attributes:
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax, before dropout.
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells.
        factors: queries and keys, whose products are the scores; ``None`` if unknown. Files do not hold them.
    """

    saved_as: ClassVar = "dense"

    scores: FloatArray
    weights: FloatArray
    visible: BoolArray
    factors: "ScoreFactors | None" = None

    def __post_init__(self) -> None:
        """Makes the arrays read-only; raises AttnvizError if the shape of one does not fit heads, queries and keys."""
        super().__post_init__()
        shape = (len(self.heads), len(self.query_tokens), len(self.key_tokens))
        visible_shape = shape if self.visible.ndim == 3 else shape[1:]
        for name, expected in (("scores", shape), ("weights", shape), ("visible", visible_shape)):
            array = getattr(self, name)
            if array.shape != expected:
                raise AttnvizError(f"layer {self.layer}: {name} has shape {array.shape}, not {expected}")
            array.setflags(write=False)
        if self.factors is not None:
            self.factors.refuse_mismatch(*shape)

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block, sliced from the arrays; see `CellMaps.window`."""
        indices = self.head_indices(heads)
        return Window(
            scores=self.scores[indices, queries, keys],
            weights=self.weights[indices, queries, keys],
            visible=visible_to_heads(self.visible[..., queries, keys], indices),
        )

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block, sliced from the array."""
        return self.scores[self.head_indices(heads), queries, keys]

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns the heads grouped by their visible cells."""
        return heads_by_visibility(self.visible, heads, self.head_indices(heads))

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of a block, sliced from the array."""
        return visible_to_heads(self.visible[..., queries, keys], self.head_indices((head,)))

    def visible_keys(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query, ``(queries,)``."""
        return np.asarray(self.visibility(head, queries, slice(0, len(self.key_tokens))).sum(axis=1, dtype=np.float64))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Pools a block to pixels, always with the maximum; see `LayerMaps.overview` for the arguments."""
        window = self.window(heads, queries, keys)
        return pool_weights(window.weights, window.visible, height, width)

    def cell_factors(self) -> None:
        """Returns ``None``: these maps store cells, not factors."""

    def score_factors(self) -> "ScoreFactors | None":
        """Returns queries and keys; ``None`` if they were not kept with the cells."""
        return self.factors

    def to_tensors(self) -> MapTensors:
        """Returns scores, weights and visible cells, as a file stores them."""
        arrays = {"scores": self.scores, "weights": self.weights, "visible": self.visible}
        return MapTensors(self.saved_as, visibility_header(self.visible), arrays)

    @classmethod
    def from_tensors(cls, stored: "StoredEntry", call: CallFields) -> Self:
        """Returns the maps that a file entry stores.

        Args:
            stored: the entry, with the arrays.
            call: the fields that maps of all kinds have.

        Raises:
            AttnvizError: if an array is missing, or of another type or shape.
        """
        shape = len(call["heads"]), len(call["query_tokens"]), len(call["key_tokens"])
        return cls(
            **call,
            scores=stored.array("scores", "float32", shape),
            weights=stored.array("weights", "float32", shape),
            visible=stored.array("visible", "bool", stored_shape(shape, stored.value)),
        )
