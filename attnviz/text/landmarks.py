"""Landmarks of a text, which label axes instead of tokens: lines, paragraphs, or where a pattern matches."""

import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from attnviz.base.bounded import bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.text.tokens import Tokens, start_of

Mark = tuple[int, str]
LANDMARKS = {"lines": ("line ", r"^.*\S"), "paragraphs": ("¶ ", r"(?:\A|\n[ \t]*\n)\s*\S")}
MAX_LABEL_CHARACTERS = 30  # characters of a label
MAX_READ_CHARACTERS = 1000  # of a match, for its label


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what another version may read otherwise
            return re.compile(LANDMARKS[mark][1] if mark in LANDMARKS else mark, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(
            f"{option('mark')} {mark!r} is no regular expression: {reason}; lines, paragraphs or '^Chapter .*' works"
        ) from error


def _matches(text: str, mark: str) -> Iterator[Mark]:
    """Where in the text each landmark begins, and its name."""
    if mark not in LANDMARKS:
        for start, found in _found(text, mark):
            yield start, start_of(found, MAX_LABEL_CHARACTERS)
        return
    for number, match in enumerate(compile_mark(mark).finditer(text), start=1):
        yield match.start() + len(match.group()) - len(match.group().lstrip()), f"{LANDMARKS[mark][0]}{number}"


def _found(text: str, mark: str) -> list[tuple[int, str]]:
    """Where a pattern of the user's matches more than white space, and what: there are patterns that never end."""
    pattern = compile_mark(mark)

    def find() -> str:
        found = ((match.start(), match.group()[:MAX_READ_CHARACTERS]) for match in pattern.finditer(text))
        return json.dumps([(start, words) for start, words in found if words.strip()])

    found: list[tuple[int, str]] = json.loads(bounded(find, f"the search for {option('mark')} {mark!r}"))
    return found
