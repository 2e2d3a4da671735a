"""Every architecture of transformers that a small configuration builds, with and without recording.

``python -m tests.capture.every_architecture`` sweeps over all of them; ``… 2/5`` over the second fifth, ``… bert vit``
over these. A line for each says what became of it, and the last one the totals: the output must be the same to the bit,
nothing may fail that ran without recording, and maps must equal the attentions that the model's eager path gives, or
have a fidelity, or be left out and said.
"""

import gc
import inspect
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording

TEXTS, TOKENS, PADDED, IMAGE, SECONDS = 2, 9, 6, 32, 240
MAX_PARAMETERS = 100_000_000
TOLERANCE, FIDELITY = 3e-5, 1e-3
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


@dataclass(frozen=True)
class Outcome:
    """What became of an architecture: a word, and what is behind it."""

    word: str
    detail: str = ""
    maps: int = 0
    compared: int = 0


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
        given = {name: getattr(one, name, None) for name in ("num_attention_heads", "hidden_size", "num_hidden_layers")}
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


def _fit_heads(config: Any, heads: int, width: int) -> None:
    """As many key heads as heads where these come from one latent vector; rotations of the features that there are."""
    if getattr(config, "head_dim", 0) is None:
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


def build(kind: str, style: str) -> Any:
    """A small model of this type with random weights, or an error."""
    config = transformers.AutoConfig.for_model(kind)
    small(config, STYLES[style])
    fit(config)
    names = MODELS[kind]
    name = names if isinstance(names, str) else names[0]
    with torch.device("meta"):
        size = sum(weight.numel() for weight in getattr(transformers, name)(config).parameters())
    if size > MAX_PARAMETERS:
        raise ValueError(f"{size:,} parameters")
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            if weight.dim() > 1 and weight.is_floating_point() and "norm" not in weight_name.lower():
                weight.normal_(0, 1.5 / max(weight.shape[-1], 1) ** 0.5)
    return model


def candidates(model: Any) -> Iterator[dict[str, Any]]:
    """Inputs that such a model may take, likely ones first."""
    torch.manual_seed(1)
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


def run(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    torch.manual_seed(3)
    with torch.no_grad():
        return model(**inputs, **options)


def leaves(output: Any) -> Iterator[Tensor]:
    """All tensors of an output in order."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from leaves(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from leaves(value)
    elif hasattr(output, "__dict__"):
        yield from leaves(vars(output))


def equal(first: Any, second: Any) -> bool:
    ours, theirs = list(leaves(first)), list(leaves(second))
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and torch.equal(
            torch.nan_to_num(a) if a.is_floating_point() else a, torch.nan_to_num(b) if b.is_floating_point() else b
        )
        for a, b in zip(ours, theirs, strict=True)
    )


def runnable(kind: str) -> tuple[Any, dict[str, Any], Any]:
    """A model of this type, inputs that it takes, and its output.

    Raises:
        LookupError: with what kept it from being built, or from running.
    """
    problems = []
    for style in STYLES:
        try:
            model = build(kind, style)
        except Exception as error:
            problems.append(f"not built: {type(error).__name__}: {str(error)[:120]}")
            continue
        for inputs in candidates(model):
            try:
                return model, inputs, run(model, inputs)
            except Exception as error:
                problems.append(f"not run: {'+'.join(inputs)}: {type(error).__name__}: {str(error)[:90]}")
    raise LookupError(next((problem for problem in problems if "not run" in problem), problems[0]))


def swept(kind: str) -> Outcome:
    """What becomes of an architecture."""
    try:
        model, found, bare = runnable(kind)
    except LookupError as error:
        word, _, detail = str(error.args[0]).partition(": ")
        return Outcome(word, " ".join(detail.split()))
    again = run(model, found)
    steady = equal(bare, again)
    try:
        with torch.no_grad(), attnviz.record(model, dense=True) as recording:
            observed = run(model, found)
    except AttnvizError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("CRASHED", f"{type(error).__name__}: {str(error)[:150]} at {place.filename}:{place.lineno}")
    if steady and not equal(bare, observed):
        return Outcome("CHANGED", "another output")
    return judged(model, found, recording)


def eager_run(model: Any, inputs: dict[str, Any]) -> tuple[list[Tensor], Recording] | None:
    """All attentions ``(batch, heads, queries, keys)`` that the eager path gives, and a recording of the same run.

    What is named attention and holds no shares is none: scores before their softmax, states of linear attention.
    """
    try:
        model.set_attn_implementation("eager")
        with torch.no_grad(), attnviz.record(model, dense=True) as recording:
            output = run(model, inputs, output_attentions=True)
        named = output.items()
    except Exception:
        return None
    found = [tensor for name, value in named if "attention" in name for tensor in leaves(value)]
    return [tensor for tensor in found if tensor.dim() == 4 and _are_shares(tensor)], recording


def _are_shares(tensor: Tensor) -> bool:
    """Whether each row holds shares of a whole, of which a sink may have taken a part."""
    return bool((tensor >= 0).all() and (tensor.float().sum(-1) < 1.01).all())


def judged(model: Any, inputs: dict[str, Any], recording: Recording) -> Outcome:
    """Whether the maps are those of the eager path, or have a fidelity.

    Where the eager path computes something else than what ran, it is compared with a recording of its own run.
    """
    eager = eager_run(model, inputs)
    if eager is None:
        return compared(recording, [])
    outcome, own = compared(recording, eager[0]), compared(eager[1], eager[0])
    if outcome.word not in ("DOUBTFUL", "LACKING") or not own.word.startswith("exact"):
        return outcome
    bare = compared(recording, [])
    return replace(bare, compared=own.compared) if bare.maps == own.maps else outcome


def compared(recording: Recording, attentions: list[Tensor]) -> Outcome:
    """Whether maps equal one of these attentions, or have a fidelity, and whether all attentions were recorded."""
    said = " ".join(recording.remarks)
    expected = [({index}, tensor) for index, tensor in enumerate(attentions)]
    expected += _halves_of_one_softmax(attentions)
    wrong, unknown, equal_maps = [], 0, 0
    used: set[int] = set()
    for maps in recording.maps:
        cells = cell_maps(maps)
        window = cells.window(maps.heads, slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens)))
        visible: NDArray[np.bool_] = np.broadcast_to(window.visible, window.weights.shape)
        rows = visible.any(-1, keepdims=True)
        off = [
            (float(np.max(np.abs(tensor[maps.item].float().numpy() - window.weights) * rows, initial=0)), indices)
            for indices, tensor in expected
            if len(tensor) > maps.item and tuple(tensor.shape[1:]) == window.weights.shape
        ]
        least = min((one for one, _ in off), default=None)
        if least is not None and least < TOLERANCE:
            equal_maps += 1
            used.update(*(indices for one, indices in off if one < TOLERANCE))  # maps of one key are all the same
        elif maps.fidelity is None:
            unknown += 1
            if least is not None:
                wrong.append(f"{maps!r} is {least:.2g} from the eager one, fidelity unknown")
        elif maps.fidelity > FIDELITY:
            wrong.append(f"{maps!r} has fidelity {maps.fidelity:.2g}")
    in_windows = {index for index, tensor in enumerate(attentions) if "windows" in said and len(tensor) > TEXTS}
    missing = len(set(range(len(attentions))) - used - in_windows) if used else 0
    counts = {"maps": len(recording.maps), "compared": equal_maps}
    if wrong:
        return Outcome("DOUBTFUL", f"{len(wrong)}: {wrong[0]}; {said[:200]}", **counts)
    if missing and "eft out" not in said:
        return Outcome("LACKING", f"{missing} of {len(attentions)} eager maps are not recorded; {said[:200]}", **counts)
    layers = [repr(maps) for maps in recording.maps if maps.item == 0]
    if unknown:
        return Outcome(
            "unknown", f"{unknown} of {len(recording.maps)} maps have no fidelity: {layers[0]}; {said[:200]}", **counts
        )
    word = "exact, some left out" if "eft out" in said else "exact"
    return Outcome(word, f"{[maps.layer for maps in recording.maps if maps.item == 0]} {said[:200]}", **counts)


def _halves_of_one_softmax(attentions: list[Tensor]) -> list[tuple[set[int], Tensor]]:
    """Pairs of attentions side by side, where the eager path gives the keys of one softmax in two parts."""
    return [
        ({at, at + 1 + further}, torch.cat((one, other), dim=-1))
        for at, one in enumerate(attentions)
        for further, other in enumerate(attentions[at + 1 :])
        if one.shape[:3] == other.shape[:3] and torch.allclose(one.sum(-1) + other.sum(-1), torch.ones(()), atol=1e-3)
    ]


def _late(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main(wanted: list[str]) -> None:
    """Sweeps, a line for each."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    kinds = sorted(MODELS)
    if wanted and "/" in wanted[0]:
        part, parts = map(int, wanted[0].split("/"))
        kinds = kinds[part - 1 :: parts]
    elif wanted:
        kinds = wanted
    signal.signal(signal.SIGALRM, _late)
    totals: Counter[str] = Counter()
    for kind in kinds:
        signal.alarm(SECONDS)
        try:
            outcome = swept(kind)
        except Exception as error:
            outcome = Outcome("CRASHED", f"outside: {type(error).__name__}: {str(error)[:200]}")
        signal.alarm(0)
        totals[outcome.word] += 1
        print(
            f"{kind:32} {outcome.word:10} maps {outcome.maps} compared {outcome.compared} {outcome.detail}", flush=True
        )
        gc.collect()
    print("totals", dict(totals))


if __name__ == "__main__":
    main(sys.argv[1:])
