"""Defines which calls of a forward pass are recorded, and how their tokens are labelled."""

from collections.abc import Callable
from dataclasses import dataclass

from attnviz.base.errors import AttnvizError, or_list
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.labels import TokenLabels
from attnviz.maps.derived import NO_CONTRIBUTIONS
from attnviz.text.selection import ATTENTION_PARTS, IMPLICIT, RecordedAttention, Selection

ReceiveCall = Callable[[CallSite, tuple[int, ...], AttentionCall, int], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptureOptions:
    """The choice of calls to record, and the labels of their tokens."""

    selection: Selection  # the chosen layers and heads
    # The only attention of an encoder-decoder to record, or the implicit attention of linear layers; ``None`` for all
    # softmax attention
    attention: RecordedAttention | None = None
    # The labels of the queries; a function returns them after the forward passes
    tokens: TokenLabels | None = None
    context: TokenLabels | None = None  # the labels of the keys of cross-attention, in the same forms
    # True to end the forward pass after the last chosen layer, or before it maps to the vocabulary
    stop: bool = False
    dense: bool | None = None  # True for whole maps, False for factors if there are any; ``None`` decides by the length
    values: bool = False  # True to keep the norms of values after the output projection, which contributions need
    factors: bool = False  # True to keep queries and keys beside whole maps too, from which a score is explained
    # True to keep the queries and keys of a call in its order; False moves rows that it gathered back to their places
    in_call_order: bool = False
    # Receives each call with its chosen heads and the number of its first head, instead of a recording
    receive: ReceiveCall | None = None

    def __post_init__(self) -> None:
        """Raises AttnvizError if ``attention`` is not encoder, decoder, cross or implicit, or values do not fit it."""
        if self.attention not in (None, *ATTENTION_PARTS, IMPLICIT):
            raise AttnvizError(f"unknown attention {self.attention!r}; choose {or_list((*ATTENTION_PARTS, IMPLICIT))}")
        if self.attention == IMPLICIT and self.values:
            raise AttnvizError(NO_CONTRIBUTIONS)

    def is_chosen(self, layer: int) -> bool:
        """True if the layer is one of the chosen ones, or no layers are chosen."""
        return self.selection.chosen_layers is None or layer in self.selection.chosen_layers

    def chosen_heads(self, layer: int, heads: range) -> tuple[int, ...]:
        """Returns the chosen ones of ``heads``; all of them if no heads of the layer are chosen."""
        chosen_heads = self.selection.heads_of(layer)
        return tuple(head for head in heads if chosen_heads is None or head in chosen_heads)
