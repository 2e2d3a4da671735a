"""Tells which tensors can be read while a model runs, and hides the computations of attnviz from its modes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import local
from typing import Any

import torch
from torch import Tensor

_set_tracing: Callable[[Any], None] = torch._C._set_tracing_state  # type: ignore[attr-defined]
PLAIN_DISPATCH = torch._C._disabled_torch_dispatch_impl


_tracing = local()  # of the running thread: ``is_suspended`` is True while attnviz computes inside of a trace

UNREADABLE: tuple[tuple[Callable[[Tensor], Any], str], ...] = (
    (torch._C._functorch.is_functorch_wrapped_tensor, "tensors of torch.vmap or torch.func"),
    (torch._is_functional_tensor, "tensors of torch.func"),
    (lambda tensor: type(tensor).__name__ == "FakeTensor", "fake tensors, which have no values"),
    (lambda tensor: type(tensor).__torch_dispatch__ is not PLAIN_DISPATCH, "tensors of a custom subclass"),
    (lambda tensor: tensor.is_meta, "meta tensors, which have no values"),
    (lambda tensor: tensor.is_nested, "nested tensors"),
    (lambda tensor: tensor.layout != torch.strided, "sparse tensors"),
    (lambda tensor: tensor.is_quantized, "quantized tensors"),
    (
        lambda tensor: getattr(_tracing, "is_suspended", False) or torch._C._get_tracing_state(),
        "tensors traced by torch.jit.trace",
    ),
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


def share_memory(first: object, second: object) -> bool:
    """True if two tensors share storage; False if one is no tensor, cannot be read or has no storage."""
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or unreadable_kind(first, second) is not None:
        return False
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() != 0
