"""Defines a prepared example, which is the input of a module with its tokens, and the vocabulary of a model."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from attnviz.base.arrays import IntArray
    from attnviz.text.selection import AttentionPart
    from attnviz.text.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Prepared:
    """An example with the inputs of a module and the tokens of its maps.

    Attributes:
        inputs: keyword arguments of the module.
        tokens: the tokens of the queries; of an encoder-decoder, the tokens of its decoder.
        context: the tokens of an encoder-decoder's encoder, or of a context; ``None`` if there is neither.
        attention: the attention of an encoder-decoder that is recorded, or whose heads are removed; ``None`` for other
            models.
        positions: the tokens at which predictions are measured.
        positions_remark: a remark for reports on why predictions are measured there.
        title: title of the example in reports.
        remarks: remarks for reports on the example.
        check: called with the module's output after the whole forward pass; it returns remarks, or raises AttnvizError
            if this is not the model that the example was made with. ``None`` if the pass may end after the last map.
        metric: what ablation measures if the user names nothing, such as ``logit:3``; ``None`` for its own default.
        metric_token: the id of the token or label that a metric ``logit:…`` names; ``None`` if the reader finds it by
            the name.
        generated_ids: the ids that the model generated, at the end of the tokens; empty if it generated none.
    """

    inputs: dict[str, Any]
    tokens: "Tokens"
    context: "Tokens | None" = None
    attention: "AttentionPart | None" = None
    positions: slice = field(default_factory=lambda: slice(None))
    positions_remark: str = ""
    title: str = ""
    remarks: tuple[str, ...] = ()
    check: Callable[[Any], tuple[str, ...]] | None = None
    metric: str | None = None
    metric_token: int | None = None
    generated_ids: tuple[int, ...] = ()


class FoundToken(NamedTuple):
    """A token of a model's vocabulary, or a label of a classifier, as a name was understood.

    Attributes:
        id: its number.
        label: its label as the model has it, with a visible space if it begins with one.
        remark: a sentence on another token that the name may mean, or on a space that was not typed; "" for none.
    """

    id: int
    label: str
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The token ids of a model.

    Attributes:
        ordinary_ids: ids of the ordinary tokens.
        prefix_ids: ids of the special tokens before a text.
        suffix_ids: ids of the special tokens after a text.
    """

    ordinary_ids: "IntArray"
    prefix_ids: "IntArray"
    suffix_ids: "IntArray"
