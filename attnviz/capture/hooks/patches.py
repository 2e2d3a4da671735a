"""What is replaced in torch and transformers while any block records: from the first block in to the last one out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any


@dataclass(eq=False)
class Patch:
    """A name that means something else while blocks record.

    Attributes:
        find: gives what the name is an attribute of, or ``None`` where that has not been imported.
        name: the attribute.
        replace: makes the replacement from the original. It behaves as the original in threads that no block hears.
        owner: what the name has been replaced in, ``None`` while it is not.
        original: what it was there.
        replacement: what it is now.
    """

    find: Callable[[], Any]
    name: str
    replace: Callable[[Any], Any]
    owner: Any = None
    original: Any = None
    replacement: Any = None

    def install(self) -> None:
        """Replaces the name, if that has not been done and its owner is there."""
        owner = self.find() if self.owner is None else None
        if owner is None or self.name not in vars(owner):
            return
        self.original = vars(owner)[self.name]
        self.replacement = self.replace(self.original)
        self.owner = owner
        setattr(owner, self.name, self.replacement)

    def restore(self) -> None:
        """Puts the original back, unless somebody else has replaced the name meanwhile."""
        if self.owner is not None and vars(self.owner)[self.name] is self.replacement:
            setattr(self.owner, self.name, self.original)
        self.owner = self.original = self.replacement = None


@dataclass(eq=False)
class GlobalHook:
    """A hook on the calls of every module.

    Attributes:
        register: puts the hook in place and returns its handle.
        handle: removes it; ``None`` while there is none.
    """

    register: Callable[[], Any]
    handle: Any = None

    def install(self) -> None:
        """Registers the hook, if that has not been done."""
        if self.handle is None:
            self.handle = self.register()

    def restore(self) -> None:
        """Removes the hook."""
        if self.handle is not None:
            self.handle.remove()
        self.handle = None


@dataclass(eq=False)
class Patches:
    """Patches and hooks that are in place while they are used, by however many blocks in however many threads.

    Attributes:
        parts: what is put in place, in this order.
        users: how many blocks use it.
    """

    parts: tuple[Patch | GlobalHook, ...]
    users: int = 0
    _lock: Any = field(default_factory=RLock)

    def enter(self) -> None:
        """Puts everything in place, or nothing where that fails."""
        with self._lock:
            try:
                for part in self.parts:
                    part.install()
                self.users += 1
            except BaseException:
                self._restore_unused()
                raise

    def leave(self) -> None:
        """Puts everything back where this was the last user."""
        with self._lock:
            self.users -= 1
            try:
                self._restore_unused()
            except BaseException:  # an interrupt in the middle
                self._restore_unused()
                raise

    def _restore_unused(self) -> None:
        if self.users == 0:
            for part in reversed(self.parts):
                part.restore()
