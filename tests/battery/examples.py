"""Random models of several architectures, and a tokenizer that cuts at white space and at marks."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from attnviz.battery.probed_model import ProbedModel
from attnviz.media.text import Text
from attnviz.text.tokens import Tokens, tokenize

WORDS: dict[str, int] = {}
VOCABULARY = 600


def read(text: str, ids: int = 10_000) -> Tokens:
    """Words and marks, numbered as they come."""
    spans = [found.span() for found in re.finditer(r"\w+|[^\w\s]", text)]
    labels = tuple(text[start:stop] for start, stop in spans)
    numbers = np.array([WORDS.setdefault(label, len(WORDS)) % ids for label in labels], dtype=np.int64)
    whole = tokenize(" ".join("x" for _ in labels))
    places = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return replace(whole, media=(Text(text),), labels=labels, ids=numbers, places=places)


def random_transformers() -> dict[str, Callable[[], Any]]:
    """Five architectures, each with two layers of four heads, as they are before training."""
    import transformers as library

    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    sizes |= {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    gpt2: dict[str, Any] = {"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": VOCABULARY, "bos_token_id": None}
    return {
        "Llama": lambda: library.LlamaForCausalLM(library.LlamaConfig(**sizes)),
        "GPT-2": lambda: library.GPT2LMHeadModel(library.GPT2Config(**gpt2, eos_token_id=None)),
        "GPT-NeoX": lambda: library.GPTNeoXForCausalLM(library.GPTNeoXConfig(**sizes)),
        "BERT": lambda: library.BertForMaskedLM(library.BertConfig(**sizes)),
        "Qwen 3": lambda: library.Qwen3ForCausalLM(library.Qwen3Config(**sizes, num_key_value_heads=2, head_dim=16)),
    }


def random_model(architecture: str, seed: int) -> ProbedModel:
    """A random model of an architecture, which reads words."""
    torch.manual_seed(seed)
    module = random_transformers()[architecture]().eval()
    nothing = np.zeros(0, dtype=np.int64)
    return ProbedModel(
        module=module,
        name=architecture,
        read=lambda text: read(text, VOCABULARY),
        ordinary_ids=np.arange(VOCABULARY),
        prefix_ids=nothing,
        suffix_ids=nothing,
        limit=160,
        inputs_of=lambda ids: {"input_ids": ids},
    )
