"""Reads the exact numbers that ``attnviz show -o numbers.npz`` wrote."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.arrays.layers import AxisLabels, Labels
from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import Entry
from attnviz.maps.dense import DenseMaps
from attnviz.maps.recording import Recording

Call = tuple[int, str, str, int]  # layer, module, kind and text: what heads of one attention call share
QUANTITIES = ("score", "weight", "visible")
CUT_OUT = "Only some of the queries or keys are in this file: weights of the others are missing from the rows."


def recording_of_numbers(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], what: str, labels: Labels | None = None
) -> Recording:
    """Makes a recording from the numbers of heads.

    Args:
        about: what the file says of them: ``heads``, each with its name, its numbers and its tokens, and ``recording``.
        arrays: ``(queries, keys)`` each, by names as ``0.3.weight``.
        what: how a refusal names the file.
        labels: of the tokens, in place of those in the file.

    Raises:
        AttnvizError: if they are of a comparison, or not as attnviz writes them.
    """
    calls: dict[Call, list[Entry]] = {}
    for head in Entry(about, what).entries("heads"):
        if "module" not in head.value:
            raise AttnvizError(f"{what!r} holds the numbers of a comparison; give those that attnviz show wrote")
        key = (head.count("layer"), head.line("module"), head.line("kind"), head.count("item"))
        calls.setdefault(key, []).append(head)
    origin = Entry(about, what).entry("recording")
    heads = [head for each in calls.values() for head in each]
    is_part = any(head.entry(axis).count("first") for head in heads for axis in ("queries", "keys"))
    return Recording(
        maps=tuple(_maps(call, heads, arrays, what, labels) for call, heads in calls.items()),
        model=origin.line("model"),
        untrained=origin.required_value("untrained", bool),
        settings=origin.required_value("settings", dict),
        seed=None if origin.value.get("seed") is None else origin.count("seed", 2**64),
        version=origin.line("version"),
        remarks=(*origin.sentences("remarks"), *([CUT_OUT] if is_part else [])),
    )


def _maps(
    call: Call, heads: list[Entry], arrays: dict[str, NDArray[Any]], what: str, labels: Labels | None
) -> DenseMaps:
    layer, module, kind, item = call
    scores, weights, visible = (_stacked(heads, arrays, name, what) for name in QUANTITIES)
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


def _stacked(heads: list[Entry], arrays: dict[str, NDArray[Any]], quantity: str, what: str) -> NDArray[Any]:
    """Returns a quantity of all heads of a call, ``(heads, queries, keys)``."""
    names = [f"{head.line('name')}.{quantity}" for head in heads]
    missing = next((name for name in names if name not in arrays or arrays[name].ndim != 2), None)
    if missing is not None or len({arrays[name].shape for name in names}) > 1:
        raise AttnvizError(f"{what!r}: {missing or names[0]} is missing or of another shape; write the numbers again")
    return np.stack([arrays[name] for name in names])


def _labels(axis: Entry, labels: Labels | None) -> Labels:
    return axis.lines("tokens") if labels is None else labels
