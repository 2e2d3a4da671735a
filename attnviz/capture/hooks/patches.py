"""Replaces functions of torch and transformers from the start of the first block to the end of the last one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any


@dataclass(eq=False)
class Patch:
    """An attribute that is replaced while blocks record.

    Attributes:
        find: returns the owner of the attribute; ``None`` if it was not imported.
        name: the name of the attribute.
        replace: returns the replacement of an original; in threads that no block observes, both behave alike.
        owner: the owner; ``None`` while the attribute is not replaced.
        original: the replaced attribute.
        replacement: the attribute in its place.
    """

    find: Callable[[], Any]
    name: str
    replace: Callable[[Any], Any]
    owner: Any = None
    original: Any = None
    replacement: Any = None

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
    """A hook on the calls of every module.

    Attributes:
        register: registers the hook and returns its handle.
        handle: the handle that removes it; ``None`` while it is not registered.
    """

    register: Callable[[], Any]
    handle: Any = None

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
    """Patches and hooks that stay in place while any block in any thread uses them.

    Attributes:
        parts: the patches and hooks, in the order of installation.
        users: the number of blocks and other threads that use them.
    """

    parts: tuple[Patch | GlobalHook, ...]
    users: int = 0
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
