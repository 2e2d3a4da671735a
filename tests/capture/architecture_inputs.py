"""Inputs of single architectures, which are tried before those that fit most models."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.capture.architecture_settings import FUTURE, IMAGE_TOKEN, QUERIES, STEPS

TEXTS, TOKENS = 2, 9


def _ids(count: int = TOKENS) -> Tensor:
    return torch.randint(5, 30, (TEXTS, count))


def _ids_with_image(count: int) -> Tensor:
    return torch.cat((torch.full((TEXTS, count), IMAGE_TOKEN), _ids()), dim=1)


def _image(size: int = 32, *more: int) -> Tensor:
    return torch.randn(TEXTS, *more, 3, size, size)


def _target_sizes() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(1, 3, 8, 8 * 32), "target_sizes": torch.tensor([[4, 4], [4, 4]])}


def _line_of_text() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(TEXTS, 3, 48, 160)}


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


def _wave_and_features() -> dict[str, Tensor]:
    return {"input_values": torch.randn(TEXTS, 1, 6400), "input_features": torch.randn(TEXTS, 20, 160)}


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
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
    "sam2_hiera_det_model": lambda: {"pixel_values": _image(256)},
    "sam2_vision_model": lambda: {"pixel_values": _image(256)},
    "blt": lambda: {"input_ids": _ids(), "use_cache": False},
    "xcodec2": _wave_and_features,
    "neucodec": _wave_and_features,
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
    "granite_speech5_ctc": lambda: {"input_features": torch.randn(TEXTS, 64, 64)},
    "granite_speech5_encoder": lambda: {"input_features": torch.randn(TEXTS, 64, 64)},
    "pi0": lambda: {
        "action_embeds": torch.randn(TEXTS, 5, 32),
        "input_ids": _ids(),
        "pixel_values": _image(32, 1),
        "pixel_attention_mask": torch.ones(TEXTS, 1, dtype=torch.bool),
    },
    "muse_glimmer_assistant": lambda: {
        "noise_embeds": torch.randn(TEXTS, 5, 32),
        "context_hidden_states": torch.randn(TEXTS, 7, 160),
        "attention_mask": torch.ones(TEXTS, 12, dtype=torch.long),
    },
    "fun_asr_nano_encoder": lambda: {
        "input_features": torch.randn(TEXTS, 40, 112),
        "input_features_mask": torch.ones(TEXTS, 40, dtype=torch.long),
    },
    "gemma4_vision": lambda: {
        "pixel_values": torch.rand(TEXTS, 36, 192),
        "pixel_position_ids": torch.cartesian_prod(torch.arange(6), torch.arange(6)).expand(TEXTS, -1, -1),
    },
    "kimi_k25_vision": lambda: {
        "pixel_values": torch.randn(32, 3, 8, 8),
        "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
    },
    "muse_glimmer_vision": lambda: {
        "pixel_values": torch.randn(32, 384),
        "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
    },
    "mimi_decoder": lambda: {"latents": torch.randn(TEXTS, 512, TOKENS)},
    "pocket_tts_audio_tokenizer_decoder": lambda: {"latents": torch.randn(TEXTS, 512, TOKENS)},
    "videoprism": lambda: {"input_ids": _ids(), "pixel_values_videos": _image(32, 16)},
    "muse_spark_audio": lambda: {"input_values": torch.randn(TEXTS, 3840)},
    "instructblipvideo": lambda: {
        "input_ids": _ids_with_image(2 * QUERIES),
        "qformer_input_ids": _ids(),
        "pixel_values": _image(32, 2),
    },
    "minicpmv4_7_vision": _target_sizes,
    "pp_ocrv5_mobile_rec": lambda: {"pixel_values": torch.randn(TEXTS, 3, 96, 160)},
    "pp_ocrv5_server_rec": _line_of_text,
    "xcodec": lambda: {"input_values": torch.randn(TEXTS, 1, 3200)},
    "step3p7": lambda: {"input_ids": _ids()},
    "gemma3n_audio": lambda: {
        "audio_mel": torch.randn(TEXTS, 64, 128),
        "audio_mel_mask": torch.zeros(TEXTS, 64, dtype=torch.bool),
    },
    "voxtral_realtime": lambda: {"input_ids": _ids(8), "input_features": torch.randn(TEXTS, 16, 64)},
    "tvp": lambda: {"input_ids": _ids()[:1], "pixel_values": torch.randn(1, 2, 3, 128, 128)},  # one text alone
    "musicgen": lambda: {"input_ids": torch.randint(5, 90, (4 * TEXTS, TOKENS))},
    "musicgen_melody": lambda: {"input_ids": torch.randint(5, 90, (4 * TEXTS, TOKENS))},
    "pe_audio_video_encoder": lambda: {
        "input_values": torch.randn(TEXTS, 1, 3840),
        "pixel_values_videos": _image(224, 2),
    },
    "timm_wrapper": lambda: {"pixel_values": _image(224)},
    "gemma3n_vision": lambda: {"pixel_values": _image(224)},
    "uvdoc": lambda: {"pixel_values": _image(128)},
    "moonshine_streaming": lambda: {"input_values": torch.randn(TEXTS, 3200), "decoder_input_ids": _ids(6)},
    "pe_audio_video": lambda: {"input_ids": _ids(), "pixel_values_videos": _image(224, 2)},
    "pe_video": lambda: {"input_ids": _ids(), "pixel_values_videos": _image(224, 2)},
    "inkling2_vision": lambda: {
        "pixel_values": torch.randn(32, 16, 16, 3),
        "image_grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
    },
    "pe_video_encoder": lambda: {"pixel_values_videos": _image(224, 2)},
    "vibevoice_acoustic_tokenizer_encoder": lambda: {"hidden_states": torch.randn(TEXTS, 1, 3200)},
    "vibevoice_acoustic_tokenizer_decoder": lambda: {"hidden_states": torch.randn(TEXTS, 32, 5)},
    "kyutai_speech_to_text": lambda: {"input_ids": torch.randint(5, 90, (TEXTS, TOKENS, 33))},
    "muse_spark_vision": lambda: {
        "pixel_values": torch.randn(32, 384),
        "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
    },
    "minicpm_ocr_vision": _target_sizes,
    "pp_ocrv6_small_rec": _line_of_text,
    "pp_ocrv6_tiny_rec": _line_of_text,
    "oneformer": lambda: {"pixel_values": _image(64), "task_inputs": _ids(77)},
}
