"""Defines the maps of one attention call: every ``LayerMaps`` gives overviews, and ``CellMaps`` also single cells."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.printable import printable
from attnviz.maps.visibility import GroupSums, sum_groups
from attnviz.streaming.overview import Factors, Overview, ScoreFactors
from attnviz.text.groups import Groups
from attnviz.text.head_name import KnownHead
from attnviz.text.tokens import Tokens

MAX_DIFFERENCE = 1e-3  # of weights @ values from the model's own output, as a share of its largest number
LONG_MAP_TOKENS = 2048  # tokens per axis of the largest square map that is not long
Kind = Literal["self", "cross"]
QuantityName = Literal["weight", "contribution", "implicit"]


@dataclass(frozen=True, eq=False)
class Window:
    """A block of cells of one layer's maps."""

    scores: FloatArray  # ``(heads, queries, keys)``, scaled, before the mask; NaN where there are none
    weights: FloatArray  # ``(heads, queries, keys)``, after the softmax, before dropout; 0 where not visible
    visible: BoolArray  # ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells


class CallFields(TypedDict):
    """The fields that all kinds of maps share, by the names of their attributes."""

    layer: int
    module: str
    heads: tuple[int, ...]
    query_tokens: Tokens
    key_tokens: Tokens
    kind: Kind
    item: int
    scale: float | None
    fidelity: float | None
    tolerance: float
    pools_queries: bool
    value_norms: FloatArray | None
    value_norms_fidelity: float | None
    key_layer: int | None


@dataclass(frozen=True, eq=False)
class MapTensors:
    """The parts of maps that a file stores beside the fields of their call."""

    kind: str  # name of the kind of maps: ``dense``, ``factored``, ``pooled`` or ``recurrent``
    header: dict[str, Any]  # JSON values by name
    arrays: dict[str, NDArray[Any]]  # arrays by name


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LayerMaps(ABC):
    """The attention of one call in a run, for one text of a batch.

    Attributes:
        layer: number of the layer, from 0.
        module: name of the module that made the call.
        kind: ``self``, or ``cross`` if keys come from another input.
        heads: the heads' numbers in the model, in the order of the arrays.
        query_tokens: the tokens that attend, one per row.
        key_tokens: the tokens that are attended to, one per column.
        item: index of the text in the batch, from 0.
        scale: factor of q·k; ``None`` if unknown.
        fidelity: the largest difference between weights @ values and the output of the model's own attention;
            ``None`` if unknown. In shares of the largest output for implicit attention whose output is above 1.
        tolerance: how far rounding may take ``fidelity``: a share of the largest output, by its precision.
        pools_queries: true if each query stands for several tokens, each of which is a key.
        value_norms: ``(heads, keys)``, ‖f(x)‖ of each key: the norm of its value after the output projection, which is
            what it adds to a query at weight 1; ``(heads, queries, keys)`` if a gate scales it for each query; ``None``
            if not recorded.
        value_norms_fidelity: the largest difference between the sum of α f(x) over heads and keys plus the bias and the
            output of the model's own projection; ``None`` if unknown.
        key_layer: the number of the layer that computed the keys, if it is another one; else ``None``.
        quantity: the quantity in ``weights``: attention weights, contributions, or implicit attention.
        part: the part of the model in the names of the heads, "" where their numbers are enough; ``None`` until a
            recording of all calls decides it.
    """

    layer: int
    module: str
    heads: tuple[int, ...]
    query_tokens: Tokens
    key_tokens: Tokens
    kind: Kind = "self"
    item: int = 0
    scale: float | None = None
    fidelity: float | None = None
    tolerance: float = MAX_DIFFERENCE
    pools_queries: bool = False
    value_norms: FloatArray | None = None
    value_norms_fidelity: float | None = None
    key_layer: int | None = None
    quantity: QuantityName = "weight"
    part: str | None = None

    def __post_init__(self) -> None:
        """Makes ``module`` printable and ``value_norms`` read-only; raises AttnvizError if their shape is wrong."""
        object.__setattr__(self, "module", printable(self.module))
        if self.value_norms is not None:
            heads, queries, keys = len(self.heads), len(self.query_tokens), len(self.key_tokens)
            if self.value_norms.shape not in ((heads, keys), (heads, queries, keys)):
                given = self.value_norms.shape
                raise AttnvizError(f"layer {self.layer}: value_norms has shape {given}, not {(heads, keys)}")
            self.value_norms.setflags(write=False)

    @property
    def has_common_places(self) -> bool:
        """True if queries and keys have their places on one axis: in self-attention over single tokens.

        Fewer keys than queries each stand for several tokens; fewer queries than keys may be those after a cache.
        """
        return self.kind == "self" and not self.pools_queries and len(self.key_tokens) >= len(self.query_tokens)

    @property
    def pooled_source(self) -> "LayerMaps":
        """The pooled maps whose blocks these maps group; these maps themselves if they group none."""
        source: LayerMaps = getattr(self, "source", self)  # only derived maps have one
        return self if source.block == (1, 1) else source

    @property
    @abstractmethod
    def block(self) -> tuple[int, int]:
        """The numbers of queries and keys of the largest pooled block; ``(1, 1)`` if single cells are known."""

    @abstractmethod
    def resolution(self, queries: slice, keys: slice) -> tuple[int, int]:
        """Returns the largest ``(height, width)`` in pixels of an overview of these queries and keys."""

    @abstractmethod
    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Pools weights to ``height`` x ``width`` pixels.

        Args:
            heads: numbers of the heads.
            height: pixels along the queries.
            width: pixels along the keys.
            queries: the queries, with start and stop.
            keys: the keys, with start and stop.
            maximum: if false, the overview's ``maximum`` may be all 0; long blocks are up to ten times faster.
        """

    @abstractmethod
    def group_sums(self, heads: tuple[int, ...], rows: Groups, columns: Groups) -> GroupSums:
        """Sums weights over groups of queries and keys.

        Args:
            heads: numbers of the heads.
            rows: the groups of queries.
            columns: the groups of keys.
        """

    @abstractmethod
    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns the heads grouped by their visible cells; a single group if all heads have the same mask."""

    @abstractmethod
    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        """Returns the number of visible keys of each query of a head, ``(queries,)``; the block's mean if pooled."""

    def cell_factors(self) -> Factors | None:
        """Returns the factors from which cells are computed; ``None`` if the maps have none."""
        factors = self.score_factors()
        return factors if isinstance(factors, Factors) else None

    def score_factors(self) -> ScoreFactors | None:
        """Returns the queries and keys whose products are the scores; ``None`` if they are unknown."""
        factors: ScoreFactors | None = getattr(self, "factors", None)  # only some kinds of maps hold factors
        return factors

    @abstractmethod
    def to_tensors(self) -> MapTensors:
        """Returns the header and the arrays that a file stores."""

    def shared_fields(self) -> dict[str, Any]:
        """Returns the fields that all kinds of maps share, by name: the arguments of maps that derive from these."""
        return {field.name: getattr(self, field.name) for field in fields(LayerMaps)}

    def known_head(self, head: int) -> KnownHead:
        """Returns what names the head with this number."""
        return KnownHead(self.layer, head, self.part or "", self.module, self.kind)

    def head_indices(self, heads: tuple[int, ...]) -> list[int]:
        """Returns the indices in the arrays of the heads with these numbers; raises ValueError for an unknown head."""
        return [self.heads.index(head) for head in heads]

    def __repr__(self) -> str:
        shape = f"{len(self.query_tokens)} queries x {len(self.key_tokens)} keys"
        call = f"layer {self.layer} in {self.module!r}, {self.kind}-attention, text {self.item}"
        fidelity = "" if self.fidelity is None else f", within {self.fidelity:.0e} of the model's own output"
        return f"{type(self).__name__}({call}, heads {number_ranges(self.heads)}, {shape}{fidelity})"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CellMaps(LayerMaps):
    """Maps whose single cells are known or can be computed."""

    @property
    def block(self) -> tuple[int, int]:
        """A single cell: ``(1, 1)``."""
        return 1, 1

    def resolution(self, queries: slice, keys: slice) -> tuple[int, int]:
        """Returns the numbers of queries and keys: one pixel per cell."""
        return queries.stop - queries.start, keys.stop - keys.start

    @abstractmethod
    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns the exact cells of some heads.

        Args:
            heads: numbers of the heads.
            queries: the queries, with start and stop.
            keys: the keys, with start and stop.
        """

    def group_sums(self, heads: tuple[int, ...], rows: Groups, columns: Groups) -> GroupSums:
        """Returns the weights summed over groups of queries and keys, read in bands; see `LayerMaps.group_sums`."""

        def read(queries: slice, keys: slice) -> tuple[FloatArray, BoolArray]:
            window = self.window(heads, queries, keys)
            return window.weights, window.visible

        return sum_groups(read, len(heads), rows, columns)

    @abstractmethod
    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """Returns only the scores of a window, ``(heads, queries, keys)``."""

    @abstractmethod
    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns the visible cells of one head, bool ``(queries, keys)``."""


def mean_visible_key_counts(maps: LayerMaps, head: int, edges: Sequence[int]) -> Float64Array:
    """Returns the mean number of visible keys of the queries of each block, ``(blocks,)``.

    Queries without visible keys do not count; a block of such queries has 0.

    Args:
        edges: ``(blocks + 1,)``, the first query of each block, then the end of the last block.
    """
    counts = maps.visible_key_counts(head, slice(edges[0], edges[-1]))
    starts = np.asarray(edges[:-1]) - edges[0]
    totals = np.add.reduceat(counts, starts)
    seeing_queries = np.add.reduceat((counts > 0).astype(np.float64), starts)
    return np.asarray(totals / np.maximum(seeing_queries, 1))


def is_long(queries: int, keys: int) -> bool:
    """True if maps of this size are never whole in memory unless asked for: above `LONG_MAP_TOKENS` squared cells."""
    return queries * keys > LONG_MAP_TOKENS**2


def known_cells(maps: LayerMaps) -> CellMaps | None:
    """Returns the maps unchanged if they are `CellMaps`, else ``None``."""
    return maps if isinstance(maps, CellMaps) else None


def cell_maps(maps: LayerMaps) -> CellMaps:
    """Returns the maps unchanged if they are `CellMaps`; raises AttnvizError for pooled ones."""
    if (known := known_cells(maps)) is None:
        raise unknown_cells_error(maps)
    return known


def unknown_cells_error(maps: LayerMaps) -> AttnvizError:
    """Returns the error for a request for single cells, or smaller blocks, of pooled maps."""
    height, width = maps.block
    return AttnvizError(
        f"layer {maps.layer} was pooled to blocks of {height} x {width} tokens at capture, so its single cells are not "
        f"known; use show for a heatmap, or capture every cell with {option('dense', value=True)}"
    )
