"""Finds groups of tokens by name: words, sentences, lines, paragraphs, or parts that begin where a pattern matches."""

import json
import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.media.text import Text
from attnviz.text.groups import (
    LINES,
    PARAGRAPHS,
    SENTENCES,
    WORDS,
    Groups,
    first_visible,
    line_numbers,
    unit_numbers,
    unit_starts,
    visible_characters,
)
from attnviz.text.tokens import TEXTS, Tokens, first_words, word_numbers

Mark = tuple[int, str]  # a token or a character, and its label
TOKENS = "tokens"
TURNS, PASSAGES = "turns", "passages"  # groups that only the reader of a conversation, or of passages, can find
QUESTION = "question"  # the label of the text after passages
GENERATED = "generated"  # the prompt and what a model wrote after it, as the run that wrote it knows
REMAINDER_LABELS = {TURNS: "marks", PASSAGES: "marks"}  # tokens outside of these groups are one unit of this label
NUMBERED = {LINES: "line ", PARAGRAPHS: "¶ "}  # the names of landmarks begin so
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
def refuse_absent_units(by: str | None) -> None:
    """Raises AttnvizError for turns or passages; called for a text that has none."""
    if by == TURNS:
        raise AttnvizError(
            f"{option('by', by)} needs a chat; give messages as JSON, or add {option('chat', value=True)}"
        )
    if by == PASSAGES:
        raise AttnvizError(f"{option('by', by)} needs passages; add {option('passages', 'docs/*.txt')}")


def named_groups(tokens: Tokens, name: str) -> Groups | None:
    """Returns the groups of tokens that a name stands for; ``None`` if the tokens have no such groups."""
    if name == WORDS and name in tokens.groups:
        return replace(tokens.groups[name], numbers=_with_blanks(tokens, tokens.words))
    if name in tokens.groups:
        return tokens.groups[name]
    if not tokens.text or name in (TOKENS, WORDS, TEXTS, TURNS, PASSAGES, GENERATED):
        return None
    owners = character_owners(tokens)
    if name in (SENTENCES, *NUMBERED):
        starts = unit_starts(tokens.text, name, owners)
    else:
        marks = [start for start, _ in _pattern_matches(tokens.text, name, "by")]
        visible = visible_characters(tokens.text)
        places = np.searchsorted(visible, np.array(marks, dtype=np.int64))
        starts = visible[np.unique(places[places < len(visible)])]
    if not len(starts):
        return None
    characters = first_visible(tokens.text, tokens.offsets)
    numbers = unit_numbers(starts, characters)
    if name not in (SENTENCES, *NUMBERED) and (before := (characters >= 0) & (numbers < 0) & in_text(tokens)).any():
        numbers = np.where(before, 0, np.where(numbers < 0, -1, numbers + 1))
    is_outside = ~in_text(tokens) | (characters < 0) | tokens.special
    if owners is not None:
        is_outside |= np.append(owners, -1)[characters] < 0
    return Groups(_with_blanks(tokens, np.where(is_outside, -1, numbers)))


def character_owners(tokens: Tokens) -> IntArray | None:
    """Returns the turn, or the text of a pair, of each character: ``(characters,)``; ``None`` if there is one text.

    The number is -1 for special tokens, and for what a chat template wrote around the turns.
    """
    groups = tokens.groups.get(TURNS, tokens.groups.get(TEXTS))
    is_placed = in_text(tokens) & (tokens.offsets[:, 1] > tokens.offsets[:, 0])
    if not is_placed.any() or (groups is None and not (tokens.special & is_placed).any()):
        return None
    token_owners = np.where(tokens.special, -1, 0 if groups is None else groups.numbers)[is_placed]
    starts = tokens.offsets[is_placed, 0]
    order = np.argsort(starts, kind="stable")
    token_before = np.searchsorted(starts[order], np.arange(len(tokens.text)), side="right") - 1
    return np.asarray(token_owners[order][np.maximum(token_before, 0)], dtype=np.int64)


def with_own_words(tokens: Tokens) -> Tokens:
    """Returns the tokens with words that end where a turn or a special token begins."""
    owners = character_owners(tokens)
    if owners is None:
        return tokens
    words = np.where(tokens.special, -1, word_numbers(tokens.text, tokens.offsets, owners))
    return replace(tokens, groups={**tokens.groups, WORDS: Groups(words)})


def in_text(tokens: Tokens) -> BoolArray:
    """Returns a mask of the tokens that lie in a text, or have no place in an axis of texts alone, ``(tokens,)``."""
    is_text = [isinstance(medium, Text) for medium in tokens.media]
    return np.array([*is_text, all(is_text)])[tokens.medium]


def _with_blanks(tokens: Tokens, numbers: IntArray) -> IntArray:
    """Returns the group of each token, ``(tokens,)``, where blank tokens without a group join one beside them."""
    characters = first_visible(tokens.text, tokens.offsets)
    is_blank = (numbers < 0) & (characters < 0) & ~tokens.special & in_text(tokens)
    turns = tokens.groups.get(TURNS)
    if turns is not None:
        is_blank &= turns.numbers >= 0
    blanks, others = np.flatnonzero(is_blank), np.flatnonzero(~is_blank)
    if not len(blanks) or not len(others):
        return numbers
    ends = np.maximum.accumulate(tokens.offsets[:, 1])
    places = np.minimum(np.maximum(tokens.offsets[:, 0], np.concatenate([[0], ends])[:-1]), len(tokens.text))[blanks]
    positions = np.searchsorted(others, blanks)
    next_others = np.append(others, -1)[positions]
    after = np.append(numbers, -1)[next_others]
    before = np.append(numbers[others], -1)[positions - 1]
    lines = line_numbers(tokens.text)
    is_on_line = lines[np.append(characters, -1)[next_others]] == lines[places]
    joined = numbers.copy()
    joined[blanks] = np.where((after >= 0) & (is_on_line | (before < 0)), after, before)
    return joined


def marks_label(tokens: Tokens, name: str) -> str | None:
    """Returns the label of the one unit of all tokens outside the groups of a name; ``None`` if they are units each.

    They are one unit outside of turns and passages, and outside of any groups in a chat.
    """
    in_chat = TURNS in tokens.groups and name not in (TOKENS, TEXTS)
    return REMAINDER_LABELS.get(name, REMAINDER_LABELS[TURNS] if in_chat else None)


def with_generated_from(tokens: Tokens, start: int) -> Tokens:
    """Returns the tokens with two more groups: those before ``start`` are the prompt, the others are generated."""
    is_generated = np.arange(len(tokens)) >= start
    groups = Groups(is_generated.astype(np.int64), ("prompt", GENERATED))
    return replace(tokens, groups={**tokens.groups, GENERATED: groups})


def marked_tokens(tokens: Tokens, marks: Iterator[Mark]) -> Iterator[Mark]:
    """Yields the token at each mark, or the next one if a mark is between tokens, and the mark's label.

    Of several marks at one token only the first counts. A mark after the last token is left out. Tokens without
    characters have no marks.
    """
    text_tokens = np.flatnonzero(tokens.offsets[:, 1] > tokens.offsets[:, 0])
    ends, marked_indices = tokens.offsets[text_tokens, 1], set[int]()
    for start, label in marks:
        index = int(np.searchsorted(ends, start, side="right"))
        if index < len(text_tokens) and index not in marked_indices:
            marked_indices.add(index)
            yield int(text_tokens[index]), label


def labelled_matches(text: str, name: str, option_name: str) -> Iterator[Mark]:
    """Yields the index of the first character, and the label, of each line, paragraph or match of a pattern."""
    if name not in NUMBERED:
        for start, matched_text in _pattern_matches(text, name, option_name):
            yield start, first_words(matched_text, MAX_LABEL_CHARACTERS)
        return
    for number, start in enumerate(unit_starts(text, name).tolist(), start=1):
        yield start, f"{NUMBERED[name]}{number}"


def compile_mark(mark: str, option_name: str = "mark") -> re.Pattern[str]:
    """Returns the compiled pattern of the user's regular expression, or of a name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Python warns of "[[", whose meaning may change
            return re.compile(mark, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise AttnvizError(
            f"{option(option_name)} {mark!r} is not a regular expression: {reason}; try {EXAMPLE_MARKS}"
        ) from error


def _pattern_matches(text: str, pattern: str, option_name: str) -> list[tuple[int, str]]:
    """Returns the start and the text of each match that is not blank; the text is cut to ``MAX_READ_CHARACTERS``."""
    compiled_pattern = compile_mark(pattern, option_name)

    def matches_as_json() -> str:
        """Returns start and text of each match that is not blank, as JSON, since a bounded process returns a string."""
        candidates = ((match.start(), match.group()[:MAX_READ_CHARACTERS]) for match in compiled_pattern.finditer(text))
        return json.dumps([(start, matched_text) for start, matched_text in candidates if matched_text.strip()])

    matches: list[tuple[int, str]] = json.loads(
        run_bounded(matches_as_json, f"the search for {option(option_name)} {pattern!r}")
    )
    return matches
