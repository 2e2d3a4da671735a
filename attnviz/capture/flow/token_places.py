"""Tracks which token each element of a tensor belongs to, however a model moves its tokens.

A model that attends in windows cuts its tokens into windows, and joins them again. Each such function is repeated on a
tensor that holds the number of each token instead of its features.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.capture.flow.functions import RESHAPING, SEQUENCES, tensors_in

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


class _Numbers(Protocol):
    @property
    def numbers(self) -> Tensor:
        """A number for each element of a tensor."""


Numbered = TypeVar("Numbered", bound=_Numbers)


class NumberedElements(Generic[Numbered]):
    """Knows a number for each element of some tensors, and repeats the functions that move these elements on them."""

    def __init__(self) -> None:
        self._numbered: Any = WeakIdKeyDictionary()

    def of(self, tensor: Tensor) -> Numbered | None:
        """Returns the numbers of a tensor's elements; ``None`` if they are unknown."""
        numbered: Numbered | None = self._numbered.get(tensor)
        return numbered

    def _keep(self, tensor: Tensor, numbered: Numbered | None) -> None:
        """Keeps the numbers of a tensor; does nothing if they are ``None`` or of another shape."""
        if numbered is not None and numbered.numbers.shape == tensor.shape:
            self._numbered[tensor] = numbered

    def _moved_numbers(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
        """Calls a function with the numbers of its tensors in their place; returns those of its results."""

        def with_numbers(argument: Any) -> Any:
            if isinstance(argument, Tensor):
                numbered = self.of(argument)
                return argument if numbered is None else numbered.numbers
            return type(argument)(map(with_numbers, argument)) if type(argument) in SEQUENCES else argument

        numbers = func(*map(with_numbers, args), **kwargs)
        return tensors_in(numbers if isinstance(numbers, SEQUENCES) else (numbers,))


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


class TokenPlaces(NumberedElements[Origin]):
    """Follows tokens through the calls of torch functions while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.is_active = True

    def stop(self) -> None:
        """Forgets all origins and stops to follow calls."""
        self.is_active = False
        self._numbered = WeakIdKeyDictionary()

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
        origins = [origin for origin in map(self.of, tensors_in(args)) if origin is not None]
        if name in SOURCES:
            self._keep(result, SOURCES[name](args, kwargs, origins[:1], result))
        elif name in WRITING:
            self._numbered.pop(args[0], None)
        elif not origins:
            return
        elif name in KEEPING:
            full_origins = [origin for origin in origins if origin.numbers.shape == result.shape]
            self._keep(result, min(full_origins, key=lambda origin: origin.texts, default=None))
        elif name == "pad":
            padding = args[1] if len(args) > 1 else kwargs["pad"]
            self._keep(result, origins[0]._replace(numbers=functional.pad(origins[0].numbers, padding, value=-1)))
        elif len(origins) == len(tensors_in(args[:1])):
            results = [result] if isinstance(result, Tensor) else result
            for tensor, numbers in zip(results, self._moved_numbers(func, args, kwargs), strict=True):
                self._keep(tensor, origins[0]._replace(numbers=numbers))


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
