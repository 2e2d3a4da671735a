"""Small models of transformers whose heads are removed, or attributed a logit."""

from typing import Any

from tests.small_models import GROUPED, SMALL

# What a file of effects holds.
EFFECTS: dict[str, Any] = {
    "format": "attnviz effects",
    "version": 1,
    "model": "a model",
    "metric": "loss",
    "by": "zero",
    "title": "a text",
    "texts": 2,
    "baseline": 1.5,
    "remarks": ["one"],
    "effects": [{"heads": ["0.1"], "texts": [1, 2.5]}, {"heads": ["0.1", "1.0"], "texts": [0.0, -1e-3]}],
}

WIDTH, HEADS, LAYERS, TOKENS = 24, 4, 2, 9
SIZE = WIDTH // HEADS
GPT2 = {"vocab_size": 50, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "bos_token_id": 1, "eos_token_id": 2}
OPT = SMALL | {"ffn_dim": 32, "word_embed_proj_dim": WIDTH}
MIXTRAL = GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}
