"""Reads the exact numbers that ``attnviz show -o numbers.npz`` wrote."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.layers import AxisLabels, Labels
from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import Entry
from attnviz.maps.dense import DenseMaps
from attnviz.maps.recording import Recording

Call = tuple[int, str, str, int]  # layer, module, kind and text, which the heads of one attention call share
QUANTITIES = ("score", "weight", "visible")
CUT_OUT = "This file holds only some queries or keys: rows lack the weights of the other keys."


def recording_of_numbers(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], file_name: str, labels: Labels | None = None
) -> Recording:
    """Returns a recording of the heads whose numbers a file holds.

    Args:
        about: the metadata of the file: ``heads``, each with its name, layer, module and tokens, and ``recording``.
        arrays: an array ``(queries, keys)`` for each head and quantity, by names such as ``0.3.weight``.
        file_name: the name of the file in refusals.
        labels: labels that replace those in the file; ``None`` to keep the labels of the file.

    Raises:
        AttnvizError: if the file holds a comparison, or lacks a value or an array.
    """
    heads_of_call: dict[Call, list[Entry]] = {}
    for head in Entry(about, file_name).entries("heads"):
        if "module" not in head.value:
            raise AttnvizError(f"{file_name!r} holds the numbers of a comparison; give numbers that attnviz show wrote")
        call = (head.count("layer"), head.line("module"), head.line("kind"), head.count("item"))
        heads_of_call.setdefault(call, []).append(head)
    source = Entry(about, file_name).entry("recording")
    heads = [head for call_heads in heads_of_call.values() for head in call_heads]
    # a first index above 0 means that earlier queries or keys were cut off
    is_part = any(head.entry(axis).count("first") for head in heads for axis in ("queries", "keys"))
    return Recording(
        maps=tuple(_maps(call, call_heads, arrays, file_name, labels) for call, call_heads in heads_of_call.items()),
        model=source.line("model"),
        untrained=source.required_value("untrained", bool),
        settings=source.required_value("settings", dict),
        seed=None if source.value.get("seed") is None else source.count("seed", 2**64),  # torch's seeds have 64 bits
        version=source.line("version"),
        remarks=(*source.sentences("remarks"), *([CUT_OUT] if is_part else [])),
    )


def _maps(
    call: Call, heads: list[Entry], arrays: dict[str, NDArray[Any]], file_name: str, labels: Labels | None
) -> DenseMaps:
    """Returns the maps of the heads of one attention call.

    Args:
        call: layer, module, kind and text of the call.
        heads: the metadata of its heads.
        arrays: an array ``(queries, keys)`` for each head and quantity, by names such as ``0.3.weight``.
        file_name: the name of the file in refusals.
        labels: labels that replace those in the file; ``None`` to keep the labels of the file.

    Raises:
        AttnvizError: if an array is missing, or of another shape than those of the other heads.
    """
    layer, module, kind, item = call
    scores, weights, visible = (_stacked_arrays(heads, arrays, name, file_name) for name in QUANTITIES)
    query_labels, key_labels = (_labels(heads[0].entry(axis), labels) for axis in ("queries", "keys"))
    axes = AxisLabels(key_labels, None if query_labels == key_labels else query_labels)
    query_tokens, key_tokens = axes.of_axes(*weights.shape[1:])
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
        visible=visible.astype(bool),
    )


def _stacked_arrays(heads: list[Entry], arrays: dict[str, NDArray[Any]], quantity: str, file_name: str) -> NDArray[Any]:
    """Returns a quantity of all heads of a call, ``(heads, queries, keys)``; refuses missing arrays."""
    names = [f"{head.line('name')}.{quantity}" for head in heads]
    for name in names:
        if name not in arrays or arrays[name].ndim != 2 or arrays[name].shape != arrays[names[0]].shape:
            fault = f"{name} is missing or of another shape"
            raise AttnvizError(f"{file_name!r}: {fault}; write the numbers again with attnviz show")
    return np.stack([arrays[name] for name in names])


def _labels(axis: Entry, labels: Labels | None) -> Labels:
    """Returns the labels of the user, or those of the file if the user gave none."""
    return axis.lines("tokens") if labels is None else labels
