"""Small GGUF files, with tensors named and turned as llama.cpp's converter does, and the folders of the same models."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, quants
from tokenizers.pre_tokenizers import ByteLevel

from tests import small_models

TEMPLATE = "{% for m in messages %}the {{ m.content }}{% endfor %}{% if add_generation_prompt %} cat{% endif %}"
VOCABULARY = [*sorted(ByteLevel.alphabet()), "th", "the", "Ġc", "at", "Ġcat", "<s>", "</s>"]
MERGES = ["t h", "th e", "Ġ c", "a t", "Ġc at"]
SETTINGS: dict[str, Any] = small_models.SMALL | {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_key_value_heads": 2,
    "bos_token_id": VOCABULARY.index("<s>"),
    "eos_token_id": VOCABULARY.index("</s>"),
    "pad_token_id": None,
}
NAMES = [  # transformers' names of tensors, and llama.cpp's
    (r"model\.embed_tokens\.", "token_embd."),
    (r"model\.norm\.", "output_norm."),
    (r"lm_head\.", "output."),
    (r"model\.layers\.", "blk."),
    (r"\.self_attn\.([qkv])_proj\.", r".attn_\1."),
    (r"\.self_attn\.o_proj\.", ".attn_output."),
    (r"\.mlp\.(gate|up|down)_proj\.", r".ffn_\1."),
    (r"\.input_layernorm\.", ".attn_norm."),
    (r"\.post_attention_layernorm\.", ".ffn_norm."),
]


def small_model(kind: str) -> Any:
    """A model of random weights with its language head: ``llama`` or ``qwen2``."""
    torch.manual_seed(0)
    classes: dict[str, Any] = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    }
    config_class, model_class = classes[kind]
    return model_class(config_class(**SETTINGS, tie_word_embeddings=False)).eval()


def write_gguf(
    path: Path, model: Any, stored: GGMLQuantizationType = GGMLQuantizationType.F32, shards: int = 0, **changed: Any
) -> None:
    """Writes a model as one file, or as several shards next to ``path``.

    ``changed`` replaces entries of the metadata, by their names without the architecture's.
    """
    kind, config = model.config.model_type, model.config
    tensors = model.state_dict()
    per_shard = -(-len(tensors) // shards) if shards else 0
    writer: Any = GGUFWriter(path, changed.pop("architecture", kind), split_max_tensors=per_shard)
    writer.add_name("small")
    counts = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "vocab_size": len(VOCABULARY),
    }
    for name, value in (counts | changed).items():
        writer.add_uint32(f"{kind}.{name}", value)
    writer.add_float32(f"{kind}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{kind}.rope.freq_base", config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe" if kind == "llama" else "qwen2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([3 if token in ("<s>", "</s>") else 1 for token in VOCABULARY])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in tensors.items():
        numbers = tensor.float().numpy()
        turned = re.search(r"\.([qk])_proj\.weight", name)
        if kind == "llama" and turned is not None:  # llama.cpp rotates neighbours, transformers both halves of a head
            heads = config.num_attention_heads if turned[1] == "q" else config.num_key_value_heads
            halves = numbers.reshape(heads, 2, -1, config.hidden_size)
            numbers = halves.swapaxes(1, 2).reshape(numbers.shape)
        for pattern, replacement in NAMES:
            name = re.sub(pattern, replacement, name)
        if numbers.ndim == 1 or stored is GGMLQuantizationType.F32:
            writer.add_tensor(name, np.ascontiguousarray(numbers))
        else:
            writer.add_tensor(name, quants.quantize(numbers, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
