"""Reads attention from .npz, .npy and .safetensors files of other programs, and numbers that attnviz wrote as .npz."""

import math
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from attnviz.arrays.build import FIELDS, recording_of_arrays
from attnviz.arrays.layers import AxisLabels, Labels
from attnviz.base.errors import AttnvizError, or_list
from attnviz.base.machine import is_out_of_memory, refuse_without_memory
from attnviz.base.progress import track
from attnviz.base.reading import open_file, parse_json, read_lines
from attnviz.base.tensor_file import Entry, MemoryTensors
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import read_settings
from attnviz.maps.saved_tokens import read_tokens
from attnviz.maps.visibility import shared_or_per_head
from attnviz.text.tokens import Tokens

LABELS = ("tokens", "query_tokens")
MAX_ARRAYS = 20_000  # of one file
MAX_LABEL_BYTES = 100_000_000
MAX_LISTED = 5  # names of arrays in a refusal
ABOUT = "about"
Arrays = dict[str, NDArray[Any]]
Call = tuple[int, str, str, int]  # layer, module, kind and text, which the heads of one attention call share
AXES = ("queries", "keys")
QUANTITIES = ("score", "weight", "visible")
HIDDEN = "hidden_score"  # of masked cells, where it is known
CUT_OUT = "This file holds only some queries or keys: rows lack the weights of the other keys."


def read_arrays(path: Path, tokens: Path | None = None) -> Recording:
    """Reads a recording from a file of arrays."""
    suffixes = (".npy", ".npz", ".safetensors")
    open_file(path, f"a file that ends in {or_list(suffixes)}").close()  # refuses folders, pipes and devices
    metadata: Any = {}
    try:
        if path.suffix.lower() == ".npy":
            array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
            _refuse_large(path, array.nbytes, 0 if array.dtype == np.float32 else array.size)
            arrays: Arrays = {"weights": array}
        elif path.suffix.lower() == ".npz":
            arrays, metadata = _load_npz(path)
        else:
            arrays, metadata = _load_safetensors(path)
    except Exception as error:  # numpy and zipfile raise a dozen types for damaged or strange files
        if isinstance(error, AttnvizError) or is_out_of_memory(error):
            raise
        # numpy suggests pickle for all files of other formats
        needs_pickle = "pickle" in str(error) or "Python objects" in str(error)
        reason = "numpy did not write it, or it holds Python objects" if needs_pickle else error
        raise AttnvizError(f"cannot read {str(path)!r}: {reason}; give arrays of numbers") from error
    if not isinstance(metadata, dict):
        raise AttnvizError(f"{str(path)!r}: {ABOUT!r} is not a JSON object; leave it out, or write one")

    labels = None if tokens is None else read_lines(tokens, MAX_LABEL_BYTES, "a file of labels")
    if isinstance(metadata.get("heads"), list):
        return _recording_of_numbers(metadata, arrays, str(path), labels)
    model = metadata.get("model")
    arguments = _arguments(arrays, path)
    return recording_of_arrays(
        arguments,
        mask=arguments.get("mask"),
        scale=arguments.get("scale"),
        axis_labels=AxisLabels(arguments.get("tokens") if labels is None else labels, arguments.get("query_tokens")),
        model=model if isinstance(model, str) else path.name,
        may_change=False,
    )


def _refuse_large(path: Path, stored_bytes: int, copied_cells: int) -> None:
    """Raises AttnvizError if arrays would exceed the free memory, with the copies of other dtypes as float32."""
    refuse_without_memory(stored_bytes + 4 * copied_cells, repr(str(path)), "give fewer heads")


def _load_npz(path: Path) -> tuple[Arrays, Any]:
    """Returns the arrays of a .npz file by name, and its metadata; {} if it has none."""
    copied_cells = 0
    with zipfile.ZipFile(path) as zip_file:  # its directory states each array's size; numpy reads no more than that
        members = zip_file.infolist()
        if len(members) > MAX_ARRAYS:
            raise AttnvizError(f"{str(path)!r} holds {len(members)} arrays; give at most {MAX_ARRAYS}")
        for member in track(members, "reading headers"):
            with zip_file.open(member) as file, suppress(ValueError):  # of what is no array, or has an invalid header
                read_header = read_array_header_1_0 if read_magic(file) == (1, 0) else read_array_header_2_0
                shape, _, dtype = read_header(file)
                copied_cells += 0 if dtype == np.float32 else math.prod(shape)
    _refuse_large(path, sum(member.file_size for member in members), copied_cells)
    with np.load(path, allow_pickle=False) as archive:
        named_values = {name: archive[name] for name in track(archive.files, "reading arrays")}
    arrays = {name: value for name, value in named_values.items() if isinstance(value, np.ndarray)}
    metadata = arrays.pop(ABOUT, None)
    return arrays, {} if metadata is None else parse_json(str(metadata), f"{ABOUT!r} of {str(path)!r}")


def _load_safetensors(path: Path) -> tuple[Arrays, Any]:
    """Returns the arrays of a .safetensors file by name, and its metadata; {} if it has none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            names = list(file.keys())
            slices = [file.get_slice(name) for name in names]
        dtypes = {each.get_dtype() for each in slices}
        copied_cells = sum(math.prod(each.get_shape()) for each in slices if each.get_dtype() != "F32")
        _refuse_large(path, path.stat().st_size, copied_cells)
        has_bfloat16 = "BF16" in dtypes
        with safe_open(str(path), framework="pt" if has_bfloat16 else "numpy") as file:  # numpy has no bfloat16
            is_mapped = dtypes == {"F32"}
            tensors: dict[str, Any] = {} if is_mapped else {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise AttnvizError(f"{str(path)!r} is not a safetensors file, or is cut off: {error}; copy it again") from error
    arrays: Arrays = tensors
    if has_bfloat16:
        arrays = {name: tensor.float().numpy() for name, tensor in tensors.items()}
    elif is_mapped:
        with open_file(path) as raw_file:
            header_length = int.from_bytes(raw_file.read(8), "little")  # the format begins with it
            entries = parse_json(raw_file.read(header_length), f"the header of {str(path)!r}")
            start = raw_file.tell()
        content = np.asarray(np.memmap(path, np.uint8, mode="r", offset=start))
        for name in names:
            entry = entries[name]
            arrays[name] = content[slice(*entry["data_offsets"])].view(np.float32).reshape(entry["shape"])
    if "tokens" in metadata:
        arrays["tokens"] = np.array(parse_json(metadata["tokens"], f"the tokens of {str(path)!r}"))
    return arrays, metadata


def _arguments(arrays: Arrays, path: Path) -> dict[str, Any]:
    """Returns the arguments of `from_arrays`: for each field (``weights``, …) a mapping from layers to arrays."""
    arguments: dict[str, Any] = {}
    for name in list(arrays):
        layer, _, field = name.rpartition(".")
        if field in FIELDS:
            layer_name = f"layer {layer}" if layer.isdecimal() else layer or "layer 0"
            arguments.setdefault(field, {})[layer_name] = arrays[name]
        elif name in LABELS:
            labels = arrays[name]
            if labels.dtype.kind not in "US" or labels.ndim != 1:
                raise AttnvizError(
                    f"{str(path)!r}: {name} are {labels.dtype} of shape {labels.shape}; give a list of strings"
                )
            arguments[name] = [
                label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in labels.tolist()
            ]
        elif name == "scale":
            scale = arrays[name]
            if scale.size != 1 or scale.dtype.kind not in "fiu" or not np.isfinite(scale).all():
                raise AttnvizError(
                    f"{str(path)!r}: scale is {scale.dtype} of shape {scale.shape}; give a single finite number, or "
                    "leave it out for 1/√features"
                )
            arguments[name] = float(scale.reshape(()))
        elif name == "mask":
            arguments[name] = str(arrays[name]) if arrays[name].dtype.kind == "U" else arrays[name]
    if not set(arguments) & set(FIELDS):
        weights = {name: array for name, array in arrays.items() if name not in arguments}
        # weights are (queries, keys), with heads and layers or texts before them
        may_be_weights = [array.ndim in (2, 3, 4) and array.dtype.kind in "fiub" for array in weights.values()]
        if not weights or not all(may_be_weights):
            names = [*list(weights)[:MAX_LISTED], *(["…"] if len(weights) > MAX_LISTED else [])]
            raise AttnvizError(
                f"{str(path)!r} holds no attention under a known name: its arrays are {', '.join(names) or 'none'}; "
                f"name them {or_list(FIELDS)}, or draw a recording of attnviz"
            )
        arguments["weights"] = weights

    # The array of a single layer without a number but 0 may have layers on its first axis.
    for field, value in arguments.items():
        if isinstance(value, dict) and len(value) == 1 and not re.search(r"[1-9]", next(iter(value))):
            arguments[field] = next(iter(value.values()))
    return arguments


def _recording_of_numbers(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], file_name: str, labels: Labels | None = None
) -> Recording:
    """Returns the heads whose numbers a file holds, in arrays ``(queries, keys)`` with names such as ``0.3.weight``."""
    heads_of_call: dict[Call, list[Entry]] = {}
    for head in Entry(about, file_name).entries("heads"):
        if "module" not in head.value:
            raise AttnvizError(f"{file_name!r} holds the numbers of a comparison; give numbers that attnviz show wrote")
        call = (head.count("layer"), head.line("module"), head.line("kind"), head.count("item"))
        heads_of_call.setdefault(call, []).append(head)
    axes = read_tokens(MemoryTensors(about, arrays, file_name))
    source = Entry(about, file_name).entry("recording")
    heads = [head for call_heads in heads_of_call.values() for head in call_heads]
    is_part = any(
        len(entry.lines("tokens")) < len(axes[entry.count("axis", len(axes))])
        for head in heads
        for entry in map(head.entry, AXES)
    )
    return Recording(
        maps=tuple(_maps(*heads_of, arrays, axes, labels) for heads_of in heads_of_call.items()),
        model=source.line("model"),
        untrained=source.required_value("untrained", bool),
        settings=read_settings(source),
        seed=None if source.value.get("seed") is None else source.count("seed", 2**64),  # torch's seeds have 64 bits
        version=source.line("version"),
        remarks=(*source.sentences("remarks"), *([CUT_OUT] if is_part else [])),
    )


def _maps(
    call: Call, heads: list[Entry], arrays: dict[str, NDArray[Any]], axes: list[Tokens], labels: Labels | None
) -> DenseMaps:
    layer, module, kind, item = call
    scores, weights, visible = (_stacked_arrays(heads, arrays, name) for name in QUANTITIES)
    visible = visible.astype(bool)
    unknown = {f"{head.line('name')}.{HIDDEN}": np.full(scores.shape[1:], np.nan) for head in heads}
    scores = np.where(visible, scores, _stacked_arrays(heads, unknown | arrays, HIDDEN))
    weights = np.where(visible, weights, 0)
    if labels is not None:
        query_tokens, key_tokens = AxisLabels(labels, None).of_axes(*weights.shape[1:])
    else:
        entries = [heads[0].entry(axis) for axis in AXES]
        whole_axes = [axes[entry.count("axis", len(axes))] for entry in entries]
        starts = [entry.count("first", len(tokens)) for entry, tokens in zip(entries, whole_axes, strict=True)]
        stops = [start + size for start, size in zip(starts, weights.shape[1:], strict=True)]
        if kind == "self":  # positions count from the end, so what the file lacks there becomes cells that are hidden
            missing = [len(tokens) - stop for tokens, stop in zip(whole_axes, stops, strict=True)]
            added = [each - min(missing) for each in missing]
            edges = ((0, 0), (0, added[0]), (0, added[1]))
            scores = np.pad(scores, edges, constant_values=np.nan)
            weights, visible = np.pad(weights, edges), np.pad(visible, edges)
            stops = [stop + each for stop, each in zip(stops, added, strict=True)]
        query_tokens, key_tokens = (
            tokens if (start, stop) == (0, len(tokens)) else tokens.take(np.arange(start, stop))
            for tokens, start, stop in zip(whole_axes, starts, stops, strict=True)
        )
        if whole_axes[0] is whole_axes[1] and (starts[0], stops[0]) == (starts[1], stops[1]):
            query_tokens = key_tokens
    key_heads = [head.count("key_head") for head in heads if "key_head" in head.value]
    return DenseMaps(
        layer=layer,
        module=module,
        heads=tuple(head.count("head") for head in heads),
        query_tokens=query_tokens,
        key_tokens=key_tokens,
        kind="cross" if kind == "cross" else "self",
        item=item,
        scale=heads[0].number("scale"),
        fidelity=heads[0].number("fidelity"),
        scores=scores.astype(np.float32),
        weights=weights.astype(np.float32),
        visible=shared_or_per_head(visible),
        key_heads=tuple(key_heads) if len(key_heads) == len(heads) else None,
    )


def _stacked_arrays(heads: list[Entry], arrays: dict[str, NDArray[Any]], quantity: str) -> NDArray[Any]:
    """Returns a quantity of all heads of a call, ``(heads, queries, keys)``; refuses missing arrays."""
    names = [f"{head.line('name')}.{quantity}" for head in heads]
    for name in names:
        if name not in arrays or arrays[name].ndim != 2 or arrays[name].shape != arrays[names[0]].shape:
            fault = f"{name} is missing or of another shape"
            raise AttnvizError(f"{heads[0].what!r}: {fault}; write the numbers again with attnviz show")
    return np.stack([arrays[name] for name in names])
