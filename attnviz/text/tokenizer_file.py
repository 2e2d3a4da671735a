"""Refuses a tokenizer.json that would expand a text to far more characters or tokens, before the library reads it."""

from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import NotJsonError, read_json, refuse_other_kinds, whole

MAX_GROWTH = 64  # factor by which a text may grow; known tokenizers make at most 18 characters of one
MAX_TEMPLATE = 10_000  # entries of a list in a post-processor, such as the pieces of a template
MAX_STEPS = 1000  # of one part of a tokenizer
REWRITING_PARTS = ("normalizer", "pre_tokenizer", "decoder")
MAX_WORD = 10_000  # characters of a word that WordPiece splits, in a time that is quadratic in their number


def refuse_expanding_tokenizer(path: Path) -> None:
    """Raises AttnvizError if a tokenizer may expand a text more than ``MAX_GROWTH`` times, or is too large itself.

    A tokenizer is too large if a part has more than ``MAX_STEPS`` steps, or a list of its post-processor more than
    ``MAX_TEMPLATE`` entries. The growths of steps multiply. A file that is not a JSON object is left to the library,
    whose message says more.
    """
    try:
        value = read_json(path)
    except NotJsonError:
        return
    if not isinstance(value, dict):
        return
    model = value.get("model")
    if isinstance(model, dict):
        longest_word = {"max_input_chars_per_word": model.get("max_input_chars_per_word")}
        refuse_other_kinds(
            longest_word, {"max_input_chars_per_word": whole(0, MAX_WORD)}, f"the model of {str(path)!r}"
        )
    for name in REWRITING_PARTS:
        growth = 1.0
        for number, step in enumerate(_steps(value.get(name))):
            growth *= _step_growth(step)
            if growth > MAX_GROWTH or number >= MAX_STEPS:
                raise AttnvizError(
                    f"the {name} of {str(path)!r} turns one character into more than {MAX_GROWTH}, or has more than "
                    f"{MAX_STEPS} steps; give the tokenizer that the model was trained with"
                )
    if _longest_list(value.get("post_processor")) > MAX_TEMPLATE:
        raise AttnvizError(
            f"the post_processor of {str(path)!r} adds more than {MAX_TEMPLATE} tokens; give the tokenizer that the "
            "model was trained with"
        )


def _steps(value: Any) -> Iterator[dict[str, Any]]:
    """Yields all JSON objects in a value: the steps of a tokenizer's part, with the steps inside them."""
    if isinstance(value, dict):
        yield value
    for part in _parts(value):
        yield from _steps(part)


def _step_growth(step: dict[str, Any]) -> float:
    """Returns an upper bound of the number of characters that a step writes for one character."""
    kind, prepended, table = step.get("type"), step.get("prepend"), step.get("precompiled_charsmap")
    if kind == "Prepend" and isinstance(prepended, str):
        return 1 + len(prepended)
    if kind == "Precompiled" and isinstance(table, str):
        # a trie of as many bytes as the first four say, then what it writes, with a zero byte after each
        with suppress(ValueError):  # what is no base64 is left to the library
            charsmap = b64decode(table)
            return max(map(len, charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")))
    if kind != "Replace":
        return 2 if kind == "ByteLevel" else 1
    pattern, content = step.get("pattern"), step.get("content")
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    # A regular expression may match twice for each character: before and after it.
    pattern_length = len(literal) if isinstance(literal, str) and literal else 0.5
    return max(1.0, len(content) / pattern_length) if isinstance(content, str) else 1.0


def _longest_list(value: Any) -> int:
    """Returns the length of the longest list in a JSON value, at any depth; 0 if there is none."""
    length = len(value) if isinstance(value, list) else 0
    return max([length, *map(_longest_list, _parts(value))])


def _parts(value: Any) -> Iterable[Any]:
    """Returns the values of a JSON object, or the entries of a list; an empty tuple for any other value."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
