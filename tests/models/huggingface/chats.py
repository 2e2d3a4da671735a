"""Makes tiny models of random weights for chats: a trained tokenizer, and templates in the styles of five families."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.small_models import GROUPED

SIGNS = [
    "<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]",
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
]  # fmt: skip
CHATML = """
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
LLAMA = """
{{- bos_token }}{% for m in messages %}
{{- '<|start_header_id|>' + ('ipython' if m.role == 'tool' else m.role) + '<|end_header_id|>\n\n' }}
{%- if m.role == 'tool' %}{{- m.content | tojson }}{% else %}{{- m.content | trim }}{% endif %}{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""
GEMMA = """
{{- bos_token }}{% set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}
{%- for m in messages if m.role != 'system' %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + (first if loop.first else '') }}
{{- m.content | trim + '<end_of_turn>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""
MISTRAL = """
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- set asked = messages | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}{% for m in messages %}{% if m.role == 'user' %}
{{- '[INST] ' + (system + '\n\n' if m == asked[-1] and system else '') + m.content + ' [/INST]' }}
{%- elif m.role == 'assistant' and m.tool_calls %}{{- '[TOOL_CALLS] ' }}
{%- for call in m.tool_calls %}{{- call.function | tojson }}{% endfor %}{{- eos_token }}
{%- elif m.role == 'assistant' %}{{- ' ' + m.content | trim + eos_token }}
{%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS] ' + {'content': m.content} | tojson + '[/TOOL_RESULTS]' }}
{%- endif %}{% endfor %}"""
QWEN = """
{%- if tools %}{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% endif %}{{- '# Tools\n' }}
{%- for tool in tools %}{{- tool | tojson + '\n' }}{% endfor %}{{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant\n' }}
{%- set content = m.content %}{% set thought = m.reasoning_content or '' %}
{%- if '</think>' in content %}{% set thought = content.split('</think>')[0].split('<think>')[-1].strip() %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}
{%- if thought %}{{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}{% endif %}{{- content }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
{{- '}\n</tool_call>' }}{% endfor %}{{- '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}{{- '<|im_start|>user\n<tool_response>\n' + m.content }}
{{- '\n</tool_response><|im_end|>\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""
STYLES = {"chatml": CHATML, "llama": LLAMA, "gemma": GEMMA, "mistral": MISTRAL, "qwen": QWEN}
LEARNED = [
    "system user assistant model tool You are brief. What is the height of the tower? The tower is 330 m high.",
    'I look it up. {"name": "search", "arguments": {"query": "tower"}} 330 m. It rains in Paris today, and all day.',
] * 4
FAMILIES = {
    "chatml": ("LlamaConfig", "LlamaForCausalLM"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "gemma": ("GemmaConfig", "GemmaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen": ("Qwen3Config", "Qwen3ForCausalLM"),
}


def chat_tokenizer(style: str | None) -> Any:
    """Returns a tokenizer of bytes and pairs, with the chat template of a style."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learned.train_from_iterator(
        LEARNED, trainers.BpeTrainer(vocab_size=420, special_tokens=SIGNS, initial_alphabet=alphabet)
    )
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(
        tokenizer_object=learned,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=SIGNS[3:],
        chat_template=None if style is None else STYLES[style],
    )


def chat_model(folder: Path, style: str, positions: int = 512) -> str:
    """Saves a model of a style's family, and returns its folder."""
    torch.manual_seed(0)
    tokenizer = chat_tokenizer(style)
    config, model = (getattr(transformers, name) for name in FAMILIES[style])
    model(config(**GROUPED | {"vocab_size": len(tokenizer), "max_position_embeddings": positions})).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return str(folder)
