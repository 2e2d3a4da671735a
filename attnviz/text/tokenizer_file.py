"""Refuses a tokenizer.json that makes far more of a text than it is, before the library that follows it reads it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import NotJsonError, read_json

MAX_GROWTH = 1000  # of a text: known tokenizers make at most 3 letters of one, and what a character map gives
MAX_TEMPLATE = 10_000  # entries of one list of a post-processor: the ids of a token, the pieces of a template
MAX_STEPS = 1000  # of a tokenizer's parts together
REWRITING = ("normalizer", "pre_tokenizer", "decoder")
GROWTH = {"ByteLevel": 2, "Precompiled": 18}  # characters of one, by the type of a step; 18 is the most of NFKC


def refuse_absurd_tokenizer(path: Path) -> None:
    """Raises AttnvizError where the steps of a tokenizer make far more of a text, each of what the one before made.

    What is no JSON is left to the library, whose refusal says more.
    """
    try:
        value = read_json(path)
    except NotJsonError:
        return
    if not isinstance(value, dict):
        return
    for name in REWRITING:
        growth = 1.0
        for number, step in enumerate(_steps(value.get(name))):
            growth *= _growth(step)
            if growth > MAX_GROWTH or number >= MAX_STEPS:
                raise AttnvizError(
                    f"the {name} of {str(path)!r} makes more than {MAX_GROWTH} characters of one, or has more than "
                    f"{MAX_STEPS} steps; give the tokenizer that the model was trained with"
                )
    if _longest(value.get("post_processor")) > MAX_TEMPLATE:
        raise AttnvizError(
            f"the post_processor of {str(path)!r} adds more than {MAX_TEMPLATE} tokens; give the tokenizer that the "
            "model was trained with"
        )


def _steps(value: Any) -> Iterator[dict[str, Any]]:
    """Yields a step of a tokenizer and those within it."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _steps(part)


def _growth(step: dict[str, Any]) -> float:
    """Returns how many characters a step makes of one, at most."""
    if step.get("type") != "Replace":
        return GROWTH.get(str(step.get("type")), 1)
    pattern, content = step.get("pattern"), step.get("content")
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    matched = len(literal) if isinstance(literal, str) and literal else 0.5  # an expression matches beside a character
    return max(1.0, len(content) / matched) if isinstance(content, str) else 1.0


def _longest(value: Any) -> int:
    """Returns the length of the longest list within a value."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max([len(value) if isinstance(value, list) else 0, *map(_longest, parts)])
