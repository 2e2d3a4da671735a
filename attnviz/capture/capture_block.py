"""Decides which threads a recording block observes, and returns the recording of them.

A block observes the thread that entered it. It also observes a thread that has entered no block, while that runs a
module of the block's model: as a run of its own if the thread calls the model itself, as a part of the block's run if
the model's forward pass hands modules to other threads.
"""

from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from attnviz.base.errors import AttnvizError
from attnviz.capture.capture import Capture
from attnviz.capture.flow.sites import ModuleIndex, modules_of
from attnviz.capture.hooks.library_functions import TRANSFORMERS_PATCHES, recurrence_patches
from attnviz.capture.hooks.observing_mode import TORCH_PATCHES, GlobalHook, Patches, add_observer, remove_observer
from attnviz.capture.hooks.torch_functions import Observer, StopForward
from attnviz.capture.labels import CaptureOptions
from attnviz.maps.recording import Recording
from attnviz.text.selection import IMPLICIT


class CaptureBlock:
    """A recording block: observes the forward passes of a model while it is open."""

    def __init__(self, model: nn.Module, options: CaptureOptions) -> None:
        refuse_opaque(model)
        self.model, self.options = model, options
        self.modules = ModuleIndex(model)
        self.capture = Capture(model, self.modules, options)
        is_implicit = options.attention == IMPLICIT
        self.recurrences = recurrence_patches(model, self.modules.modules) if is_implicit else Patches(())
        self.thread: int | None = None  # the thread that entered the block
        self.foreign_threads: dict[int, _ForeignThread] = {}
        self.foreign_captures: dict[int, Capture] = {}
        self.missed_call = False  # True if it was unknown to which block a call of another thread belongs
        self.closed = False
        self.initial_fastpath: bool | None = None  # torch's setting before the block; None if the block keeps it

    def __enter__(self) -> "CaptureBlock":
        """Begins to observe the running thread; raises AttnvizError if the block was entered before.

        With `CaptureOptions.values`, torch's fused layers are off in all threads until the block closes.
        """
        if self.thread is not None:
            raise AttnvizError("a block records once; call record(...) again for the next one")
        self.thread = get_ident()
        PATCHES.enter()
        self.recurrences.enter()
        try:
            if self.options.values:
                self.initial_fastpath = torch.backends.mha.get_fastpath_enabled()
                # Fused kernels would hide the output projections.
                torch.backends.mha.set_fastpath_enabled(value=False)
            _open_blocks.append(self)
            add_observer(self.capture.observer)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Ends the observation; returns True, to suppress the error, if this block stopped the forward pass by it."""
        try:
            if error is None:
                # The pass is over, so that nothing is left to stop.
                with suppress(StopForward), self.capture.observer.guarded():
                    self.capture.observer.flush()
        finally:
            self._close()
        return isinstance(error, StopForward) and error.receiver is self.capture

    def _close(self) -> None:
        """Closes the block: ends the observation of its thread, and restores the settings of torch that it changed."""
        self.closed = True
        try:
            if self.initial_fastpath is not None:
                torch.backends.mha.set_fastpath_enabled(self.initial_fastpath)
            remove_observer(self.capture.observer)
            self._remove_if_done()
        finally:
            self.recurrences.leave()
            PATCHES.leave()

    def _remove_if_done(self) -> None:
        if self.closed and not self.foreign_threads and self in _open_blocks:
            _open_blocks.remove(self)

    def recording(self) -> Recording:
        """Returns the recording of the block's thread; if it did not run the model, that of the one thread that did."""
        captures = [capture for capture in self.foreign_captures.values() if capture.has_run]
        ran_elsewhere = bool(captures) or self.missed_call
        if self.capture.has_run or self.capture.failure is not None or not ran_elsewhere:
            return self.capture.recording()
        name = type(self.model).__name__
        if len(captures) != 1:
            threads = (
                f"{len(captures)} other threads"
                if captures
                else "another thread, while blocks of several threads observe it"
            )
            raise AttnvizError(f"{name} ran in {threads}; record in the thread that runs it")
        if self.foreign_threads:
            raise AttnvizError(
                f"{name} still runs in another thread when the block ends; wait for that thread inside the block"
            )
        return captures[0].recording()

    # Threads without a block of their own

    def note_call(self, module: nn.Module, inputs: tuple[object, ...], thread: int, are_of_one_thread: bool) -> None:
        """Notes that a thread without a block calls a module; begins to observe the thread if it is not observed yet.

        If blocks of several threads contain the module, the call may belong to any of them: the block then only notes
        that it missed a call.
        """
        if thread in self.foreign_threads:
            foreign_thread = self.foreign_threads[thread]
            if module is foreign_thread.module:
                foreign_thread.depth += 1
            foreign_thread.enter(module, inputs)
        elif are_of_one_thread:
            is_part_of_pass = bool(self.capture.runs.running) and module is not self.model
            capture = self.capture if is_part_of_pass else self.foreign_captures.get(thread)
            if capture is None:
                capture = Capture(self.model, self.modules, self.options, may_stop=False)
                self.foreign_captures[thread] = capture
            observer = Observer(self.modules, capture) if is_part_of_pass else capture.observer
            foreign_thread = _ForeignThread(capture, observer, module, is_separate_run=not is_part_of_pass)
            self.foreign_threads[thread] = foreign_thread
            foreign_thread.enter(module, inputs)
            PATCHES.enter()
            add_observer(foreign_thread.observer)
        else:
            self.missed_call = True

    def note_return(self, module: nn.Module, thread: int) -> None:
        """Notes that a module has returned or raised in another thread; does nothing if that thread is not observed.

        The return of the outermost module that the thread called ends the observation of the thread.
        """
        foreign_thread = self.foreign_threads.get(thread)
        if foreign_thread is None:
            return
        foreign_thread.leave(module)
        if foreign_thread.module is not module:
            return
        foreign_thread.depth -= 1
        if not foreign_thread.depth:
            with foreign_thread.observer.guarded():
                foreign_thread.observer.flush()
            remove_observer(self.foreign_threads.pop(thread).observer)
            self._remove_if_done()
            PATCHES.leave()


_open_blocks: list[CaptureBlock] = []  # the open blocks of all threads, in the order of entry


def _before_module(module: nn.Module, inputs: tuple[object, ...]) -> None:
    """Tells the open blocks that a module is called: `Capture.enter` begins a forward pass at an outermost one."""
    if torch.compiler.is_dynamo_compiling():  # the traced graph must be the same with and without blocks
        return
    thread = get_ident()
    thread_blocks = [block for block in _open_blocks if block.thread == thread and not block.closed]
    if thread_blocks:
        for block in thread_blocks:
            block.capture.enter(module, inputs)
        return
    possible_blocks = [block for block in _open_blocks if not block.closed or thread in block.foreign_threads]
    blocks_of_model = [block for block in possible_blocks if block.modules.contains(module)]
    are_of_one_thread = len({block.thread for block in blocks_of_model}) == 1
    for block in blocks_of_model:
        block.note_call(module, inputs, thread, are_of_one_thread)


def _after_module(module: nn.Module, inputs: object, output: object) -> None:
    """Tells all open blocks that a module has returned or raised; does nothing while torch compiles."""
    if torch.compiler.is_dynamo_compiling():
        return
    thread = get_ident()
    for block in tuple(_open_blocks):
        if block.thread == thread:
            block.capture.runs.leave(module)
        else:
            block.note_return(module, thread)


PATCHES = Patches(
    (
        *TORCH_PATCHES,
        *TRANSFORMERS_PATCHES,
        GlobalHook(lambda: register_module_forward_pre_hook(_before_module)),
        GlobalHook(lambda: register_module_forward_hook(_after_module, always_call=True)),
    )
)


def refuse_opaque(model: object) -> None:
    """Raises AttnvizError if the calls of ``model`` cannot be observed.

    They cannot if it is not a module, was exported to a single graph, is compiled, or has a scripted part.
    """
    if not isinstance(model, nn.Module):
        description = (
            f"the class {model.__name__}" if isinstance(model, type) else f"an object of class {type(model).__name__}"
        )
        raise AttnvizError(
            f"attention is observed in a torch.nn.Module, not in {description}; give the module that is called"
        )
    nodes = model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ()
    if any(isinstance(node.target, torch._ops.OpOverload) for node in nodes):  # torch.export has merged all modules
        raise AttnvizError(
            "the model was exported by torch.export to one graph, in which its layers cannot be told apart; "
            "record torch.export.unflatten(exported) instead"
        )
    if hasattr(model, "_orig_mod"):
        raise AttnvizError("the model is compiled; record (and call) model._orig_mod, the module that was compiled")
    parts = modules_of(model).items()
    scripted_path = next((name for name, part in parts if isinstance(part, torch.jit.ScriptModule)), None)
    if scripted_path is not None:
        place = f"{scripted_path!r} of the model" if scripted_path else "the model"
        raise AttnvizError(f"{place} is scripted, so its calls cannot be observed; record the module it was made from")


@dataclass(eq=False)
class _ForeignThread:
    """A thread that runs a module of a block's model without a block of its own."""

    capture: Capture  # the capture that receives its calls
    observer: Observer  # the observer of its calls, while it is in the module
    module: nn.Module  # the outermost module that it called
    is_separate_run: bool  # True if it is a run of its own; False if it is part of a pass of the block's thread
    depth: int = 1  # the number of nested calls of that module

    def enter(self, module: nn.Module, inputs: tuple[object, ...]) -> None:
        """Notes that the thread calls a module: as a call in a separate run, or as a part of the block's pass."""
        if self.is_separate_run:
            self.capture.enter(module, inputs)
        else:
            self.capture.start(module)

    def leave(self, module: nn.Module) -> None:
        """Notes that a module has returned or raised; does nothing if the thread is part of the block's pass."""
        if self.is_separate_run:
            self.capture.runs.leave(module)
