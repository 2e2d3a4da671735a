"""Defines the error that refuses a request in one line, and the phrases that such lines share.

A message names an option as ``option("limits", "0:0.5")``. A caller of the Python API then reads ``limits='0:0.5'``,
and a user of the command line ``--limits 0:0.5``. Until then the text holds a key that tells both. Keys begin with
digits that are drawn anew in each process, so that a stranger's words are never read as an option.

Rare options are *settings*: a user of the command line types ``--set num-heads=4`` for Python's ``num_heads=4``.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

# Settings: options that the command line takes as --set NAME=VALUE, and not as --NAME VALUE.
SETTINGS = frozenset(
    """
    tokenizer num_heads embed_dim num_layers qk_dim value_dim scale temperature dropout bias init seed dense
    dpi font_size transparent per_slide max_size pool bare annotate mark half
    device_map truncate renormalize labels
    """.split()
)


class ValueOf(NamedTuple):
    """How the command line takes an option as a value of another one, its host."""

    host: str  # the name of the other option
    pattern: str  # the value that is typed, with the option's own value in place of {}
    host_value: str | None = None  # the value that the host has then; ``None`` for its default


VALUES_OF = {
    "words": ValueOf("by", "words"),
    "table": ValueOf("style", "{}"),
    "axes": ValueOf("style", "points:{}"),
    "residual": ValueOf("reduce", "rollout:{}", "rollout"),
}
# What stands in the place of a text, as a message names it.
PLACED = {"image": "the picture", "sound": "the sound", "sample": "the sample"}
Value = str | float | None


class AttnvizError(ValueError):
    """A refusal of what the user asked for: one line that says what was given and what to do instead.

    ``str`` names options as Python does; ``message_with`` can name them as the command line does.

    Args:
        message: the line.

    Example:
        >>> import attnviz
        >>> try:
        ...     attnviz.Selection.parse(layers="3-1")
        ... except attnviz.AttnvizError as error:
        ...     print(error)
        layers '3-1' counts backwards in '3-1'; write 1-3
    """

    def __init__(self, message: str) -> None:
        self.parts = parts_of(message)
        super().__init__(_in_words(self.parts, argument))

    def message_with(self, name_option: Callable[[str, Value], str]) -> str:
        """Returns the message with each option as ``name_option`` writes it.

        Args:
            name_option: returns an option in words, given its name and value (``None`` for no value).
        """
        return _in_words(self.parts, name_option)

    def at(self, place: str) -> "AttnvizError":
        """Returns the same refusal behind the place of what was given.

        Args:
            place: the place, such as a file and its line.
        """
        return AttnvizError(f"{place}: {_in_words(self.parts, option)}")


class MessageOption(NamedTuple):
    """An option as a part of a message."""

    name: str
    value: Value  # ``None`` for the name alone


def parts_of(text: str) -> tuple[str | MessageOption, ...]:
    """Returns the parts of a text in order: its words, and the options that `option` put into it."""
    pieces = _OPTION_KEY.split(text)  # an option stands at every odd index
    return tuple(
        MessageOption(*json.loads(bytes.fromhex(piece))) if index % 2 else piece for index, piece in enumerate(pieces)
    )


def format_options(text: str, name_option: Callable[[str, Value], str]) -> str:
    """Returns a text with each of its options as ``name_option`` writes it.

    Args:
        text: a text with options of `option`.
        name_option: returns an option in words, given its name and value (``None`` for no value).
    """
    return _in_words(parts_of(text), name_option)


def without_options(text: str) -> str:
    """Returns a text without its sentences that name options of `option`; of a clause after ";", without that alone."""
    sentences = []
    for sentence in re.split(r"(?<=[.!?]) ", text):
        clauses = sentence.rstrip(".").split("; ")
        kept = "; ".join(clause for clause in clauses if not _OPTION_KEY.search(clause))
        if kept:
            sentences.append(sentence if len(clauses) == 1 else f"{kept}.")
    return " ".join(sentences)


def _in_words(parts: Iterable[str | MessageOption], name_option: Callable[[str, Value], str]) -> str:
    """Returns the parts of a message as one text."""
    return "".join(part if isinstance(part, str) else name_option(*part) for part in parts)


def argument(name: str, value: Value = None) -> str:
    """Returns an option as a Python call writes it, with its value if one is given: ``num_heads=4``."""
    return name if value is None else f"{name}={value!r}"


def flag(name: str, value: Value = None) -> str:
    """Returns an option as the command line writes it, with its value if one is given: ``--top 4``.

    True is the flag alone, ``--all``; False is the opposite flag, ``--no-all``. A setting is written
    ``--set num-heads=4``; without a value its name alone. A value of another option is written as such, ``--by words``.
    """
    if name in VALUES_OF:
        host, pattern, _ = VALUES_OF[name]
        return f"--{host}" if value is None else f"--{host} {pattern.format(value)}"
    if name in PLACED:
        return PLACED[name] if value is None else f"sample:{value}" if name == "sample" else str(value)
    if name in SETTINGS:
        word = str(value).lower() if isinstance(value, bool) else value
        return setting_name(name) if value is None else f"--set {setting_name(name)}={word}"
    if value is False:
        return f"--no-{setting_name(name)}"
    text = f"--{setting_name(name)}"
    return text if value is None or value is True else f"{text} {value}"


def setting_name(name: str) -> str:
    """Returns the name of an option as ``--set`` and files of defaults write it: ``num-heads``."""
    return name.replace("_", "-")


# In a text, an option is the JSON of its name and value in hexadecimal, after random digits that no stranger knows.
_KEY_START = f"\x0e{os.urandom(8).hex()}:"
_OPTION_KEY = re.compile(f"{_KEY_START}([0-9a-f]+)\x0f")


def option(name: str, value: Value = None) -> str:
    """Returns an option for a text, with its value if one is given; `format_options` writes it in words."""
    return f"{_KEY_START}{json.dumps((name, value)).encode().hex()}\x0f"


def or_list(names: Iterable[object]) -> str:
    """Returns the names as a list in words: ``a, b or c``; ``none`` if there are none."""
    words = [str(name) for name in names]
    if len(words) < 2:
        return "".join(words) or "none"
    return f"{', '.join(words[:-1])} or {words[-1]}"


def with_capital(words: str) -> str:
    """Returns words with a capital letter at their beginning."""
    return words[:1].upper() + words[1:]


def did_you_mean(name: str, names: Iterable[object], cutoff: float = 0.6) -> str:
    """Returns the question ``did you mean dark? `` for the closest name, ignoring case; "" if no name is close."""
    from difflib import get_close_matches

    by_lower_case = {str(candidate).lower(): str(candidate) for candidate in names}
    closest_names = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)  # of 1; difflib's default
    return f"did you mean {by_lower_case[closest_names[0]]}? " if closest_names else ""


def choices(name: object, names: Collection[object]) -> str:
    """Returns the advice for an unknown name: ``did you mean dark? Choose light or dark``.

    Args:
        name: the unknown name; if no known name is close to it, the advice is ``choose light or dark`` alone.
        names: the known names.
    """
    question = did_you_mean(str(name), names)
    return f"{question}{'Choose' if question else 'choose'} {or_list(names)}"


def number_ranges(numbers: Iterable[int]) -> str:
    """Returns the numbers as ranges: ``0-3, 7``; ``none`` if there are none."""
    runs: list[list[int]] = []  # the first and the last number of each run; a single number if they are the same
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]  # the new last number of the run
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs) or "none"


def layers_phrase(layers: Iterable[int]) -> str:
    """Returns layers by their numbers, such as ``layer 2`` or ``layers 0-3,7``; a repeated number counts once."""
    numbers = set(layers)
    return f"layer{'s' if len(numbers) > 1 else ''} {number_ranges(numbers)}"


def overflow_error(what: str, dtype: str) -> AttnvizError:
    """Returns the error for scores that overflow in a dtype: it advises float32 for half dtypes, else a smaller scale.

    Args:
        what: the subject of the sentence, in the plural, such as ``scores of layer 3``.
        dtype: the name of the dtype; ``float16`` and ``bfloat16`` overflow sooner than float32.
    """
    remedy = option("dtype", "float32") if dtype in ("float16", "bfloat16") else f"a smaller {option('scale')}"
    return AttnvizError(f"{what} overflow in {dtype}; use {remedy}")


def install(extra: str) -> str:
    """Returns the command that installs an extra: from a package index if attnviz is from one, else from its folder."""
    from importlib.metadata import PackageNotFoundError, distribution

    in_folder = f"pip install -c constraints.txt '.[{extra}]' in the folder of attnviz"
    try:
        source = distribution("attnviz").read_text("direct_url.json")  # names a folder or a file; absent from an index
    except PackageNotFoundError:  # it runs without having been installed
        return in_folder
    return in_folder if source else f"pip install 'attnviz[{extra}]'"
