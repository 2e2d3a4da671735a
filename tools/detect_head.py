"""Compares the battery with ``detect_head`` of TransformerLens on a random GPT-2, and prints the numbers of its test.

Needs an environment that has transformer-lens 4.3.0 beside what attnviz needs: ``python -m tools.detect_head``.
"""

import json
import tempfile
from typing import Any

import numpy as np
import torch

from attnviz.battery.probed_model import ProbedModel
from attnviz.battery.probes import detection_probe

TEXTS, TOKENS, SEEDS = 3, 24, (0, 1)
NAMES = {"previous": "previous_token_head", "duplicate": "duplicate_token_head", "induction": "induction_head"}


def random_gpt2() -> ProbedModel:
    """Returns a random GPT-2 whose heads attend to some keys much more than to others."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(SEEDS[0])
    config = GPT2Config(vocab_size=99, n_positions=64, n_embd=24, n_head=3, n_layer=2, initializer_range=0.5)
    config.bos_token_id = config.eos_token_id = None
    nothing = np.zeros(0, dtype=np.int64)
    model: Any = GPT2LMHeadModel(config)
    return ProbedModel(
        model.eval(), "random", None, np.arange(99), nothing, nothing, 64, lambda ids: {"input_ids": ids}
    )


def texts() -> list[np.ndarray]:
    """Returns random tokens from a small vocabulary, so that many repeat."""
    return list(np.random.default_rng(SEEDS[1]).integers(0, 9, (TEXTS, TOKENS)))


def by_transformer_lens(model: Any, ids: list[np.ndarray]) -> dict[str, list[Any]]:
    """Returns the scores by type of head: for each text, layers by heads."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens.head_detector import detect_head
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({f"w{number}": number for number in range(99)}, unk_token="w0"))
    fast: Any = PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=words, bos_token="w0", eos_token="w0", pad_token="w0")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        tokenizer = fast.from_pretrained(folder)
        bridge = TransformerBridge.boot_transformers(folder, tokenizer=tokenizer)
    found: dict[str, list[Any]] = {name: [] for name in NAMES}
    for each in ids:
        bridge.to_tokens = lambda *_, each=each, **__: torch.from_numpy(each)[None]
        for name, known in NAMES.items():
            found[name].append(detect_head(bridge, "", known).tolist())
    return found


def main() -> None:
    """Prints the largest difference, and the scores of TransformerLens."""
    model, ids = random_gpt2(), texts()
    wanted = by_transformer_lens(model.module, ids)
    for kind, scores in wanted.items():
        ours = model.scores([detection_probe(kind, each) for each in ids])
        worst = max(
            abs(float(numbers[text]) - scores[text][name.layer][name.head])
            for text in range(TEXTS)
            for name, numbers in ours.items()
        )
        print(kind, "largest difference", worst)
    print(json.dumps({name: np.round(scores, 7).tolist() for name, scores in wanted.items()}))


if __name__ == "__main__":
    main()
