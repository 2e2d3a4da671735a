"""Tracks rows of tensors by numbers: each function that moves elements is repeated on a tensor of their numbers.

Two kinds of rows have numbers. A model that attends in windows cuts its tokens into windows, and joins them again:
`TokenPlaces` numbers the tokens where they are computed. A model may also gather queries or keys by an index:
`GatheredRows` numbers them where they are gathered. So both are known in whatever layout they reach attention.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.capture.flow.functions import GATHERING, RESHAPING, SEQUENCES, TorchCall, tensors_in
from attnviz.capture.flow.nodes import Node
from attnviz.capture.flow.sites import CallingModule

MOVING = {
    "view", "reshape", "permute", "transpose", "flatten", "unflatten", "squeeze", "unsqueeze", "roll", "contiguous",
    "clone", "chunk", "unbind", "split", "tensor_split", "__getitem__", "narrow", "select", "movedim", "moveaxis",
    "swapaxes", "swapdims", "expand", "flip", "cat", "concat", "concatenate", "stack", "unfold", "index_select",
    "tile", "repeat", "adjoint", "__get__",
}  # fmt: skip  # functions that move elements
MOVING_GATHERED = MOVING | {"t", "view_as", "reshape_as", "expand_as", "repeat_interleave"}
KEEPING = {
    "add", "sub", "mul", "div", "true_divide", "rsub", "neg", "__add__", "__radd__", "__mul__", "__rmul__", "__sub__",
    "__truediv__", "__iadd__", "__imul__", "add_", "mul_", "layer_norm", "rms_norm", "batch_norm", "dropout", "gelu",
    "relu", "silu", "sigmoid", "tanh", "masked_fill", "where", "group_norm", "normalize",
    "to", "float", "half", "bfloat16", "double", "type", "clamp", "detach",
}  # fmt: skip  # functions that are element-wise, or work on the features of each token
WRITING = {"__setitem__", "copy_", "index_put_", "masked_fill_", *RESHAPING}  # functions that change a tensor in place
# Functions whose result has its features on the second axis, in front of the places
RESIZING = {"max_pool2d", "_max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "interpolate"}
SPATIAL = {"conv1d", "conv2d", "conv3d", *RESIZING}
SOURCES = {"linear", "layer_norm", "embedding", "glu", *SPATIAL}  # functions that compute tokens
FOLLOWED = {*MOVING, *KEEPING, *WRITING, *SOURCES, "pad"}
PUTTING = ("index_", "scatter", "masked_", "put", "__set", "copy_")  # prefixes of functions that write elsewhere
PLACING = {"__setitem__": 1, "index_put_": 1, "index_copy_": 2}  # functions that write rows by an index, and its place
ITEM = "__getitem__"
ROW_AXES, TOKEN_AXES = 2, 3  # rows, features; texts, tokens, features
JOINING = ("cat", "concat", "concatenate")
MAX_NUMBERED = 2**24  # elements of an input that are numbered
UNKNOWN = -1  # the number of padding, and of rows that are not known


class Origin(NamedTuple):
    """The token that each element of a tensor belongs to."""

    numbers: Tensor  # ascending from text to text and token to token; -1 for padding. Same shape as the tensor.
    texts: int  # the number of texts
    tokens: int  # how many numbers each text has
    is_raw: bool = False  # True for an input whose elements need not be tokens, such as pixels


class RowGather(NamedTuple):
    """The rows of a longer tensor that a tensor contains."""

    # For each element, ``position * total + row``: the position among the gathered rows and the row of the longer
    # tensor; -1 if unknown. Same shape as the tensor.
    numbers: Tensor
    total: int  # the number of rows of the longer tensor
    gatherer: nn.Module | None  # the module that gathered them

    def for_result(self, result: Tensor) -> "RowGather | None":
        """Returns the rows of a tensor that was computed row by row from the tensor of this gather.

        ``None`` if the shapes differ in more than the number of features, or if a row has features of several rows.
        """
        if self.numbers.shape == result.shape:
            return self
        has_same_rows = self.numbers.dim() == result.dim() >= ROW_AXES and self.numbers.shape[:-1] == result.shape[:-1]
        if not has_same_rows or not torch.equal(self.numbers[..., 0], self.numbers[..., -1]):
            return None
        return self._replace(numbers=self.numbers[..., :1].expand(result.shape))

    def with_unknown_rows(self, shape: Sequence[int]) -> "RowGather":
        """Returns the gather of a tensor of this shape whose rows are unknown."""
        return self._replace(numbers=self.numbers.new_full((1,), UNKNOWN).expand(tuple(shape)))


Numbered = TypeVar("Numbered", Origin, RowGather)


class _NumberedElements(Generic[Numbered]):
    """Knows a number for each element of some tensors, and repeats the functions that move these elements on them."""

    def __init__(self) -> None:
        self._numbered: Any = WeakIdKeyDictionary()

    def of(self, tensor: Tensor) -> Numbered | None:
        """Returns the numbers of a tensor's elements; ``None`` if they are unknown."""
        numbered: Numbered | None = self._numbered.get(tensor)
        return numbered

    def _keep(self, tensor: Tensor, numbered: Numbered | None) -> None:
        if numbered is not None and numbered.numbers.shape == tensor.shape:
            self._numbered[tensor] = numbered

    def _moved_numbers(self, call: TorchCall) -> list[Tensor]:
        """Calls a function with the numbers of its tensors in their place; returns those of its results."""

        def with_numbers(argument: Any) -> Any:
            if isinstance(argument, Tensor):
                numbered = self.of(argument)
                return argument if numbered is None else numbered.numbers
            return type(argument)(map(with_numbers, argument)) if type(argument) in SEQUENCES else argument

        numbers = call.func(*map(with_numbers, call.args), **call.kwargs)
        return tensors_in(numbers if isinstance(numbers, SEQUENCES) else (numbers,))


class TokenPlaces(_NumberedElements[Origin]):
    """Follows tokens through the calls of torch functions while it is active.

    An input of the model has its tokens in order. From there on each function must be followed: where one is not, the
    places are unknown, until what it computed is added to tokens with known places.
    """

    def __init__(self, node_of: Callable[[Tensor], Node]) -> None:
        super().__init__()
        self.is_active, self.node_of = True, node_of

    def stop(self) -> None:
        """Forgets all origins and stops to follow calls."""
        self.is_active = False
        self._numbered = WeakIdKeyDictionary()

    def follows(self, name: str) -> bool:
        """True if the tracker is active and follows calls of this function."""
        return self.is_active and name in FOLLOWED

    def follow(self, call: TorchCall) -> None:
        """Notes the origin of a function's result; stops for good if that raises an error."""
        try:
            name, args, result = call.name, call.args, call.result
            origins = [origin for origin in map(self._of_any, tensors_in(args)) if origin is not None]
            if name == "embedding":
                tensors = tensors_in((*args, *call.kwargs.values()))
                origin = self._of_any(next(tensor for tensor in tensors if not tensor.is_floating_point()))
                self._keep(result, origin and origin._replace(numbers=origin.numbers[..., None].expand(result.shape)))
            elif name in SOURCES:
                origin = self._of_any(args[0] if args else call.kwargs["input"])
                has_features_second = name in SPATIAL or (name == "glu" and 1 in (*args[1:], *call.kwargs.values()))
                if origin is not None and name != "layer_norm":
                    is_raw = origin.is_raw and name in RESIZING
                    origin = _computed_tokens(origin, result, 1 if has_features_second else -1)
                    origin = origin and origin._replace(is_raw=is_raw)
                self._keep(result, origin)
            elif name in WRITING:
                self._numbered.pop(args[0], None)
            elif not origins:
                return
            elif name in KEEPING:
                full_origins = [origin for origin in origins if origin.numbers.shape == result.shape]
                self._keep(result, min(full_origins, key=lambda origin: origin.texts, default=None))
            elif name == "pad":
                padding = args[1] if len(args) > 1 else call.kwargs["pad"]
                padded_numbers = functional.pad(origins[0].numbers, padding, value=UNKNOWN)
                self._keep(result, origins[0]._replace(numbers=padded_numbers))
            elif len(origins) == len(tensors_in(args[:1])):
                results = tensors_in(result if isinstance(result, SEQUENCES) else (result,))  # none of a shape
                for tensor, numbers in zip(results, self._moved_numbers(call), strict=True):
                    self._keep(tensor, origins[0]._replace(numbers=numbers))
            elif name in JOINING and result.dim() >= TOKEN_AXES:  # constant tokens, such as [CLS], are joined to others
                others = [tensor for tensor in tensors_in(args[:1]) if self.of(tensor) is None]
                are_constant = all(self.node_of(tensor).constant for tensor in others)
                if are_constant and all(_are_in_order(_first_elements(origin.numbers, -1)) for origin in origins):
                    self._keep(result, _new_tokens(result, -1))
        except Exception:  # an argument that fits no tensor of token numbers: the model must run on
            self.stop()

    def _of_any(self, tensor: Tensor) -> Origin | None:
        """Returns the origin of a tensor, whose elements are numbered in their order if it is an input of the model."""
        origin = self.of(tensor)
        if origin is not None or tensor.dim() < ROW_AXES or not 0 < tensor.numel() <= MAX_NUMBERED:
            return origin
        node = self.node_of(tensor)
        if not node.is_unobserved or node.constant:
            return None
        numbers = torch.arange(tensor.numel(), dtype=torch.int32, device=tensor.device).view(tensor.shape)
        origin = Origin(numbers, texts=len(tensor), tokens=numbers[0].numel(), is_raw=True)
        self._keep(tensor, origin)
        return origin


def _computed_tokens(origin: Origin, result: Tensor, feature_axis: int) -> Origin | None:
    """Returns the origin of the result of a map, convolution or pooling, given that of its input.

    A token of the result has the number of its first element in the input. Where several tokens have one number or the
    number of tokens differs, they are new ones, whose order is known if their elements are in order, or no tokens.
    """
    if result.dim() < TOKEN_AXES or result.dim() != origin.numbers.dim():
        return None
    first = _first_elements(origin.numbers, feature_axis)
    if first.shape == result.narrow(feature_axis, 0, 1).shape:
        is_repeated = origin.numbers.stride(feature_axis) == 0
        if is_repeated or bool((origin.numbers == first).all()) or len(torch.unique(first)) == first.numel():
            return origin._replace(numbers=first.expand(result.shape))
    elif feature_axis == 1 and origin.is_raw:
        return _new_tokens(result, feature_axis)
    return _new_tokens(result, feature_axis) if _are_in_order(first) else None


def _first_elements(numbers: Tensor, feature_axis: int) -> Tensor:
    """Returns the smallest number along the axis of features, which keeps size 1; -1 where all are padding."""
    if numbers.stride(feature_axis) == 0:  # one number, repeated without a copy
        return numbers.narrow(feature_axis, 0, 1)
    largest = torch.iinfo(numbers.dtype).max
    first = numbers.masked_fill(numbers == UNKNOWN, largest).amin(feature_axis, keepdim=True)
    return first.masked_fill_(first == largest, UNKNOWN)


def _are_in_order(first: Tensor) -> bool:
    """True if the numbers of tokens, padding left out, do not fall."""
    numbers = first[first != UNKNOWN]
    return bool((numbers.diff() >= 0).all())


def _new_tokens(result: Tensor, feature_axis: int) -> Origin:
    """Returns the origin of tokens that are numbered in their order."""
    texts, token_shape = result.shape[0], result.shape[2:] if feature_axis == 1 else result.shape[1:-1]
    count = prod(token_shape)
    numbers = torch.arange(texts * count, dtype=torch.int32, device=result.device).view(texts, *token_shape)
    return Origin(numbers.unsqueeze(feature_axis).expand(result.shape), texts, count)


class OperandGathers(NamedTuple):
    """The rows of queries and of keys that were gathered, ``None`` if they were not, and the module that attends."""

    attention_module: nn.Module
    queries: RowGather | None
    keys: RowGather | None


class GatheredRows(_NumberedElements[RowGather]):
    """Follows gathered rows through the calls of torch functions; ``is_active`` is True once any were gathered."""

    def __init__(self) -> None:
        super().__init__()
        self.is_active = False
        self._written: Any = WeakIdKeyDictionary()  # the axis and the index of the rows written last into a tensor

    def of(self, tensor: Tensor) -> RowGather | None:
        """Returns the gathered rows that a tensor contains, unknown after a change of shape; ``None`` without any."""
        gather = super().of(tensor) if self.is_active else None
        if gather is None or gather.numbers.shape == tensor.shape:
            return gather
        return gather.with_unknown_rows(tensor.shape)  # the tensor was reshaped in place

    def follows(self, name: str, args: Sequence[Any]) -> bool:
        """True if a call of this function may gather rows, or move gathered ones."""
        return self.is_active or name in PLACING or _is_gather(name, args)

    def follow(
        self,
        call: TorchCall,
        axes_of_rows: Callable[[Tensor], Sequence[int]],
        running_module: Callable[[], CallingModule | None],
    ) -> None:
        """Notes which rows the results of a function contain; of rows written into a tensor only the index is noted."""
        name, args, result = call.name, call.args, call.result
        if name in PLACING:
            self._note_written_rows(call)
            return
        if _is_gather(name, args):
            source = args[0] if args else call.kwargs["input"]
            if isinstance(result, Tensor) and source.is_floating_point():
                options = {name: value for name, value in call.kwargs.items() if name not in ("input", "out")}

                def gathered(tensor: Tensor) -> Tensor:
                    rows: Tensor = call.func(tensor, *args[1:], **options)
                    return rows

                self._keep(result, self._gather_after(gathered, source, result, axes_of_rows(source), running_module))
            return
        gathers = [gather for gather in map(self.of, tensors_in(args)) if gather is not None]
        if not gathers or name.startswith(PUTTING):
            return
        gather, results = gathers[0], tensors_in(result if isinstance(result, SEQUENCES) else (result,))
        if name in RESHAPING:
            self._keep(results[0], gather.with_unknown_rows(results[0].shape))
        elif name not in MOVING_GATHERED:
            for output in results:
                self._keep(output, gather.for_result(output))
        elif len(gathers) == len(tensors_in(args[:1])):  # all tensors that it moves have gathered rows
            for output, numbers in zip(results, self._moved_numbers(call), strict=True):
                self._keep(output, gather._replace(numbers=numbers))
        else:  # tensors without gathered rows were joined to them
            for output in results:
                self._keep(output, gather.with_unknown_rows(output.shape))

    def _gather_after(
        self,
        gathered: Callable[[Tensor], Tensor],
        source: Tensor,
        result: Tensor,
        axes: Sequence[int],
        running_module: Callable[[], CallingModule | None],
    ) -> RowGather | None:
        """Returns the rows that an index gathered, counted in the tensor from which the first index gathered."""
        if not axes or result.dim() < ROW_AXES:
            return None
        source_gather = self.of(source)
        changed_axes = []
        for axis in axes:
            rows = gathered(_positions_along(axis, source.shape, source.device))
            if result.dim() == source.dim():
                is_same = torch.equal(rows, _positions_along(axis, rows.shape, rows.device))
                if is_same or self._reads_written_rows(source, axis, rows):
                    continue
            changed_axes.append((axis, rows))
        if not changed_axes:
            return source_gather and source_gather._replace(numbers=gathered(source_gather.numbers))
        axis, rows = changed_axes[0]
        total = source.shape[axis] if source_gather is None else source_gather.total
        caller = running_module()
        gather = RowGather(rows, total, None if caller is None else caller.module)
        if len(changed_axes) > 1 or result.dim() != source.dim():
            return gather.with_unknown_rows(result.shape)
        if source_gather is not None:
            positions = source_gather.numbers // total
            if not torch.equal(positions, _positions_along(axis, source.shape, source.device)):
                return gather.with_unknown_rows(result.shape)
            rows = gathered(source_gather.numbers % total)
        positions = _positions_along(axis, rows.shape, rows.device)
        if rows.shape[axis] == total and torch.equal(rows, positions):
            return None
        return gather._replace(numbers=positions * total + rows)

    def _note_written_rows(self, call: TorchCall) -> None:
        """Notes the index by which rows are written into a tensor, if it is one index along one axis."""
        if len(call.args) <= PLACING[call.name]:
            return
        target, index = call.args[0], call.args[PLACING[call.name]]
        if call.name == "index_copy_":
            self._written[target] = call.args[1] % target.dim(), index
        elif isinstance(index, tuple | list) and not any(part is Ellipsis for part in index):
            axes = [axis for axis, part in enumerate(index) if isinstance(part, Tensor)]
            if len(axes) == 1 and index[axes[0]].dim() == 1 and index[axes[0]].dtype != torch.bool:
                self._written[target] = axes[0], index[axes[0]]

    def _reads_written_rows(self, source: Tensor, axis: int, rows: Tensor) -> bool:
        """True if the rows written last into a tensor are read together and in order, as from pages of a cache."""
        written_axis, index = self._written.get(source, (None, None))
        if written_axis != axis:
            return False
        first_row = rows.movedim(axis, -1).flatten(0, -2)[0]
        starts = torch.nonzero(first_row == index[0])[:, 0].tolist()
        return any(torch.equal(first_row[start : start + len(index)], index.to(first_row)) for start in starts)

    def _keep(self, tensor: Tensor, numbered: RowGather | None) -> None:
        super()._keep(tensor, numbered)
        self.is_active = self.is_active or tensor in self._numbered


def _is_gather(name: str, args: Sequence[Any]) -> bool:
    """True if a call gathers rows by an index; slices do not."""
    if name != ITEM:
        return name in GATHERING
    key = args[1]
    return any(isinstance(index, Tensor | list) for index in (key if isinstance(key, tuple) else (key,)))


def _positions_along(axis: int, shape: Sequence[int], device: torch.device) -> Tensor:
    """Returns the position of each element along one axis, in a tensor of this shape."""
    positions = torch.arange(shape[axis], device=device)
    later_axes = (1,) * (len(shape) - axis - 1)
    return positions.view(-1, *later_axes).expand(tuple(shape))
