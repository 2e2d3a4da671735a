"""Prepared: an example as a module reads it; and the vocabulary of a model."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz.base.arrays import IntArray
    from attnviz.text.selection import AttentionPart
    from attnviz.text.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Prepared:
    """An example as a module reads it.

    Attributes:
        inputs: what the module is called with, by name.
        tokens: the axis of the queries; of an encoder-decoder, what its decoder reads.
        context: what the encoder of an encoder-decoder reads, or a text that is attended to instead.
        attention: of an encoder-decoder, which attention is recorded, and whose heads are removed.
        positions: the tokens at which a prediction is measured.
        title: what a reader is told that the model read.
        remarks: what a reader must know about the example.
    """

    inputs: dict[str, Any]
    tokens: "Tokens"
    context: "Tokens | None" = None
    attention: "AttentionPart | None" = None
    positions: slice = field(default_factory=lambda: slice(None))
    title: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens that a model knows, by their numbers.

    Attributes:
        words: the ordinary ones.
        before: the special tokens before a text.
        after: those after it.
    """

    words: "IntArray"
    before: "IntArray"
    after: "IntArray"
