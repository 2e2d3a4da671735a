"""Defines which calls of a forward pass are recorded, and how their tokens are labelled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from attnviz.base.errors import AttnvizError, or_list
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.flow.sites import CallSite
from attnviz.text.named_groups import GENERATED, with_generated_from
from attnviz.text.selection import ATTENTION_PARTS, AttentionPart, Selection
from attnviz.text.tokens import Tokens, visible_label

ReceiveCall = Callable[[CallSite, tuple[int, ...], AttentionCall, int], None]
TextLabels = Sequence[str] | Tokens
TokenLabels = TextLabels | Sequence[TextLabels] | Callable[[], TextLabels | Sequence[TextLabels]]


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptureOptions:
    """The choice of calls to record, and the labels of their tokens."""

    selection: Selection  # the chosen layers and heads
    attention: AttentionPart | None = None  # the only attention of an encoder-decoder to record; ``None`` for all
    # The labels of the queries, or a function that returns them after the forward passes
    tokens: TokenLabels | None = None
    context: TokenLabels | None = None  # the labels of the keys of cross-attention, in the same forms
    stop: bool = False  # True to end the forward pass after the last chosen layer
    dense: bool | None = None  # True for whole maps, False for factors if there are any; ``None`` decides by the length
    values: bool = False  # True to keep the norms of values after the output projection, which contributions need
    factors: bool = False  # True to keep queries and keys beside whole maps too, from which a score is explained
    # Receives each call with its chosen heads and the number of its first head, instead of a recording
    receive: ReceiveCall | None = None

    def __post_init__(self) -> None:
        """Raises AttnvizError if ``attention`` is not encoder, decoder or cross."""
        if self.attention not in (None, *ATTENTION_PARTS):
            raise AttnvizError(f"unknown attention {self.attention!r}; choose {or_list(ATTENTION_PARTS)}")

    def is_chosen(self, layer: int) -> bool:
        """True if the layer is one of the chosen ones, or no layers are chosen."""
        return self.selection.chosen_layers is None or layer in self.selection.chosen_layers

    def chosen_heads(self, layer: int, heads: range) -> tuple[int, ...]:
        """Returns the chosen ones of ``heads``; all of them if no heads of the layer are chosen."""
        chosen_heads = self.selection.heads_of(layer)
        return tuple(head for head in heads if chosen_heads is None or head in chosen_heads)

    def tokens_so_far(self, call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
        """Returns the tokens of one text of a call during the pass: numbered if a function returns the labels later."""
        with_known_labels = replace(
            self,
            tokens=None if callable(self.tokens) else self.tokens,
            context=None if callable(self.context) else self.context,
        )
        return with_known_labels.tokens_of(call, call.site.run * call.shape[0] + item)

    def tokens_of(self, call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
        """Returns the tokens of the queries and keys in one text of a call.

        They have the user's labels if there are as many labels as tokens; otherwise they are numbered. A text written
        step by step may have one more label, since no step reads the last token; it gets the groups ``generated``
        unless its labels have groups of this name. The keys of cross-attention have the labels of ``context``. An
        encoder has them too if ``context`` is given.
        """
        _, _, queries, keys = call.shape
        extra_labels = 1 if call.passes > 1 else 0
        text_index = call.first_item + item
        is_self = call.site.kind == "self"
        query_labels = self.tokens
        if is_self and call.site.part == "encoder" and self.context is not None:
            query_labels = self.context
        key_labels = query_labels if is_self else self.context
        query_tokens = _tokens_with_labels(query_labels, queries, text_index, extra_labels)
        if call.prompt is not None and GENERATED not in query_tokens.groups:
            query_tokens = with_generated_from(query_tokens, call.prompt)
        if is_self and queries == keys:
            return query_tokens, query_tokens
        return query_tokens, _tokens_with_labels(key_labels, keys, text_index, extra_labels)


def _tokens_with_labels(labels: TokenLabels | None, count: int, item: int, extra_labels: int = 0) -> Tokens:
    """Returns tokens with the labels of one text; numbered tokens if the number of labels does not fit."""
    text_labels = _labels_of_text(labels() if callable(labels) else labels, item)
    if text_labels is not None and len(text_labels) == count + extra_labels:
        text_labels = text_labels.first(count) if isinstance(text_labels, Tokens) else text_labels[:count]
    if text_labels is None or len(text_labels) != count:
        return Tokens.numbered(count)
    if isinstance(text_labels, Tokens):
        return text_labels
    return replace(Tokens.numbered(count), labels=tuple(visible_label(str(label)) for label in text_labels))


def _labels_of_text(labels: TextLabels | Sequence[TextLabels] | None, item: int) -> TextLabels | None:
    """Returns the labels of one text: its own list if there is one per text, else the common one."""
    if labels is None or isinstance(labels, Tokens):
        return labels
    if not len(labels) or isinstance(labels[0], str) or not isinstance(labels[0], Tokens | Sequence):
        return cast("Sequence[str]", labels)
    return None if item >= len(labels) else labels[item]
