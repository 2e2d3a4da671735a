"""The seeded model: its weights, drawn in order from torch's random state, and the batch of texts that it reads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    import torch

    from attnviz.base.arrays import BoolArray
    from attnviz.models.attention_stack import AttentionStack
    from attnviz.text.tokens import Tokens


def build_model(settings: ModelSettings, vocabulary: int) -> "AttentionStack":
    """The embedding and the layers, drawn in this order from torch's present random state."""
    from torch import nn

    from attnviz.attention.modules import MultiHeadAttention
    from attnviz.models.attention_stack import AttentionStack

    embedding = nn.Embedding(vocabulary, settings.embed_dim)
    layers = [
        MultiHeadAttention(
            settings.embed_dim,
            settings.num_heads,
            qk_dim=settings.qk_dim,
            value_dim=settings.value_dim,
            bias=settings.bias,
            init="uniform" if settings.init == "uniform" else "linear",
            dropout=settings.dropout,
            scale=settings.scale_for(settings.query_width),
            temperature=settings.temperature,
        )
        for _ in range(settings.num_layers)
    ]
    return AttentionStack(embedding, layers)


def share_weights(model: "torch.nn.Module", like: "torch.nn.Module") -> None:
    """Gives the model every weight of the other that has the same name and shape."""
    theirs = like.state_dict()
    for name, weight in model.state_dict().items():
        if name in theirs and theirs[name].shape == weight.shape:
            weight.copy_(theirs[name])


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """The texts of one run, padded to the same length.

    Attributes:
        queries: the tokens that look, a text each, all of the same number.
        keys: the tokens looked at: the same, or those of the context for every text.
        visible: ``(batch, queries, keys)``; a row or a column of padding is hidden.
    """

    queries: "tuple[Tokens, ...]"
    keys: "tuple[Tokens, ...]"
    visible: "BoolArray"

    @property
    def is_cross(self) -> bool:
        """Whether a context is attended to."""
        return self.keys is not self.queries

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are."""
        return int(max(tokens.ids.max() for tokens in (*self.queries, *self.keys))) + 1


def padding_remarks(batch: PaddedBatch) -> tuple[str, ...]:
    """A sentence that names the texts' lengths, where they differ."""
    lengths = [int((tokens.ids >= 0).sum()) for tokens in batch.queries]
    longest = len(batch.queries[0])
    if min(lengths) == longest:
        return ()
    return (f"Padded to {longest} tokens: texts of {', '.join(map(str, lengths))} tokens; padding is left out.",)


def pad_texts(queries: "list[Tokens]", keys: "list[Tokens]", causal: bool) -> PaddedBatch:
    """The texts padded to the longest, and which cells are visible."""
    import numpy as np

    from attnviz.attention.mask import Mask

    rows, columns = (max(len(tokens) for tokens in each) for each in (queries, keys))
    visible = np.stack(
        [
            Mask(causal=causal, padding=np.arange(columns) < len(looked_at)).visible(slice(0, rows), slice(0, columns))
            & (np.arange(rows) < len(looking))[:, None]
            for looking, looked_at in zip(queries, keys, strict=True)
        ]
    )
    padded = tuple(tokens.padded(rows) for tokens in queries)
    return PaddedBatch(padded, padded if keys is queries else tuple(keys), visible)
