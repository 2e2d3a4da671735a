"""PickedRows: which rows of a longer tensor a tensor has, where a model picked or reordered them by an index.

Beside what an index picked, the same function picks from the numbers of the rows, and what moves the result moves these
numbers. So it is known of queries or keys, however they were laid out since, which tokens they are of.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.capture.flow.functions import PICKING, RESHAPING, SEQUENCES, tensors_in
from attnviz.capture.flow.token_places import MOVING

ITEM = "__getitem__"
PUTTING = ("index_", "scatter", "masked_", "put", "__set", "copy_")  # how functions begin that write at other places
MOVES = MOVING | {"__get__", "t", "view_as", "reshape_as", "expand_as", "repeat_interleave"}
MIN_AXES = 2  # of rows and features
UNKNOWN = -1


class Picks(NamedTuple):
    """Which rows those of a tensor are.

    Attributes:
        numbers: of the tensor's shape: ``own * total + row``, where it stands among the picked rows and which row of
            the longer tensor it is; -1 where that is not known.
        total: how many rows the longer tensor has.
        picker: the module that picked them.
    """

    numbers: Tensor
    total: int
    picker: nn.Module | None

    def like(self, result: Tensor) -> "Picks | None":
        """Those of a tensor of as many rows, which was computed from them row by row; ``None`` of any other."""
        if self.numbers.shape == result.shape:
            return self
        is_alike = self.numbers.dim() == result.dim() >= MIN_AXES and self.numbers.shape[:-1] == result.shape[:-1]
        if not is_alike or not torch.equal(self.numbers[..., 0], self.numbers[..., -1]):
            return None
        return self._replace(numbers=self.numbers[..., :1].expand(result.shape))

    def unknown(self, shape: Sequence[int]) -> "Picks":
        """Those of rows of which it is not known any more which they are."""
        return self._replace(numbers=self.numbers.new_full((1,), UNKNOWN).expand(tuple(shape)))


class OperandPicks(NamedTuple):
    """Which rows the operands of attention are.

    Attributes:
        attends: the module that attends.
        queries: those of the queries; ``None`` where they were not picked.
        keys: the same of the keys.
    """

    attends: nn.Module
    queries: Picks | None
    keys: Picks | None


class PickedRows:
    """Follows picked rows through the functions of torch that are called.

    Attributes:
        is_active: whether any were picked.
    """

    def __init__(self) -> None:
        self._picks: Any = WeakIdKeyDictionary()
        self.is_active = False

    def of(self, tensor: Tensor) -> Picks | None:
        """Which rows a tensor has; ``None`` where they were not picked."""
        picks: Picks | None = self._picks.get(tensor) if self.is_active else None
        if picks is None or picks.numbers.shape == tensor.shape:
            return picks
        return picks.unknown(tensor.shape)  # it was given another shape in place

    def follows(self, name: str, args: Sequence[Any]) -> bool:
        """Whether it looks at a call of a function of this name."""
        return self.is_active or _is_pick(name, args)

    def follow(
        self,
        name: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        axes_of_rows: Callable[[Tensor], Sequence[int]],
        running: Callable[[], nn.Module | None],
    ) -> None:
        """Notes which rows a function returned.

        Args:
            name: of the function.
            func: the function.
            args: its arguments.
            kwargs: those given by name.
            result: what it returned.
            axes_of_rows: gives the axes of a tensor along which rows may be picked.
            running: gives the module that runs now.
        """
        if _is_pick(name, args):
            source = args[0] if args else kwargs["input"]
            if isinstance(result, Tensor) and source.is_floating_point():
                self._set(result, self._picked(func, (source, *args[1:]), kwargs, result, axes_of_rows, running))
        elif not name.startswith(PUTTING):
            self._carry(name, func, args, kwargs, result)

    def _picked(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Tensor,
        axes_of_rows: Callable[[Tensor], Sequence[int]],
        running: Callable[[], nn.Module | None],
    ) -> Picks | None:
        """Which rows an index picked; ``None`` where they stand as they stood."""
        source, before = args[0], self.of(args[0])
        axes = axes_of_rows(source)
        if not axes or result.dim() < MIN_AXES:
            return None
        given = {name: each for name, each in kwargs.items() if name not in ("input", "out")}
        changed = []
        for axis in axes:
            rows = func(_along(axis, source.shape, source.device), *args[1:], **given)
            if result.dim() != source.dim() or not torch.equal(rows, _along(axis, rows.shape, rows.device)):
                changed.append((axis, rows))
        if not changed:
            moved = before and func(before.numbers, *args[1:], **given)
            return None if moved is None or before is None else before._replace(numbers=moved)
        axis, rows = changed[0]
        picks = Picks(rows, source.shape[axis] if before is None else before.total, running())
        if len(changed) > 1 or result.dim() != source.dim():
            return picks.unknown(result.shape)
        if before is not None:
            own, stood = before.numbers // before.total, before.numbers % before.total
            if not torch.equal(own, _along(axis, source.shape, source.device)):
                return picks.unknown(result.shape)
            rows = func(stood, *args[1:], **given)
        own = _along(axis, rows.shape, rows.device)
        if rows.shape[axis] == picks.total and torch.equal(rows, own):
            return None
        return picks._replace(numbers=own * picks.total + rows)

    def _carry(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Notes which rows a function has moved, or kept where they stood."""
        known = [picks for picks in map(self.of, tensors_in(args)) if picks is not None]
        if not known:
            return
        first, results = known[0], tensors_in(result if isinstance(result, SEQUENCES) else (result,))
        if name in RESHAPING:
            self._set(results[0], first.unknown(results[0].shape))
        elif name not in MOVES:
            for each in results:
                self._set(each, first.like(each))
        elif len(known) == len(tensors_in(args[:1])):
            moved = func(*(self._numbers(arg) for arg in args), **kwargs)
            for each, numbers in zip(
                results, tensors_in(moved if isinstance(moved, SEQUENCES) else (moved,)), strict=True
            ):
                self._set(each, first._replace(numbers=numbers))
        else:  # others were joined to them
            for each in results:
                self._set(each, first.unknown(each.shape))

    def _numbers(self, argument: Any) -> Any:
        """The argument with each followed tensor replaced by the numbers of its rows."""
        if isinstance(argument, Tensor):
            picks = self.of(argument)
            return argument if picks is None else picks.numbers
        return type(argument)(map(self._numbers, argument)) if type(argument) in SEQUENCES else argument

    def _set(self, tensor: Tensor, picks: Picks | None) -> None:
        if picks is not None and picks.numbers.shape == tensor.shape:
            self._picks[tensor], self.is_active = picks, True


def _is_pick(name: str, args: Sequence[Any]) -> bool:
    """Whether a call of a function picks rows by their numbers, and does not cut."""
    if name != ITEM:
        return name in PICKING
    key = args[1]
    return any(isinstance(each, Tensor | list) for each in (key if isinstance(key, tuple) else (key,)))


def _along(axis: int, shape: Sequence[int], device: torch.device) -> Tensor:
    """The place of each number of a tensor along one of its axes."""
    places = torch.arange(shape[axis], device=device)
    return places.view(-1, *(1,) * (len(shape) - axis - 1)).expand(tuple(shape))
