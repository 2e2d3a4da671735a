"""Changes JSON: replaces one value, at any depth, by one that nobody meant."""

import json
from typing import Any

from hypothesis import strategies as st

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**63, -(2**63), 10**12, 10**30, 0.5, -1.5, 1e308, float("nan")),
    *("", "x", "\x1b]0;x\x07", "\x9b31m", "\u202e", "\ud800", "a\nb", "../../x", "/etc/passwd", "x" * 2000),
    *([], {}, [1, 2], ["x"], {"a": 1}, [[[[]]]], [None] * 50),
)
values = st.one_of(st.sampled_from(HOSTILE), st.integers(), st.floats(), st.text(max_size=8))
changes = st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=6), values), min_size=1, max_size=3)


def changed(value: Any, change: tuple[list[int], Any]) -> Any:
    """Returns a copy with the value at a place replaced; each number of the place chooses a part of one level."""
    place, replacement = change
    if not place or not isinstance(value, dict | list) or not value:
        return replacement
    copy: Any = json.loads(json.dumps(value))
    keys: Any = list(copy) if isinstance(copy, dict) else range(len(copy))
    key = keys[place[0] % len(keys)]
    copy[key] = changed(copy[key], (place[1:], replacement))
    return copy
