"""Caches values that the inspector may show again."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """A cache that keeps the ``limit`` most recently used values."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: dict[Hashable, Value] = {}

    def __contains__(self, key: Hashable) -> bool:
        """True if a value of the key is cached; this does not count as a use."""
        return key in self._values

    def find(self, key: Hashable) -> Value | None:
        """Returns the cached value of a key, which counts as a use of it; ``None`` if the key is not cached."""
        if key not in self._values:
            return None
        value = self._values[key]
        self.keep(key, value)
        return value

    def keep(self, key: Hashable, value: Value) -> None:
        """Caches a value in place of an earlier value of the key."""
        self._values.pop(key, None)
        self.get(key, lambda: value)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Returns the cached value of a key; computes and caches it if there is none.

        A full cache drops the least recently used value.
        """
        value = self._values.pop(key) if key in self._values else compute()
        self._values[key] = value
        if len(self._values) > self.limit:
            del self._values[next(iter(self._values))]
        return value

    def clear(self) -> None:
        """Empties the cache."""
        self._values.clear()
