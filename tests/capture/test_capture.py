"""A pass that may stop ends before the logits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz


class Looped(nn.Module):
    """Runs a layer several times, whose feed-forward map is as wide as the vocabulary; or attends after its head."""

    def __init__(self, *, turns: int, ends_with_attention: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.turns = turns
        self.words, self.head = nn.Embedding(40, 8), nn.Linear(8, 40)
        self.first = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.MultiheadAttention(8, 2, batch_first=True) if ends_with_attention else None
        self.wide, self.narrow = nn.Linear(8, 40), nn.Linear(40, 8)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the logits, ``(texts, tokens, 40)``."""
        features = self.words(ids)
        for _ in range(self.turns):
            features = features + self.first(features, features, features)[0]
            features = features + self.narrow(self.wide(features).relu())
        logits: Tensor = self.head(features)
        if self.last is not None:
            features = self.last(features, features, features)[0]
        return logits


def decoders() -> dict[str, tuple[Callable[[], nn.Module], bool]]:
    """Modules with a map to their vocabulary, and whether a pass may end before it."""
    import transformers as library

    sizes: dict[str, Any] = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    coder: dict[str, Any] = {"vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 40, "num_layers": 2, "num_heads": 2}
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    wide: dict[str, Any] = {"intermediate_size": 40}
    albert: dict[str, Any] = {"embedding_size": 4, "tie_word_embeddings": True}
    return {
        "Llama": (lambda: library.LlamaForCausalLM(library.LlamaConfig(**sizes, **ends, **wide)), True),
        "T5": (lambda: library.T5ForConditionalGeneration(library.T5Config(**coder)), True),
        "BERT": (lambda: library.BertForMaskedLM(library.BertConfig(**sizes, **wide)), True),
        "ALBERT": (lambda: library.AlbertForMaskedLM(library.AlbertConfig(**sizes, **wide, **albert)), True),
        "a loop over one layer": (lambda: Looped(turns=3, ends_with_attention=False), False),
        "attention after the logits": (lambda: Looped(turns=1, ends_with_attention=True), False),
    }


@pytest.mark.parametrize("name", decoders())
@torch.no_grad()
def test_stop_leaves_out_the_logits_and_no_attention(name: str) -> None:
    make, may_stop = decoders()[name]
    torch.manual_seed(0)
    model: Any = make().eval()
    ids = torch.arange(14).reshape(2, 7)
    inputs = {"input_ids": ids} if hasattr(model, "config") else {"ids": ids}
    if name == "T5":
        inputs["decoder_input_ids"] = ids[:, :5]
    head = model.get_output_embeddings() if hasattr(model, "config") else model.head
    runs = list[str]()
    head.register_forward_hook(lambda *_: runs.append("head"))
    with attnviz.record(model) as whole:
        model(**inputs)
    assert runs == ["head"]
    with attnviz.record(model, stop=True) as stopped:
        model(**inputs)
    assert runs == ["head"] * (1 if may_stop else 2)
    pairs: list[tuple[Any, Any]] = list(zip(whole.maps, stopped.maps, strict=True))
    assert all(np.array_equal(one.weights, other.weights) for one, other in pairs)
    assert len(pairs) == {"T5": 12, "a loop over one layer": 6}.get(name, 4)
