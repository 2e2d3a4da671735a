"""Builds the seeded model from torch's random state, and pads the texts of a batch for it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    import torch

    from attnviz.base.arrays import BoolArray
    from attnviz.models.attention_stack import AttentionStack
    from attnviz.text.tokens import Tokens


def build_model(settings: ModelSettings, vocabulary: int) -> "AttentionStack":
    """Returns a model whose weights are drawn from torch's current random state: the embedding, then each layer."""
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


def copy_weights(model: "torch.nn.Module", source: "torch.nn.Module") -> None:
    """Copies the weights of ``source`` in place into the weights of ``model`` with equal name and shape."""
    source_weights = source.state_dict()
    for name, weight in model.state_dict().items():
        if name in source_weights and source_weights[name].shape == weight.shape:
            weight.copy_(source_weights[name])  # the state dictionary shares memory with the model


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """The texts of one run, padded to the same length.

    Attributes:
        queries: the tokens of the queries of each text, padded.
        keys: the tokens of the keys of each text: the same tuple, or the tokens of the context once per text.
        visible: ``(batch, queries, keys)``, true where a cell is visible; rows and columns of padding are hidden.
    """

    queries: "tuple[Tokens, ...]"
    keys: "tuple[Tokens, ...]"
    visible: "BoolArray"

    @property
    def is_cross(self) -> bool:
        """True if the keys are not the same tuple as the queries: they come from a context."""
        return self.keys is not self.queries

    @property
    def vocabulary(self) -> int:
        """The number of rows of the embedding: the largest id plus one."""
        return int(max(tokens.ids.max() for tokens in (*self.queries, *self.keys))) + 1


def padding_remarks(batch: PaddedBatch) -> tuple[str, ...]:
    """Returns a remark with the length of each text if the texts of a batch differ in length, else an empty tuple."""
    lengths = [int((tokens.ids >= 0).sum()) for tokens in batch.queries]  # padding has no id
    longest = len(batch.queries[0])
    if min(lengths) == longest:
        return ()
    return (f"Padded to {longest} tokens: texts of {', '.join(map(str, lengths))} tokens; padding is not drawn.",)


def pad_texts(queries: "list[Tokens]", keys: "list[Tokens]", causal: bool) -> PaddedBatch:
    """Returns the queries and keys of each text, padded to the longest text, with their visible cells."""
    import numpy as np

    from attnviz.attention.mask import Mask

    rows, columns = (max(len(tokens) for tokens in texts) for texts in (queries, keys))
    visible_cells = []
    for text_queries, text_keys in zip(queries, keys, strict=True):
        mask = Mask(causal=causal, padding=np.arange(columns) < len(text_keys))
        is_query = np.arange(rows) < len(text_queries)
        visible_cells.append(mask.visible(slice(0, rows), slice(0, columns)) & is_query[:, None])
    padded_queries = tuple(tokens.padded(rows) for tokens in queries)
    padded_keys = padded_queries if keys is queries else tuple(keys)
    return PaddedBatch(padded_queries, padded_keys, np.stack(visible_cells))
