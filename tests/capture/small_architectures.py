"""Small models of random weights of any architecture of transformers, and inputs that they take."""

import copy
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any

import torch
import transformers
from torch import Tensor

from tests.capture.architecture_inputs import INPUTS
from tests.capture.architecture_settings import CHANGED, GIVEN, PARTS

TOKENS, PADDED, IMAGE = 9, 6, 32
MAX_PARAMETERS = 100_000_000
SIZES: list[tuple[str, Any]] = [  # what a setting of such a name becomes, the first that fits
    (r".*token_id|.*token_index|.*_id", None),
    (r"vocab_size|.*_vocab_size|type_vocab_size", 99),
    (r"(num_)?(key_value|kv)_heads|num_key_value_heads|multi_query_group_num|.*num_key_value_heads", 2),
    (r"(.*_)?(num_heads|attention_heads|n_heads?|nhead|num_attention_heads|n_head|decoder_heads)", 4),
    (r".*head_dim|d_kv|kv_channels|attention_head_size", 8),
    (
        r"(num|n)_(hidden_|encoder_|decoder_)?layers?|.*_(layers|depth|blocks)|num_blocks|depth|.*num_layers|.*num_hidden_layers",
        2,
    ),
    (
        r"(text_|vision_|encoder_|decoder_)?(hidden_size|d_model|dim|n_embd|embed_dim|embedding_size|hidden_dim|emb_dim|width)|word_embed_proj_dim|output_dim|out_hidden_size|projection_dim|.*_hidden_size",
        32,
    ),
    (r".*(intermediate_size|ffn_dim|d_ff|d_inner|n_inner|ffn_hidden_size|ffn_size|feedforward|mlp_dim)", 48),
    (r"n_groups?|topk_group|.*_n_?groups", 1),
    (r".*q_lora_rank|.*kv_lora_rank", 16),
    (r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_k|top_k|.*topk.*", 2),
    (
        r"max_(position_embeddings|sequence_length|seq_len)|n_positions|max_(source|target)_positions|n_ctx|seq_length",
        64,
    ),
    (r"image_size|img_size", IMAGE),
    (r"patch_size", 8),
    (r"num_mel_bins", 16),
    (r"num_queries", 5),
    (r"sliding_window|window_size|attention_chunk_size|local_attention", 4),
]
FEW_LAYERS = [one for one in SIZES if one[1] == 99 or "layers" in one[0] or "experts" in one[0]]
WIDE_HEADS = [(pattern, 512 if size == 32 else size) for pattern, size in SIZES if size not in (8, 16)]
STYLES = {"narrow": SIZES, "with heads as wide as they are": WIDE_HEADS, "with few layers": FEW_LAYERS}
auto: Any = transformers.models.auto
MODELS: dict[str, Any] = {
    kind: names
    for kind, names in auto.modeling_auto.MODEL_MAPPING_NAMES.items()
    if kind in auto.configuration_auto.CONFIG_MAPPING_NAMES
}


def small(config: Any, sizes: list[tuple[str, Any]], depth: int = 0) -> Any:
    """The configuration with its sizes made small, and those nested in it."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig) and depth < 4:
            small(value, sizes, depth + 1)
            continue
        if isinstance(value, bool) or name.startswith("_"):
            continue
        made = smaller(name, value, sizes)
        if made is not value:
            try:
                setattr(config, name, made)
            except Exception:
                continue
    return config


def smaller(name: str, value: Any, sizes: list[tuple[str, Any]]) -> Any:
    """A setting, smaller where its name says that it is a size."""
    if name.endswith(("token_id", "token_index")) and isinstance(value, int):
        return value if 0 <= value < 99 else 90 + value % 9
    if isinstance(value, int):
        for pattern, size in sizes:
            if re.fullmatch(pattern, name):
                return value if size is None else min(value, size) if value > 0 else value
        return value
    if name == "layer_types" and isinstance(value, list):
        return [*dict.fromkeys(value), *value][:2]
    if isinstance(value, list) and name.endswith("num_heads") and 32 in dict(sizes).values():
        return [2] * len(value)
    if isinstance(value, list) and name in ("depths", "num_blocks", "layers_per_stage"):
        return [1] * len(value)
    return value


def fit(config: Any) -> None:
    """Settings that depend on others, brought in line with those that were made smaller."""
    for one in (
        config,
        *(value for value in vars(config).values() if isinstance(value, transformers.PretrainedConfig)),
    ):
        given = {name: _setting(one, name) for name in ("num_attention_heads", "hidden_size", "num_hidden_layers")}
        heads, width, layers = given.values()
        if isinstance(heads, int) and isinstance(width, int):
            _fit_heads(one, heads, width)
        if getattr(one, "vocab_size", 0) is None:
            one.vocab_size = 99
        if getattr(one, "prediction_length", 0) is None:
            one.prediction_length = 4
        types = getattr(one, "layer_types", None)
        if isinstance(layers, int) and isinstance(types, list):
            with suppress(AttributeError):  # of a model that finds them from other settings
                one.layer_types = (types * layers)[:layers]


def _setting(config: Any, name: str, missing: Any = None) -> Any:
    """A setting; ``missing`` where there is none, or one for each layer."""
    try:
        return getattr(config, name, missing)
    except Exception:
        return missing


def _fit_heads(config: Any, heads: int, width: int) -> None:
    """As many key heads as heads where these come from one latent vector; rotations of the features that there are."""
    if _setting(config, "head_dim", 0) is None:
        config.head_dim = width // heads
    if hasattr(config, "num_key_value_heads") and (hasattr(config, "kv_lora_rank") or not config.num_key_value_heads):
        config.num_key_value_heads = heads
    parts = [getattr(config, name, None) for name in ("qk_nope_head_dim", "qk_rope_head_dim")]
    if hasattr(config, "qk_head_dim") and all(isinstance(part, int) for part in parts):
        config.qk_head_dim = sum(part for part in parts if part)
    rope = getattr(config, "rope_parameters", None)
    for one in (rope, *rope.values()) if isinstance(rope, dict) else ():
        sections = one.get("mrope_section") if isinstance(one, dict) else None
        if sections or (isinstance(one, dict) and "rope_type" in one and "glm" in config.model_type):
            sections = sections or [1, 1, 1]
            size = getattr(config, "head_dim", None) or width // heads
            half = int(size * one.get("partial_rotary_factor", 1.0)) // 2
            one["mrope_section"] = [half - (len(sections) - 1) * (half // len(sections))]
            one["mrope_section"] += [half // len(sections)] * (len(sections) - 1)


def build(kind: str, style: str, classes: Mapping[str, Any] = MODELS) -> Any:
    """A small model of this type with random weights, or an error; its class is the first that is named for it."""
    config = transformers.AutoConfig.for_model(kind, **copy.deepcopy(GIVEN.get(kind, {})))
    config = getattr(config, PARTS[kind]) if kind in PARTS else config
    small(config, STYLES[style])
    fit(config)
    for name, value in CHANGED.get(kind, {}).items():
        *path, last = name.split(".")
        setattr(reduce(getattr, path, config), last, value)
    names = classes.get(kind, classes.get(config.model_type))
    name = names if isinstance(names, str) else names[0]
    with torch.device("meta"):
        size = sum(weight.numel() for weight in getattr(transformers, name)(config).parameters())
    if size > MAX_PARAMETERS:
        raise ValueError(f"{size:,} parameters")
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    _draw_weights(model)
    return model


@torch.no_grad()
def _draw_weights(model: Any) -> None:
    """Draws weights that keep the size of what goes through them, so that scores differ and stay finite."""
    kernels = {id(each.weight) for each in model.modules() if isinstance(each, torch.nn.modules.conv._ConvNd)}
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and weight.is_floating_point() and "norm" not in name.lower():
            summed = weight[0].numel() if id(weight) in kernels else weight.shape[-1]
            weight.normal_(0, 1.5 / max(summed, 1) ** 0.5)


def candidates(model: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Inputs that such a model may take, likely ones first."""
    torch.manual_seed(1)
    if kind in INPUTS:
        yield INPUTS[kind]()
    ids = torch.randint(5, min(80, _vocabulary(model.config)), (2, TOKENS))
    mask = torch.ones(2, TOKENS, dtype=torch.long)
    mask[1, PADDED:] = 0
    text = {"input_ids": ids, "attention_mask": mask}
    decoder = {"decoder_input_ids": ids[:, :6]}
    size = _image_size(model.config)
    images = torch.randn(2, 3, size, size)
    mels = next(
        (
            value
            for name in (
                "num_mel_bins",
                "feature_projection_input_dim",
                "feature_size",
                "input_feat_per_channel",
                "input_dim",
            )
            if isinstance(value := getattr(model.config, name, None), int)
        ),
        16,
    )
    sounds = torch.randn(2, mels, 128)
    waves = torch.randn(2, 3200)
    names = getattr(model, "main_input_name", "input_ids")
    main = names if isinstance(names, str) else names[0]
    every = [
        text,
        text | decoder,
        {"input_ids": ids},
        {"input_ids": ids} | decoder,
        {"pixel_values": images},
        text | {"pixel_values": images},
        {"pixel_values": images} | decoder,
        {"pixel_values": torch.randn(2, 2, 3, size, size)},
        {"pixel_values_videos": torch.randn(2, 2, 3, size, size)},
        {"input_features": sounds} | decoder,
        {"input_features": sounds},
        {"input_features": sounds.transpose(1, 2)},
        {"input_features": sounds.transpose(1, 2)} | decoder,
        {"input_values": waves},
        {"input_values": torch.randn(2, 64, mels)},
        {"input_values": torch.randn(2, 64, mels), "decoder_input_values": torch.randn(2, 6, mels)},
        {"inputs": torch.randn(2, TOKENS, 32)},
        {"hidden_states": torch.randn(2, TOKENS, 32)},
        text | {"pixel_values": images, "decoder_input_ids": ids},
        {"pixel_values": torch.randn(2, getattr(model.config, "num_frames", 2), 3, size, size)},
        {"pixel_values_videos": torch.randn(2, getattr(model.config, "num_frames", 2), 3, size, size)},
        {"pixel_values": images, "prompt_pixel_values": images, "prompt_masks": images},
        *_patches(model.config),
        {
            "past_values": torch.randn(
                2, getattr(model.config, "context_length", 64) or 64, getattr(model.config, "num_input_channels", 7)
            )
        },
        {"input_values": waves[:, None]},
        {"input_features": sounds, "input_features_mask": torch.ones(2, 128, dtype=torch.long)},
        text | {"bbox": torch.zeros(2, TOKENS, 4, dtype=torch.long)},
        {"past_values": torch.randn(2, 64, 7)},
        {"past_values": torch.randn(2, 512, 7)},
    ]
    if main == "input_ids" and hasattr(model, "vision_model"):
        yield text | {"pixel_values": images}
    yield from (inputs for inputs in every if main in inputs)
    yield from _required(model, text, images, sounds)
    yield from (inputs for inputs in every if main not in inputs)
    yield text | {"use_cache": False}
    yield text | {"input_features": sounds}
    yield text | {"input_values": waves}


def _required(model: Any, text: dict[str, Tensor], images: Tensor, sounds: Tensor) -> Iterator[dict[str, Any]]:
    """Inputs by the names that the forward method has no defaults for, of patches and of images."""
    parameters = inspect.signature(model.forward).parameters.values()
    names = [each.name for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    patch, frames = getattr(model.config, "patch_size", None), getattr(model.config, "temporal_patch_size", 1)
    width = next((w for n in ("hidden_size", "d_model") if isinstance(w := getattr(model.config, n, None), int)), 32)
    ids, mask = text["input_ids"], text["attention_mask"]
    known = {
        **text,
        "pixel_values": images,
        "pixel_values_videos": images[:, None].expand(-1, 2, -1, -1, -1),
        "input_features": sounds,
        "input_values": torch.randn(2, 1, 3840),
        "audio_values": torch.randn(2, 1, 3840),
        "decoder_input_ids": ids[:, :6],
        "qformer_input_ids": ids,
        "qformer_attention_mask": mask,
        "query_embeds": torch.randn(2, 5, width),
        "inputs_embeds": torch.randn(2, TOKENS, width),
        "hidden_states": torch.randn(2, TOKENS, width),
        "encoder_hidden_states": torch.randn(2, TOKENS, width),
        "latents": torch.randn(2, TOKENS, width),
        "past_values_padding": torch.zeros(2, 64, dtype=torch.long),
        "freq": torch.zeros(2, 1, dtype=torch.long),
        "bbox": torch.zeros(2, TOKENS, 4, dtype=torch.long),
        "visual_feats": torch.randn(2, 5, getattr(model.config, "visual_feat_dim", 32) or 32),
        "visual_pos": torch.rand(2, 5, 4),
        "lengths": torch.tensor([TOKENS, PADDED]),
        "feature_lens": torch.tensor([128, 128]),
        "input_lengths": torch.tensor([128, 128]),
        "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
        "image_grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
        "spatial_shapes": torch.tensor([[4, 4], [4, 4]]),
        "pixel_attention_mask": torch.ones(2, 16, dtype=torch.long),
    }
    usual = {name: known[name] for name in names if name in known}
    if len(usual) == len(names) and names:
        yield usual
        yield usual | text
        yield usual | text | {"pixel_values": images}
    if isinstance(patch, int) and isinstance(frames, int):
        for flat in (torch.randn(32, 3 * frames * patch * patch), torch.randn(2, 16, 3 * frames * patch * patch)):
            moved = {
                name: flat if name in ("hidden_states", "pixel_values") else value for name, value in usual.items()
            }
            if len(usual) == len(names):
                yield moved
    rest = {"visual_feats": known["visual_feats"], "visual_pos": known["visual_pos"]}
    yield text | rest
    yield text | {"bbox": known["bbox"], "pixel_values": images}
    yield text | {"bbox": known["bbox"], "image": images}


def _vocabulary(config: Any) -> int:
    """How many tokens the smallest vocabulary has, of those that the configuration and those nested in it name."""
    nested = [value for value in vars(config).values() if isinstance(value, transformers.PretrainedConfig)]
    sizes = [getattr(one, "vocab_size", None) for one in (config, *nested)]
    return min([size for size in sizes if isinstance(size, int) and size > 8], default=99)


def _patches(config: Any) -> Iterator[dict[str, Any]]:
    """Images of 4 x 4 patches, one after the other, as vision towers of recent models take them."""
    patch, frames = getattr(config, "patch_size", None), getattr(config, "temporal_patch_size", 1)
    if not isinstance(patch, int):
        return
    grid = torch.tensor([[1, 4, 4], [1, 4, 4]])
    patches = torch.randn(32, 3 * frames * patch * patch)
    for name in ("hidden_states", "pixel_values"):
        for grid_name in ("grid_thw", "image_grid_thw"):
            yield {name: patches, grid_name: grid}


def _image_size(config: Any) -> int:
    for one in (
        config,
        *(value for value in vars(config).values() if isinstance(value, transformers.PretrainedConfig)),
    ):
        size = getattr(one, "image_size", None)
        if isinstance(size, (list, tuple)):
            size = size[0]
        if isinstance(size, int):
            return size
    return IMAGE
