"""Groups of tokens by name: what tokens were given, and sentences, lines, paragraphs or matches found in their text."""

import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.base.bounded import bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.text.groups import Groups
from attnviz.text.tokens import TEXTS, WORDS, Tokens, start_of

Mark = tuple[int, str]
TOKENS, SENTENCES = "tokens", "sentences"
NUMBERED = {"lines": ("line ", r"^.*\S"), "paragraphs": ("¶ ", r"(?:\A|\n[ \t]*\n)\s*\S")}
NAMES = (TOKENS, WORDS, SENTENCES, *NUMBERED, TEXTS)  # anything else is a pattern, or a name that tokens were given
SINGULAR = {name.removesuffix("s"): name for name in NAMES}
SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s)\s*|\n+")
EXAMPLES = "lines, paragraphs or '^Chapter .*'"
MAX_LABEL_CHARACTERS = 30  # of what is called by its first words
MAX_READ_CHARACTERS = 1000  # of a match, for its label


def plural(name: str) -> str:
    """The name of groups as they are kept: ``word`` is understood as ``words``."""
    return SINGULAR.get(name, name)


def singular(name: str) -> str:
    """What one group of a name is called in a sentence."""
    return name.removesuffix("s") if name in NAMES else "part"


@lru_cache(maxsize=8)
def named_groups(tokens: Tokens, name: str) -> Groups | None:
    """Which group of a name each token is in; ``None`` where the tokens have none, and their text neither.

    Args:
        tokens: of an axis.
        name: that of groups that the tokens were given, such as ``words``; ``sentences``, ``lines``, ``paragraphs``; or
            a regular expression at whose matches groups begin, and whose ``^`` and ``$`` match at each line.
    """
    if name in tokens.groups:
        return tokens.groups[name]
    if name in (TOKENS, WORDS, TEXTS):
        return None
    if name == SENTENCES:
        return Groups(_sentences(tokens)) if tokens.text else None
    starts = [place for place, _ in tokens_at(tokens, _begins(tokens.text, name))]
    return Groups(np.searchsorted(starts, np.arange(len(tokens)), side="right").astype(np.int64)) if starts else None


def tokens_at(tokens: Tokens, marks: Iterator[Mark]) -> Iterator[Mark]:
    """The token at each of these characters, where it is another than that of the mark before."""
    placed = np.flatnonzero(tokens.offsets[:, 1] > tokens.offsets[:, 0])
    ends, found = tokens.offsets[placed, 1], set[int]()
    for start, label in marks:
        index = int(np.searchsorted(ends, start, side="right"))
        if index < len(placed) and index not in found:
            found.add(index)
            yield int(placed[index]), label


def matches(text: str, name: str, called: str) -> Iterator[Mark]:
    """Where in a text each line, paragraph or match of a regular expression begins, and what it is called.

    Args:
        text: that is searched.
        name: ``lines``, ``paragraphs``, or the expression.
        called: the option that it was given to.
    """
    if name not in NUMBERED:
        for start, found in _found(text, name, called):
            yield start, start_of(found, MAX_LABEL_CHARACTERS)
        return
    for number, match in enumerate(compile_mark(name).finditer(text), start=1):
        yield match.start() + len(match.group()) - len(match.group().lstrip()), f"{NUMBERED[name][0]}{number}"


def compile_mark(mark: str, called: str = "mark") -> re.Pattern[str]:
    """The pattern that a name of groups stands for.

    Args:
        mark: the name, or a regular expression.
        called: the option that it was given to.

    Raises:
        AttnvizError: if it is none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what another version may read otherwise
            return re.compile(NUMBERED[mark][1] if mark in NUMBERED else mark, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(f"{option(called)} {mark!r} is no regular expression: {reason}; {EXAMPLES} works") from error


def _sentences(tokens: Tokens) -> IntArray:
    """The sentence of each token, ``(tokens,)``, from 0; -1 for special tokens."""
    starts = np.array([match.end() for match in SENTENCE_END.finditer(tokens.text)], dtype=np.int64)
    numbers = np.searchsorted(starts, tokens.offsets[:, 0], side="right")
    return np.where(tokens.special, -1, numbers).astype(np.int64)


def _begins(text: str, name: str) -> Iterator[Mark]:
    """Where in the text each group of a name begins: a line with its indentation, elsewhere where its mark stands."""
    if name == "lines":
        return ((match.start(), "") for match in compile_mark(name).finditer(text))
    return matches(text, name, "by")


def _found(text: str, pattern: str, called: str) -> list[tuple[int, str]]:
    """Where a pattern of the user's matches more than white space, and what: there are patterns that never end."""
    compiled = compile_mark(pattern, called)

    def find() -> str:
        found = ((match.start(), match.group()[:MAX_READ_CHARACTERS]) for match in compiled.finditer(text))
        return json.dumps([(start, words) for start, words in found if words.strip()])

    found: list[tuple[int, str]] = json.loads(bounded(find, f"the search for {option(called)} {pattern!r}"))
    return found
