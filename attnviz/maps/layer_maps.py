"""LayerMaps: what every kind of maps of one attention call can be asked."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import number_ranges
from attnviz.streaming.overview import Overview
from attnviz.text.tokens import Tokens

Kind = Literal["self", "cross"]


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
