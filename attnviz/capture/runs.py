"""RunCounter: tells the forward passes of one recording apart by the module that each begins with."""

import threading
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class RunCounter:
    """Notices where another forward pass of a model begins, in the thread that made the counter.

    That is where a module that no other module of the model called is called again after it attended: the model
    itself, or a part of it that is called by itself, as generation calls the encoder before the model.

    Args:
        model: the model.
        modules: the identities of all of its modules.
        on_next: called where another pass begins, before any of its modules has run.
        on_start: called with each module that begins to run.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Container[int],
        on_next: Callable[[], None],
        on_start: Callable[[nn.Module], None],
    ) -> None:
        self.model, self.modules = model, modules
        self.on_next, self.on_start = on_next, on_start
        self.was_called = False
        self._thread = threading.get_ident()
        self._depth = 0
        self._outermost: int | None = None
        self._attended: set[int | None] = set()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts while the block runs."""
        with ExitStack() as undo:
            undo.callback(register_module_forward_pre_hook(self._enter).remove)
            undo.callback(register_module_forward_hook(self._leave, always_call=True).remove)
            yield

    def note_attention(self) -> None:
        """Notes that the pass that runs now made an attention call."""
        self._attended.add(self._outermost)

    def _counts(self, module: nn.Module) -> bool:
        return id(module) in self.modules and threading.get_ident() == self._thread

    def _enter(self, module: nn.Module, inputs: object) -> None:
        if not self._counts(module):
            return
        self.was_called = True
        if not self._depth or module is self.model:  # a pass that was interrupted left its depth behind
            if id(module) in self._attended:
                self.on_next()
                self._attended.clear()
            self._depth, self._outermost = 0, id(module)
        self._depth += 1
        self.on_start(module)

    def _leave(self, module: nn.Module, inputs: object, output: object) -> None:
        if self._counts(module):
            self._depth = max(self._depth - 1, 0)
