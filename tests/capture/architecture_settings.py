"""What single architectures need so that a small one of them is built and runs: settings, and inputs.

``GIVEN`` settings are there when the configuration is made, ``CHANGED`` ones after its sizes were made small; a dot
leads into a nested configuration. ``INPUTS`` are tried before the inputs that fit most models.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TEXTS, TOKENS, STEPS, FUTURE = 2, 9, 15, 4
RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 8, 8, 8],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage4"],
}
LEVELS = RESNET | {"out_features": ["stage2", "stage3", "stage4"]}
SERIES = {"prediction_length": FUTURE, "context_length": STEPS - 7, "num_time_features": 2, "lags_sequence": [1, 2, 7]}
IMAGE_TOKEN, QUERIES = 90, 5
SPEECH = {"conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_conv_pos_embeddings": 8}
GEMMA = {"head_dim": 8, "global_head_dim": 8, "num_hidden_layers": 2, "vocab_size_per_layer_input": 99}
HYBRID = {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2}

GIVEN: dict[str, dict[str, Any]] = {
    "detr": {"backbone_config": RESNET},
    "table-transformer": {"backbone_config": RESNET},
    "conditional_detr": {"backbone_config": RESNET},
    "dab-detr": {"backbone_config": RESNET},
    "deformable_detr": {"backbone_config": LEVELS, "num_feature_levels": 3},
    "chameleon": {"vocabulary_map": {"<image>": IMAGE_TOKEN}},
    "emu3": {"vocabulary_map": {"<image>": IMAGE_TOKEN, "<|extra_200|>": 91}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2, "num_dense_layers": 1},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 16, "num_experts_per_tok": 2},
    "gemma3n_text": {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_kv_shared_layers": 0,
        "intermediate_size": 48,
        "activation_sparsity_pattern": [0.0, 0.0],
        "vocab_size_per_layer_input": 99,
    },
    "gemma4_text": GEMMA,
    "gemma4_unified_text": GEMMA,
    "gemma4": {"text_config": GEMMA},
    "gemma4_unified": {"text_config": GEMMA},
    "embedding_gemma2_text": GEMMA,
    "embedding_gemma2": {"text_config": GEMMA},
    "diffusion_gemma": {"text_config": GEMMA},
    "bamba": {"attn_layer_indices": [1], "num_hidden_layers": 2},
    "granitemoehybrid": HYBRID,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "zamba": {"layers_block_type": ["mamba", "hybrid"] * 2, "num_hidden_layers": 4},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"], "num_hidden_layers": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "sew": SPEECH,
    "sew-d": SPEECH,
    "informer": SERIES,
    "autoformer": SERIES | {"label_length": 4},
    "time_series_transformer": SERIES,
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "perceiver": {
        "num_latents": 8,
        "d_latents": 32,
        "d_model": 32,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
    },
    "esm": {"pad_token_id": 1, "mask_token_id": 32},
    "qwen4_exp_text": {"indexer_budget": 8, "indexer_compress_ratio": 2},
}
CHANGED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "falcon_h1": {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64},
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 16},
    "granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 16},
    "zamba2": {"mamba_headdim": 8, "attention_head_dim": 16},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "esmc": {"num_key_value_heads": 4},
    "moonshine": {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4},
    "pvt": {"num_encoder_blocks": 4},
    "audio-spectrogram-transformer": {"max_length": 64, "patch_size": 8, "num_mel_bins": 16},
    "mgp-str": {"image_size": [32, 64]},
    "vits": {"speaking_rate": 1000.0},
    "kimi_linear": {"num_experts_per_token": 2, "num_experts": 4, "num_expert_group": 1, "topk_group": 1},
    "siglip2": {"text_config.projection_size": 32},
    "xclip": {"vision_config.num_frames": 2, "vision_config.mit_hidden_size": 32},
    "blip-2": {"image_token_id": IMAGE_TOKEN, "num_query_tokens": QUERIES},
    "instructblip": {"image_token_id": IMAGE_TOKEN, "num_query_tokens": QUERIES},
    "qwen2_5_vl_vision": {"window_size": 32},
    "exaone4_5_vision": {"window_size": 32},
    "kosmos-2": {"latent_query_num": QUERIES},
    "seggpt": {"image_size": [64, 32], "pretrain_image_size": 32, "patch_size": 8},
    "udop": {"image_size": 32, "patch_size": 8},
}


def _ids(count: int = TOKENS) -> Tensor:
    return torch.randint(5, 30, (TEXTS, count))


def _ids_with_image(count: int) -> Tensor:
    return torch.cat((torch.full((TEXTS, count), IMAGE_TOKEN), _ids()), dim=1)


def _image(size: int = 32, *more: int) -> Tensor:
    return torch.randn(TEXTS, *more, 3, size, size)


def _series() -> dict[str, Tensor]:
    return {
        "past_values": torch.rand(TEXTS, STEPS),
        "past_time_features": torch.rand(TEXTS, STEPS, 2),
        "past_observed_mask": torch.ones(TEXTS, STEPS),
        "future_values": torch.rand(TEXTS, FUTURE),
        "future_time_features": torch.rand(TEXTS, FUTURE, 2),
    }


def _decisions() -> dict[str, Tensor]:
    return {
        "states": torch.randn(TEXTS, 5, 17),
        "actions": torch.randn(TEXTS, 5, 4),
        "rewards": torch.randn(TEXTS, 5, 1),
        "returns_to_go": torch.randn(TEXTS, 5, 1),
        "timesteps": torch.arange(5)[None].expand(TEXTS, -1),
        "attention_mask": torch.ones(TEXTS, 5, dtype=torch.long),
    }


def _patches() -> dict[str, Tensor]:
    return {
        "input_ids": _ids(),
        "pixel_values": torch.randn(TEXTS, 16, 192),
        "pixel_attention_mask": torch.ones(TEXTS, 16, dtype=torch.long),
        "spatial_shapes": torch.tensor([[4, 4], [4, 4]]),
    }


INPUTS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "informer": _series,
    "autoformer": _series,
    "time_series_transformer": _series,
    "decision_transformer": _decisions,
    "siglip2": _patches,
    "detr": lambda: {"pixel_values": _image(64)},
    "speecht5": lambda: {"input_values": torch.randn(TEXTS, TOKENS, 32), "decoder_input_values": torch.randn(2, 6, 32)},
    "audio-spectrogram-transformer": lambda: {"input_values": torch.randn(TEXTS, 64, 16)},
    "mgp-str": lambda: {"pixel_values": torch.randn(TEXTS, 3, 32, 64)},
    "sew": lambda: {"input_values": torch.randn(TEXTS, 1600)},
    "sew-d": lambda: {"input_values": torch.randn(TEXTS, 1600)},
    "perceiver": lambda: {"inputs": torch.randn(TEXTS, TOKENS, 32)},
    "xclip": lambda: {"input_ids": _ids(), "pixel_values": _image(32, 2)},
    "blip-2": lambda: {"input_ids": _ids_with_image(QUERIES), "pixel_values": _image()},
    "instructblip": lambda: {
        "input_ids": _ids_with_image(QUERIES),
        "qformer_input_ids": _ids(),
        "pixel_values": _image(),
    },
    "blip_2_qformer": lambda: {
        "query_embeds": torch.randn(TEXTS, 5, 32),
        "encoder_hidden_states": torch.randn(2, 7, 32),
    },
    "udop": lambda: {"input_ids": _ids(), "bbox": torch.zeros(TEXTS, TOKENS, 4), "decoder_input_ids": _ids(6)},
    "clvp": lambda: {"input_ids": _ids(), "input_features": torch.randn(TEXTS, 80, 40)},
    "clap": lambda: {
        "input_ids": _ids(),
        "input_features": torch.randn(TEXTS, 1, 256, 64),
        "is_longer": torch.zeros(2, 1, dtype=torch.bool),
    },
    "kosmos-2": lambda: {
        "input_ids": _ids(12),
        "pixel_values": _image(),
        "image_embeds_position_mask": torch.tensor([[False] * 2 + [True] * QUERIES + [False] * 5] * TEXTS),
    },
    "timesfm": lambda: {
        "past_values": torch.randn(TEXTS, 64),
        "past_values_padding": torch.zeros(TEXTS, 64, dtype=torch.long),
        "freq": torch.zeros(TEXTS, 1, dtype=torch.long),
    },
    "video_llama_3_vision": lambda: {
        "pixel_values": torch.randn(32, 192),
        "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
        "merge_sizes": torch.tensor([1, 1]),
    },
    "idefics": lambda: {
        "input_ids": _ids(),
        "pixel_values": _image(32, 1),
        "image_attention_mask": torch.ones(TEXTS, TOKENS, 1, dtype=torch.long),
    },
    "qwen3_asr_encoder": lambda: {
        "input_features": torch.randn(TEXTS, 16, 200),
        "input_features_mask": torch.ones(TEXTS, 200, dtype=torch.long),
    },
    "timesfm2_5": lambda: {"past_values": torch.randn(TEXTS, 64)},
    "moonshine": lambda: {"input_values": torch.randn(TEXTS, 3200), "decoder_input_ids": _ids(6)},
    "seggpt": lambda: {"pixel_values": _image(), "prompt_pixel_values": _image(), "prompt_masks": _image()},
    "oneformer": lambda: {"pixel_values": _image(64), "task_inputs": _ids(12)},
}
