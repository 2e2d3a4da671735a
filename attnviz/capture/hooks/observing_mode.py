"""Shows every torch function that a thread calls to the observers of that thread, without changing the results.

While a thread is observed, torch hands each of its functions to one mode, which calls it unchanged. Each recording
block of the thread has an observer. Patches stand in for the few names of torch and transformers that a mode does not
reach, from the start of the first block to the end of the last one.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import RLock, local
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnviz.attention.kernels import attention_with_logsumexp
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.arguments import (
    bind_dot_product,
    bind_query_and_key,
    extra_keys_of,
    share_memory,
    unreadable_kind,
    untraced,
)
from attnviz.capture.flow.functions import Arguments, Keywords, TorchCall
from attnviz.capture.flow.sites import is_within
from attnviz.capture.hooks.torch_functions import DOT_PRODUCT, Observer, StopForward

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
ATTENTION_NAME = re.compile(r"att(entio)?n", re.IGNORECASE)


def exempt_from_compiling(function: Callable[..., Any]) -> None:
    """Keeps torch.compile from compiling a function, and the functions that it calls, after a graph break.

    A compiled function would count as a part of the model, and observe no calls. Does nothing before torch 2.8.
    """
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):  # since torch 2.8
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def unobserved_modules(modules: Mapping[str, nn.Module], observed_names: Collection[str]) -> list[str]:
    """Returns the paths of modules whose attention was not observed because they, or modules around them, are compiled.

    In each compiled module, these are the modules of a class that attended elsewhere in the model. If there are none,
    and nothing in the compiled module was observed, they are the modules whose class is named attention.
    """
    attention_classes = {type(modules[path]) for path in observed_names if path in modules}
    unobserved_paths: list[str] = []
    compiled_paths = [path for path, module in modules.items() if _is_compiled(module)]
    for compiled_path in compiled_paths:
        inner_modules = {path: module for path, module in modules.items() if is_within(path, compiled_path)}
        paths = [path for path, module in inner_modules.items() if type(module) in attention_classes]
        if not paths and not any(path in observed_names for path in inner_modules):
            paths = [path for path, module in inner_modules.items() if ATTENTION_NAME.search(type(module).__name__)]
        unobserved_paths += [path for path in paths if path not in observed_names]
    return list(dict.fromkeys(unobserved_paths))


def refuse_merged(modules: Mapping[str, nn.Module], path: str, was_called: bool) -> None:
    """Raises AttnvizError if torch.compile has merged modules, so that the caller of attention cannot be known.

    Call this when a module calls attention a second time. Compiled code calls no inner modules, so all attention seems
    to come from the outermost one. Refuses a compiled module with several layers, and a module that was not called if
    a module around it is compiled.
    """
    inner_modules = [
        module for inner_path, module in modules.items() if inner_path != path and is_within(inner_path, path)
    ]
    class_counts = Counter(
        type(module) for module in inner_modules if not isinstance(module, CONTAINERS) and module._modules
    )
    has_layers = max(class_counts.values(), default=0) > 1  # several modules of one class that have parts
    merged_path = path if has_layers and _is_compiled(modules[path]) else None
    if not was_called:
        outer_paths = [outer_path for outer_path in modules if outer_path != path and is_within(path, outer_path)]
        merged_path = next((outer_path for outer_path in outer_paths if _is_compiled(modules[outer_path])), merged_path)
    if merged_path is not None:
        raise AttnvizError(
            f"the attention calls of {merged_path or 'the model'} cannot be told apart: torch.compile merged its "
            'modules into one function; call it under torch.compiler.set_stance("force_eager"), or compile its '
            "layers one by one"
        )


def anything_compiled() -> bool:
    """True if ``torch.compile`` has compiled any function in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["stats"]["unique_graphs"])


def _is_compiled(module: nn.Module) -> bool:
    """True if torch.compile compiled the module, or returned it as the wrapper of another module."""
    attributes = vars(module)
    entry_points = attributes.get("_compiled_call_impl"), attributes.get("forward")
    return "_orig_mod" in module._modules or any(
        getattr(entry_point, "_is_torch_compile", False) for entry_point in entry_points if entry_point
    )


ATTRIBUTE = "__get__"
WITHOUT_TENSORS = frozenset(
    {"size", "stride", "dim", "numel", "is_contiguous", "is_floating_point", "is_complex", "__len__", "item"}
)  # their results hold no tensor, and they write to none
# Torch runs the score_mod of flex_attention under vmap if it is not compiled. Versions 2.5 to 2.13 compute it there.
FLEX_MODULE = "torch._higher_order_ops.flex_attention"
_push: Callable[[Any], None] = torch.overrides._push_mode
_pop: Callable[[], Any] = torch.overrides._pop_mode
_stack: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack


class ObservingMode(TorchFunctionMode):
    """A torch function mode that calls each function of its thread, and shows the call to the thread's observers."""

    def __init__(self) -> None:
        super().__init__()
        self.observers: list[Observer] = []  # the observers of the thread, one for each block, the innermost last
        # True while ``multi_head_attention_forward`` runs, whose inner functions are observed
        self.inside_multi_head = False

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        """Calls the function, shows the call to the observers, and returns its result.

        Observers first copy the tensors that the function will overwrite. Calls that torch compiles, functions that
        return no tensors, and those of a repeated pass that are no attention, are called but not shown.
        """
        if torch.compiler.is_compiling():  # the traced graph must be the same with and without observers
            return func(*args, **(kwargs or {}))
        name, keywords = getattr(func, "__name__", "").partition(".")[0], kwargs or {}
        if name == ATTRIBUTE:
            result = func(*args)
            if isinstance(result, Tensor):
                is_repeated = self._advance_passes(ATTRIBUTE, args)
                if not is_repeated:
                    self._show(TorchCall(ATTRIBUTE, func, args, {}, result))
            return result
        if name in WITHOUT_TENSORS:
            return func(*args, **keywords)
        is_repeated = self._advance_passes(name, args)
        if is_repeated and name != DOT_PRODUCT:
            return func(*args, **keywords)
        target = _overwritten_tensor(name, args, keywords)
        input_copy = None if target is None else self._keep_copies(name, args, target)
        call_function = CALLERS.get(name)
        if call_function is None:
            call = TorchCall(name, func, args, keywords, func(*args, **keywords), overwritten=input_copy)
        else:
            call = call_function(self, func, args, keywords)
        self._show(call)
        return call.result

    def _advance_passes(self, name: str, args: Arguments) -> bool:
        """Notes a function in the pass of each observer; True if all of these passes repeat the ones before in it."""
        are_repeats = True
        for observer in self.observers:
            if not observer.closed:
                are_repeats &= observer.passes.advance(name, args)
        return are_repeats

    def _show(self, call: TorchCall) -> None:
        """Shows a call to all open observers, outside of a trace by ``torch.jit`` if one runs."""
        if torch._C._get_tracing_state() is not None:
            with untraced():
                return self._show(call)
        stop_request: StopForward | None = None
        for observer in self.observers:
            if observer.closed:
                continue
            try:
                observer.observe(call)
            except StopForward as request:
                stop_request = stop_request or request
        if stop_request is not None:
            raise stop_request
        return None

    @staticmethod
    def _keep_copies(name: str, args: Arguments, target: Tensor) -> Tensor | None:
        """Replaces tensors that observers hold, and that a call will overwrite, with copies.

        Returns a copy of a softmax's input if its output will be written over it.
        """
        input_copy: Tensor | None = None
        for observer in observers():
            with observer.guarded():
                for candidate in observer.flow.unused_candidates():
                    for part in ("logits", "probabilities"):
                        tensor = getattr(candidate, part)
                        if share_memory(tensor, target):
                            setattr(candidate, part, tensor.clone())
                observer.receiver.keep_copies(target)
                if input_copy is None and "softmax" in name and args and share_memory(args[0], target):
                    input_copy = args[0].clone()
        return input_copy

    def call_dot_product(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> TorchCall:
        """Calls ``scaled_dot_product_attention``; if possible, by the operator of its kernel that returns log-sum-exps.

        The function itself is called if other modes are active, or if an argument cannot be read.
        """
        has_other_modes = torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
        if has_other_modes or unreadable_kind(*args, *kwargs.values()) is not None:
            return TorchCall(DOT_PRODUCT, func, args, kwargs, func(*args, **kwargs))
        output, logsumexp = attention_with_logsumexp(func, bind_dot_product(*args, **kwargs))
        return TorchCall(DOT_PRODUCT, func, args, kwargs, output, logsumexp)

    def call_multi_head(self, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> TorchCall:
        """Calls ``multi_head_attention_forward``, shows the functions inside it to the observers, and returns the call.

        Meanwhile ``cross`` of each observer is True if queries and keys have different inputs, else False. If other
        modes are active, they get the call first, and this mode handles it after them. If a subclass of tensor
        overrides the function, ``cross`` stays ``None``, and no inner functions are shown. It also stays ``None`` if
        queries or keys cannot be read.
        """
        if torch._C._len_torch_function_stack():  # modes entered later must still be asked first
            with self._below_others():
                return TorchCall("multi_head_attention_forward", func, args, kwargs, func(*args, **kwargs))
        query, key = bind_query_and_key(*args, **kwargs)
        if _is_overridden(query) or _is_overridden(key):
            return TorchCall("multi_head_attention_forward", func, args, kwargs, func(*args, **kwargs))
        for observer in self.observers:
            with observer.guarded():
                if unreadable_kind(query, key) is None:
                    observer.cross = observer.have_different_inputs(query, key)
                    observer.extra_keys = extra_keys_of(*args, **kwargs)
        self.inside_multi_head = True
        try:
            with self:  # torch deactivates a mode while it handles a function
                return TorchCall("multi_head_attention_forward", func, args, kwargs, func(*args, **kwargs))
        finally:
            self.inside_multi_head = False
            for observer in self.observers:
                observer.cross, observer.extra_keys = None, ()

    @contextmanager
    def _below_others(self) -> Iterator[None]:
        """Puts this mode below all other modes of the thread's stack; removes it from the stack after the block."""
        other_modes = [_pop() for _ in range(torch._C._len_torch_function_stack())]  # the innermost first
        for mode in (self, *reversed(other_modes)):
            _push(mode)
        try:
            yield
        finally:
            _remove_mode(self)


exempt_from_compiling(ObservingMode.__torch_function__)

CALLERS: dict[str, Callable[[ObservingMode, Callable[..., Any], Arguments, Keywords], TorchCall]] = {
    DOT_PRODUCT: ObservingMode.call_dot_product,
    "multi_head_attention_forward": ObservingMode.call_multi_head,
}


def _overwritten_tensor(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
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


class _Thread(local):
    """The state of the running thread."""

    mode: ObservingMode | None = None


_thread = _Thread()


def observers() -> tuple[Observer, ...]:
    """Returns the open observers of the running thread, the innermost last; none outside of blocks or in a backward.

    Autograd may repeat a checkpointed forward pass, for which torch leaves out modes, but not what we replaced.
    """
    mode, is_backward = _thread.mode, torch._C._current_graph_task_id() != -1
    return () if mode is None or is_backward else tuple(observer for observer in mode.observers if not observer.closed)


def add_observer(observer: Observer) -> None:
    """Opens an observer, and shows it the calls of the running thread from now on.

    The first observer of the thread also activates the observing mode.
    """
    observer.closed = False
    if _thread.mode is None:
        mode = ObservingMode()
        mode.observers.append(observer)
        _thread.mode = mode
        _push(mode)
    else:
        _thread.mode.observers.append(observer)


def remove_observer(observer: Observer) -> None:
    """Closes an observer, and removes it if it is one of the running thread.

    If the thread then has no open observer, its observing mode is deactivated. An observer of another thread is only
    closed, so that it sees no further calls.
    """
    observer.closed = True
    mode = _thread.mode
    if mode is not None and observer in mode.observers:
        mode.observers.remove(observer)
    if mode is not None and not observers():
        _thread.mode = None
        _remove_mode(mode)


def _remove_mode(mode: ObservingMode) -> None:
    """Removes a mode from the thread's stack, also from below modes that were entered after it."""
    modes_above: list[Any] = []
    try:
        while torch._C._len_torch_function_stack():
            top_mode = _pop()
            if top_mode is mode:
                break
            modes_above.append(top_mode)
    finally:
        for mode_above in reversed(modes_above):
            _push(mode_above)


@dataclass(eq=False)
class Patch:
    """An attribute that is replaced while blocks record."""

    find: Callable[[], Any]  # returns the owner of the attribute; ``None`` if it was not imported
    name: str  # the name of the attribute
    # Returns the replacement of an original; in threads that no block observes, both behave alike
    replace: Callable[[Any], Any]
    owner: Any = None  # the owner; ``None`` while the attribute is not replaced
    original: Any = None  # the replaced attribute
    replacement: Any = None  # the attribute in its place

    def install(self) -> None:
        """Replaces the attribute; does nothing if it is replaced already, or its owner lacks it or was not imported."""
        owner = self.find() if self.owner is None else None
        if owner is None or self.name not in vars(owner):
            return
        self.original = vars(owner)[self.name]
        self.replacement = self.replace(self.original)
        self.owner = owner
        setattr(owner, self.name, self.replacement)

    def restore(self) -> None:
        """Puts the original back, unless other code has replaced the attribute meanwhile."""
        if self.owner is not None and vars(self.owner)[self.name] is self.replacement:
            setattr(self.owner, self.name, self.original)
        self.owner = self.original = self.replacement = None


@dataclass(eq=False)
class GlobalHook:
    """A hook on the calls of every module."""

    register: Callable[[], Any]  # registers the hook and returns its handle
    handle: Any = None  # the handle that removes it; ``None`` while it is not registered

    def install(self) -> None:
        """Registers the hook; does nothing if it is registered already."""
        if self.handle is None:
            self.handle = self.register()

    def restore(self) -> None:
        """Removes the hook; does nothing if it is not registered."""
        if self.handle is not None:
            self.handle.remove()
        self.handle = None


@dataclass(eq=False)
class Patches:
    """Patches and hooks that stay in place while any block in any thread uses them."""

    parts: tuple[Patch | GlobalHook, ...]  # the patches and hooks, in the order of installation
    users: int = 0  # the number of blocks and other threads that use them
    _lock: Any = field(default_factory=RLock)

    def enter(self) -> None:
        """Installs all parts and counts one more user.

        If a part raises an error, nothing is counted, all parts are restored unless another user is left, and the error
        is raised again.
        """
        with self._lock:
            try:
                for part in self.parts:
                    part.install()
                self.users += 1
            except BaseException:
                self._restore_unused()
                raise

    def leave(self) -> None:
        """Counts one user less; restores the originals if no user is left."""
        with self._lock:
            self.users -= 1
            try:
                self._restore_unused()
            except BaseException:  # an interrupt may come in the middle: restore the rest, then raise it
                self._restore_unused()
                raise

    def _restore_unused(self) -> None:
        if self.users == 0:
            for part in reversed(self.parts):
                part.restore()


def _has_torch_function_for_layers(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a replacement of ``has_torch_function``, by which torch's fused layers look for overrides."""

    def has_torch_function(tensors: Any) -> bool:
        if _thread.mode is None:
            return original(tensors)
        if any(type(mode) is not ObservingMode for mode in _stack()):
            return True
        no_override = torch._C._disabled_torch_function_impl
        classes = {type(tensor) for tensor in tensors} - {Tensor}
        return any(getattr(kind, "__torch_function__", no_override) is not no_override for kind in classes)

    return has_torch_function


def _has_torch_function_for_multi_head(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a replacement of the function by which ``multi_head_attention_forward`` looks for overrides."""

    def has_torch_function(tensors: Any) -> bool:
        mode = _thread.mode
        is_inside = mode is not None and mode.inside_multi_head
        return not is_inside and original(tensors)

    return has_torch_function


def _showing_score_changes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a wrapper of torch's function for score_mod and mask_mod; it shows the scores to the observers."""

    def _math_attention_inner(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        scores, changed_scores = result
        if not torch.compiler.is_compiling() and unreadable_kind(scores, changed_scores) is None:
            for observer in observers():
                with observer.guarded():
                    observer.flow.note_elementwise(scores, changed_scores)
        return result

    return _math_attention_inner


TORCH_PATCHES = (
    Patch(lambda: torch.overrides, "has_torch_function", _has_torch_function_for_layers),
    Patch(lambda: functional, "has_torch_function", _has_torch_function_for_multi_head),
    Patch(lambda: sys.modules.get(FLEX_MODULE), "_math_attention_inner", _showing_score_changes),
)


def _is_overridden(tensor: object) -> bool:
    """True if a tensor's class defines another ``__torch_function__`` than `Tensor`; False for other objects."""
    defaults = (torch._C._disabled_torch_function_impl, getattr(Tensor.__torch_function__, "__func__", None))
    override = getattr(type(tensor), "__torch_function__", None)
    return isinstance(tensor, Tensor) and getattr(override, "__func__", override) not in defaults
