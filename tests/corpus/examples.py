"""Random models that read words, and texts for them."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, MistralConfig, MistralModel

from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.tokens import Tokens, tokenize

TEXTS = (
    "the cat sat. The cat sat on the mat, and 12 dogs didn't!",
    "one two",
    "a b a b a c a b. b a? Yes: c. a",
    "word",
    "it was the 3rd of May; it rained. It rained. So what?",
)


class RandomTexts(Reader):
    """A random model that reads words."""

    name = "random"

    def __init__(self, module: nn.Module, among: str = " ".join((*TEXTS, "three four. Five"))) -> None:
        super().__init__(ModelSettings(model="random"))
        self.given, self.among = module.eval(), among

    @property
    def module(self) -> nn.Module:
        return self.given

    def tokenize(self, text: str) -> Tokens:
        return tokenize(text, vocabulary_text=self.among)

    def inputs_of(self, ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Any]:
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids) if attention_mask is None else attention_mask}


class OwnMasks(nn.Module):
    """Two layers of three heads that look at keys up to 0, 1 and 2 tokens before: by a kernel, and by hand."""

    num_heads = 3

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(99, 24), nn.Embedding(64, 24)
        self.layers = nn.ModuleList([OwnMask(by_hand) for by_hand in (False, True)])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features: Tensor = self.embedding(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        for layer in self.layers:
            features = features + layer(features, attention_mask.bool())
        return features


class OwnMask(nn.Module):
    """One of the layers."""

    num_heads = 3

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand, self.projection = by_hand, nn.Linear(24, 72)

    def forward(self, features: Tensor, real: Tensor) -> Tensor:
        count = features.shape[1]
        split = self.projection(features).view(len(features), count, 9, 8).transpose(1, 2)
        queries, keys, values = split.chunk(3, dim=1)
        away = torch.arange(count)[:, None] - torch.arange(count)
        visible = ((away >= 0) & (away <= torch.arange(3)[:, None, None])) & real[:, None, None]
        visible = visible | torch.eye(count, dtype=torch.bool)
        if self.by_hand:
            weights = (queries @ keys.mT * 2).masked_fill(~visible, float("-inf")).softmax(-1)
            mixed: Tensor = weights @ values
        else:
            mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, visible, scale=2.0)
        return mixed.transpose(1, 2).flatten(2)


def models() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 99, "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2}
    narrow: dict[str, Any] = {"intermediate_size": 40, "initializer_range": 0.5}
    bert = BertConfig(**sizes, **narrow)
    mistral = MistralConfig(**sizes, **narrow, num_key_value_heads=1, sliding_window=4)
    gpt = GPT2Config(vocab_size=99, n_embd=24, n_head=3, n_layer=2, initializer_range=0.5)
    eager = BertModel(bert)
    eager.set_attn_implementation("eager")
    return {
        "bert": BertModel(bert),
        "gpt2": GPT2Model(gpt),
        "mistral": MistralModel(mistral),
        "eager": eager,
        "own masks": OwnMasks(),
    }


MODELS = models()
