"""Shows every function of torch that a thread calls to the observers of that thread, without changing what it computes.

While a thread is observed torch hands each of its functions to one mode, which calls it as it was called. There is an
observer for each recording block that hears the thread.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnviz.attention.kernels import dot_product
from attnviz.capture.calls.arguments import bind_dot_product, bind_query_and_key
from attnviz.capture.calls.overwriting import copy_of_input, keep_copies, written
from attnviz.capture.calls.readable import untraced, why_unreadable
from attnviz.capture.hooks.patches import Patch
from attnviz.capture.hooks.torch_functions import Arguments, Keywords, Observer, StopForward, TorchCall

ATTRIBUTE = "__get__"
WITHOUT_TENSORS = frozenset(
    {"size", "stride", "dim", "numel", "is_contiguous", "is_floating_point", "is_complex", "__len__", "item"}
)  # what these return holds no tensor, and they write none
_push: Callable[[Any], None] = torch.overrides._push_mode
_pop: Callable[[], Any] = torch.overrides._pop_mode
_stack: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack


class ObservingMode(TorchFunctionMode):
    """Calls each function of its thread as it was called, and shows it to the observers of the thread.

    Attributes:
        observers: one for each block that hears the thread, the innermost last.
        inside_multi_head: whether ``multi_head_attention_forward`` runs, whose functions are to be seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.observers: list[Observer] = []
        self.inside_multi_head = False

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        """Calls the function, and follows what may be attention."""
        if torch.compiler.is_compiling():  # a graph is traced, which is to be the one that it is without observers
            return func(*args, **(kwargs or {}))
        name, given = getattr(func, "__name__", "").partition(".")[0], kwargs or {}
        if name == ATTRIBUTE:
            return self._attribute(func, args)
        if name in WITHOUT_TENSORS:
            return func(*args, **given)
        target = written(name, args, given)
        kept = None if target is None else self._keep_copies(name, args, target)
        caller = CALLERS.get(name)
        if caller is None:
            call = TorchCall(name, func, args, given, func(*args, **given), overwritten=kept)
        else:
            call = caller(self, func, args, given)
        self._show(call)
        return call.result

    def _attribute(self, func: Callable[..., Any], args: Arguments) -> Any:
        """An attribute of a tensor, which is shown where it is a tensor."""
        result = func(*args)
        if isinstance(result, Tensor):
            self._show(TorchCall(ATTRIBUTE, func, args, {}, result))
        return result

    def _show(self, call: TorchCall) -> None:
        if torch._C._get_tracing_state() is not None:
            with untraced():
                return self._show(call)
        stopped: StopForward | None = None
        for observer in self.observers:
            if observer.closed:
                continue
            try:
                observer.see(call)
            except StopForward as stop:
                stopped = stopped or stop
        if stopped is not None:
            raise stopped
        return None

    @staticmethod
    def _keep_copies(name: str, args: Arguments, target: Tensor) -> Tensor | None:
        """Lets observers copy what they hold of what is written over; returns a copy of a softmax's input, if it is."""
        kept = None
        for observer in observers():
            with observer.looking():
                keep_copies(observer.holders(), target)
                kept = copy_of_input(name, args, target) if kept is None else kept
        return kept

    def call_dot_product(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> TorchCall:
        """``scaled_dot_product_attention``, by the kernel that torch takes where that gives the log-sum-exp as well."""
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            return TorchCall("scaled_dot_product_attention", func, args, kwargs, func(*args, **kwargs))
        if why_unreadable(*args, *kwargs.values()) is not None:
            return TorchCall("scaled_dot_product_attention", func, args, kwargs, func(*args, **kwargs))
        output, logsumexp = dot_product(func, bind_dot_product(*args, **kwargs))
        return TorchCall("scaled_dot_product_attention", func, args, kwargs, output, logsumexp)

    def call_multi_head(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> TorchCall:
        """``multi_head_attention_forward``: the mode stays active for the functions that it calls."""
        if torch._C._len_torch_function_stack():  # modes of others are asked first, as they would be without this one
            with self._below_others():
                return TorchCall("multi_head_attention_forward", func, args, kwargs, func(*args, **kwargs))
        query, key = bind_query_and_key(*args, **kwargs)
        if _is_overridden(query) or _is_overridden(key):
            return TorchCall("multi_head_attention_forward", func, args, kwargs, func(*args, **kwargs))
        for observer in self.observers:
            observer.cross = observer.is_elsewhere(query, key)
        self.inside_multi_head = True
        try:
            with self:
                return TorchCall("multi_head_attention_forward", func, args, kwargs, func(*args, **kwargs))
        finally:
            self.inside_multi_head = False
            for observer in self.observers:
                observer.cross = None

    @contextmanager
    def _below_others(self) -> Iterator[None]:
        """Puts the mode below all others of the thread."""
        others = [_pop() for _ in range(torch._C._len_torch_function_stack())]
        for mode in (self, *reversed(others)):
            _push(mode)
        try:
            yield
        finally:
            _remove_mode(self)


CALLERS: dict[str, Callable[[ObservingMode, Callable[..., Any], Arguments, Keywords], TorchCall]] = {
    "scaled_dot_product_attention": ObservingMode.call_dot_product,
    "multi_head_attention_forward": ObservingMode.call_multi_head,
}


class _Thread(local):
    """What belongs to the running thread alone.

    Attributes:
        mode: observes it, ``None`` while no block hears the thread.
    """

    mode: ObservingMode | None = None


_thread = _Thread()


def observers() -> tuple[Observer, ...]:
    """The observers of the running thread, the innermost block's last."""
    mode = _thread.mode
    return () if mode is None else tuple(observer for observer in mode.observers if not observer.closed)


def add_observer(observer: Observer) -> None:
    """Shows the running thread's calls to one more observer."""
    observer.closed = False
    if _thread.mode is None:
        mode = ObservingMode()
        mode.observers.append(observer)
        _thread.mode = mode
        _push(mode)
    else:
        _thread.mode.observers.append(observer)


def remove_observer(observer: Observer) -> None:
    """Shows calls to this observer no longer; with the last one of the running thread its mode goes."""
    observer.closed = True
    mode = _thread.mode
    if mode is not None and observer in mode.observers:
        mode.observers.remove(observer)
    if mode is not None and not observers():
        _thread.mode = None
        _remove_mode(mode)


def _remove_mode(mode: ObservingMode) -> None:
    """Takes a mode off the stack, also from below modes that were entered after it."""
    above: list[Any] = []
    try:
        while torch._C._len_torch_function_stack():
            top = _pop()
            if top is mode:
                break
            above.append(top)
    finally:
        for other in reversed(above):
            _push(other)


def _layers_may_fuse(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """``has_torch_function`` as torch's fused layers ask it: the observing mode alone overrides no function."""

    def has_torch_function(tensors: Any) -> bool:
        return original(tensors) if _thread.mode is None else _has_own_functions(tensors)

    return has_torch_function


def _multi_head_runs(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """``has_torch_function`` as ``multi_head_attention_forward`` asks it, while the mode has called that."""

    def has_torch_function(tensors: Any) -> bool:
        mode = _thread.mode
        return not (mode is not None and mode.inside_multi_head) and original(tensors)

    return has_torch_function


TORCH_PATCHES = (
    Patch(lambda: torch.overrides, "has_torch_function", _layers_may_fuse),
    Patch(lambda: functional, "has_torch_function", _multi_head_runs),
)


def _has_own_functions(tensors: Any) -> bool:
    """What torch's ``has_torch_function`` says where the observing mode is not there."""
    inert = torch._C._disabled_torch_function_impl
    modes = _stack()
    return any(type(mode) is not ObservingMode for mode in modes) or any(
        getattr(type(tensor), "__torch_function__", inert) is not inert and type(tensor) is not Tensor
        for tensor in tensors
    )


def _is_overridden(tensor: object) -> bool:
    """Whether the class of the tensor has written its own ``__torch_function__``."""
    default = (torch._C._disabled_torch_function_impl, getattr(Tensor.__torch_function__, "__func__", None))
    own = getattr(type(tensor), "__torch_function__", None)
    return isinstance(tensor, Tensor) and getattr(own, "__func__", own) not in default
