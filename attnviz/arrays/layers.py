"""Converts what users pass as arrays, of any library, to numpy: an array for each text, masks, labels of tokens."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from mmap import mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.text.tokens import Tokens, labels_given

CAUSAL = "causal"
FORMS = "(heads, queries, keys), with layers before them, or a list or mapping of layers"

Labels = Sequence[str]


class ArrayText(NamedTuple):
    """The array of one text in one layer."""

    layer_index: int  # the index of the layer among all, which a mask with an axis of layers is read by
    layer: int  # the number of the layer, from 0
    module: str  # the name of the layer in the recording
    item: int  # the index of the text
    location: str  # the layer, and the text if there are several, for messages
    array: NDArray[Any]  # ``(heads, queries, keys)``, or ``(heads, tokens, features)``


class AxisLabels:
    """The labels of both axes, which become `Tokens` once the number of tokens is known."""

    def __init__(self, tokens: Labels | Tokens | None, query_tokens: Labels | Tokens | None) -> None:
        for name, labels in (("tokens", tokens), ("query_tokens", query_tokens)):
            if isinstance(labels, str):
                raise AttnvizError(f"{name} are one text, {labels[:40]!r}; give a list with a label for each token")
        self.tokens, self.query_tokens = tokens, query_tokens
        self.tokens_of_axes: dict[tuple[str, int], Tokens] = {}

    def of_axes(self, queries: int, keys: int, shape: tuple[int, ...]) -> tuple[Tokens, Tokens]:
        """Returns the tokens of the queries and of the keys; one object for both if they are the same tokens.

        They are the same if there are as many queries as keys, and the queries have no labels. ``shape`` is that of the
        array, for messages.
        """
        key_tokens = self._tokens("keys", self.tokens, keys, shape)
        if self.query_tokens is None and queries == keys:
            return key_tokens, key_tokens
        return self._tokens("queries", self.query_tokens, queries, shape), key_tokens

    def _tokens(self, axis: str, labels: Labels | Tokens | None, count: int, shape: tuple[int, ...]) -> Tokens:
        """Returns the tokens of an axis, numbered if there are no labels; refuses another number of labels."""
        if (axis, count) not in self.tokens_of_axes:
            if labels is not None and len(labels) != count:
                advice = f"; the first axis of {shape} is read as heads" if len(labels) in shape else ""
                raise AttnvizError(f"{len(labels)} labels for {count} {axis}; give one for each{advice}")
            if labels is None:
                labels = Tokens.numbered(count)
            elif not isinstance(labels, Tokens):
                labels = Tokens.labelled(labels_given(labels), repeats=True)
            self.tokens_of_axes[axis, count] = labels
        return self.tokens_of_axes[axis, count]


def texts_of(arrays: Any, role: str) -> list[ArrayText]:
    """Returns the array of each text of each layer.

    A single array of four axes has the layers on its first; one of fewer axes is the only layer. In a list or mapping,
    the first of four axes are texts. A mapping is sorted by the numbers in its names.
    """
    if isinstance(arrays, Mapping):
        names = list(map(str, arrays))
        layers = list(zip(_layer_numbers(names), names, arrays.values(), strict=True))
    else:
        if not (isinstance(arrays, list | tuple) and arrays and hasattr(arrays[0], "shape")):
            array = array_of(arrays, role)
            arrays = array if array.ndim == 4 else [array]
        layers = [(number, f"layer {number}", array) for number, array in enumerate(arrays)]
    texts = []
    for index, (number, name, values) in enumerate(sorted(layers, key=lambda layer: layer[0])):
        array = array_of(values, role)
        if array.ndim not in (2, 3, 4) or 0 in array.shape:
            raise AttnvizError(f"{role} have shape {array.shape}; give {FORMS}")
        batch = array.reshape((1,) * (4 - array.ndim) + array.shape)  # axes of length 1 for texts and heads
        for item, text in enumerate(batch):
            location = f"layer {number}" + (f", text {item}" if len(batch) > 1 else "")
            texts.append(ArrayText(index, number, name, item, location, text))
    return texts


def _layer_numbers(names: list[str]) -> list[int]:
    """Returns the number in each name that differs between names, such as 3 in ``blocks.3.attn_0``."""
    numbers_in_names = [re.findall(r"\d+", name) for name in names]
    if len({len(digits_of_name) for digits_of_name in numbers_in_names}) != 1:
        return list(range(len(names)))
    columns = list(zip(*numbers_in_names, strict=True))
    varying_columns = [column for column in columns if len(names) == 1 or len(set(column)) > 1]
    numbers = [int(digits) for digits in varying_columns[0] if len(digits) < 7] if len(varying_columns) == 1 else []
    return numbers if len(set(numbers)) == len(names) else list(range(len(names)))


def array_of(values: Any, role: str) -> NDArray[Any]:
    """Returns an array of any library as a numpy array, without importing that library.

    bfloat16 and all floats of torch become float32; other dtypes stay.
    """
    if hasattr(values, "detach"):  # a torch tensor: numpy takes none that has a gradient or lies on another device
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    array = _to_numpy(values)
    if array is None or array.dtype.kind not in "fiub":
        raise AttnvizError(f"{role} are not an array of numbers but of type {type(values).__name__}; give {FORMS}")
    return array


def _to_numpy(values: Any) -> NDArray[Any] | None:
    """Returns the values as a numpy array, by DLPack or ``__array__``; a numpy array without a copy."""
    if type(values) in (np.ndarray, np.memmap):
        return np.asarray(values)
    if str(getattr(values, "dtype", "")) == "bfloat16":  # numpy has no bfloat16, though DLPack has
        values = values.astype("float32")
    for convert in (np.from_dlpack, np.asarray):
        try:
            array: NDArray[Any] = convert(values)
        except (TypeError, BufferError, AttributeError, RuntimeError, ValueError):
            continue
        return array
    return None


def float_array(array: NDArray[Any], may_change: bool) -> FloatArray:
    """Returns an array as float32, without a copy if `is_shared`."""
    return array if is_shared(array, may_change) else np.array(array, dtype=np.float32)


def is_shared(array: NDArray[Any], may_change: bool) -> bool:
    """True if an array is used without a copy: it is float32, and nobody changes its memory."""
    if array.dtype != np.float32 or not may_change:
        return array.dtype == np.float32
    # it is read-only, as is all memory that it shares, such as a mapped file's
    owner: Any = array
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    return owner is None or isinstance(owner, mmap)  # read-only arrays are mapped as ACCESS_READ


def refuse_layers_of_mask(mask: Any, layers: int) -> None:
    """Raises AttnvizError if a mask has an axis of layers whose length is neither 1 nor the number of layers."""
    if mask is None or isinstance(mask, str):
        return
    mask_array = array_of(mask, "mask")
    if mask_array.ndim == 4 and len(mask_array) not in (1, layers):
        raise AttnvizError(
            f"the mask has {len(mask_array)} layers and the maps have {layers}; give one for each layer, or one for all"
        )


def visible_cells(mask: Any, shape: tuple[int, ...], layer: int) -> BoolArray | None:
    """Returns the visible cells, ``(queries, keys)`` or ``(heads, queries, keys)``; ``None`` if there is no mask."""
    if mask is None:
        return None
    heads, queries, keys = shape
    if isinstance(mask, str):
        if mask != CAUSAL:
            raise AttnvizError(
                f"unknown mask {mask!r}; give {CAUSAL!r}, or an array that is true where a query may see a key"
            )
        return rule_cells(queries, keys, is_causal=True)
    mask_array = array_of(mask, "mask")
    if mask_array.dtype != bool and not np.isin(mask_array, (0, 1)).all():
        raise AttnvizError("the mask has numbers other than 0 and 1; give true where a query may see a key")
    if mask_array.ndim == 4:
        mask_array = mask_array[layer if len(mask_array) > 1 else 0]
    if mask_array.ndim == 3 and len(mask_array) == 1:
        mask_array = mask_array[0]
    try:
        # the mask gets an axis of heads only if it has one itself
        return np.broadcast_to(mask_array, (heads, queries, keys)[-max(mask_array.ndim, 2) :]).astype(bool)
    except ValueError:
        raise AttnvizError(
            f"a mask of shape {mask_array.shape} does not broadcast to maps of shape {shape}; "
            f"give {shape[1:]} or {shape}"
        ) from None


@lru_cache(maxsize=2)
def rule_cells(queries: int, keys: int, *, is_causal: bool) -> BoolArray:
    """Returns the visible cells of a causal mask, or all cells, ``(queries, keys)``, read-only: layers share them.

    The last query of a causal mask sees every key, as with a cache.
    """
    cells = np.tri(queries, keys, keys - queries if is_causal else keys, dtype=bool)
    cells.setflags(write=False)
    return cells


def refuse_not_finite(array: FloatArray, role: str, location: str) -> None:
    """Raises AttnvizError with the first position at which ``(heads, tokens, features)`` is not finite."""
    if not (np.isfinite(array.max()) and np.isfinite(array.min())):
        head, token, feature = (int(index) for index in np.argwhere(~np.isfinite(array))[0])
        number = "NaN" if np.isnan(array[head, token, feature]) else "infinite"
        place = f"{'query' if role == 'queries' else 'key'} {token}, feature {feature}"
        raise AttnvizError(f"{location}: {role} of head {head} are {number} at {place}; give finite numbers")


def refuse_nan(array: FloatArray, role: str, location: str) -> None:
    """Raises AttnvizError, which names the first position, if a number of ``(heads, queries, keys)`` is NaN."""
    if np.isnan(array.max()):
        head, row, column = (int(index) for index in np.argwhere(np.isnan(array))[0])
        place = f"query {row}, key {column}"
        raise AttnvizError(f"{location}: {role} of head {head} are NaN at {place}; give numbers")
