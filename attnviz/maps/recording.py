"""The numbers of a run: Recording and its LayerMaps, which give any Window of them exactly or an Overview of all."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError, number_ranges
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
Kind = Literal["self", "cross"]
MOST_SAID = 12  # attention calls that a recording lists of itself


@dataclass(frozen=True, eq=False)
class Window:
    """A block of one layer's maps.

    Attributes:
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax, before dropout; 0 where not visible.
        visible: ``(queries, keys)``.
    """

    scores: FloatArray
    weights: FloatArray
    visible: BoolArray


@dataclass(frozen=True, eq=False)
class Overview:
    """Weights pooled to pixels, each over the visible cells of its block.

    Attributes:
        mean: ``(heads, height, width)``.
        maximum: ``(heads, height, width)``.
        visible: ``(height, width)``, whether any cell of the block is visible.
    """

    mean: FloatArray
    maximum: FloatArray
    visible: BoolArray


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

    @abstractmethod
    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The block of the given heads (by their own numbers), exactly."""

    def visibility(self, queries: slice, keys: slice) -> BoolArray:
        """Whether each cell of the block is visible, ``(queries, keys)``."""
        return self.window(self.heads[:1], queries, keys).visible

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """The scores of the block alone, ``(heads, queries, keys)``."""
        return self.window(heads, queries, keys).scores

    def resolution(self, queries: slice, keys: slice) -> tuple[int, int]:
        """The most pixels that an overview of the block can have, down and across: one a cell if all are known."""
        return queries.stop - queries.start, keys.stop - keys.start

    @abstractmethod
    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """The weights of the given block, pooled to ``height`` x ``width`` pixels.

        Where the maximum is not wanted it may be left out, all zero: it takes a tenth of the time of a long block.
        """

    def positions(self, heads: tuple[int, ...]) -> list[int]:
        """Where the heads with these numbers are held."""
        return [self.heads.index(head) for head in heads]

    def __repr__(self) -> str:
        shape = f"{len(self.query_tokens)} queries x {len(self.key_tokens)} keys"
        place = f"layer {self.layer} in {self.module!r}, {self.kind}-attention, text {self.item}"
        return f"{type(self).__name__}({place}, heads {number_ranges(self.heads)}, {shape})"


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DenseMaps(LayerMaps):
    """The maps themselves, held whole.

    Attributes:
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax, before dropout.
        visible: ``(queries, keys)``.
    """

    scores: FloatArray
    weights: FloatArray
    visible: BoolArray

    def __post_init__(self) -> None:
        shape = (len(self.heads), len(self.query_tokens), len(self.key_tokens))
        for name, expected in (("scores", shape), ("weights", shape), ("visible", shape[1:])):
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
            visible=self.visible[queries, keys],
        )

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """The block, reduced to pixels."""
        window = self.window(heads, queries, keys)
        return pool_weights(window.weights, window.visible, height, width)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """The maps of one run, in layer order, and where they came from.

    Attributes:
        maps: one LayerMaps for each attention call (and each text of a batch).
        model: what made them: a name or a path.
        untrained: whether the weights are random, so that the picture means nothing about language.
        settings: what the run was given, as JSON values.
        seed: what the random numbers came from, if any were drawn.
        version: the version of attnviz that made it.
        remarks: sentences that a reader of the maps must see.
    """

    maps: tuple[LayerMaps, ...]
    model: str
    untrained: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    version: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.maps:
            raise AttnvizError("nothing was recorded; choose layers and heads that are there")

    @property
    def text(self) -> str:
        """The text of the queries."""
        return self.maps[0].query_tokens.text

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the recorded layers."""
        return tuple(dict.fromkeys(maps.layer for maps in self.maps))

    def save(self, path: str | Path, force: bool = False) -> None:
        """Writes the recording as safetensors; ``attnviz.load`` and the command line read it.

        Raises:
            AttnvizError: if the file exists and ``force`` is not given, or cannot be written.
        """
        _library("attnviz.base.files").save(self, Path(path), force)

    def show(self, **options: Any) -> None:
        """Prints the recording as ``attnviz show`` does; the options are those of ``attnviz.draw``.

        Raises:
            AttnvizError: for an unknown option, or one that the recording cannot give.
        """
        _library("attnviz.api").show(self, **options)

    def figure(self, **options: Any) -> "Figure":
        """The chosen heads as a matplotlib figure to go on with; the options are those of ``attnviz.draw``.

        Raises:
            AttnvizError: for an unknown option, or one that the recording cannot give.
        """
        drawn: Figure = _library("attnviz.api").figure(self, **options)
        return drawn

    def _repr_html_(self) -> str | None:
        """The page of the recording, as a notebook shows it."""
        frame: str | None = _library("attnviz.api").page_frame(self)
        return frame

    def __repr__(self) -> str:
        calls = [f"  {maps!r}" for maps in self.maps[:MOST_SAID]]
        more = [f"  … and {len(self.maps) - MOST_SAID} more"] if len(self.maps) > MOST_SAID else []
        return "\n".join([f"Recording of {self.model}, in order of its layers:", *calls, *more])

    def each_head(self) -> Iterator[tuple[LayerMaps, int]]:
        """Every recorded head: its layer's maps and its number."""
        return ((maps, head) for maps in self.maps for head in maps.heads)


def _library(module: str) -> ModuleType:
    """What stands above this module, by its name, as in the tables of sources and formats: imported when called.

    So a recording's methods are declared where its type is, and importing the values imports nothing that draws them.
    """
    return import_module(module)


def block_edges(count: int, blocks: int) -> NDArray[np.int64]:
    """Where each of ``blocks`` nearly equal blocks of ``count`` cells begins, and the end: ``(blocks + 1,)``."""
    return np.arange(blocks + 1, dtype=np.int64) * count // blocks


def bands(queries: slice, keys: int, cells: int) -> Iterator[slice]:
    """The queries in runs that have at most ``cells`` cells with so many keys, or are of one query."""
    step = max(1, cells // keys)
    return (slice(start, min(start + step, queries.stop)) for start in range(queries.start, queries.stop, step))


def pool_weights(weights: FloatArray, visible: BoolArray, height: int, width: int) -> Overview:
    """The weights, ``(heads, queries, keys)``, pooled to ``height`` x ``width`` pixels."""
    shown = np.where(visible, weights, np.float32(0))
    count = reduce_blocks(np.add, visible.astype(np.int32), height, width)
    return Overview(
        mean=(reduce_blocks(np.add, shown, height, width) / np.maximum(count, 1)).astype(np.float32),
        maximum=reduce_blocks(np.maximum, shown, height, width),
        visible=count > 0,
    )


def reduce_blocks(reduce: np.ufunc, cells: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """The cells of the last two axes reduced over blocks, ``(..., height, width)``."""
    edges = pairwise(block_edges(cells.shape[-2], height).tolist())
    rows = [cells[..., start : max(stop, start + 1), :] for start, stop in edges]
    columns = block_edges(cells.shape[-1], width)[:-1]
    reduced = np.stack([reduce.reduce(block, axis=-2) for block in rows], axis=-2)  # faster than reduceat on this axis
    return reduce.reduceat(reduced, columns, axis=-1)
