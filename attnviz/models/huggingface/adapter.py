"""Finds the folder of a LoRA or DoRA adapter with its base, and merges its weights into the base's in memory.

LoRA adds s·B·A to a weight W; DoRA then gives each output the norm that it learned: m·(W + s·B·A) / ‖W + s·B·A‖. If
an embedding and a head share one weight and one of the two was trained, each gets its own, as in training.

The settings of an adapter are a stranger's, and peft would search modules with its patterns and import what it names:
here its tensors say which modules change, and only numbers are taken from the settings.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.base.reading import OBJECT, TEXT, number, read_json, refuse_other_kinds, whole
from attnviz.models.huggingface.folder import cached_model, is_complete, local_model, refuse_missing_library
from attnviz.models.huggingface.safety import refuse_unsafe_files

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

SETTINGS_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
KINDS = {
    "peft_type|base_model_name_or_path|bias": TEXT,
    "r": whole(1, 100_000),
    "lora_alpha": number(0, 1e6),
    "rank_pattern|alpha_pattern": OBJECT,
}
# Settings that are read here, and those that only say how the adapter was trained or found. Others change its sense.
READ = set(
    """
    alpha_pattern base_model_name_or_path lora_alpha peft_type r rank_pattern trainable_token_indices use_dora
    use_rslora
    """.split()
)
WITHOUT_EFFECT = set(
    """
    auto_mapping bias corda_config ensure_weight_tying eva_config exclude_modules fan_in_fan_out inference_mode
    layers_pattern layers_to_transform loftq_config lora_bias lora_dropout lora_ga_config megatron_core modules_to_save
    peft_version qalora_group_size revision target_modules target_parameters task_type
    """.split()
)
UNCHANGED_BASE = (None, True, False, "gaussian", "eva", "orthogonal")  # init_lora_weights that leave the base as it is
PLAIN_NAME = re.compile(r"\^?[\w.]+")
LORA_KEY = re.compile(r"(.+)\.lora_((?:embedding_)?[AB]|magnitude_vector)(?:\.(weight|bias))?")
TOKEN_KEY = re.compile(r"(.+)\.token_adapter\.trainable_tokens_delta")
HEADS = ("lm_head", "score", "classifier", "cls", "qa_outputs")  # parts after the last attention, which change no map
IN_PYTHON = "merge it in Python (peft's merge_and_unload), save the model, and give its folder"


def _is_adapter(folder: Path) -> bool:
    """True if a folder holds no model but an adapter of one, as training leaves it."""
    return (folder / SETTINGS_FILE).is_file() and all(
        file.name.startswith("adapter_") for file in folder.glob("*.safetensors")
    )


def split_adapter(name: str) -> tuple[str, Path | None]:
    """Returns the name of a model without its adapter, and the adapter's folder; ``None`` for a model without one.

    An adapter is named alone, if its settings name a base that is on this machine, or as ``BASE+ADAPTER``.
    """
    path = Path(name).expanduser()
    if _is_adapter(path):
        base = _named_base(path)
        if base is None:
            named = _settings(path, name).get("base_model_name_or_path")
            of_base = f" of {named!r}, which is not on this machine" if named else ""
            given = option("model", f"BASE+{name}")
            raise AttnvizError(f"{name!r} is an adapter{of_base}; give its base too, as {given}")
        return base, path
    base, _, adapter = name.rpartition("+")
    if base and not path.exists() and _is_adapter(Path(adapter).expanduser()):
        return base, Path(adapter).expanduser()
    return name, None


def on_base(name: str, base: str) -> str:
    """Returns the name of a model; if it is an adapter whose own base is not on this machine, with another base."""
    path = Path(name).expanduser()
    return f"{base}+{name}" if _is_adapter(path) and _named_base(path) is None else name


def _named_base(folder: Path) -> str | None:
    """Returns the name of the base in an adapter's settings, if it is here; a stranger's file downloads nothing."""
    named = _settings(folder, str(folder)).get("base_model_name_or_path")
    if not named:
        return None
    for name in (named, str(folder / named)):
        if not _is_adapter(Path(name).expanduser()) and local_model(name) is not None:
            return name
    refuse_missing_library("transformers")
    try:
        cached_folder = cached_model(named)
    except ValueError:  # no name of the hub
        return None
    return named if cached_folder is not None and is_complete(cached_folder) else None


def _settings(folder: Path, name: str) -> dict[str, Any]:
    """Returns the checked settings of an adapter."""
    settings = read_json(folder / SETTINGS_FILE)
    settings = settings if isinstance(settings, dict) else {}
    # An absent value is written as null.
    settings = {key: value for key, value in settings.items() if value is not None}
    refuse_other_kinds(settings, KINDS, f"{SETTINGS_FILE} of {name!r}")
    return settings


def _mergeable_settings(folder: Path, name: str) -> dict[str, Any]:
    """Returns the settings of an adapter; raises AttnvizError for one that is more than matrices added to weights."""
    refuse_unsafe_files(folder, name)
    settings = _settings(folder, name)
    if settings.get("peft_type", "LORA") != "LORA":
        raise AttnvizError(f"{name!r} is an adapter of the kind {settings['peft_type']}, not LORA; {IN_PYTHON}")
    if settings.get("init_lora_weights") in UNCHANGED_BASE:
        settings.pop("init_lora_weights", None)
    other = next((key for key, value in settings.items() if value and key not in READ | WITHOUT_EFFECT), None)
    if other is not None:
        raise AttnvizError(f"{name!r} has {other} {str(settings[other])[:40]!r}, which is not merged here; {IN_PYTHON}")
    if "lora_alpha" not in settings or not (folder / WEIGHTS_FILE).is_file():
        missing = f"lora_alpha in {SETTINGS_FILE}" if "lora_alpha" not in settings else WEIGHTS_FILE
        raise AttnvizError(f"{name!r} has no {missing}; give the folder of an adapter as peft saves it")
    return settings


def merge_adapter(model: "PreTrainedModel", folder: Path) -> None:
    """Changes the weights of a model to those that an adapter gives it.

    Raises:
        AttnvizError: for an adapter of another kind, or of another model.
    """
    import torch
    from safetensors.torch import load_file

    name = str(folder)
    settings = _mergeable_settings(folder, name)
    modules, path_now = dict(model.named_modules()), _renaming(model)
    matrices: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    for key, tensor in load_file(folder / WEIGHTS_FILE).items():
        path = key.removeprefix("base_model.model.")
        lora_key = LORA_KEY.fullmatch(path)
        if lora_key is not None:
            matrices[lora_key[1]][f"{lora_key[2]}.bias" if lora_key[3] == "bias" else lora_key[2]] = tensor
            continue
        token_key = TOKEN_KEY.fullmatch(path)
        if token_key is not None:
            module = _module_at(model, modules, path_now, token_key[1], name)
            if module is not None:  # a head that shares the weight has the same rows
                _replace_rows(module.weight, tensor, token_key[1], name, settings)
            continue
        owner, _, attribute = path.replace(".base_layer.", ".").rpartition(".")  # a weight that was trained as a whole
        module = _module_at(model, modules, path_now, owner, name)
        if module is not None:
            _separate(model, module)
            _replace(getattr(module, attribute, None), tensor, path, name)
    if settings.get("ensure_weight_tying") and any("embedding_A" in parts for parts in matrices.values()):
        raise AttnvizError(f"{name!r} has ensure_weight_tying with LoRA of an embedding, which is not merged here")
    for path, parts in matrices.items():
        module = _module_at(model, modules, path_now, path, name)
        if module is not None:
            _separate(model, module)
            with torch.no_grad():
                _merge_into(module, parts, path, name, settings)


def _merge_into(module: Any, parts: "dict[str, torch.Tensor]", path: str, name: str, settings: dict[str, Any]) -> None:
    """Changes the weight of one linear map or embedding by the matrices that were trained for it."""
    from torch import nn

    is_embedding = isinstance(module, nn.Embedding)
    has_inputs_first = is_embedding or type(module).__name__ == "Conv1D"
    down, up = (parts.pop(f"embedding_{part}" if is_embedding else part, None) for part in "AB")
    magnitude = None if is_embedding else parts.pop("magnitude_vector", None)
    bias = None if getattr(module, "bias", None) is None else parts.pop("B.bias", None)
    if down is None or up is None or parts or not (has_inputs_first or isinstance(module, nn.Linear)):
        raise AttnvizError(f"{name!r} changes {path!r} in a way that is not merged here; {IN_PYTHON}")
    weight = module.weight
    scale = _alpha(settings, path, name) / (math.sqrt(len(down)) if settings.get("use_rslora") else len(down))
    change = (up.float() @ down.float()).to(weight.device) * scale
    base = weight.float().T if has_inputs_first else weight.float()
    if change.shape != base.shape:
        raise _of_another_model(path, name, change, base)
    merged = base + change
    if magnitude is not None:
        merged = merged * (magnitude.to(merged).reshape(-1, 1) / merged.norm(dim=1, keepdim=True))
    _replace(weight, merged.T if has_inputs_first else merged, path, name)
    if bias is not None:
        _replace(module.bias, module.bias + bias.to(module.bias) * scale, path, name)


def _separate(model: "PreTrainedModel", module: Any) -> None:
    """Gives a module its own copy of a weight that it shares with another one."""
    import torch

    weight = getattr(module, "weight", None)
    others = (other for other in model.modules() if other is not module)
    if isinstance(weight, torch.nn.Parameter) and any(getattr(other, "weight", None) is weight for other in others):
        module.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)


def _replace_rows(weight: "torch.Tensor", rows: "torch.Tensor", path: str, name: str, settings: dict[str, Any]) -> None:
    """Writes the rows of an embedding that were trained, whose numbers are in the settings, alone or by its name."""
    import torch

    numbers = settings.get("trainable_token_indices")
    if isinstance(numbers, dict):
        numbers = next((each for ending, each in numbers.items() if path.endswith(ending)), None)
    numbers = numbers if isinstance(numbers, list) else []
    if len(numbers) != len(rows) or not all(type(each) is int and 0 <= each < len(weight) for each in numbers):
        raise AttnvizError(f"{name!r} has no trainable_token_indices of its {len(rows)} rows of {path!r}; {IN_PYTHON}")
    values = weight.detach().clone()
    values[torch.tensor(numbers, dtype=torch.long)] = rows.to(values)
    _replace(weight, values, path, name)


def _alpha(settings: dict[str, Any], path: str, name: str) -> float:
    """Returns the factor of the change of a module, which settings may give for modules by the ends of their paths."""
    for pattern, alpha in settings.get("alpha_pattern", {}).items():
        if not PLAIN_NAME.fullmatch(pattern) or type(alpha) not in (int, float):
            raise AttnvizError(f"{name!r} has alpha_pattern {pattern[:40]!r}, which is not merged here; {IN_PYTHON}")
        plain_name = pattern.removeprefix("^")
        if path == plain_name or (path.endswith(f".{plain_name}") and not pattern.startswith("^")):
            return float(alpha)
    return float(settings["lora_alpha"])


def _module_at(
    model: "PreTrainedModel", modules: dict[str, Any], path_now: Callable[[str], str], path: str, name: str
) -> Any:
    """Returns the module that an adapter changes, which was trained with or without a head; ``None`` for a head."""
    prefix = model.base_model_prefix
    for candidate in (path, path.removeprefix(f"{prefix}."), f"{prefix}.{path}"):
        if candidate in modules:
            return modules[candidate]
    renamed = path_now(path)
    if renamed in modules:
        return modules[renamed]
    if path.startswith(HEADS):
        return None
    raise AttnvizError(
        f"{name!r} changes {path!r}, which its base lacks: they do not belong together; give its own base, as "
        f"{option('model', f'BASE+{name}')}"
    )


def _renaming(model: "PreTrainedModel") -> Callable[[str], str]:
    """Returns a function from a path in the model as an older version of transformers named it to the path now."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming, rename_source_key
    except ImportError:  # transformers 4 renames by patterns
        patterns = getattr(model, "_checkpoint_conversion_mapping", {})
        return lambda path: next(
            (re.sub(old, new, path) for old, new in patterns.items() if re.search(old, path)), path
        )
    renamings = [change for change in get_model_conversion_mapping(model) if isinstance(change, WeightRenaming)]
    weights = model.state_dict()

    def path_now(path: str) -> str:
        key, _ = rename_source_key(f"{path}.weight", renamings, [], model.base_model_prefix, weights)
        return key.removesuffix(".weight")

    return path_now


def _replace(weight: Any, values: "torch.Tensor", path: str, name: str) -> None:
    """Writes values into a weight; raises AttnvizError if their shapes differ, or if the weight is on disk."""
    import torch

    if not isinstance(weight, torch.Tensor) or weight.shape != values.shape:
        raise _of_another_model(path, name, values, weight)
    if weight.is_meta:
        raise AttnvizError(f"{name!r} cannot be merged into weights on disk; leave out {option('device_map')}")
    with torch.no_grad():
        weight.copy_(values)


def _of_another_model(path: str, name: str, values: "torch.Tensor", weight: Any) -> AttnvizError:
    """Returns the refusal of a change whose shape is not that of the weight."""
    shape = "absent" if weight is None else tuple(weight.shape)
    return AttnvizError(
        f"{name!r} changes {path!r} in the shape {tuple(values.shape)}, which is {shape} in its base: they do not "
        "belong together; give its own base"
    )
