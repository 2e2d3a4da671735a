"""Gives each call of a module and each product of a run a key, by which a later run changes products or skips calls.

The keys are the same in every run. A later run that changes a product skips the modules that had returned before it:
their calls return the cached results.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import local
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from attnviz.capture.flow.products import PRODUCTS
from attnviz.capture.hooks.observing_mode import Patch, Patches
from attnviz.capture.hooks.torch_functions import DOT_PRODUCT

# The key of a call: the key of the call around it, the module's id, and the count of its earlier calls there.
# The key of a product: the key of the call around it, and the number of the product there.
Key = tuple[Any, ...]
EDITED = frozenset({*PRODUCTS, DOT_PRODUCT})  # the functions whose arguments a later run may change
Edit = Callable[[str, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(eq=False)
class _RunningModule:
    """The state of a running module."""

    key: Key  # the key of its call
    # the number of times that it has called each module, by the module's ``id``
    calls: Counter[int] = field(default_factory=Counter)
    products: int = 0  # the number of functions of `EDITED` that it has called outside of other modules
    # the results of the modules that it called, by the keys of their calls
    finished: dict[Key, Any] = field(default_factory=dict)


class ModuleCalls:
    """The stack of running modules in a run, which caches and replays results of calls."""

    def __init__(
        self,
        keeps_results: bool = False,
        cached_results: Mapping[Key, Any] | None = None,
        on_call: Callable[[nn.Module, tuple[Any, ...]], None] | None = None,
        on_return: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.keeps_results, self.cached_results = keeps_results, cached_results or {}
        self.on_call, self.on_return = on_call, on_return
        self.frames = [_RunningModule(())]

    def call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls a module and returns its result, or returns the cached result without a call.

        Calls ``on_call`` before the module and ``on_return`` after it, if they are set.
        """
        outer_module = self.frames[-1]
        key = (outer_module.key, id(module), outer_module.calls[id(module)])
        outer_module.calls[id(module)] += 1
        if key in self.cached_results:
            return self.cached_results[key]
        if self.on_call is not None:
            self.on_call(module, args)
        self.frames.append(_RunningModule(key))
        try:
            result = original(module, *args, **kwargs)
        finally:
            self.frames.pop()
            if self.on_return is not None:
                self.on_return(module)
        if self.keeps_results:  # copies, which later in-place operations do not change
            outer_module.finished[key] = tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), result)
        return result

    def running_path(self, names: Mapping[int, str]) -> str:
        """Returns the path of the running module, by ``id`` of its module; "" outside of the model."""
        key = self.frames[-1].key  # outer key, id of the module, count
        return names.get(key[1], "") if key else ""

    def next_product(self) -> Key:
        """Counts the next product of the running module, and returns its key."""
        frame = self.frames[-1]
        frame.products += 1
        return frame.key, frame.products

    def finished(self) -> dict[Key, Any]:
        """Returns the results, by key, of finished calls whose calling modules still run."""
        return {key: result for frame in self.frames for key, result in frame.finished.items()}


class EditingMode(TorchFunctionMode):
    """A torch function mode that changes the arguments of products, and of attention that is one function."""

    def __init__(self, calls: ModuleCalls, edits: Mapping[Key, Edit]) -> None:
        super().__init__()
        self.calls, self.edits = calls, edits

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function, with changed arguments if it has an edit, and returns its result."""
        name = getattr(func, "__name__", "").partition(".")[0]
        keywords = kwargs or {}
        if name == "multi_head_attention_forward":  # a composite: the mode must stay active for the products inside it
            _thread.composite_depth += 1
            try:
                with self:
                    return func(*args, **keywords)
            finally:
                _thread.composite_depth -= 1
        if name in EDITED:
            edit = self.edits.get(self.calls.next_product())
            if edit is not None:
                args, keywords = edit(name, args, keywords)
        return self.compute(name, func, args, keywords)

    def compute(self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls a function and returns its result."""
        return func(*args, **kwargs)


class _EffectsThread(local):
    """The state of one thread: the calls that it follows, and its depth in ``multi_head_attention_forward``."""

    calls: ModuleCalls | None = None
    composite_depth: int = 0


_thread = _EffectsThread()


def _call_through_record(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an ``nn.Module.__call__`` that calls modules through the thread's `ModuleCalls` if there is one."""

    def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        calls = _thread.calls
        return original(module, *args, **kwargs) if calls is None else calls.call(original, module, args, kwargs)

    return __call__


def _false_in_composite(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a ``has_torch_function`` that is False inside of ``multi_head_attention_forward``."""

    def has_torch_function(tensors: Any) -> bool:
        return not _thread.composite_depth and original(tensors)

    return has_torch_function


CALL_PATCHES = Patches(
    (
        Patch(lambda: nn.Module, "__call__", _call_through_record),
        Patch(lambda: functional, "has_torch_function", _false_in_composite),
    )
)


@contextmanager
def record_calls(calls: ModuleCalls) -> Iterator[None]:
    """Routes this thread's module calls through ``calls`` during the block; an outer block records none of them."""
    CALL_PATCHES.enter()
    outer_calls, _thread.calls = _thread.calls, calls
    try:
        yield
    finally:
        _thread.calls = outer_calls
        CALL_PATCHES.leave()


@contextmanager
def restore_afterwards(model: nn.Module) -> Iterator[None]:
    """Puts the model in evaluation mode for the block, then restores its flags, its buffers and the random state.

    The block runs without gradients and without the fused kernels of torch's layers, whose operands cannot be replaced.
    """
    training_flags = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    had_fused_kernels = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.random.fork_rng(), torch.no_grad():
            model.eval()
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(had_fused_kernels)
        for module, was_training in training_flags:
            module.training = was_training
        with torch.no_grad():
            for module, name, buffer, saved_numbers in buffers:
                module._buffers[name] = buffer
                if not torch.equal(buffer, saved_numbers):
                    buffer.copy_(saved_numbers)


def replaced(value: Any, old: Tensor, new: Tensor) -> Any:
    """Returns the value with the tensor ``old`` replaced by ``new``, at any depth of tuples, lists and dictionaries."""
    if value is old:
        return new
    if isinstance(value, dict):
        return {name: replaced(item, old, new) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(replaced(item, old, new) for item in value)
    return value
