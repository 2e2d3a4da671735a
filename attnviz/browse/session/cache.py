"""Caches what the inspector has computed and may show again."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """A cache of the ``limit`` most recently used values."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: dict[Hashable, Value] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def find(self, key: Hashable) -> Value | None:
        """Returns the value of a key, ``None`` if it is not cached."""
        return self.get(key, lambda: self._values[key]) if key in self._values else None

    def keep(self, key: Hashable, value: Value) -> None:
        """Caches a value, in place of any earlier one of the key."""
        self._values.pop(key, None)
        self.get(key, lambda: value)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Returns the value of a key; calls ``make`` if it is not cached."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        if len(self._values) > self.limit:
            del self._values[next(iter(self._values))]
        return value

    def clear(self) -> None:
        """Empties the cache."""
        self._values.clear()
