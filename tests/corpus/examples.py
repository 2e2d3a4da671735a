"""Random models that read words, and texts for them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, MistralConfig, MistralModel

from attnviz.corpus.text_models import TextModel, Windows
from attnviz.text.tokens import Tokens, tokenize

TEXTS = (
    "the cat sat. The cat sat on the mat, and 12 dogs didn't!",
    "one two",
    "a b a b a c a b. b a? Yes: c. a",
    "word",
    "it was the 3rd of May; it rained. It rained. So what?",
)


class RandomTexts(TextModel):
    """A random model that reads words."""

    name = "random"

    def __init__(self, module: nn.Module, among: str = " ".join((*TEXTS, "three four. Five"))) -> None:
        self.module, self.among = module.eval(), among

    def read(self, texts: Sequence[str]) -> list[Windows]:
        return [[tokenize(text, among=self.among)] for text in texts]

    def run(self, batch: Sequence[Tokens]) -> None:
        width = max(map(len, batch))
        ids, mask = torch.zeros(len(batch), width, dtype=torch.int64), torch.zeros(len(batch), width, dtype=torch.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = torch.from_numpy(tokens.ids.copy()), 1
        self.module(input_ids=ids, attention_mask=mask)


def models() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 99, "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2}
    narrow: dict[str, Any] = {"intermediate_size": 40, "initializer_range": 0.5}
    bert = BertConfig(**sizes, **narrow)
    mistral = MistralConfig(**sizes, **narrow, num_key_value_heads=1, sliding_window=4)
    gpt = GPT2Config(vocab_size=99, n_embd=24, n_head=3, n_layer=2, initializer_range=0.5)
    eager = BertModel(bert)
    eager.set_attn_implementation("eager")
    return {"bert": BertModel(bert), "gpt2": GPT2Model(gpt), "mistral": MistralModel(mistral), "eager": eager}


MODELS = models()
