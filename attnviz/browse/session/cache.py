"""The values asked for last: what the inspector has computed and may show again."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """The values asked for last, at most so many."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: dict[Hashable, Value] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def find(self, key: Hashable) -> Value | None:
        """The value of the key, if it is kept."""
        return self.get(key, lambda: self._values[key]) if key in self._values else None

    def keep(self, key: Hashable, value: Value) -> None:
        """Keeps a value, in place of any that the key had."""
        self._values.pop(key, None)
        self.get(key, lambda: value)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of the key, made where it is not kept."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        if len(self._values) > self.limit:
            del self._values[next(iter(self._values))]
        return value

    def clear(self) -> None:
        """Forgets all."""
        self._values.clear()
