"""Tracks which token each element of a tensor belongs to, however a model moves its tokens.

A model that attends in windows cuts its tokens into windows, and joins them again. Each such function is repeated on a
tensor that holds the number of each token instead of its features.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.capture.flow.functions import RESHAPING

MOVING = {
    "view", "reshape", "permute", "transpose", "flatten", "unflatten", "squeeze", "unsqueeze", "roll", "contiguous",
    "clone", "chunk", "unbind", "split", "tensor_split", "__getitem__", "narrow", "select", "movedim", "moveaxis",
    "swapaxes", "swapdims", "expand", "flip", "cat", "concat", "concatenate", "stack", "unfold", "index_select",
    "tile", "repeat", "adjoint",
}  # fmt: skip  # functions that move elements
KEEPING = {
    "add", "sub", "mul", "div", "true_divide", "rsub", "neg", "__add__", "__radd__", "__mul__", "__rmul__", "__sub__",
    "__truediv__", "__iadd__", "__imul__", "add_", "mul_", "layer_norm", "rms_norm", "batch_norm", "dropout", "gelu",
    "relu", "silu", "normalize", "to", "float", "half", "bfloat16", "double", "type", "clamp", "detach",
}  # fmt: skip  # functions that are element-wise, or work on the features of each token
WRITING = {"__setitem__", "copy_", "index_put_", "masked_fill_", *RESHAPING}  # functions that change a tensor in place
MIN_AXES = 3  # texts, tokens and features
IMAGE_AXES = 4  # texts, features, rows and columns


class Origin(NamedTuple):
    """The token that each element of a tensor belongs to.

    Attributes:
        numbers: the index of the token, counted through all texts; -1 for padding. Same shape as the tensor.
        texts: the number of texts.
        tokens: the number of tokens of each text.
    """

    numbers: Tensor
    texts: int
    tokens: int

    def transposed(self) -> "Origin":
        """Returns the origin of the tensor with its last two axes exchanged."""
        return self._replace(numbers=self.numbers.transpose(-1, -2))


class TokenPlaces:
    """Follows tokens through the calls of torch functions while it is active."""

    def __init__(self) -> None:
        self.is_active = True
        self._origins: Any = WeakIdKeyDictionary()

    def stop(self) -> None:
        """Forgets all origins and stops to follow calls."""
        self.is_active = False
        self._origins = WeakIdKeyDictionary()

    def origin_of(self, tensor: Tensor) -> Origin | None:
        """Returns the tokens that the elements of a tensor belong to; ``None`` if they are unknown."""
        origin: Origin | None = self._origins.get(tensor)
        return origin

    def follows(self, name: str) -> bool:
        """True if the tracker is active and follows calls of this function."""
        return self.is_active and name in FOLLOWED

    def follow(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Notes the origin of a function's result; stops for good if that raises an error."""
        try:
            self._note(name, func, args, kwargs, result)
        except Exception:  # an argument that fits no tensor of token numbers: the model must run on
            self.stop()

    def _note(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Notes the origin of a function's result, if it can be found."""
        origins = [origin for origin in map(self.origin_of, _tensors(args)) if origin is not None]
        if name in SOURCES:
            self._set(result, SOURCES[name](args, kwargs, origins[:1], result))
        elif name in WRITING:
            self._origins.pop(args[0], None)
        elif not origins:
            return
        elif name in KEEPING:
            full_origins = [origin for origin in origins if origin.numbers.shape == result.shape]
            self._set(result, min(full_origins, key=lambda origin: origin.texts, default=None))
        elif name == "pad":
            self._set(result, origins[0]._replace(numbers=_padded_numbers(origins[0].numbers, args, kwargs)))
        elif len(origins) == len(list(_tensors(args[:1]))):
            moved_numbers = func(*map(self._with_token_numbers, args), **kwargs)
            is_single = isinstance(result, Tensor)
            results = [result] if is_single else result
            numbers_of_results = [moved_numbers] if is_single else moved_numbers
            for tensor, numbers in zip(results, numbers_of_results, strict=True):
                self._set(tensor, origins[0]._replace(numbers=numbers))

    def _with_token_numbers(self, argument: Any) -> Any:
        """Returns an argument of a function with each tensor of known origin replaced by its token numbers."""
        if isinstance(argument, Tensor):
            origin = self.origin_of(argument)
            return argument if origin is None else origin.numbers
        if type(argument) in (list, tuple):
            return type(argument)(map(self._with_token_numbers, argument))
        return argument

    def _set(self, tensor: Tensor, origin: Origin | None) -> None:
        """Notes the origin of a tensor; does nothing if the origin is ``None`` or of another shape."""
        if origin is not None and origin.numbers.shape == tensor.shape:
            self._origins[tensor] = origin


def _tensors(args: Iterable[Any]) -> Iterable[Tensor]:
    """Yields the tensors among arguments, and in lists and tuples among these, but not in nested ones."""
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from (element for element in arg if isinstance(element, Tensor))


def _padded_numbers(numbers: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Returns token numbers padded with -1, as a call of ``pad`` with these arguments padded their tensor."""
    return functional.pad(numbers, args[1] if len(args) > 1 else kwargs["pad"], value=-1)


def _linear(args: Sequence[Any], kwargs: dict[str, Any], origins: list[Origin], result: Tensor) -> Origin | None:
    """Returns the origin of the result of a linear map; ``None`` if it has no axes of texts, tokens and features."""
    if result.dim() < MIN_AXES:
        return None
    if not origins or not bool((origins[0].numbers[..., 0] == origins[0].numbers[..., -1]).all()):
        return _origin_in_order(result, result.shape[1:-1], -1)
    return origins[0]._replace(numbers=origins[0].numbers[..., :1].expand(result.shape))


def _norm(args: Sequence[Any], kwargs: dict[str, Any], origins: list[Origin], result: Tensor) -> Origin | None:
    """Returns the origin of a norm's result: that of its input if it is known; arguments as in `_linear`."""
    if origins:
        return origins[0]
    return _origin_in_order(result, result.shape[1:-1], -1) if result.dim() >= MIN_AXES else None


def _convolution(args: Sequence[Any], kwargs: dict[str, Any], origins: list[Origin], result: Tensor) -> Origin | None:
    """Returns the origin of the result of a convolution; ``None`` if it is not ``(texts, features, rows, columns)``."""
    weight = args[1] if len(args) > 1 else kwargs["weight"]
    if result.dim() != IMAGE_AXES:
        return None
    if origins and set(weight.shape[2:]) == {1} and origins[0].numbers.shape[2:] == result.shape[2:]:
        return origins[0]._replace(numbers=origins[0].numbers[:, :1].expand(result.shape))
    return _origin_in_order(result, result.shape[2:], 1)


def _origin_in_order(result: Tensor, tokens: Sequence[int], features: int) -> Origin:
    """Returns the origin of a tensor whose tokens are numbered in their present order."""
    texts, count = result.shape[0], 1
    for size in tokens:
        count *= size
    numbers = torch.arange(texts * count, dtype=torch.int32, device=result.device)
    return Origin(numbers.view(texts, *tokens).unsqueeze(features).expand(result.shape), texts, count)


SOURCES: dict[str, Callable[[Sequence[Any], dict[str, Any], list[Origin], Tensor], Origin | None]] = {
    "linear": _linear,
    "layer_norm": _norm,
    "conv2d": _convolution,
}
FOLLOWED = {*MOVING, *KEEPING, *WRITING, *SOURCES, "pad"}
