"""Listening: which threads a recording block hears, and what it recorded of them.

A block hears the thread that entered it. A thread that has entered no block is heard, while it runs a module of the
model, by the blocks that hold that module: apart from the block's own run where it calls the model itself, as a part of
it where the model's own forward pass hands modules to other threads.
"""

from dataclasses import dataclass
from threading import get_ident

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from attnviz.base.errors import AttnvizError
from attnviz.capture.capture import Capture
from attnviz.capture.flow.sites import ModuleIndex, modules_of
from attnviz.capture.hooks.flex_attention import FLEX_PATCHES
from attnviz.capture.hooks.observing_mode import TORCH_PATCHES, add_observer, remove_observer
from attnviz.capture.hooks.patches import GlobalHook, Patches
from attnviz.capture.hooks.torch_functions import Observer, StopForward
from attnviz.capture.hooks.transformers_kernels import TRANSFORMERS_PATCHES
from attnviz.capture.options import CaptureOptions
from attnviz.maps.recording import Recording


@dataclass(eq=False)
class Guest:
    """A thread that runs a module of a block's model, and has entered no block itself.

    Attributes:
        capture: keeps what it runs.
        observer: follows it while it is in the module.
        module: the outermost module that it called.
        apart: whether it runs apart from the block's own thread, and not as a part of a pass there.
        depth: how often it is in that module.
    """

    capture: Capture
    observer: Observer
    module: nn.Module
    apart: bool
    depth: int = 1

    def enter(self, module: nn.Module) -> None:
        """Notes that the thread calls a module."""
        if self.apart:
            self.capture.enter(module)
        else:
            self.capture.start(module)

    def leave(self, module: nn.Module) -> None:
        """Notes that a module has returned, or has raised."""
        if self.apart:
            self.capture.runs.leave(module)


class Listening:
    """Hears the forward pass of a model that is made while it is open.

    Args:
        model: the model, neither compiled nor scripted.
        options: what is recorded.

    Raises:
        AttnvizError: for what is no module, and for a compiled or scripted one, whose calls do not pass through Python.
    """

    def __init__(self, model: nn.Module, options: CaptureOptions) -> None:
        refuse_opaque(model)
        self.model, self.options = model, options
        self.modules = ModuleIndex(model)
        self.own = Capture(model, self.modules, options)
        self.thread: int | None = None
        self.guests: dict[int, Guest] = {}
        self.guest_captures: dict[int, Capture] = {}
        self.unheard = False
        self.closed = False
        self.fuses: bool | None = None

    def __enter__(self) -> "Listening":
        if self.thread is not None:
            raise AttnvizError("a block records once; call record(...) again for the next one")
        self.thread = get_ident()
        PATCHES.enter()
        try:
            if self.options.values:
                self.fuses = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)  # whose kernels have no projection to be seen
            _blocks.append(self)
            add_observer(self.own.observer)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Ends the hearing, and what was put in place for it; suppresses the end of the pass that was asked for."""
        try:
            if error is None:
                self._flush()
        finally:
            self._close()
        return isinstance(error, StopForward) and error.listener is self.own

    def recording(self) -> Recording:
        """What was heard.

        Raises:
            AttnvizError: if that is nothing, or not what was chosen, or a run of several threads.
        """
        heard = [capture for capture in self.guest_captures.values() if capture.has_run]
        if self.own.has_run or self.own.failure is not None or not (heard or self.unheard):
            return self.own.recording()
        name = type(self.model).__name__
        if len(heard) != 1:
            ran = f"{len(heard)} other threads" if heard else "another thread, while blocks of several threads hear it"
            raise AttnvizError(f"{name} ran in {ran}; record in the thread that runs it")
        if self.guests:
            raise AttnvizError(f"{name} still runs in another thread at the end of the block; wait for it there")
        return heard[0].recording()

    def before(self, module: nn.Module, inputs: tuple[object, ...], thread: int, alone: bool) -> None:
        """Notes that another thread calls a module; ``alone`` says that no block of a further one has it as well."""
        if thread in self.guests:
            guest = self.guests[thread]
            guest.depth += module is guest.module
            guest.enter(module)
        elif alone:
            self._admit(module, thread)
        else:
            self.unheard = True

    def after(self, module: nn.Module, thread: int) -> None:
        """Notes that a module has returned, or has raised, in another thread."""
        guest = self.guests.get(thread)
        if guest is None:
            return
        guest.leave(module)
        if guest.module is not module:
            return
        guest.depth -= 1
        if not guest.depth:
            with guest.observer.looking():
                guest.observer.flush()
            remove_observer(self.guests.pop(thread).observer)
            self._forget()
            PATCHES.leave()

    def _admit(self, module: nn.Module, thread: int) -> None:
        """Hears a thread while it runs this module."""
        inside = self.own.runs.depth and module is not self.model
        capture = self.own if inside else self.guest_captures.get(thread)
        if capture is None:
            capture = self.guest_captures[thread] = Capture(self.model, self.modules, self.options, can_stop=False)
        observer = Observer(self.modules, capture) if inside else capture.observer
        guest = self.guests[thread] = Guest(capture, observer, module, apart=not inside)
        guest.enter(module)
        PATCHES.enter()
        add_observer(guest.observer)

    def _flush(self) -> None:
        try:
            with self.own.observer.looking():
                self.own.observer.flush()
        except StopForward:
            pass

    def _close(self) -> None:
        self.closed = True
        try:
            if self.fuses is not None:
                torch.backends.mha.set_fastpath_enabled(self.fuses)
            remove_observer(self.own.observer)
            self._forget()
        finally:
            PATCHES.leave()

    def _forget(self) -> None:
        """Takes a closed block off the list, once the last guest has left."""
        if self.closed and not self.guests and self in _blocks:
            _blocks.remove(self)


_blocks: list[Listening] = []  # that are open in any thread, in the order in which they were entered


def _before_module(module: nn.Module, inputs: tuple[object, ...]) -> None:
    """Tells the blocks that may hear it of a module that is called."""
    if torch.compiler.is_dynamo_compiling():  # a graph is traced, which is to be the one that it is without blocks
        return
    thread = get_ident()
    own = [block for block in _blocks if block.thread == thread and not block.closed]
    if own:
        for block in own:
            block.own.enter(module, inputs)
        return
    hearing = [block for block in _blocks if not block.closed or thread in block.guests]
    holding = [block for block in hearing if block.modules.holds(module)]
    alone = len({block.thread for block in holding}) == 1
    for block in holding:
        block.before(module, inputs, thread, alone)


def _after_module(module: nn.Module, inputs: object, output: object) -> None:
    """Tells the blocks of a module that has returned or raised."""
    if torch.compiler.is_dynamo_compiling():
        return
    thread = get_ident()
    for block in tuple(_blocks):
        if block.thread == thread:
            block.own.runs.leave(module)
        else:
            block.after(module, thread)


PATCHES = Patches(
    (
        *TORCH_PATCHES,
        *TRANSFORMERS_PATCHES,
        *FLEX_PATCHES,
        GlobalHook(lambda: register_module_forward_pre_hook(_before_module)),
        GlobalHook(lambda: register_module_forward_hook(_after_module, always_call=True)),
    )
)


def refuse_opaque(model: object) -> None:
    """Raises AttnvizError for what is no module, and a model whose calls do not pass through Python."""
    if not isinstance(model, nn.Module):
        given = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise AttnvizError(f"record takes a torch.nn.Module and was given {given}; the module that is called works")
    if _is_flat_export(model):
        raise AttnvizError(
            "the model was exported by torch.export to one graph, in which its layers cannot be told apart; "
            "torch.export.unflatten(exported) makes a module of it that works"
        )
    if hasattr(model, "_orig_mod"):
        raise AttnvizError("the model is compiled; record (and call) model._orig_mod, the module that was compiled")
    parts = modules_of(model).items()
    scripted = next((name for name, part in parts if isinstance(part, torch.jit.ScriptModule)), None)
    if scripted is not None:
        where = f"{scripted!r} of the model" if scripted else "the model"
        raise AttnvizError(f"{where} is scripted, so that its calls cannot be seen; the module it was made from works")


def _is_flat_export(model: nn.Module) -> bool:
    """Whether the model is a graph of torch's operators that calls no module of its own."""
    nodes = model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ()
    return any(isinstance(node.target, torch._ops.OpOverload) for node in nodes)
