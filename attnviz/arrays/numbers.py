"""Reads the exact numbers that ``attnviz show -o numbers.npz`` wrote."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.layers import AxisLabels, Labels
from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import Entry, MemoryTensors
from attnviz.maps.dense import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.maps.saved_tokens import read_tokens
from attnviz.maps.visibility import shared_or_per_head
from attnviz.text.tokens import Tokens

Call = tuple[int, str, str, int]  # layer, module, kind and text, which the heads of one attention call share
AXES = ("queries", "keys")
QUANTITIES = ("score", "weight", "visible")
HIDDEN = "hidden_score"  # of masked cells, where it is known
CUT_OUT = "This file holds only some queries or keys: rows lack the weights of the other keys."


def recording_of_numbers(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], file_name: str, labels: Labels | None = None
) -> Recording:
    """Returns a recording of the heads whose numbers a file holds.

    Args:
        arrays: an array ``(queries, keys)`` for each head and quantity, by names such as ``0.3.weight``.

    Raises:
        AttnvizError: if the file holds a comparison, or lacks a value or an array.
    """
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
        settings=source.required_value("settings", dict),
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
