"""Reads arrays of any library as numbers: one array for each layer, its mask, and the labels of its tokens."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.text.tokens import Tokens

CAUSAL = "causal"
FORMS = "(heads, queries, keys), with layers before them, or a list or mapping of layers"

Labels = Sequence[str]


@dataclass(frozen=True, eq=False)
class ArrayLayer:
    """One array of a layer.

    Attributes:
        number: of the layer, from 0.
        name: what the array is called.
        array: ``(texts, heads, ...)``, two more axes.
    """

    number: int
    name: str
    array: NDArray[Any]


class AxisLabels:
    """The labels of both axes, as tokens of any number that is asked for.

    Args:
        tokens: one a key.
        query_tokens: one a query, where they are others.
    """

    def __init__(self, tokens: Labels | None, query_tokens: Labels | None) -> None:
        for name, labels in (("tokens", tokens), ("query_tokens", query_tokens)):
            if isinstance(labels, str):
                raise AttnvizError(f"{name} are one text, {labels[:40]!r}; give a list with a label for each token")
        self.tokens, self.query_tokens = tokens, query_tokens
        self.cached: dict[tuple[str, int], Tokens] = {}

    def of_axes(self, queries: int, keys: int) -> tuple[Tokens, Tokens]:
        """Returns the tokens of the queries and of the keys: one value where both are the same tokens."""
        key_tokens = self._tokens("keys", self.tokens, keys)
        if self.query_tokens is None and queries == keys:
            return key_tokens, key_tokens
        return self._tokens("queries", self.query_tokens, queries), key_tokens

    def _tokens(self, axis: str, labels: Labels | None, count: int) -> Tokens:
        if (axis, count) not in self.cached:
            if labels is not None and len(labels) != count:
                raise AttnvizError(f"{len(labels)} labels for {count} {axis}; give one for each")
            self.cached[axis, count] = Tokens.numbered(count) if labels is None else _labelled(labels)
        return self.cached[axis, count]


def _labelled(labels: Labels) -> Tokens:
    """Returns tokens with these labels; equal labels get one id, so that repeats are found."""
    written = tuple(map(str, labels))
    numbers = {label: number for number, label in enumerate(dict.fromkeys(written))}
    ids = np.array([numbers[label] for label in written], dtype=np.int64)
    return replace(Tokens.numbered(len(written)), labels=written, ids=ids)


def layers_of(given: Any, what: str) -> list[ArrayLayer]:
    """Returns the array of each layer, ``(texts, heads, ...)``."""
    if isinstance(given, Mapping):
        numbers = _layer_numbers(list(map(str, given)))
        return [
            _in_layer(number, str(name), array_of(array, what), what)
            for number, (name, array) in zip(numbers, given.items(), strict=True)
        ]
    if isinstance(given, list | tuple) and given and hasattr(given[0], "shape"):
        return [_in_layer(number, f"layer {number}", array_of(each, what), what) for number, each in enumerate(given)]
    array = array_of(given, what)
    if array.ndim == 4:
        return [_in_layer(number, f"layer {number}", each, what) for number, each in enumerate(array)]
    return [_in_layer(0, "layer 0", array, what)]


def _layer_numbers(names: list[str]) -> list[int]:
    """Returns the number in each name, as in ``blocks.3.attn``, if each has one and all differ; else their order."""
    found = [re.findall(r"\d+", name) for name in names]
    numbers = [int(each[0]) for each in found if len(each) == 1 and len(each[0]) < 7]
    return numbers if len(set(numbers)) == len(names) else list(range(len(names)))


def _in_layer(number: int, name: str, array: NDArray[Any], what: str) -> ArrayLayer:
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise AttnvizError(f"{what} have shape {array.shape}; give {FORMS}")
    return ArrayLayer(number, name, array.reshape((1,) * (4 - array.ndim) + array.shape))


def array_of(given: Any, what: str) -> NDArray[Any]:
    """Returns the numbers of an array of any library, without importing it; bfloat16 and float16 become float32.

    Args:
        given: an array, or nested lists of numbers.
        what: how a refusal names it.

    Raises:
        AttnvizError: if it is no array of numbers.
    """
    if hasattr(given, "detach"):  # of torch: numpy takes no tensor that has a gradient or lies on another device
        given = given.detach().cpu()
        given = given.float() if given.is_floating_point() else given
    array = _numpy_of(given)
    if array is None or array.dtype.kind not in "fiub":
        raise AttnvizError(f"{what} are no array of numbers but {type(given).__name__}; give {FORMS}")
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind == "f" else array


def _numpy_of(given: Any) -> NDArray[Any] | None:
    if str(getattr(given, "dtype", "")) == "bfloat16":  # DLPack has it, and numpy does not
        given = given.astype("float32")
    for convert in (np.from_dlpack, np.asarray):
        try:
            array: NDArray[Any] = convert(given)
        except (TypeError, BufferError, AttributeError, RuntimeError, ValueError):
            continue
        return array
    return None


def visible_cells(mask: Any, shape: tuple[int, ...], layer: int) -> BoolArray | None:
    """Returns the visible cells, ``(queries, keys)`` or ``(heads, queries, keys)``; ``None`` where all are.

    Raises:
        AttnvizError: if a mask is of another shape.
    """
    if mask is None:
        return None
    heads, queries, keys = shape
    if isinstance(mask, str):
        if mask != CAUSAL:
            raise AttnvizError(f"unknown mask {mask!r}; give {CAUSAL!r}, or an array that is true where a key is seen")
        return np.tri(queries, keys, keys - queries, dtype=bool)  # the last query sees every key, as with a cache
    allowed = array_of(mask, "mask")
    if allowed.dtype != bool and not np.isin(allowed, (0, 1)).all():
        raise AttnvizError("the mask has numbers other than 0 and 1; give true where a query may see a key")
    if allowed.ndim == 4:
        allowed = allowed[layer if len(allowed) > 1 else 0]
    if allowed.ndim == 3 and len(allowed) == 1:
        allowed = allowed[0]
    try:
        return np.broadcast_to(allowed, (heads, queries, keys)[-max(allowed.ndim, 2) :]).astype(bool)
    except ValueError:
        raise AttnvizError(f"the mask of shape {allowed.shape} does not fit maps of {shape}") from None


def refuse_nan(array: FloatArray, what: str, where: str) -> None:
    """Raises AttnvizError where a number is NaN, naming the first."""
    unknown = np.isnan(array)
    if unknown.any():
        head, query, key = (int(place) for place in np.argwhere(unknown)[0])
        raise AttnvizError(f"{where}: {what} of head {head} are NaN at query {query}, key {key}; give numbers")
