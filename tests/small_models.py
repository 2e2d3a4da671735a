"""What makes a model of transformers small, by the names that most configurations have."""

from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 6}
