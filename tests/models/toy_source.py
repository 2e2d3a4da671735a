"""A source as somebody would add one: a class in a file. The class says what the module is and how it is called."""

from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor, nn

from attnviz.models.reading.reader import Reader
from attnviz.text.tokens import Tokens, tokenize

LETTERS = 26
HEADS, WIDTH = 3, 6


class ToyModel(nn.Module):
    """Two layers of torch's own attention over letters, which predict the next one."""

    def __init__(self) -> None:
        super().__init__()
        features = HEADS * WIDTH
        self.embedding = nn.Embedding(LETTERS, features)
        self.layers = nn.ModuleList(nn.MultiheadAttention(features, HEADS, batch_first=True) for _ in range(2))
        self.unembedding = nn.Linear(features, LETTERS)

    def forward(self, ids: Tensor) -> Tensor:
        features: Tensor = self.embedding(ids)
        later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        for layer in self.layers:
            features = features + layer(features, features, features, attn_mask=later, need_weights=False)[0]
        logits: Tensor = self.unembedding(features)
        return logits


@final
class ToyReader(Reader):
    """Reads the letters of a text."""

    name = "the toy"

    @cached_property
    def module(self) -> nn.Module:
        torch.manual_seed(0)
        return ToyModel().eval()

    def tokenize(self, text: str) -> Tokens:
        return tokenize("".join(letter for letter in text.lower() if "a" <= letter <= "z"), "char", ALPHABET)

    def inputs_of(self, ids: Tensor, real: Tensor | None = None) -> dict[str, Any]:
        return {"ids": ids}


ALPHABET = "".join(map(chr, range(ord("a"), ord("a") + LETTERS)))
