"""The calls of a model's modules in one run, each with a key that is the same in every run, and what each returned.

A module that had returned before a head's output is used is not called again in a later run: it gives what it gave.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import local
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from attnviz.capture.flow.products import PRODUCTS
from attnviz.capture.hooks.patches import Patch, Patches

Key = tuple[Any, ...]  # of a call: that of the call around it, the module, and which of its calls there
Edit = Callable[[str, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(eq=False)
class RunningModule:
    """A module that runs now.

    Attributes:
        key: of its call.
        calls: how often it has called each module.
        products: how many products it has computed itself.
        finished: what the modules that it called have returned, by the keys of their calls.
    """

    key: Key
    calls: Counter[int] = field(default_factory=Counter)
    products: int = 0
    finished: dict[Key, Any] = field(default_factory=dict)


class ModuleCalls:
    """Follows the calls of modules in a run.

    Args:
        keeps: whether what modules return is kept while the module around them runs.
        returned: what calls return that are left out, by their keys.
        on_call: told of each module before it runs, and of its arguments.
        on_return: told of each module after it has run.
    """

    def __init__(
        self,
        keeps: bool = False,
        returned: Mapping[Key, Any] | None = None,
        on_call: Callable[[nn.Module, tuple[Any, ...]], None] | None = None,
        on_return: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.keeps, self.returned = keeps, returned or {}
        self.on_call, self.on_return = on_call, on_return
        self.frames = [RunningModule(())]

    def call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls a module, or returns what its call returned before."""
        around = self.frames[-1]
        key = (around.key, id(module), around.calls[id(module)])
        around.calls[id(module)] += 1
        if key in self.returned:
            return self.returned[key]
        if self.on_call is not None:
            self.on_call(module, args)
        self.frames.append(RunningModule(key))
        try:
            result = original(module, *args, **kwargs)
        finally:
            self.frames.pop()
            if self.on_return is not None:
                self.on_return(module)
        if self.keeps:
            around.finished[key] = tree_map(_copy, result)
        return result

    def next_product(self) -> Key:
        """The key of the next product that the running module computes itself."""
        frame = self.frames[-1]
        frame.products += 1
        return frame.key, frame.products

    def finished(self) -> dict[Key, Any]:
        """What all calls have returned that are within no other that has."""
        return {key: result for frame in self.frames for key, result in frame.finished.items()}


def _copy(value: Any) -> Any:
    """A copy of a tensor, which what follows cannot write over."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class EditingMode(TorchFunctionMode):
    """Calls each function of its thread, products whose key has an edit with changed arguments.

    Args:
        calls: the modules that run.
        edits: by the keys of products.
    """

    def __init__(self, calls: ModuleCalls, edits: Mapping[Key, Edit]) -> None:
        super().__init__()
        self.calls, self.edits = calls, edits

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function."""
        name, given = getattr(func, "__name__", "").partition(".")[0], kwargs or {}
        if name == "multi_head_attention_forward":  # whose own functions are to be seen
            _thread.inside += 1
            try:
                with self:
                    return func(*args, **given)
            finally:
                _thread.inside -= 1
        if name in PRODUCTS:
            edit = self.edits.get(self.calls.next_product())
            if edit is not None:
                args, given = edit(name, args, given)
        return func(*args, **given)


class _EffectsThread(local):
    """What belongs to the running thread alone: the calls that are followed, and how deep in fused functions it is."""

    calls: ModuleCalls | None = None
    inside: int = 0


_thread = _EffectsThread()


def _followed(original: Callable[..., Any]) -> Callable[..., Any]:
    """``nn.Module.__call__``, which in a thread that is followed tells of each call."""

    def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        calls = _thread.calls
        return original(module, *args, **kwargs) if calls is None else calls.call(original, module, args, kwargs)

    return __call__


def _runs_inside(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """``has_torch_function`` as ``multi_head_attention_forward`` asks it, while a mode has called that."""

    def has_torch_function(tensors: Any) -> bool:
        return not _thread.inside and original(tensors)

    return has_torch_function


CALL_PATCHES = Patches(
    (Patch(lambda: nn.Module, "__call__", _followed), Patch(lambda: functional, "has_torch_function", _runs_inside))
)


@contextmanager
def followed(calls: ModuleCalls) -> Iterator[None]:
    """Follows the modules that this thread calls in the block."""
    CALL_PATCHES.enter()
    before, _thread.calls = _thread.calls, calls
    try:
        yield
    finally:
        _thread.calls = before
        CALL_PATCHES.leave()


@contextmanager
def unfused() -> Iterator[None]:
    """Keeps torch's own layers from the kernels in which nothing can be replaced."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Leaves the model and the random state as they were, whatever happens in the block; in it the model evaluates."""
    training = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        with torch.random.fork_rng(), torch.no_grad(), unfused():
            model.eval()
            yield
    finally:
        for module, flag in training:
            module.training = flag
        with torch.no_grad():
            for module, name, buffer, kept in buffers:
                module._buffers[name] = buffer
                if not torch.equal(buffer, kept):
                    buffer.copy_(kept)
