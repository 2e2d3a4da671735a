"""Tracks which rows of a longer tensor a tensor contains, after a model gathered or reordered them by index.

Each gather is repeated on a tensor of row numbers, and each function that moves the result moves these numbers too. So
the tokens of queries or keys are known in whatever layout they reach the attention call.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnviz.capture.flow.functions import GATHERING, RESHAPING, SEQUENCES, tensors_in
from attnviz.capture.flow.sites import CallingModule
from attnviz.capture.flow.token_places import MOVING, NumberedElements

ITEM = "__getitem__"
PUTTING = ("index_", "scatter", "masked_", "put", "__set", "copy_")  # prefixes of functions that write elsewhere
MOVES = MOVING | {"__get__", "t", "view_as", "reshape_as", "expand_as", "repeat_interleave"}
MIN_AXES = 2  # rows and features
UNKNOWN = -1


class RowGather(NamedTuple):
    """The rows of a longer tensor that a tensor contains.

    Attributes:
        numbers: for each element, ``position * total + row``: the position among the gathered rows and the row of the
            longer tensor; -1 if unknown. Same shape as the tensor.
        total: the number of rows of the longer tensor.
        gatherer: the module that gathered them.
    """

    numbers: Tensor
    total: int
    gatherer: nn.Module | None

    def for_result(self, result: Tensor) -> "RowGather | None":
        """Returns the rows of a tensor that was computed row by row from the tensor of this gather.

        ``None`` if the shapes differ in more than the number of features, or if a row has features of several rows.
        """
        if self.numbers.shape == result.shape:
            return self
        has_same_rows = self.numbers.dim() == result.dim() >= MIN_AXES and self.numbers.shape[:-1] == result.shape[:-1]
        if not has_same_rows or not torch.equal(self.numbers[..., 0], self.numbers[..., -1]):
            return None
        return self._replace(numbers=self.numbers[..., :1].expand(result.shape))

    def with_unknown_rows(self, shape: Sequence[int]) -> "RowGather":
        """Returns the gather of a tensor of this shape whose rows are unknown."""
        return self._replace(numbers=self.numbers.new_full((1,), UNKNOWN).expand(tuple(shape)))


class OperandGathers(NamedTuple):
    """The gathered rows among the operands of an attention call.

    Attributes:
        attention_module: the module that attends.
        queries: the rows of the queries; ``None`` if they were not gathered.
        keys: the rows of the keys; ``None`` if they were not gathered.
    """

    attention_module: nn.Module
    queries: RowGather | None
    keys: RowGather | None


class GatheredRows(NumberedElements[RowGather]):
    """Follows gathered rows through the calls of torch functions.

    Attributes:
        is_active: True if any rows were gathered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_active = False

    def of(self, tensor: Tensor) -> RowGather | None:
        """Returns the gathered rows that a tensor contains, unknown after a change of shape; ``None`` without any."""
        gather = super().of(tensor) if self.is_active else None
        if gather is None or gather.numbers.shape == tensor.shape:
            return gather
        return gather.with_unknown_rows(tensor.shape)  # the tensor was reshaped in place

    def follows(self, name: str, args: Sequence[Any]) -> bool:
        """True if a call of this function may gather rows, or move gathered ones."""
        return self.is_active or _is_gather(name, args)

    def follow(
        self,
        name: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        axes_of_rows: Callable[[Tensor], Sequence[int]],
        running_module: Callable[[], CallingModule | None],
    ) -> None:
        """Notes which rows the result of a function contains.

        Does nothing if the function gathers rows from a tensor of integers, or writes into a tensor.
        """
        if _is_gather(name, args):
            source = args[0] if args else kwargs["input"]
            if isinstance(result, Tensor) and source.is_floating_point():
                source_first = (source, *args[1:])
                gather = self._gather_after(func, source_first, kwargs, result, axes_of_rows, running_module)
                self._keep(result, gather)
        elif not name.startswith(PUTTING):
            self._follow_moves(name, func, args, kwargs, result)

    def _gather_after(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Tensor,
        axes_of_rows: Callable[[Tensor], Sequence[int]],
        running_module: Callable[[], CallingModule | None],
    ) -> RowGather | None:
        """Returns the rows that an index gathered, counted in the tensor from which the first index gathered."""
        source, source_gather = args[0], self.of(args[0])
        axes = axes_of_rows(source)
        if not axes or result.dim() < MIN_AXES:
            return None
        options = {name: value for name, value in kwargs.items() if name not in ("input", "out")}
        changed_axes = []
        for axis in axes:
            rows = func(_positions_along(axis, source.shape, source.device), *args[1:], **options)
            if result.dim() != source.dim() or not torch.equal(rows, _positions_along(axis, rows.shape, rows.device)):
                changed_axes.append((axis, rows))
        if not changed_axes:
            if source_gather is not None:
                source_gather = source_gather._replace(numbers=func(source_gather.numbers, *args[1:], **options))
            return source_gather
        axis, rows = changed_axes[0]
        total = source.shape[axis] if source_gather is None else source_gather.total
        caller = running_module()
        gather = RowGather(rows, total, None if caller is None else caller.module)
        if len(changed_axes) > 1 or result.dim() != source.dim():
            return gather.with_unknown_rows(result.shape)
        if source_gather is not None:
            positions = source_gather.numbers // source_gather.total
            source_rows = source_gather.numbers % source_gather.total
            if not torch.equal(positions, _positions_along(axis, source.shape, source.device)):
                return gather.with_unknown_rows(result.shape)
            rows = func(source_rows, *args[1:], **options)
        positions = _positions_along(axis, rows.shape, rows.device)
        if rows.shape[axis] == gather.total and torch.equal(rows, positions):
            return None
        return gather._replace(numbers=positions * gather.total + rows)

    def _follow_moves(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Notes the gathered rows in the result of a function that does not gather; does nothing if no input has
        any.
        """
        gathers = [gather for gather in map(self.of, tensors_in(args)) if gather is not None]
        if not gathers:
            return
        gather, results = gathers[0], tensors_in(result if isinstance(result, SEQUENCES) else (result,))
        if name in RESHAPING:
            self._keep(results[0], gather.with_unknown_rows(results[0].shape))
        elif name not in MOVES:
            for output in results:
                self._keep(output, gather.for_result(output))
        elif len(gathers) == len(tensors_in(args[:1])):  # all tensors that it moves have gathered rows
            for output, numbers in zip(results, self._moved_numbers(func, args, kwargs), strict=True):
                self._keep(output, gather._replace(numbers=numbers))
        else:  # tensors without gathered rows were joined to them
            for output in results:
                self._keep(output, gather.with_unknown_rows(output.shape))

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
