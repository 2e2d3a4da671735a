"""A model with what it reads, to be run with some of its heads removed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from attnviz.text.selection import AttentionPart


@dataclass(frozen=True, eq=False)
class Runnable:
    """A model and one input.

    Attributes:
        model: the model.
        inputs: what it is called with.
        name: what it is called.
        title: the text.
        find_token: the number of a token that is written so.
        positions: the tokens at which it is measured.
        attention: of an encoder-decoder, whose heads are removed.
        remarks: what a reader must know.
        labels: how the tokens are written whose next ones are predicted.
        context: how the tokens are that the encoder of an encoder-decoder reads.
    """

    model: "nn.Module"
    inputs: Any
    name: str
    title: str
    find_token: Callable[[str], int]
    positions: slice = field(default_factory=lambda: slice(None))
    attention: "AttentionPart | None" = None
    remarks: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
