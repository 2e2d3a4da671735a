"""Refuses an unsafe model folder before a library opens it: pickles, paths out of the folder, absurd sizes.

Libraries that read a folder open whatever its files name. So all that they would open is checked first: weights are
plain safetensors files in the folder, links stay inside it, and no count or file is larger than any real one.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import MAX_JSON_BYTES, read_json
from attnviz.text.tokenizer_file import refuse_absurd_tokenizer

READ_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.spm", "*_templates/*.jinja")
WHOLE, INDEX = ".safetensors", ".safetensors.index.json"
UNUSED_PATHS = ("special_tokens_map_file", "tokenizer_config_file")  # tokenizer settings that no library opens
MAX_LAYERS = 1024
MAX_COUNTED = 1_000_000  # of heads, experts, labels and whatever else a configuration counts
LAYERS = re.compile(r"n_layers?|\w*_layers|depths?|\w*_depth|first_k_dense_replace")
KERNEL_KEY = "_implementation"  # how the settings end that choose what computes attention or experts
REPEATED = "attention_types"  # of GPT-Neo: [[["global", "local"], 12]], which its configuration writes out
COUNTED = re.compile(r"n_(?!pos|ctx)\w+|num_\w+")


def refuse_unsafe_files(folder: Path, name: str) -> None:
    """Raises AttnvizError if a file that a library would open is no file, too long, or a link out of the folder.

    A folder of the hub's cache consists of links to the ``blobs`` folder beside it, which is allowed.
    """
    inside = folder.resolve()
    homes = [inside]
    if inside.parent.name == "snapshots":
        homes.append(inside.parents[1] / "blobs")
    for file in (file for pattern in READ_FILES for file in folder.glob(pattern)):
        target = Path(os.path.realpath(file))
        if not any(target.is_relative_to(home) for home in homes):
            raise AttnvizError(
                f"{file.name} of {name!r} is a link to {str(target)!r}, out of the folder; replace it with a copy"
            )
        if not file.is_file():
            raise AttnvizError(f"{file.name} of {name!r} is not a file; replace it with one")
        if not file.name.endswith(WHOLE) and file.stat().st_size > MAX_JSON_BYTES:
            raise AttnvizError(
                f"{file.name} of {name!r} is larger than {MAX_JSON_BYTES // 10**6} MB, the most that is read"
            )


def refuse_unsafe_weights(folder: Path, name: str, config: dict[str, Any]) -> None:
    """Raises AttnvizError unless every file that the folder names for weights is a safetensors file inside it.

    Args:
        folder: the model's folder.
        name: the model's name in messages.
        config: content of its ``config.json``.
    """
    weights_file = config.get("transformers_weights")
    if weights_file is not None:
        _refuse_unless_weights(folder, name, "config.json", weights_file, (WHOLE, INDEX))
    for index in folder.glob(f"*{INDEX}"):
        if weights_file == index.name or not (folder / index.name.removesuffix(".index.json")).is_file():
            _refuse_unsafe_index(folder, name, index)
    adapter = folder / "adapter_config.json"
    if adapter.is_file() and not (folder / f"adapter_model{WHOLE}").is_file():
        raise AttnvizError(
            f"{name!r} has an adapter whose weights are not in adapter_model{WHOLE}; merge it into the model "
            "(model.merge_and_unload().save_pretrained)"
        )


def refuse_unsafe_paths(folder: Path, name: str) -> None:
    """Raises AttnvizError if the tokenizer's settings name an existing file outside the folder."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else {}
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if key.endswith("_file") and key not in UNUSED_PATHS and isinstance(value, str):
            target = Path(value)
            if target.name != value and _exists(target) and not target.resolve().is_relative_to(folder.resolve()):
                raise AttnvizError(f"{path.name} of {name!r} names {value!r}, out of the folder; use {target.name!r}")


def refuse_absurd_counts(name: str, config: dict[str, Any]) -> None:
    """Raises AttnvizError if a configuration has more layers, heads or the like than any real model."""
    for key, value in _named_values(config):
        limit = MAX_LAYERS if LAYERS.fullmatch(key) else MAX_COUNTED if COUNTED.fullmatch(key) else None
        counts = value if isinstance(value, list) else [value]
        largest = max((count for count in counts if type(count) in (int, float)), default=0)
        if limit is not None and largest > limit:
            raise AttnvizError(f"config.json of {name!r} has {key} {largest:g}, above the limit of {limit}")
        if key == REPEATED and _largest(value) > MAX_LAYERS:
            raise AttnvizError(f"config.json of {name!r} says {key} for more than {MAX_LAYERS} layers")


def refuse_kernels(name: str, config: dict[str, Any]) -> None:
    """Raises AttnvizError where a configuration names a kernel of the hub, native code, for any of its parts."""
    for key, value in _named_values(config):
        kernel = next((each for each in _strings(value) if "/" in each), None) if key.endswith(KERNEL_KEY) else None
        if kernel is not None:
            raise AttnvizError(
                f"config.json of {name!r} runs {kernel!r} of the hub as its attention, which is native code; remove "
                f"{key} from it"
            )


def _strings(value: Any) -> Iterator[str]:
    """Yields every text within a value."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(part)


def _largest(value: Any) -> float:
    """Returns the largest number within lists."""
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if type(value) in (int, float) else 0


def refuse_absurd_tokenizers(folder: Path) -> None:
    """Raises AttnvizError where a tokenizer of the folder makes far more of a text than it is."""
    for path in folder.glob("tokenizer*.json"):
        if path.name != "tokenizer_config.json":
            refuse_absurd_tokenizer(path)


def _refuse_unsafe_index(folder: Path, name: str, index: Path) -> None:
    content = read_json(index)
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not files:
        raise AttnvizError(f"{index.name} of {name!r} has no weight_map, which names the files of the weights")
    for file in files.values():
        _refuse_unless_weights(folder, name, index.name, file, (WHOLE,))


def _refuse_unless_weights(folder: Path, name: str, source: str, file: Any, suffixes: tuple[str, ...]) -> None:
    plain = isinstance(file, str) and file.endswith(suffixes) and Path(file).name == file and "\\" not in file
    if not plain:
        raise AttnvizError(f"{source} of {name!r} names {file!r} for weights; use names of {WHOLE} files in the folder")
    if not (folder / file).is_file():
        raise AttnvizError(f"{source} of {name!r} names {file!r} for weights, which is not in the folder")


def _named_values(config: Any) -> Iterator[tuple[str, Any]]:
    """Yields name and value of every setting of a configuration, including nested ones."""
    if isinstance(config, dict):
        yield from config.items()
    for part in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        yield from _named_values(part)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
