"""Settings that single architectures need so that a small one of them is built and runs.

``GIVEN`` settings are there when the configuration is made, ``CHANGED`` ones after its sizes were made small; a dot
leads into a nested configuration.
"""

from typing import Any

STEPS, FUTURE = 15, 4
RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 8, 8, 8],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage4"],
}
STAGES = ["stage1", "stage2", "stage3", "stage4"]
LEVELS = RESNET | {"out_features": ["stage2", "stage3", "stage4"]}
SERIES = {"prediction_length": FUTURE, "context_length": STEPS - 7, "num_time_features": 2, "lags_sequence": [1, 2, 7]}
IMAGE_TOKEN, QUERIES = 90, 5
SPEECH = {"conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_conv_pos_embeddings": 8}
GEMMA = {"head_dim": 8, "global_head_dim": 8, "num_hidden_layers": 2, "vocab_size_per_layer_input": 99}
INDEXED: dict[str, Any] = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 8,
    "indexer_compress_ratio": 2,
}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
ROTATED = {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {"sliding_attention": ROPE, "full_attention": ROPE},
}
INDEXED |= {"rope_parameters": ROPE | {"partial_rotary_factor": 1.0}, "head_dim": 8}
SECTIONS = {"rope_parameters": ROPE | {"mrope_section": [32, 32]}}
PATCHES = {"model_type": "timm_wrapper", "architecture": "vit_tiny_patch16_224"}
GEMMA_3N = {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_kv_shared_layers": 0,
    "intermediate_size": 48,
    "activation_sparsity_pattern": [0.0, 0.0],
    "vocab_size_per_layer_input": 99,
}
KEY_HEADS = {"num_key_value_heads": 2, "num_global_key_value_heads": 2}
HYBRID = {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2}

STAGES_OF_8: dict[str, Any] = {
    "model_type": "pp_lcnet_v4",
    "out_features": STAGES,
    "block_configs": [[[3, 8, 8, 1, False]], *([[3, 8, 8, 2, False]] for _ in STAGES[1:])],
    "stem_channels": [3, 8, 8],
}
BYTES = {"hidden_size": 32, "hidden_size_global": 32, "num_attention_heads": 4}

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
    "gemma3n_text": GEMMA_3N,
    "gemma3n": {
        "text_config": GEMMA_3N,
        "vision_config": {"model_type": "gemma3n_vision", "architecture": "vit_tiny_patch16_224"},
    },
    "gemma4_text": GEMMA,
    "gemma4_unified_text": GEMMA,
    "gemma4": {"text_config": GEMMA},
    "gemma4_unified": {"text_config": GEMMA},
    "embedding_gemma2_text": GEMMA | KEY_HEADS,
    "embedding_gemma2": {"text_config": GEMMA | KEY_HEADS},
    "diffusion_gemma": {"text_config": GEMMA | {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16}},
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
    "pp_ocrv6_small_det": {"backbone_config": STAGES_OF_8, "layer_list_out_channels": [8, 8, 8, 8]},
    "pp_ocrv6_medium_det": {
        "backbone_config": STAGES_OF_8,
        "scale_factor_list": [1, 2, 4, 8],
        "kernel_list": [3, 2, 2],
        "intraclass_block_config": {
            "reduce_channel": [1, 1, 0],
            "return_channel": [1, 1, 0],
            **{
                f"{lines}_{way}_{size}ratio": [kernel, 1, [each // 2 for each in kernel]]
                for size, length in (("long", 7), ("mid", 5), ("short", 3))
                for lines, way, kernel in (
                    ("vertical", "long_to_small_conv", [length, 1]),
                    ("horizontal", "small_to_long_conv", [1, length]),
                    ("symmetric", "conv_long", [length, length]),
                )
            },
        },
    },
    "blt": {
        "encoder_hash_byte_group_vocab": 99,
        "encoder_config": BYTES,
        "decoder_config": BYTES | {"num_hidden_layers": 2},
        "global_config": {"hidden_size": 32, "num_attention_heads": 4},
        "patcher_config": {"hidden_size": 32, "num_attention_heads": 4},
    },
    "lw_detr": {
        "backbone_config": {"model_type": "lw_detr_vit", "image_size": 64, "out_indices": [1, 2]},
        "projector_scale_factors": [1.0],
    },
    "rf_detr": {"backbone_config": {"model_type": "rf_detr_dinov2", "image_size": 64, "out_indices": [1, 2]}},
    "uvdoc": {"backbone_config": {"model_type": "uvdoc_backbone", "out_features": [*STAGES, "stage5", "stage6"]}},
    "qwen4_exp_text": INDEXED,
    "qwen4_exp": {"text_config": INDEXED},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"], "num_hidden_layers": 2}},
    "cohere_compass_text": ROTATED,
    "cohere_compass": {"text_config": ROTATED},
    "hunyuan_vl_text": SECTIONS,
    "hunyuan_vl": {"text_config": SECTIONS},
    "moonshine_streaming": {"encoder_config": {"num_hidden_layers": 2}},
    "granite4_vision": {"downsample_rate": "1/2"},
    "t5gemma2_encoder": {"text_config": {"dropout_rate": 0.0}},
    "pe_video": {"video_config": {"vision_config": PATCHES}},
    "pe_audio_video": {"audio_video_config": {"video_config": {"vision_config": PATCHES}}},
    "pe_audio_video_encoder": {"video_config": {"vision_config": PATCHES}},
    "gemma3n_vision": {"architecture": "vit_tiny_patch16_224"},
    "timm_wrapper": {"architecture": "vit_tiny_patch16_224"},
    "timm_backbone": {"backbone": "resnet18"},
    "perception_lm": {"vision_config": PATCHES | {"model_args": {"embed_dim": 192}}},
    "pe_video_encoder": {"vision_config": PATCHES},
    "fast_vlm": {"vision_config": {"model_type": "timm_wrapper", "architecture": "fastvit_t8", "hidden_size": 768}},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
}
SEGMENTING = {
    "vision_config.output_channels": 32,
    "vision_config.num_pos_feats": 16,
    "prompt_encoder_config.image_embedding_size": 4,
}
CHANGED: dict[str, dict[str, Any]] = {
    "tvp": {"max_img_size": 128, "visual_prompt_size": 8, "num_frames": 2},
    "vibevoice_acoustic_tokenizer": {"num_filters": 4},
    "vibevoice": {"audio_config.num_filters": 4, "semantic_model_config.num_filters": 4},
    "vibevoice_asr": {
        "acoustic_tokenizer_encoder_config.num_filters": 4,
        "semantic_tokenizer_encoder_config.num_filters": 4,
    },
    "vibevoice_acoustic_tokenizer_encoder": {"num_filters": 4},
    "vibevoice_acoustic_tokenizer_decoder": {"num_filters": 4},
    "emu3": {"vq_config.base_channels": 32},
    "granite_speech5_ctc": {"encoder_config.context_size": 16, "encoder_config.num_key_value_heads": 4},
    "granite_speech5_encoder": {"context_size": 16, "num_key_value_heads": 4},
    "muse_spark_audio": {"hidden_sizes": [32, 32, 32, 32], "out_hidden_size": 32},
    "instructblipvideo": {"video_token_id": IMAGE_TOKEN, "num_query_tokens": QUERIES},
    "step3p7": {"text_config.sliding_window": 4},
    "deepseek_ocr2": {"text_config.num_experts_per_tok": 2, "text_config.n_group": 1, "text_config.topk_group": 1},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "spatial_target_layers": [1]},
    "depth_pro": {"intermediate_hook_ids": [1, 0]},
    "zamba": {
        "attention_hidden_size": 64,
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
    },
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "falcon_h1": {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64},
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 16},
    "granitemoehybrid": {"mamba_n_heads": 4, "mamba_d_head": 16},
    "zamba2": {"mamba_headdim": 8, "attention_head_dim": 16, "attention_hidden_size": 64},
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
    "oneformer": {"backbone_config.num_heads": [2, 2, 2, 2]},
    "sam": SEGMENTING,
    "efficientnet": {"depth_coefficient": 0.3},
    "align": {"vision_config.depth_coefficient": 0.3},
    "xlstm": {"hidden_size": 64, "embedding_dim": 64},
    "xcodec": {"semantic_model_config.num_feat_extract_layers": 7, "codebook_dim": 64},
    "xcodec2": {"quantization_dim": 64, "num_key_value_heads": 4},
    "neucodec": {"quantization_dim": 64, "num_key_value_heads": 4},
    "dots3_note_text": {"num_key_value_heads": 4},
    "dots3_note": {
        "text_config.num_key_value_heads": 4,
        "vision_config.adapter_in_dim": 32,
        "vision_config.adapter_out_dim": 32,
        "audio_config.adapter_input_size": 32,
        "audio_config.adapter_out_dim": 32,
    },
    "sam_hq": SEGMENTING,
}
PARTS = {"musicgen": "decoder", "musicgen_melody": "decoder"}  # the configuration that the model is made of
