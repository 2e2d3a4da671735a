"""Landmarks of a text, which label axes instead of tokens: lines, paragraphs, or where a pattern matches."""

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.text.tokens import Tokens, visible_label

Mark = tuple[int, str]
LANDMARKS = {"lines": ("line ", r"^.*\S"), "paragraphs": ("¶ ", r"(?:\A|\n[ \t]*\n)\s*\S")}
MAX_LABEL_CHARACTERS = 30  # characters of a label


@lru_cache(maxsize=8)
def landmarks(tokens: Tokens, mark: str) -> tuple[Mark, ...]:
    """The token at which each landmark begins and what it is called, in the order of the text.

    Args:
        tokens: of a text.
        mark: ``lines``, ``paragraphs``, or a regular expression, whose ``^`` and ``$`` match at each line.
    """
    placed = np.flatnonzero(tokens.offsets[:, 1] > tokens.offsets[:, 0])
    ends = tokens.offsets[placed, 1]
    found: dict[int, str] = {}
    for start, label in _matches(tokens.text, mark):
        index = int(np.searchsorted(ends, start, side="right"))
        if index < len(placed):
            found.setdefault(int(placed[index]), label)
    return tuple(found.items())


def compile_mark(mark: str) -> re.Pattern[str]:
    """The pattern that a mark stands for.

    Raises:
        AttnvizError: if it is none.
    """
    try:
        return re.compile(LANDMARKS[mark][1] if mark in LANDMARKS else mark, re.MULTILINE)
    except re.error as error:
        raise AttnvizError(
            f"{option('mark')} {mark!r} is no regular expression: {error}; lines, paragraphs or '^Chapter .*' works"
        ) from error


def _matches(text: str, mark: str) -> Iterator[Mark]:
    """Where in the text each landmark begins, and its name."""
    for number, match in enumerate(compile_mark(mark).finditer(text), start=1):
        if mark in LANDMARKS:
            yield match.start() + len(match.group()) - len(match.group().lstrip()), f"{LANDMARKS[mark][0]}{number}"
        elif match.group().strip():
            words = visible_label(" ".join(match.group().split())).replace("␣", " ")
            yield (
                match.start(),
                words if len(words) <= MAX_LABEL_CHARACTERS else f"{words[: MAX_LABEL_CHARACTERS - 1]}…",
            )
