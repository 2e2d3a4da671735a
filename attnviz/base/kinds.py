"""Declares what a value in a stranger's JSON may be: its type, its bounds, and the words of its refusal.

Whatever is taken out of a model's folder, a recording, an answer, a chat or word times is checked by a `ValueKind`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.base.errors import AttnvizError

MAX_QUOTED_CHARACTERS = 40  # of a value in a refusal


@dataclass(frozen=True)
class ValueKind:
    """The values that a setting may have."""

    words: str  # what they are, for a refusal: ``a whole number from 1 to 100``
    accepts: Callable[[Any], bool]


def whole(minimum: int, maximum: int) -> ValueKind:
    """Returns the kind of whole numbers in a range; true and false are no numbers."""
    return ValueKind(
        f"a whole number from {minimum} to {maximum}",
        lambda value: type(value) is int and minimum <= value <= maximum,
    )


def number(minimum: float, maximum: float) -> ValueKind:
    """Returns the kind of finite numbers in a range."""
    return ValueKind(
        f"a number from {minimum:g} to {maximum:g}",
        lambda value: type(value) in (int, float) and minimum <= value <= maximum,
    )


def list_of(entry: ValueKind, most: int) -> ValueKind:
    """Returns the kind of lists of up to ``most`` entries of one kind."""
    return ValueKind(
        f"a list of up to {most}, each {entry.words}",
        lambda value: isinstance(value, list) and len(value) <= most and all(map(entry.accepts, value)),
    )


def pair_of(entry: ValueKind) -> ValueKind:
    """Returns the kind of lists of two entries of one kind."""
    return ValueKind(
        f"a pair, each {entry.words}",
        lambda value: isinstance(value, list) and len(value) == 2 and all(map(entry.accepts, value)),
    )


def either(first: ValueKind, second: ValueKind) -> ValueKind:
    """Returns the kind of values that are of one of two kinds."""
    return ValueKind(f"{first.words}, or {second.words}", lambda value: first.accepts(value) or second.accepts(value))


def sizes(minimum: float, maximum: float) -> ValueKind:
    """Returns the kind of one number in a range, or of lists and objects that hold only such numbers, at any depth."""
    one = number(minimum, maximum)

    def accepts(value: Any) -> bool:
        parts = value.values() if isinstance(value, dict) else value
        return all(map(accepts, parts)) if isinstance(value, dict | list) else one.accepts(value)

    return ValueKind(f"{one.words}, or a list of such numbers", accepts)


TEXT = ValueKind("a text", lambda value: isinstance(value, str))
OBJECT = ValueKind("an object", lambda value: isinstance(value, dict))
FLAG = ValueKind("true or false", lambda value: isinstance(value, bool))
HEAD_PAIRS = list_of(pair_of(whole(0, 100_000)), most=10_000)  # layer and head


def refuse_other_kinds(settings: Any, kinds: Mapping[str, ValueKind], what: str) -> None:
    """Raises AttnvizError if a setting of JSON, at any depth, is of another kind than declared.

    Settings that are null or not declared are accepted.

    Args:
        kinds: the kind of settings by a regular expression of their names.
        what: names the source in the refusal: ``config.json of './bert'``.
    """
    if isinstance(settings, dict):
        for name, value in settings.items():
            kind = next((kind for pattern, kind in kinds.items() if re.fullmatch(pattern, name)), None)
            if kind is not None and value is not None and not kind.accepts(value):
                raise AttnvizError(f"{what} has {name} {quoted(value)}; give {kind.words}")
    for part in settings.values() if isinstance(settings, dict) else settings if isinstance(settings, list) else ():
        if isinstance(part, dict | list):
            refuse_other_kinds(part, kinds, what)


def quoted(value: Any) -> str:
    """Returns a value as a refusal quotes it: the start of its representation."""
    if type(value) is int and abs(value) >= 10**MAX_QUOTED_CHARACTERS:
        return f"a number of more than {MAX_QUOTED_CHARACTERS} digits"
    text = repr(value[:MAX_QUOTED_CHARACTERS] if isinstance(value, str | list) else value)
    return text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}…"
