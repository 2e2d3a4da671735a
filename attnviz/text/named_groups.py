"""Finds groups of tokens by name: words, sentences, lines, paragraphs, or parts that begin where a pattern matches."""

import json
import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.text.groups import Groups
from attnviz.text.tokens import TEXTS, WORDS, Tokens, first_words

Mark = tuple[int, str]  # a token or a character, and its label
TOKENS, SENTENCES = "tokens", "sentences"
TURNS, PASSAGES = "turns", "passages"  # groups that only the reader of a conversation, or of passages, can find
QUESTION = "question"  # the label of the text after passages
GENERATED = "generated"  # the prompt and what a model wrote after it, as the run that wrote it knows
REMAINDER_LABELS = {TURNS: "marks", PASSAGES: "marks"}  # tokens outside of these groups are one unit of this label
NUMBERED = {"lines": ("line ", r"^.*\S"), "paragraphs": ("¶ ", r"(?:\A|\n[ \t]*\n)\s*\S")}
NAMES = (
    TOKENS,
    WORDS,
    SENTENCES,
    *NUMBERED,
    TEXTS,
    TURNS,
    PASSAGES,
    GENERATED,
)  # any other name is one of `Tokens.groups`, or a pattern
SINGULAR = {name.removesuffix("s"): name for name in NAMES}
SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s)\s*|\n+")
EXAMPLE_MARKS = "lines, paragraphs or '^Chapter .*'"
MAX_LABEL_CHARACTERS = 30  # of the label of a group, which is its first words
MAX_READ_CHARACTERS = 1000  # of a match; its label needs no more


def plural(name: str) -> str:
    """Returns the plural of a name of ``NAMES``, so that ``word`` means ``words``; other names unchanged."""
    return SINGULAR.get(name, name)


def singular(name: str) -> str:
    """Returns the noun for one group: ``line`` for ``lines``, and ``part`` for a name outside ``NAMES``."""
    return name.removesuffix("s") if name in NAMES else "part"


def numbered_label(label: str, labels: Collection[str]) -> str:
    """Returns the label; if other labels have it, with the first free number from 2: ``a (2)``."""
    name, number = label, 1
    while name in labels:
        number += 1
        name = f"{label} ({number})"
    return name


@lru_cache(maxsize=8)
def named_groups(tokens: Tokens, name: str) -> Groups | None:
    """Returns the groups of tokens that a name stands for; ``None`` if the tokens have no such groups.

    Args:
        tokens: the tokens of an axis.
        name: a key of ``tokens.groups``, such as ``words``; ``sentences``, ``lines`` or ``paragraphs``; or a regular
            expression: each match begins a group, tokens before the first match are group 0, and ``^`` and ``$`` match
            at each line.

    Raises:
        AttnvizError: if the name is neither known nor a regular expression, or its search takes too long.
    """
    if name in tokens.groups:
        return tokens.groups[name]
    if name in (TOKENS, WORDS, TEXTS, TURNS, PASSAGES, GENERATED):
        return None
    if name == SENTENCES:
        return Groups(_sentence_numbers(tokens)) if tokens.text else None
    starts = [token for token, _ in marked_tokens(tokens, _group_starts(tokens.text, name))]
    if not starts:
        return None
    return Groups(np.searchsorted(starts, np.arange(len(tokens)), side="right").astype(np.int64))


def with_generated_from(tokens: Tokens, start: int) -> Tokens:
    """Returns the tokens with two more groups: those before ``start`` are the prompt, the others are generated."""
    is_generated = np.arange(len(tokens)) >= start
    groups = Groups(is_generated.astype(np.int64), ("prompt", GENERATED))
    return replace(tokens, groups={**tokens.groups, GENERATED: groups})


def marked_tokens(tokens: Tokens, marks: Iterator[Mark]) -> Iterator[Mark]:
    """Yields the token at each mark, or the next one if a mark is between tokens, and the mark's label.

    Of several marks at one token only the first counts. A mark after the last token is left out. Tokens without
    characters have no marks.

    Args:
        tokens: the tokens of the text.
        marks: the character of each mark in the text, and its label.
    """
    text_tokens = np.flatnonzero(tokens.offsets[:, 1] > tokens.offsets[:, 0])
    ends, marked_indices = tokens.offsets[text_tokens, 1], set[int]()
    for start, label in marks:
        index = int(np.searchsorted(ends, start, side="right"))
        if index < len(text_tokens) and index not in marked_indices:
            marked_indices.add(index)
            yield int(text_tokens[index]), label


def labelled_matches(text: str, name: str, option_name: str) -> Iterator[Mark]:
    """Yields the index of the first character, and the label, of each line, paragraph or match of a pattern.

    Args:
        text: the text to search.
        name: ``lines``, ``paragraphs``, or a regular expression.
        option_name: the option that the user gave, for messages.

    Raises:
        AttnvizError: if the name is not a regular expression, or its search takes too long.
    """
    if name not in NUMBERED:
        for start, matched_text in _pattern_matches(text, name, option_name):
            yield start, first_words(matched_text, MAX_LABEL_CHARACTERS)
        return
    # Without the blank lines at the end, every blank line is followed by a paragraph, and none is read twice.
    for number, match in enumerate(compile_mark(name).finditer(text.rstrip()), start=1):
        leading_spaces = len(match.group()) - len(match.group().lstrip())
        yield match.start() + leading_spaces, f"{NUMBERED[name][0]}{number}"


def compile_mark(mark: str, option_name: str = "mark") -> re.Pattern[str]:
    """Returns the compiled pattern of ``lines`` or ``paragraphs``, or of the user's regular expression.

    Args:
        mark: the name, or a regular expression.
        option_name: the option that the user gave, for messages.

    Raises:
        AttnvizError: if the mark is not a regular expression.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Python warns of "[[", whose meaning may change
            return re.compile(NUMBERED[mark][1] if mark in NUMBERED else mark, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(
            f"{option(option_name)} {mark!r} is not a regular expression: {reason}; try {EXAMPLE_MARKS}"
        ) from error


def _sentence_numbers(tokens: Tokens) -> IntArray:
    """Returns the number of each token's sentence, ``(tokens,)``, from 0; -1 for special tokens.

    A token belongs to the sentence in which it starts.
    """
    starts = np.array([match.end() for match in SENTENCE_END.finditer(tokens.text)], dtype=np.int64)
    numbers = np.searchsorted(starts, tokens.offsets[:, 0], side="right")
    return np.where(tokens.special, -1, numbers).astype(np.int64)


def _group_starts(text: str, name: str) -> Iterator[Mark]:
    """Yields the index of the first character and the label of each group.

    A line begins with its indentation and has no label; a paragraph begins after its indentation.
    """
    if name == "lines":
        return ((match.start(), "") for match in compile_mark(name).finditer(text))
    return labelled_matches(text, name, "by")


def _pattern_matches(text: str, pattern: str, option_name: str) -> list[tuple[int, str]]:
    """Returns the start and the text of each match that is not blank; the text is cut to ``MAX_READ_CHARACTERS``.

    The search runs with a limit of time, since a user's pattern may backtrack without end.

    Raises:
        AttnvizError: if the pattern is not a regular expression, or the search takes too long.
    """
    compiled_pattern = compile_mark(pattern, option_name)

    def matches_as_json() -> str:
        """Returns start and text of each match that is not blank, as JSON, since a bounded process returns a string."""
        candidates = ((match.start(), match.group()[:MAX_READ_CHARACTERS]) for match in compiled_pattern.finditer(text))
        return json.dumps([(start, matched_text) for start, matched_text in candidates if matched_text.strip()])

    matches: list[tuple[int, str]] = json.loads(
        run_bounded(matches_as_json, f"the search for {option(option_name)} {pattern!r}")
    )
    return matches
