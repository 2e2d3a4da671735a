"""What is known of one attention call: ``LayerMaps`` give overviews, and ``CellMaps`` among them single cells."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.printable import printable
from attnviz.maps.group_sums import GroupSums, sum_groups
from attnviz.streaming.overview import Overview
from attnviz.text.groups import Groups
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.streaming.factors import Factors

LONG_MAP_TOKENS = 2048  # queries and keys beyond which maps are kept as factors
Kind = Literal["self", "cross"]
QuantityName = Literal["weight", "contribution"]


@dataclass(frozen=True, eq=False)
class Window:
    """A block of one layer's maps.

    Attributes:
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax, before dropout; 0 where not visible.
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` of several heads that see different cells.
    """

    scores: FloatArray
    weights: FloatArray
    visible: BoolArray


class CallFields(TypedDict):
    """What every kind of maps holds, by the names of its attributes."""

    layer: int
    module: str
    heads: tuple[int, ...]
    query_tokens: Tokens
    key_tokens: Tokens
    kind: Kind
    item: int
    scale: float | None
    fidelity: float | None
    moved: FloatArray | None
    moved_fidelity: float | None


@dataclass(frozen=True, eq=False)
class MapTensors:
    """What a file holds of maps beside the fields of their call.

    Attributes:
        kind: the name of their kind.
        header: JSON values.
        arrays: by name.
    """

    kind: str
    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LayerMaps(ABC):
    """One attention call of a run.

    Attributes:
        layer: its number, from 0.
        module: the name of the module that made the call.
        kind: ``self``, or ``cross`` where keys come from another text.
        heads: the heads' own numbers, in the order in which they are held.
        query_tokens: the tokens that look, one a row.
        key_tokens: the tokens looked at, one a column.
        item: which text of a batch this is, from 0.
        scale: what q·k was multiplied by; ``None`` where not known.
        fidelity: the largest difference between weights @ values and what the model's attention
            really gave; ``None`` where not known.
        moved: ``(heads, keys)``, the norm of what each key gives a query of weight 1: ‖f(x)‖ of its value after the
            output projection; ``None`` where it was not kept.
        moved_fidelity: the largest difference between the sum of α f(x) over heads and keys, with the bias, and what
            the model's output projection really gave; ``None`` where not known.
        quantity: what the numbers are that stand where weights do.
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
    moved: FloatArray | None = None
    moved_fidelity: float | None = None
    quantity: QuantityName = "weight"

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", printable(self.module))
        if self.moved is not None:
            expected = len(self.heads), len(self.key_tokens)
            if self.moved.shape != expected:
                raise AttnvizError(f"layer {self.layer}: moved of shape {self.moved.shape}, expected {expected}")
            self.moved.setflags(write=False)

    @property
    @abstractmethod
    def block(self) -> tuple[int, int]:
        """Queries and keys of the largest block that is known as one: ``(1, 1)`` where single cells are."""

    @abstractmethod
    def resolution(self, queries: slice, keys: slice) -> tuple[int, int]:
        """The most pixels that an overview of these queries and keys can have, down and across: one a known block."""

    @abstractmethod
    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """The weights of the given heads (by their own numbers), pooled to ``height`` x ``width`` pixels.

        Where the maximum is not wanted it may be left out, all zero: it takes a tenth of the time of a long block.
        """

    @abstractmethod
    def group_sums(self, heads: tuple[int, ...], rows: Groups, columns: Groups) -> GroupSums:
        """The weights of the given heads (by their own numbers) summed over groups of queries and keys.

        Raises:
            AttnvizError: if the groups are smaller than the blocks that are known.
        """

    @abstractmethod
    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The given heads in groups that see the same cells: all in one, but where a mask differs between heads."""

    @abstractmethod
    def visible_keys(self, head: int, queries: slice) -> Float64Array:
        """How many keys each query of a head may see, ``(queries,)``; the mean of its block where no more is known."""

    @abstractmethod
    def cell_factors(self) -> "Factors | None":
        """What each cell is computed from, where the maps are held so."""

    @abstractmethod
    def to_tensors(self) -> MapTensors:
        """What a file holds of these maps."""

    def positions(self, heads: tuple[int, ...]) -> list[int]:
        """Where the heads with these numbers are held."""
        return [self.heads.index(head) for head in heads]

    def __repr__(self) -> str:
        shape = f"{len(self.query_tokens)} queries x {len(self.key_tokens)} keys"
        place = f"layer {self.layer} in {self.module!r}, {self.kind}-attention, text {self.item}"
        checked = "" if self.fidelity is None else f", within {self.fidelity:.0e} of the model's own output"
        return f"{type(self).__name__}({place}, heads {number_ranges(self.heads)}, {shape}{checked})"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CellMaps(LayerMaps):
    """One attention call of which every single cell is known."""

    @property
    def block(self) -> tuple[int, int]:
        """A single cell."""
        return 1, 1

    def resolution(self, queries: slice, keys: slice) -> tuple[int, int]:
        """A pixel for each cell."""
        return queries.stop - queries.start, keys.stop - keys.start

    @abstractmethod
    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The cells of the given heads (by their own numbers), exactly."""

    def group_sums(self, heads: tuple[int, ...], rows: Groups, columns: Groups) -> GroupSums:
        """The cells, summed a band of queries at a time."""

        def read(queries: slice, keys: slice) -> tuple[FloatArray, BoolArray]:
            window = self.window(heads, queries, keys)
            return window.weights, window.visible

        return sum_groups(read, len(heads), rows, columns)

    @abstractmethod
    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """The scores of the given heads alone, ``(heads, queries, keys)``."""

    @abstractmethod
    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Whether each cell of a head is visible, ``(queries, keys)``."""


def mean_visible_keys(maps: LayerMaps, head: int, edges: Sequence[int]) -> Float64Array:
    """How many keys the queries of each block may see on average, of those that see any: ``(blocks,)``."""
    counts = maps.visible_keys(head, slice(edges[0], edges[-1]))
    starts = np.asarray(edges[:-1]) - edges[0]
    totals, seeing = np.add.reduceat(counts, starts), np.add.reduceat((counts > 0).astype(np.float64), starts)
    return np.asarray(totals / np.maximum(seeing, 1))


def is_long(queries: int, keys: int) -> bool:
    """Whether maps of so many queries and keys are kept as factors where nothing else is asked for."""
    return queries * keys > LONG_MAP_TOKENS**2


def cell_maps(maps: LayerMaps) -> CellMaps:
    """The maps, for what needs their single cells.

    Raises:
        AttnvizError: if these are not known.
    """
    if isinstance(maps, CellMaps):
        return maps
    raise cells_unknown(maps)


def cells_unknown(maps: LayerMaps) -> AttnvizError:
    """The refusal of what needs smaller blocks than are known."""
    height, width = maps.block
    return AttnvizError(
        f"layer {maps.layer} was pooled to blocks of {height} x {width} tokens when it was captured, so its single "
        f"cells are not known; show draws it as a heatmap, and {option('dense', True)} captures every cell"
    )
