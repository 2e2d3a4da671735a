"""CaptureOptions: what of a forward pass is recorded, and how its tokens are labelled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from attnviz.base.errors import AttnvizError, known_names
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.flow.sites import CallSite
from attnviz.text.selection import ATTENTION_PARTS, AttentionPart, Selection
from attnviz.text.tokens import Tokens, visible_label

ReceiveCall = Callable[[CallSite, tuple[int, ...], AttentionCall, int], None]
TextLabels = Sequence[str] | Tokens
TokenLabels = TextLabels | Sequence[TextLabels] | Callable[[], TextLabels | Sequence[TextLabels]]


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptureOptions:
    """What of a forward pass is recorded.

    Attributes:
        selection: which layers and heads.
        attention: of an encoder-decoder, only this attention; ``None`` for every one.
        tokens: labels of the queries, or a function that gives them once the forward passes have run.
        context: labels of the keys of cross-attention.
        stop: whether to end the forward pass after the last chosen layer.
        dense: whether to keep whole maps; ``None`` for the factors of long ones.
        values: whether to keep what each key moves, of which contributions are made.
        receive: takes each call as it is made, with its chosen heads and the number of its first, instead of its being
            kept.

    Raises:
        AttnvizError: for an attention that is none of encoder, decoder and cross.
    """

    selection: Selection
    attention: AttentionPart | None = None
    tokens: TokenLabels | None = None
    context: TokenLabels | None = None
    stop: bool = False
    dense: bool | None = None
    values: bool = False
    receive: ReceiveCall | None = None

    def __post_init__(self) -> None:
        if self.attention not in (None, *ATTENTION_PARTS):
            raise AttnvizError(f"unknown attention {self.attention!r}; {known_names(ATTENTION_PARTS)} works")

    def is_chosen(self, layer: int) -> bool:
        """Whether any head of the layer is recorded."""
        return self.selection.chosen_layers is None or layer in self.selection.chosen_layers

    def chosen_heads(self, layer: int, heads: range) -> tuple[int, ...]:
        """Those of a layer's heads that are recorded."""
        chosen = self.selection.heads_of(layer)
        return tuple(head for head in heads if chosen is None or head in chosen)

    def labels_now(self, call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
        """The same while the forward pass runs: numbered where only a function gives the labels, when it has ended."""
        known = replace(
            self,
            tokens=None if callable(self.tokens) else self.tokens,
            context=None if callable(self.context) else self.context,
        )
        return known.labels_of(call, call.site.run * call.shape[0] + item)

    def labels_of(self, call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
        """The tokens of queries and keys in one text of a call: labelled where the count fits, else numbered.

        Of a text that was written step by step the labels may be one more: no step reads the last token.
        """
        _, _, queries, keys = call.shape
        spare, item = int(call.passes > 1), call.first_item + item
        is_self = call.site.kind == "self"
        tokens = self.tokens
        if is_self and call.site.part == "encoder" and self.context is not None:
            tokens = self.context
        looked_at = tokens if is_self else self.context
        query_tokens = _labelled(tokens, queries, item, spare)
        same = is_self and queries == keys
        return query_tokens, query_tokens if same else _labelled(looked_at, keys, item, spare)


def _labelled(labels: TokenLabels | None, count: int, item: int, spare: int = 0) -> Tokens:
    """So many tokens with the labels of one text, or with numbers where these are not as many."""
    own = _labels_of_text(labels() if callable(labels) else labels, item)
    if own is not None and len(own) == count + spare:
        own = own.first(count) if isinstance(own, Tokens) else own[:count]
    if own is None or len(own) != count:
        return Tokens.numbered(count)
    if isinstance(own, Tokens):
        return own
    return replace(Tokens.numbered(count), labels=tuple(visible_label(str(label)) for label in own))


def _labels_of_text(labels: TextLabels | Sequence[TextLabels] | None, item: int) -> TextLabels | None:
    """The labels of one text, where each has its own, or those of all."""
    if labels is None or isinstance(labels, Tokens):
        return labels
    if not len(labels) or isinstance(labels[0], str) or not isinstance(labels[0], Tokens | Sequence):
        return cast("Sequence[str]", labels)
    return None if item >= len(labels) else labels[item]
