"""RunCounter: tells the forward passes of one recording apart by the module that each begins with."""

from collections.abc import Callable, Container

from torch import nn


class RunCounter:
    """Notices where another forward pass of a model begins, in one thread.

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
        self.depth = 0
        self._outermost: int | None = None
        self._attended: set[int | None] = set()

    def note_attention(self) -> None:
        """Notes that the pass that runs now made an attention call."""
        self._attended.add(self._outermost)

    def enter(self, module: nn.Module) -> None:
        """Notes that a module is called."""
        if id(module) not in self.modules:
            return
        self.was_called = True
        if not self.depth or module is self.model:  # a pass that was interrupted left its depth behind
            if id(module) in self._attended:
                self.on_next()
                self._attended.clear()
            self.depth, self._outermost = 0, id(module)
        self.depth += 1
        self.on_start(module)

    def leave(self, module: nn.Module) -> None:
        """Notes that a module has returned, or has raised."""
        if id(module) in self.modules:
            self.depth = max(self.depth - 1, 0)
