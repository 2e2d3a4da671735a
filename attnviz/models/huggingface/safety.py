"""Refuses an unsafe model folder before a library opens it: pickles, paths outside the folder, absurd sizes.

Libraries that read a folder open every file that its files name. So each of these is checked first: weights must be
safetensors files in the folder, links must stay inside it, and no count or file may be larger than any real one.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import (
    HEAD_PAIRS,
    MAX_JSON_BYTES,
    TEXT,
    either,
    list_of,
    quoted,
    read_json,
    refuse_other_kinds,
    sizes,
    whole,
)
from attnviz.text.tokenizer_file import refuse_expanding_tokenizer

OPENED_FILES = (
    "*.json",
    "*.safetensors",
    "*.txt",
    "*.model",
    "*.jinja",
    "*.tiktoken",
    "*.spm",
    "*.tokenizer",
    "*_templates/*.jinja",
)
BYTES_PER_MEGABYTE = 10**6
WEIGHTS_SUFFIX, INDEX_SUFFIX = ".safetensors", ".safetensors.index.json"
UNUSED_PATHS = ("special_tokens_map_file", "tokenizer_config_file")  # tokenizer settings that no library opens
_STEPS = sizes(1, 10_000)  # a step of 0 never ends, and one of a million leaves nothing
_IDS = either(whole(-1, 2**31 - 1), list_of(whole(-1, 2**31 - 1), most=10_000))
KINDS_OF_SETTINGS = {  # by file
    "config.json": {
        r"\w*_token_id": _IDS,
        r"\w*strides?|conv_kernel|conv_dim|\w*patch_size|tubelet_size": _STEPS,
        "architectures": list_of(TEXT, most=100),
    },
    "generation_config.json": {r"\w*_token_id": _IDS, "alignment_heads": HEAD_PAIRS},
    "preprocessor_config.json": {"stride|hop_length|chunk_length|n_fft|feature_size": _STEPS},
}
MAX_LAYERS = 1024
MAX_LABELS = 100_000
MAX_PATCHES = 2**19  # of an image; Donut's have 307,200
MAX_COUNT = 1_000_000  # of heads, experts and everything else that a configuration counts
LAYER_SETTINGS = re.compile(r"n_layers?|\w*_layers|depths?|\w*_depth|first_k_dense_replace")
KERNEL_SUFFIX = "_implementation"  # the end of settings that choose the code of attention or experts
REPEATED_TYPES = "attention_types"  # of GPT-Neo: [[["global", "local"], 12]], which its configuration expands
COUNT_SETTINGS = re.compile(r"n_(?!pos|ctx)\w+|num_\w+")


def refuse_unsafe_files(folder: Path, name: str) -> None:
    """Raises AttnvizError if an entry that a library would open is no file, is too large, or links outside the folder.

    Weight files may have any size. In the hub's cache, links to the model's ``blobs`` folder are allowed.
    """
    resolved_folder = folder.resolve()
    allowed_folders = [resolved_folder]
    if resolved_folder.parent.name == "snapshots":
        allowed_folders.append(resolved_folder.parents[1] / "blobs")
    opened_files = (file for pattern in OPENED_FILES for file in folder.glob(pattern))
    for file in opened_files:
        target = Path(os.path.realpath(file))
        if not any(target.is_relative_to(allowed_folder) for allowed_folder in allowed_folders):
            raise AttnvizError(
                f"{file.name} of {name!r} is a link to {str(target)!r}, outside the folder; replace it with a copy"
            )
        if not file.is_file():
            raise AttnvizError(f"{file.name} of {name!r} is not a file; replace it with one")
        if not file.name.endswith(WEIGHTS_SUFFIX) and file.stat().st_size > MAX_JSON_BYTES:
            megabytes = MAX_JSON_BYTES // BYTES_PER_MEGABYTE
            raise AttnvizError(f"{file.name} of {name!r} is larger than {megabytes} MB, the most that is read")


def refuse_unsafe_weights(folder: Path, name: str, config: dict[str, Any]) -> None:
    """Raises AttnvizError unless every file that the folder names for weights is a safetensors file inside it.

    Indexes that libraries do not read are not checked.
    """
    weights_file = config.get("transformers_weights")
    if weights_file is not None:
        _refuse_unless_weights(folder, name, "config.json", weights_file, (WEIGHTS_SUFFIX, INDEX_SUFFIX))
    for index in folder.glob(f"*{INDEX_SUFFIX}"):
        if weights_file == index.name or not (folder / index.name.removesuffix(".index.json")).is_file():
            content = read_json(index)
            files = content.get("weight_map") if isinstance(content, dict) else None
            if not isinstance(files, dict) or not files:
                raise AttnvizError(
                    f"{index.name} of {name!r} has no weight_map of the weights' files; copy the index again"
                )
            for file in files.values():
                _refuse_unless_weights(folder, name, index.name, file, (WEIGHTS_SUFFIX,))


def refuse_unsafe_tokenizer(folder: Path, name: str) -> None:
    """Raises AttnvizError if a tokenizer's files name an existing file outside the folder, or multiply a text.

    Settings in ``UNUSED_PATHS`` are not checked, since no library opens their files.
    """
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else {}
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if key.endswith("_file") and key not in UNUSED_PATHS and isinstance(value, str):
            target, exists = Path(value), False
            with suppress(OSError, ValueError):  # no path of the system
                exists = target.exists()
            if target.name != value and exists and not target.resolve().is_relative_to(folder.resolve()):
                raise AttnvizError(f"{path.name} of {name!r} names {value!r}, outside the folder; use {target.name!r}")
    for file in folder.glob("tokenizer*.json"):
        if file.name != path.name:
            refuse_expanding_tokenizer(file)


def refuse_unsafe_settings(folder: Path, name: str, config: dict[str, Any]) -> None:
    """Raises AttnvizError if the folder's JSON files count more parts than any real model has, or choose native code.

    The limits are ``MAX_LAYERS`` for layers and ``MAX_COUNT`` for anything else, also in nested settings. Other
    settings must be of the kinds that `KINDS_OF_SETTINGS` names.
    """
    objects = list(_objects(config))
    named_values = [item for settings in objects for item in settings.items()]
    for key, value in named_values:
        limit = MAX_LAYERS if LAYER_SETTINGS.fullmatch(key) else MAX_COUNT if COUNT_SETTINGS.fullmatch(key) else None
        limit = MAX_LABELS if key == "num_labels" else limit
        counts = value if isinstance(value, list) else [value]
        largest_count = max((count for count in counts if type(count) in (int, float)), default=0)
        if limit is not None and largest_count > limit:
            raise AttnvizError(f"config.json of {name!r} has {key} {largest_count:g}, above the limit of {limit}")
        if key in ("id2label", "label2id") and isinstance(value, dict) and len(value) > MAX_LABELS:
            raise AttnvizError(f"config.json of {name!r} has {len(value)} {key}, above the limit of {MAX_LABELS}")
        if key == REPEATED_TYPES and _largest(value) > MAX_LAYERS:
            raise AttnvizError(f"config.json of {name!r} has {key} for more than {MAX_LAYERS} layers, the limit")
    for settings in objects:
        image_size, patch_size = settings.get("image_size"), settings.get("patch_size")
        image_area, patch_area = _area(image_size), _area(patch_size)
        if image_area > MAX_PATCHES * patch_area > 0:
            raise AttnvizError(
                f"config.json of {name!r} has image_size {quoted(image_size)} and patch_size {quoted(patch_size)}, "
                f"which make more than {MAX_PATCHES:,} patches, the limit"
            )
    for file, kinds in KINDS_OF_SETTINGS.items():
        if (folder / file).is_file():
            refuse_other_kinds(read_json(folder / file), kinds, f"{file} of {name!r}")
    # A kernel of the hub has a slash in its name, as in ``kernels-community/flash-attn``.
    for key, value in named_values:
        choices = _strings(value) if key.endswith(KERNEL_SUFFIX) else ()
        kernel = next((choice for choice in choices if "/" in choice), None)
        if kernel is not None:
            raise AttnvizError(
                f"config.json of {name!r} has {kernel!r} in {key}, a kernel of the hub, which is native code; "
                f"remove {key} from config.json"
            )


def _strings(value: Any) -> Iterator[str]:
    """Yields every string in a value of JSON: the value, or the strings in its lists and dictionaries; else none."""
    if isinstance(value, str):
        yield value
    for part in _parts(value):
        yield from _strings(part)


def _parts(value: Any) -> Iterable[Any]:
    """Returns the values of a JSON dictionary, or the items of a JSON list; nothing for any other value."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _largest(value: Any) -> float:
    """Returns a JSON number, or the largest number in nested lists; 0 if there is no number."""
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if type(value) in (int, float) else 0


def _refuse_unless_weights(folder: Path, name: str, source: str, file: Any, suffixes: tuple[str, ...]) -> None:
    """Raises AttnvizError unless a name of weights is a file's name with a permitted suffix, and the file exists."""
    is_file_name = isinstance(file, str) and file.endswith(suffixes) and Path(file).name == file and "\\" not in file
    if not is_file_name:
        raise AttnvizError(
            f"{source} of {name!r} names {file!r} for weights; use names of {WEIGHTS_SUFFIX} files in the folder"
        )
    if not (folder / file).is_file():
        raise AttnvizError(
            f"{source} of {name!r} names {file!r} for weights, which is not in the folder; copy it there"
        )


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """Yields a configuration and every dictionary in it."""
    if isinstance(config, dict):
        yield config
    for part in _parts(config):
        yield from _objects(part)


def _area(size: Any) -> float:
    """Returns the product of a height and a width, which one number or the last two of a list state; 0 for neither."""
    sides = size[-2:] if isinstance(size, list) else [size, size]
    return math.prod(sides) if len(sides) == 2 and all(type(side) in (int, float) for side in sides) else 0
