"""Finds groups of tokens by name: words, sentences, lines, paragraphs, or parts that begin at a regular expression."""

import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.text.groups import Groups
from attnviz.text.tokens import TEXTS, WORDS, Tokens, first_words

Mark = tuple[int, str]
TOKENS, SENTENCES = "tokens", "sentences"
TURNS, PASSAGES = "turns", "passages"  # groups that the reader of a conversation, or of passages, finds
MARKS = {TURNS: "marks", PASSAGES: "marks"}  # groups whose tokens without a group are one unit together, and its label
NUMBERED = {"lines": ("line ", r"^.*\S"), "paragraphs": ("¶ ", r"(?:\A|\n[ \t]*\n)\s*\S")}
NAMES = (
    TOKENS,
    WORDS,
    SENTENCES,
    *NUMBERED,
    TEXTS,
    TURNS,
    PASSAGES,
)  # any other name is one of `Tokens.groups`, or a pattern
SINGULAR = {name.removesuffix("s"): name for name in NAMES}
SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s)\s*|\n+")
EXAMPLES = "lines, paragraphs or '^Chapter .*'"
MAX_LABEL_CHARACTERS = 30  # of a label that consists of the first words of a group
MAX_READ_CHARACTERS = 1000  # of a match that are read for its label


def plural(name: str) -> str:
    """Returns the plural of a known name, so that ``word`` means ``words``; other names are returned unchanged."""
    return SINGULAR.get(name, name)


def singular(name: str) -> str:
    """Returns the noun for one group in a sentence: ``line`` for ``lines``, ``part`` for a pattern."""
    return name.removesuffix("s") if name in NAMES else "part"


@lru_cache(maxsize=8)
def named_groups(tokens: Tokens, name: str) -> Groups | None:
    """Returns the groups of a name; ``None`` if neither the tokens nor their text have such groups.

    Args:
        tokens: the tokens of an axis.
        name: a key of ``tokens.groups``, such as ``words``; ``sentences``, ``lines`` or ``paragraphs``; or a regular
            expression: groups begin at its matches, and ``^`` and ``$`` match at each line.
    """
    if name in tokens.groups:
        return tokens.groups[name]
    if name in (TOKENS, WORDS, TEXTS, TURNS, PASSAGES):
        return None
    if name == SENTENCES:
        return Groups(_sentences(tokens)) if tokens.text else None
    starts = [token for token, _ in tokens_at(tokens, _begins(tokens.text, name))]
    return Groups(np.searchsorted(starts, np.arange(len(tokens)), side="right").astype(np.int64)) if starts else None


def tokens_at(tokens: Tokens, marks: Iterator[Mark]) -> Iterator[Mark]:
    """Yields the token at each marked character with the mark's label; of several marks in a token only the first."""
    in_text = np.flatnonzero(tokens.offsets[:, 1] > tokens.offsets[:, 0])
    ends, marked = tokens.offsets[in_text, 1], set[int]()
    for start, label in marks:
        index = int(np.searchsorted(ends, start, side="right"))
        if index < len(in_text) and index not in marked:
            marked.add(index)
            yield int(in_text[index]), label


def matches(text: str, name: str, called: str) -> Iterator[Mark]:
    """Yields the first character and the label of each line, paragraph or match of a regular expression.

    Args:
        text: the text to search.
        name: ``lines``, ``paragraphs``, or the expression.
        called: the option that gave the name, for messages.
    """
    if name not in NUMBERED:
        for start, found in _found(text, name, called):
            yield start, first_words(found, MAX_LABEL_CHARACTERS)
        return
    for number, match in enumerate(compile_mark(name).finditer(text), start=1):
        yield match.start() + len(match.group()) - len(match.group().lstrip()), f"{NUMBERED[name][0]}{number}"


def compile_mark(mark: str, called: str = "mark") -> re.Pattern[str]:
    """Compiles the pattern of ``lines`` or ``paragraphs``, or a regular expression of the user.

    Args:
        mark: the name, or a regular expression.
        called: the option that gave it, for messages.

    Raises:
        AttnvizError: if it is not a regular expression.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Python warns of '[[', whose meaning may change
            return re.compile(NUMBERED[mark][1] if mark in NUMBERED else mark, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(
            f"{option(called)} {mark!r} is not a regular expression: {reason}; try {EXAMPLES}"
        ) from error


def _sentences(tokens: Tokens) -> IntArray:
    """Returns the number of each token's sentence, ``(tokens,)``, from 0; -1 for special tokens."""
    starts = np.array([match.end() for match in SENTENCE_END.finditer(tokens.text)], dtype=np.int64)
    numbers = np.searchsorted(starts, tokens.offsets[:, 0], side="right")
    return np.where(tokens.special, -1, numbers).astype(np.int64)


def _begins(text: str, name: str) -> Iterator[Mark]:
    """Yields the character at which each group begins: a line at its indentation, others at their match."""
    if name == "lines":
        return ((match.start(), "") for match in compile_mark(name).finditer(text))
    return matches(text, name, "by")


def _found(text: str, pattern: str, called: str) -> list[tuple[int, str]]:
    """Returns start and text of each match that is more than white space.

    The search is bounded in time, since a user's pattern may backtrack without end.
    """
    compiled = compile_mark(pattern, called)

    def find() -> str:
        matches = ((match.start(), match.group()[:MAX_READ_CHARACTERS]) for match in compiled.finditer(text))
        return json.dumps([(start, words) for start, words in matches if words.strip()])

    found: list[tuple[int, str]] = json.loads(run_bounded(find, f"the search for {option(called)} {pattern!r}"))
    return found
