"""Tells which tensors can be read while a model runs, and hides the computations of attnviz from its modes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import local
from typing import Any, Protocol

import torch
from torch import Tensor

from attnviz.capture.calls.attention_call import MAX_CHECKED_QUERIES, are_exact

_set_tracing: Callable[[Any], None] = torch._C._set_tracing_state  # type: ignore[attr-defined]
PLAIN_DISPATCH = torch._C._disabled_torch_dispatch_impl


class _TracingState(local):
    """The state of the running thread."""

    is_suspended = False


_tracing = _TracingState()


UNREADABLE: tuple[tuple[Callable[[Tensor], Any], str], ...] = (
    (torch._C._functorch.is_functorch_wrapped_tensor, "tensors of torch.vmap or torch.func"),
    (torch._is_functional_tensor, "tensors of torch.func"),
    (lambda tensor: type(tensor).__name__ == "FakeTensor", "fake tensors, which have no values"),
    (lambda tensor: type(tensor).__torch_dispatch__ is not PLAIN_DISPATCH, "tensors of a custom subclass"),
    (lambda tensor: tensor.is_meta, "meta tensors, which have no values"),
    (lambda tensor: tensor.is_nested, "nested tensors"),
    (lambda tensor: tensor.layout != torch.strided, "sparse tensors"),
    (lambda tensor: tensor.is_quantized, "quantized tensors"),
    (lambda tensor: _tracing.is_suspended or torch._C._get_tracing_state(), "tensors traced by torch.jit.trace"),
    (lambda tensor: not tensor.numel(), "empty tensors"),
)


def unreadable_kind(*values: object) -> str | None:
    """Returns the kind of the first tensor that cannot be read, as a noun phrase; ``None`` if all can be.

    Values that are no tensors do not count.
    """
    with torch._C.DisableTorchFunction():
        for value in values:
            if isinstance(value, Tensor):
                for is_of_kind, kind in UNREADABLE:
                    if is_of_kind(value):
                        return kind
    return None


def hidden_from_run() -> AbstractContextManager[None]:
    """Returns a context manager that hides a block's computations from modes, tensor subclasses and autograd."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return _hidden_from_modes()
    return _HiddenBlock()


class _HiddenBlock(AbstractContextManager[None]):
    """Hides a block's computations in runs without tracing and dispatch modes, ten times faster than for others."""

    def __enter__(self) -> None:
        """Disables torch-function modes and subclasses, and autograd if it is on."""
        self.disabled_functions = torch._C.DisableTorchFunction()
        self.disabled_functions.__enter__()
        self.grad_was_enabled = torch.is_grad_enabled()
        if self.grad_was_enabled:
            torch._C._set_grad_enabled(False)  # cheaper than torch.no_grad

    def __exit__(self, *_: object) -> None:
        """Enables again what `__enter__` disabled; an exception passes through."""
        if self.grad_was_enabled:
            torch._C._set_grad_enabled(True)
        self.disabled_functions.__exit__(None, None, None)


@contextmanager
def _hidden_from_modes() -> Iterator[None]:
    """Hides a block's computations from tracing, autograd, torch-function modes and any active dispatch modes."""
    with torch._C.DisableTorchFunction(), torch.no_grad(), untraced():
        if not torch._C._len_torch_dispatch_stack():
            yield
            return
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            yield


@contextmanager
def untraced() -> Iterator[None]:
    """Keeps the block's computations, shapes included, out of a graph of torch.jit.trace; does nothing without one."""
    state = torch._C._get_tracing_state()
    if state is None:
        yield
        return
    _set_tracing(None)
    _tracing.is_suspended = True
    try:
        yield
    finally:
        _tracing.is_suspended = False
        _set_tracing(state)


SOFTMAX_TOLERANCE, HALF_SOFTMAX_TOLERANCE = 1e-5, 1e-2  # for one weight, in float32 and in half precision
SCORES_LOST = "the scores were overwritten in place after the softmax, and are unknown"
WEIGHTS_LOST = "the weights were overwritten in place after the softmax, and are computed again from the scores"


class _SoftmaxTensors(Protocol):
    """An object that holds the input and the output of a softmax."""

    logits: Any
    probabilities: Any


def overwritten_tensor(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Returns the tensor that a torch function writes its result into: ``out``, else its first argument if in place.

    ``None`` if the function does neither, or if the target is no tensor.
    """
    has_in_place_name = bool(args) and _is_in_place(name, has_operand=len(args) > 1)
    is_in_place = has_in_place_name or (bool(args) and kwargs.get("inplace") is True)
    target = kwargs.get("out", args[0] if is_in_place else None)
    return target if isinstance(target, Tensor) else None


@cache
def _is_in_place(name: str, has_operand: bool) -> bool:
    """True if a function writes over its first argument, as ``add_``, ``__iadd__`` and ``__setitem__`` do."""
    if name.endswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and has_operand)
    return name.endswith("_")


def share_memory(first: object, second: object) -> bool:
    """True if two tensors share storage; False if one is no tensor, cannot be read or has no storage."""
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or unreadable_kind(first, second) is not None:
        return False
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() != 0


def keep_copies(holders: Iterable[_SoftmaxTensors], target: Tensor) -> None:
    """Replaces each tensor that shares memory with ``target``, which will be overwritten, with a copy."""
    for holder in holders:
        if share_memory(holder.logits, target):
            holder.logits = holder.logits.clone()
        if share_memory(holder.probabilities, target):
            holder.probabilities = holder.probabilities.clone()


def restored_softmax(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor, str]:
    """Returns scores and weights of a softmax as they were before the model overwrote them, and a remark on losses.

    Compares at most 32 rows of each map. If the weights are not a softmax of the scores, but sum to 1, the scores were
    overwritten: they become NaN, or −inf where the weight is 0. If they do not sum to 1, the weights were overwritten,
    and are computed again. The remark is empty if nothing is lost.
    """
    tolerance = SOFTMAX_TOLERANCE if are_exact(logits, probabilities) else HALF_SOFTMAX_TOLERANCE
    scores, weights = _compared_rows(logits), _compared_rows(probabilities)
    difference = (scores.softmax(-1) - weights).abs().amax(-1)
    has_visible = scores.isfinite().any(-1) & difference.isfinite()
    if bool((difference[has_visible] <= tolerance).all()):
        return logits, probabilities, ""
    # A row without visible keys is NaN, and counts as a uniform one.
    rows = weights.nan_to_num(nan=1 / probabilities.shape[-1])
    sums_are_one = ((rows.sum(-1) - 1).abs() <= 10 * tolerance).all()  # the errors of a row's weights add up
    if (rows >= 0).all() and sums_are_one:
        unknown_logits = torch.where(probabilities > 0, float("nan"), float("-inf")).to(logits.dtype)
        return unknown_logits, probabilities, SCORES_LOST
    return logits, logits.softmax(-1, dtype=probabilities.dtype), WEIGHTS_LOST


def _compared_rows(tensor: Tensor) -> Tensor:
    """Returns at most 32 evenly spaced rows of each map, converted to float32 unless they are float32 or float64."""
    *_, queries, _ = tensor.shape
    step = -(-queries // MAX_CHECKED_QUERIES)  # rounded up
    rows = tensor[..., ::step, :]
    return rows if are_exact(rows) else rows.float()
