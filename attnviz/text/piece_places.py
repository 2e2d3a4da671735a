"""Finds the places of a text's pieces by aligning both as sequences, for tokenizers that return no offsets.

A tokenizer may have changed case, accents, widths and spaces, and may not know some pieces. So both sides are compared
letter by letter in a folded form, and where they differ the next pieces have to match together soon after.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]
MAX_GAP = 120  # letters of the text that one unknown piece may stand for
CONTEXT, MIN_AGREEMENT = 8, 3  # letters after a match beyond a gap that are compared, and that have to agree


@dataclass(frozen=True)
class TextPiece:
    """A piece of a text."""

    text: str | None  # its letters, after a space if it begins a word; ``None`` if unknown
    # true for the name of a special token, which has a place only where the text has it literally
    is_optional: bool = False


def piece_places(text: str, pieces: Sequence[TextPiece]) -> list[Span]:
    """Returns start and end in characters of each piece; equal for one without characters.

    Unknown pieces have the words between their neighbours, one each if there are as many, and else together.
    """
    folded = _FoldedText(text)
    spans: list[Span] = []
    position, stop, unplaced = 0, 0, list[int]()  # in letters and in characters of the text; pieces without a place
    for index, piece in enumerate(pieces):
        spans.append((stop, stop))
        letters = _folded(piece.text or "")
        if piece.is_optional:
            if not letters or unplaced or not text.startswith(str(piece.text), stop + _blanks_at(text, stop)):
                continue
            found = folded.matched(position, letters)
        elif not letters:
            if piece.text is None:
                unplaced.append(index)
            elif blank_count := min(len(piece.text), _blanks_at(text, stop)):
                spans[index] = (stop, stop := stop + blank_count)
            continue
        else:
            found = None if unplaced else folded.matched(position, letters)
            if found is None:
                context = _context_after(pieces, index)
                begins_word = (piece.text or "")[0].isspace()
                first = position + sum(pieces[other].text is None for other in unplaced)  # each has a letter at least
                found = folded.found(
                    range(first, position + MAX_GAP * (1 + len(unplaced))), letters, context, begins_word
                )
        if found is None:
            unplaced.append(index)
            continue
        first, position = found
        start = folded.characters[first]
        _place_between(text, stop, start, unplaced, spans)
        stop = folded.characters[position - 1] + 1
        spans[index], unplaced = (start, stop), []
    _place_between(text, stop, len(text), unplaced, spans)
    return spans


class _FoldedText:
    """The letters of a text without case, width and white space."""

    def __init__(self, text: str) -> None:
        folded = [(letter, index) for index, character in enumerate(text) for letter in _folded(character)]
        self.letters = [letter for letter, _ in folded]
        self.characters = [index for _, index in folded]
        self._text = text

    def matched(self, position: int, letters: str) -> Span | None:
        """Returns the first letter and the end of a match that begins at a position; ``None`` without a match."""
        first = None
        for letter in letters:
            end = position
            while end < len(self.letters) and self.letters[end] != letter and _may_be_missing(self.letters[end]):
                end += 1
            if end < len(self.letters) and self.letters[end] == letter:
                first = end if first is None else first
                position = end + 1
            elif not _may_be_missing(letter):
                return None
        return None if first is None else (first, position)

    def found(self, starts: range, letters: str, context: str, begins_word: bool) -> Span | None:
        """Returns the match that begins at one of some letters and that its context follows furthest; or ``None``."""
        best, best_agreement = None, min(len(context), MIN_AGREEMENT) - 1
        for start in starts[: len(self.letters)]:
            match = self.matched(start, letters) if not begins_word or self._may_begin_word(start) else None
            if match is None:
                continue
            agreement = next(
                count for count in range(len(context), -1, -1) if not count or self.matched(match[1], context[:count])
            )
            if agreement > best_agreement:
                best, best_agreement = match, agreement
            if agreement == len(context):
                break
        return best

    def _may_begin_word(self, letter: int) -> bool:
        """True if a letter is the first of its character, is no accent, and follows no letter or digit of its word."""
        if letter >= len(self.letters):
            return False
        index = self.characters[letter]
        if (letter and self.characters[letter - 1] == index) or _may_be_missing(self._text[index]):
            return False
        if not self._text[index].isalnum() or _is_east_asian(self._text[index]):
            return True
        last = index - 1
        while last >= 0 and unicodedata.category(self._text[last]).startswith("M"):  # an accent of the letter before
            last -= 1
        return last < 0 or not self._text[last].isalnum() or _is_east_asian(self._text[last])


def _is_east_asian(character: str) -> bool:
    """True for Chinese and Japanese letters, between which tokenizers begin words without a space."""
    return unicodedata.name(character, "").startswith(("CJK", "HIRAGANA", "KATAKANA"))


def _folded(text: str) -> str:
    """Returns a text without case, width and white space; accents follow their letters."""
    return "".join(unicodedata.normalize("NFKD", text).casefold().split())


def _may_be_missing(letter: str) -> bool:
    return unicodedata.category(letter) in ("Mn", "Cf", "Cc")


def _blanks_at(text: str, index: int) -> int:
    match = re.compile(r"\s*").match(text, index)
    return 0 if match is None else match.end() - index


def _context_after(pieces: Sequence[TextPiece], index: int) -> str:
    """Returns the letters of the known pieces after one, as far as ``CONTEXT`` letters."""
    context = ""
    for piece in pieces[index + 1 : index + 1 + CONTEXT]:
        if piece.text is None or piece.is_optional or len(context) >= CONTEXT:
            break
        context += _folded(piece.text)
    return context[:CONTEXT]


def _place_between(text: str, start: int, stop: int, unplaced: list[int], spans: list[Span]) -> None:
    """Gives the words between two characters to the pieces without a place."""
    while start < stop and _may_be_missing(text[start]):  # an accent of the last piece that has a place
        start += 1
    words = [match.span() for match in re.compile(r"\S+").finditer(text, start, stop)] if unplaced else []
    for number, index in enumerate(unplaced):
        if words:
            spans[index] = words[number] if len(words) == len(unplaced) else (words[0][0], words[-1][1])
