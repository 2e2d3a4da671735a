"""The error of every refusal, one line that says what was given and what would have worked, and lists for its text.

A message names an option as ``option("limits", "0:0.5")``, so that who came through Python reads ``limits='0:0.5'``
and who came through the command line ``--limits 0:0.5``.
"""

import ast
import re
from collections.abc import Callable, Iterable

START, END = "\x0e", "\x0f"  # around an option in a message: control characters, which no message else holds
OPPOSITES = {"dense": "factored"}  # what the command line calls False, where it has a word for it
Value = str | float | None


class AttnvizError(ValueError):
    """What the user asked for cannot be done; the message is one line that says what would work.

    Its text names options as Python does; ``worded`` names them otherwise.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.replace(START, "").replace(END, ""))
        self._marked = message

    def worded(self, name_option: Callable[[str, Value], str]) -> str:
        """The message with each option as ``name_option`` writes it, given its name and its value, if it has one."""

        return worded(self._marked, name_option)


def worded(text: str, name_option: Callable[[str, Value], str]) -> str:
    """Returns a text with each option as ``name_option`` writes it, given its name and its value, if it has one."""

    def written(match: re.Match[str]) -> str:
        name, _, value = match[1].partition("=")
        return name_option(name, ast.literal_eval(value) if value else None)

    return re.sub(f"{START}([a-z_]+(?:=[^{END}]*)?){END}", written, text)


def argument(name: str, value: Value = None) -> str:
    """Returns an option as Python writes it, with its value if it has one: ``num_heads=4``."""
    return name if value is None else f"{name}={value!r}"


def flag(name: str, value: Value = None) -> str:
    """An option as it is written on the command line, with its value if it has one: ``--num-heads 4``."""
    if value is False:
        return f"--{OPPOSITES.get(name, f'no-{name}')}".replace("_", "-")
    written = f"--{name.replace('_', '-')}"
    return written if value is None or value is True else f"{written} {value}"


def option(name: str, value: Value = None) -> str:
    """An option, with its value where one is given, as a message names it: neutral until its reader is known."""
    return f"{START}{name}{END}" if value is None else f"{START}{name}={value!r}{END}"


def known_names(names: Iterable[object]) -> str:
    """The names as a readable list: ``a, b or c``."""
    words = [str(name) for name in names]
    if len(words) < 2:
        return "".join(words) or "none"
    return f"{', '.join(words[:-1])} or {words[-1]}"


def nearest(given: str, names: Iterable[object]) -> str:
    """The name that was probably meant, as a question before the list of names; "" where none is near."""
    from difflib import get_close_matches

    known = {str(name).lower(): str(name) for name in names}
    close = get_close_matches(given.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {known[close[0]]}? " if close else ""


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
    remedy = option("dtype", "float32") if dtype in ("float16", "bfloat16") else f"a smaller {option('scale')}"
    return AttnvizError(f"{what} overflow in {dtype}; {remedy} works")
