"""Reads the attention that other programs wrote as .npz, .npy or .safetensors, and the numbers that attnviz wrote."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.build import from_arrays
from attnviz.base.errors import AttnvizError, or_list
from attnviz.base.machine import refuse_without_memory
from attnviz.base.reading import open_file, parse_json, read_lines
from attnviz.maps.recording import Recording

FIELDS = ("weights", "scores", "queries", "keys")  # after the name of a layer, as in ``12.weights``, or alone
LABELS = ("tokens", "query_tokens")
MAX_ARRAYS = 100_000  # of one file
MAX_LABEL_BYTES = 100_000_000
MAX_LISTED = 5  # names of arrays in a refusal
ABOUT = "about"
Arrays = dict[str, NDArray[Any]]


def read_arrays(path: Path, tokens: Path | None = None) -> Recording:
    """Reads a recording from a file of arrays.

    Args:
        path: a .npy of weights; a .npz or .safetensors of arrays called ``weights``, ``scores``, or ``queries`` and
            ``keys``, with ``12.`` or another name of their layer before it, and ``mask``, ``tokens`` and ``scale``; one
            whose arrays are all weights, whatever their names; or the numbers that attnviz wrote as .npz.
        tokens: a text file with the label of a token on each line, in place of those in the file.

    Raises:
        AttnvizError: if a file cannot be read, needs pickle, or has no attention in it.
    """
    arrays, about = _load(path)
    labels = None if tokens is None else read_lines(tokens, MAX_LABEL_BYTES, "a file of labels")
    if isinstance(about.get("heads"), list):
        from attnviz.arrays.numbers import recording_of_numbers

        return recording_of_numbers(about, arrays, str(path), labels)
    model = about.get("model")
    arguments = _arguments(arrays, path)
    if labels is not None:
        arguments["tokens"] = labels
    return from_arrays(model=model if isinstance(model, str) else path.name, **arguments)


def _load(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Returns the arrays by name, and what the file says about them."""
    readers = {".npy": _load_npy, ".npz": _load_npz, ".safetensors": _load_safetensors}
    with open_file(path, f"one that ends in {or_list(readers)}"):  # refuses what is no regular file
        refuse_without_memory(path.stat().st_size, repr(str(path)), "give fewer heads")
    try:
        arrays, about = readers[path.suffix.lower()](path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        if isinstance(error, AttnvizError):
            raise
        foreign = "pickle" in str(error)  # which numpy asks for whenever a file does not begin as its own do
        reason = "numpy did not write it, or it holds Python objects" if foreign else error
        raise AttnvizError(f"cannot read {str(path)!r}: {reason}; give arrays of numbers") from error
    if not isinstance(about, dict):
        raise AttnvizError(f"{str(path)!r}: {ABOUT!r} is no JSON object; leave it out, or write one")
    return arrays, about


def _load_npy(path: Path) -> tuple[Arrays, Any]:
    return {"weights": np.load(path, allow_pickle=False)}, {}


def _load_npz(path: Path) -> tuple[Arrays, Any]:
    with zipfile.ZipFile(path) as archive:  # whose directory says how long each array is, and none is read further
        members = archive.infolist()
    if len(members) > MAX_ARRAYS:
        raise AttnvizError(f"{str(path)!r} holds {len(members)} arrays; give at most {MAX_ARRAYS}")
    refuse_without_memory(sum(member.file_size for member in members), repr(str(path)), "give fewer heads")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    about = arrays.pop(ABOUT, None)
    return arrays, {} if about is None else parse_json(str(about), f"{ABOUT!r} of {str(path)!r}")


def _load_safetensors(path: Path) -> tuple[Arrays, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            about = dict(file.metadata() or {})
            half = any(file.get_slice(name).get_dtype() == "BF16" for name in file.keys())  # noqa: SIM118
        with safe_open(str(path), framework="pt" if half else "numpy") as file:  # numpy has no bfloat16
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise AttnvizError(f"{str(path)!r} is not a safetensors file, or is cut off: {error}") from error
    if half:
        arrays = {name: tensor.float().numpy() for name, tensor in arrays.items()}
    if "tokens" in about:
        arrays["tokens"] = np.array(parse_json(about["tokens"], f"the tokens of {str(path)!r}"))
    return arrays, about


def _arguments(arrays: Arrays, path: Path) -> dict[str, Any]:
    """Returns the arguments of ``from_arrays``: arrays by the last part of their names, in mappings of layers."""
    found: dict[str, Any] = {}
    for name in list(arrays):
        layer, _, field = name.rpartition(".")
        if field in FIELDS:
            found.setdefault(field, {})[f"layer {layer}" if layer.isdecimal() else layer or "layer 0"] = arrays[name]
        elif name in LABELS:
            found[name] = _labels(arrays[name], name, path)
        elif name == "scale":
            found[name] = _number(arrays[name], path)
        elif name == "mask":
            found[name] = str(arrays[name]) if arrays[name].dtype.kind == "U" else arrays[name]
    if not set(found) & set(FIELDS):
        found["weights"] = {name: array for name, array in arrays.items() if name not in found}
        _refuse_other(found["weights"], path)
    return {name: _alone(value) for name, value in found.items()}


def _refuse_other(arrays: Arrays, path: Path) -> None:
    """Raises AttnvizError where arrays whose names say nothing cannot all be weights."""
    if not arrays or any(array.ndim not in (2, 3, 4) or array.dtype.kind not in "fiub" for array in arrays.values()):
        names = [*list(arrays)[:MAX_LISTED], *(["…"] if len(arrays) > MAX_LISTED else [])]
        raise AttnvizError(
            f"{str(path)!r} holds no attention under a known name: its arrays are {', '.join(names) or 'none'}; "
            f"call them {or_list(FIELDS)}, or draw what attnviz record writes"
        )


def _alone(value: Any) -> Any:
    """Returns the array of a mapping that names no layer, since its axes may be layers; any other value as it is."""
    unnamed = isinstance(value, dict) and len(value) == 1 and not re.search(r"[1-9]", next(iter(value)))
    return next(iter(value.values())) if unnamed else value


def _labels(array: NDArray[Any], name: str, path: Path) -> list[str]:
    if array.dtype.kind not in "US" or array.ndim != 1:
        raise AttnvizError(f"{str(path)!r}: {name} are {array.dtype} of shape {array.shape}; give a list of strings")
    return [label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in array.tolist()]


def _number(array: NDArray[Any], path: Path) -> float:
    if array.size != 1 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise AttnvizError(f"{str(path)!r}: scale is no single number; leave it out for 1/√features")
    return float(array.reshape(()))
