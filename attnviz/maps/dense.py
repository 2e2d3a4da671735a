"""Represents maps whose visible cells are one array: whole maps, or heads that are computed when first read."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CallFields, CellMaps, LayerMaps, MapTensors, Window
from attnviz.maps.visibility import heads_by_visibility, stored_shape, visibility_header, visible_to_heads
from attnviz.streaming.overview import Overview, pool_weights

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry
    from attnviz.streaming.overview import ScoreFactors


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MaskedMaps(CellMaps):
    """Maps whose visible cells are one array."""

    visible: BoolArray  # ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells
    # ``(heads,)``, the number of the key head that each head reads; ``None`` if each has its own
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


def key_head_numbers(maps: LayerMaps) -> tuple[int, ...] | None:
    """Returns the number of the key head that each head reads, ``(heads,)``; ``None`` if it is unknown."""
    if isinstance(maps, MaskedMaps) and maps.key_heads is not None:
        return maps.key_heads
    factors = maps.score_factors()
    return None if factors is None else factors.key_heads


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DenseMaps(MaskedMaps):
    """Maps of one attention call as whole arrays."""

    saved_as: ClassVar = "dense"

    scores: FloatArray  # ``(heads, queries, keys)``, scaled, before the mask
    weights: FloatArray  # ``(heads, queries, keys)``, after the softmax, before dropout
    # queries and keys, whose products are the scores; ``None`` if unknown. Files do not hold them.
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

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", call: CallFields) -> Self:
        """Returns the maps that a file entry stores."""
        shape = len(call["heads"]), len(call["query_tokens"]), len(call["key_tokens"])
        return cls(
            **call,
            scores=entry.array("scores", "float32", shape),
            weights=entry.array("weights", "float32", shape),
            visible=entry.array("visible", "bool", stored_shape(shape, entry.value)),
            key_heads=None if entry.value.get("key_heads") is None else entry.whole_numbers("key_heads"),
        )


class _HeadArrays(Protocol):
    """The cells of one head, which may be computed when they are read."""

    def weights(self, queries: slice, keys: slice) -> FloatArray:
        """Returns weights after the softmax, ``(queries, keys)``; 0 where not visible."""

    def scores(self, queries: slice, keys: slice) -> FloatArray:
        """Returns scores, scaled, before the mask, ``(queries, keys)``."""


@final
class _LazyWindow(Window):
    """A window whose scores are computed when they are first read.

    Args:
        weights: ``(heads, queries, keys)``.
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells.
    """

    def __init__(self, scores: FloatArray | Callable[[], FloatArray], weights: FloatArray, visible: BoolArray) -> None:
        for name, value in (("_scores", scores), ("weights", weights), ("visible", visible)):
            # a window is frozen
            object.__setattr__(self, name, value)

    @cached_property
    def scores(self) -> FloatArray:
        """``(heads, queries, keys)``, scaled, before the mask."""
        scores: FloatArray | Callable[[], FloatArray] = vars(self)["_scores"]
        return scores() if callable(scores) else scores


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OnDemandMaps(MaskedMaps):
    """Maps of one attention call whose heads are computed when they are first read."""

    cells: tuple[_HeadArrays, ...]  # the cells of each head

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (len(self.heads), len(self.query_tokens), len(self.key_tokens))
        if self.visible.shape not in (shape, shape[1:]) or len(self.cells) != len(self.heads):
            raise AttnvizError(
                f"layer {self.layer}: visible has shape {self.visible.shape} and cells are of {len(self.cells)} heads; "
                f"give {shape} or {shape[1:]}, and cells of {len(self.heads)} heads"
            )
        self.visible.setflags(write=False)

    @cached_property
    def scores(self) -> FloatArray:
        """The scores of all heads, ``(heads, queries, keys)``; computed whole when first read."""
        return self.scores_of(self.heads, *self._all_cells)

    @cached_property
    def weights(self) -> FloatArray:
        """The weights of all heads, ``(heads, queries, keys)``; computed whole when first read."""
        return self._weights_of(self.heads, *self._all_cells)

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block whose scores are computed when they are first read; see `CellMaps.window`."""
        return _LazyWindow(
            lambda: self.scores_of(heads, queries, keys),
            self._weights_of(heads, queries, keys),
            visible_to_heads(self.visible[..., queries, keys], self.head_indices(heads)),
        )

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the scores of a block."""
        return np.stack([self.cells[index].scores(queries, keys) for index in self.head_indices(heads)])

    def _weights_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns the weights of a block, ``(heads, queries, keys)``; those of a single head are not copied."""
        weights = [self.cells[index].weights(queries, keys) for index in self.head_indices(heads)]
        return weights[0][None] if len(weights) == 1 else np.stack(weights)

    @property
    def _all_cells(self) -> tuple[slice, slice]:
        """All queries and all keys."""
        return slice(0, len(self.query_tokens)), slice(0, len(self.key_tokens))
