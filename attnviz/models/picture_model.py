"""Defines the small model that reads a picture of nine digits, and words that each name one of them.

It reads as a vision-language model does: the patches of the picture, row by row, and then the words. At a word it
predicts the digit that the word names.
"""

import torch
from torch import Tensor, nn

from attnviz.attention.modules import MultiHeadAttention
from attnviz.models.digit_picture import GRID, PATCH_SIDE, PATCHES, VOCABULARY

NUM_LAYERS, NUM_HEADS, EMBED_DIM, HIDDEN_DIM = 2, 4, 64, 128
PLACE_SIZE = 0.3  # standard deviation of untrained position vectors: with less, the first steps hardly tell them apart


class _PictureBlock(nn.Module):
    """A layer: attention, then two linear maps, each after a layer norm and with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(EMBED_DIM), nn.LayerNorm(EMBED_DIM)
        self.attention = MultiHeadAttention(EMBED_DIM, NUM_HEADS, causal=True)
        self.mlp = nn.Sequential(nn.Linear(EMBED_DIM, HIDDEN_DIM), nn.GELU(), nn.Linear(HIDDEN_DIM, EMBED_DIM))

    def forward(self, features: Tensor) -> Tensor:
        """Returns the output of the layer, ``(batch, tokens, features)``, for an input of the same shape."""
        after_attention = features + self.attention(self.attention_norm(features)).output
        output: Tensor = after_attention + self.mlp(self.mlp_norm(after_attention))
        return output


class PictureModel(nn.Module):
    """A causal transformer over the patches of a picture and the words after them; it returns logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, EMBED_DIM, PATCH_SIDE, PATCH_SIDE)
        self.rows = nn.Parameter(torch.randn(GRID, 1, EMBED_DIM) * PLACE_SIZE)
        self.columns = nn.Parameter(torch.randn(1, GRID, EMBED_DIM) * PLACE_SIZE)
        self.words = nn.Embedding(len(VOCABULARY), EMBED_DIM)
        self.blocks = nn.ModuleList(_PictureBlock() for _ in range(NUM_LAYERS))
        self.norm, self.unembedding = nn.LayerNorm(EMBED_DIM), nn.Linear(EMBED_DIM, len(VOCABULARY))

    def get_input_embeddings(self) -> nn.Embedding:
        """Returns the embedding of words."""
        return self.words

    def forward(self, input_ids: Tensor, pixel_values: Tensor) -> Tensor:
        """Returns the logits of each next token, ``(batch, tokens, vocabulary)``.

        Args:
            input_ids: ``(batch, tokens)``: ``PICTURE_ID`` for each of the ``PATCHES`` patches, then the words.
            pixel_values: ``(batch, 1, SIDE, SIDE)``, from 0 for white to 1 for black.
        """
        patches = self.patch(pixel_values).flatten(2).transpose(1, 2) + (self.rows + self.columns).flatten(0, 1)
        features = torch.cat([patches, self.words(input_ids[:, PATCHES:])], dim=1)
        for block in self.blocks:
            features = block(features)
        logits: Tensor = self.unembedding(self.norm(features))
        return logits
