"""Small vision-language models of random weights, in folders."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

t: Any = transformers  # whose constructors have no types
TEXT: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 200, "max_position_embeddings": 512,
}  # fmt: skip
QUESTION = "what is on the table ?"


def word_tokenizer(*marks: str, **named_marks: str) -> Any:
    words = ["<unk>", "<pad>", "<s>", "</s>", *QUESTION.split(), *marks, *named_marks.values()]
    encoder = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    encoder.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer: Any = t.PreTrainedTokenizerFast(
        tokenizer_object=encoder, **names, extra_special_tokens=named_marks or None
    )
    if marks:
        tokenizer.add_special_tokens({"extra_special_tokens": list(marks)})
    return tokenizer


def qwen_folder(folder: Path) -> Path:
    """Saves a random Qwen2.5-VL, which keeps the shape of the picture and merges 2 x 2 patches of 14 pixels."""
    torch.manual_seed(0)
    marks = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer = word_tokenizer(*marks)
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    rope = {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}
    config = t.Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_scaling": rope, "pad_token_id": 1},
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32,
            "patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1],
        },
        **dict(zip(names, map(tokenizer.convert_tokens_to_ids, marks), strict=True)),
    )  # fmt: skip
    t.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    t.Qwen2VLImageProcessorPil(size={"shortest_edge": 56**2, "longest_edge": 28 * 28 * 40}).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
