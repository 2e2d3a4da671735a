"""Finds the visible characters of a text, and those at which its words, sentences, lines and paragraphs begin.

A token belongs to the unit of its first visible character, so that no unit is blank, and it does not matter whether a
tokenizer puts a space, or a line end, into the token before it or after it.
"""

import re

import numpy as np

from attnviz.base.arrays import IntArray

WORDS, SENTENCES, LINES, PARAGRAPHS = "words", "sentences", "lines", "paragraphs"
BLANKS = np.array([ord(character) for character in map(chr, range(0x3001)) if character.isspace()], dtype=np.uint32)
LINE_ENDS = np.array([ord(character) for character in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"], dtype=np.uint32)
CLOSING = "\"'”’»)\\]」』）】》〉"
# A period needs a space after it; an ideographic one does not. A run is tried from its first mark alone, so that the
# time is linear.
SENTENCE_END = re.compile(
    rf"(?<![.!?…؟۔։।॥።፧။។])[.!?…؟۔։।॥።፧။។]+[{CLOSING}]*(?=\s)|[。！？｡][。！？｡]*[{CLOSING}]*|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
)


def visible_characters(text: str) -> IntArray:
    """Returns the indices of the characters that are not white space, ``(visible characters,)``."""
    return np.flatnonzero(~np.isin(_code_points(text), BLANKS))


def line_numbers(text: str) -> IntArray:
    """Returns the number of line ends before each character, and before the end: ``(characters + 1,)``."""
    codes = _code_points(text)
    ends_line = np.isin(codes, LINE_ENDS)
    ends_line[:-1] &= ~((codes[:-1] == ord("\r")) & (codes[1:] == ord("\n")))  # the two are one line end
    return np.concatenate([[0], np.cumsum(ends_line)])


def unit_starts(text: str, name: str, owners: IntArray | None = None) -> IntArray:
    """Returns the index of the first visible character of each word, sentence, line or paragraph, in ascending
    order.
    """
    visible = visible_characters(text)
    if name == WORDS:
        begins = np.diff(visible) > 1
    elif name == SENTENCES:
        ends = [match.end() for match in SENTENCE_END.finditer(text)]
        begins = np.diff(np.searchsorted(ends, visible, side="right")) > 0
    else:
        begins = np.diff(line_numbers(text)[visible]) > (1 if name == PARAGRAPHS else 0)
    begins = np.concatenate([np.ones(min(1, len(visible)), dtype=bool), begins])
    if owners is not None:
        begins[1:] |= np.diff(owners[visible]) != 0
        begins &= owners[visible] >= 0
    return visible[begins]


def first_visible(text: str, spans: IntArray) -> IntArray:
    """Returns the index of the first visible character of each span, ``(spans,)``; -1 for a blank or empty one."""
    visible = visible_characters(text)
    starts, stops = spans[:, 0], np.minimum(spans[:, 1], len(text))
    candidates = np.append(visible, len(text))[np.searchsorted(visible, starts)]
    return np.where(candidates < stops, candidates, -1).astype(np.int64)


def unit_numbers(starts: IntArray, characters: IntArray) -> IntArray:
    """Returns the index of the unit of each character; -1 before the first start, and for the character -1."""
    return np.where(characters < 0, -1, np.searchsorted(starts, characters, side="right") - 1).astype(np.int64)


def _code_points(text: str) -> IntArray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
