"""The error of every refusal, one line that says what was given and what would have worked, and lists for its text."""

from collections.abc import Iterable


class AttnvizError(ValueError):
    """What the user asked for cannot be done; the message is one line that says what would work."""


def known_names(names: Iterable[object]) -> str:
    """The names as a readable list: ``a, b or c``."""
    words = [str(name) for name in names]
    if len(words) < 2:
        return "".join(words) or "none"
    return f"{', '.join(words[:-1])} or {words[-1]}"


def number_ranges(numbers: Iterable[int]) -> str:
    """The numbers with runs joined, as a selection writes them: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs) or "none"


def overflow(what: str, dtype: str) -> AttnvizError:
    """The refusal of scores too large for the number type named ``dtype``."""
    remedy = "--dtype float32" if dtype in ("float16", "bfloat16") else "a smaller --scale"
    return AttnvizError(f"{what} overflow in {dtype}; {remedy} works")
