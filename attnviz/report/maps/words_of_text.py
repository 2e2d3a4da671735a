"""Finds words of a text that a tokenizer split, and words that are close to a wrong one."""

import re
from collections.abc import Iterator

import numpy as np

from attnviz.base.errors import AttnvizError, did_you_mean
from attnviz.text.tokens import Tokens

MAX_OTHERS = 5  # other places of a word that a remark names


def find_word(tokens: Tokens, name: str, role: str) -> tuple[int, str]:
    """Returns the index of the last token of a word's first occurrence, and a remark.

    In causal models this token has read the whole word. The remark names the word's tokens and other occurrences.

    Args:
        tokens: the tokens to search.
        name: a word of their text; upper and lower case count only if the text has the word as written.
        role: the noun for the token in messages: ``query`` or ``key``.

    Raises:
        AttnvizError: if the text has no such word; the message proposes one that is close to it.
    """
    occurrences = [tokens_of_word for tokens_of_word in _occurrences(tokens, name) if tokens_of_word]
    if not occurrences:
        suggestion = did_you_mean(name, _words(tokens))
        choose = f"{suggestion}{'Choose' if suggestion else 'choose'} a token or a number from 0 to {len(tokens) - 1}"
        raise AttnvizError(f"no {role} {name!r} among the tokens; {choose}")
    first_tokens, *other_occurrences = occurrences
    if len(first_tokens) == 1:
        remark = f"“{name}” is in token {first_tokens[0]}"
    else:
        span = f"{len(first_tokens)} tokens, {first_tokens[0]} to {first_tokens[-1]}"
        remark = f"“{name}” is {span}; the last is the {role} here"
    other_places = ", ".join(str(word_tokens[-1]) for word_tokens in other_occurrences[:MAX_OTHERS])
    return first_tokens[-1], f"{remark}; it is also at {other_places}." if other_places else f"{remark}."


def _occurrences(tokens: Tokens, name: str) -> Iterator[list[int]]:
    """Yields the indices of the tokens of each occurrence of a word in the text.

    If the text has the word as written, only such occurrences count; else upper and lower case do not matter. Nothing
    is yielded if the name is blank or not in the text; a list is empty if no token covers the occurrence.
    """
    if not name.strip():
        return
    text, (starts, ends) = tokens.text, tokens.offsets.T
    whole_word = rf"(?<!\w){re.escape(name)}(?!\w)"
    matches = list(re.finditer(whole_word, text)) or re.finditer(whole_word, text, re.IGNORECASE)
    for match in matches:
        yield np.flatnonzero((starts < ends) & (starts < match.end()) & (ends > match.start())).tolist()


def _words(tokens: Tokens) -> list[str]:
    """Returns the words of the text, then the labels of the tokens, each once."""
    return list(dict.fromkeys([*re.findall(r"\w+", tokens.text), *(label.strip("␣ ") for label in tokens.labels)]))
