"""Represents maps of one attention call as whole arrays."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, final

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CallFields, Window
from attnviz.maps.masked import MaskedMaps
from attnviz.maps.visibility import stored_shape, visible_to_heads

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry
    from attnviz.maps.score_factors import ScoreFactors


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DenseMaps(MaskedMaps):
    """Maps of one attention call as whole arrays.

    Attributes:
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax, before dropout.
        factors: queries and keys, whose products are the scores; ``None`` if unknown. Files do not hold them.
    """

    saved_as: ClassVar = "dense"

    scores: FloatArray
    weights: FloatArray
    factors: "ScoreFactors | None" = None

    def __post_init__(self) -> None:
        """Makes the arrays read-only; raises AttnvizError if the shape of one does not fit heads, queries and keys."""
        super().__post_init__()
        shape = (len(self.heads), len(self.query_tokens), len(self.key_tokens))
        visible_shape = shape if self.visible.ndim == 3 else shape[1:]
        for name, expected_shape in (("scores", shape), ("weights", shape), ("visible", visible_shape)):
            array = getattr(self, name)
            if array.shape != expected_shape:
                raise AttnvizError(f"layer {self.layer}: {name} has shape {array.shape}, not {expected_shape}")
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

    def score_factors(self) -> "ScoreFactors | None":
        """Returns queries and keys; ``None`` if they were not kept with the cells."""
        return self.factors

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", call: CallFields) -> Self:
        """Returns the maps that a file entry stores.

        Raises:
            AttnvizError: if an array is missing, or of another type or shape.
        """
        shape = len(call["heads"]), len(call["query_tokens"]), len(call["key_tokens"])
        return cls(
            **call,
            scores=entry.array("scores", "float32", shape),
            weights=entry.array("weights", "float32", shape),
            visible=entry.array("visible", "bool", stored_shape(shape, entry.value)),
            key_heads=entry.repeated_counts("key_heads"),
        )
