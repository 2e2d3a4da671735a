"""Reads passages, texts of files that are set before a question, and finds the tokens of each."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.patterns import matching_files
from attnviz.base.printable import printable_line
from attnviz.base.reading import read_json, read_text
from attnviz.media.text import refuse_surrogates
from attnviz.text.chat_passages import read_document
from attnviz.text.groups import Groups
from attnviz.text.named_groups import QUESTION, numbered_label
from attnviz.text.tokens import Tokens

SEPARATOR = "\n\n"
MAX_PASSAGES = 1_000


class Passage(NamedTuple):
    """A passage, or the question, as a part of the whole text."""

    label: str  # the name of the file or document, or ``question``
    start: int  # the index of its first character in the whole text
    stop: int  # the index of the character after its last one


def read_passages(pattern: str, question: str) -> tuple[str, tuple[Passage, ...]]:
    """Returns the texts of files and then the question as one text, and the place of each of them in it.

    Files are ordered by their paths; a file that shares its name with another is labelled by its path. A JSON
    file holds a list of texts, or of objects with ``title`` and ``text``, each of which is a passage.
    """
    option_text = option("passages", pattern)
    files = matching_files(pattern, MAX_PASSAGES, option_text)
    if not files:
        raise AttnvizError(f"{option_text} matches no files; give 1 to {MAX_PASSAGES}, such as 'docs/*.txt'")
    texts: dict[str, str] = {}
    names = [file.name for file in files]
    for file in files:
        name = printable_line(file.name if names.count(file.name) == 1 else str(file))
        if file.suffix.lower() != ".json":
            texts_of_file = [(name, read_text(file).strip())]
            if not texts_of_file[0][1]:
                raise AttnvizError(f"{str(file)!r} of {option_text} is empty; give files with a text")
        else:
            entries = read_json(file)
            if not isinstance(entries, list) or not entries:
                raise AttnvizError(f'{str(file)!r} of {option_text} is not a list of texts; write ["…", "…"]')
            _refuse_many(len(entries), option_text)
            texts_of_file, stem = [], name.removesuffix(file.suffix)
            for number, entry in enumerate(entries, start=1):
                document = read_document(entry, f"text {number} of {str(file)!r}")
                refuse_surrogates(document.text)
                label = printable_line(document.label) or f"{number} {stem}"
                texts_of_file.append((label, document.text.strip()))
        for label, text in texts_of_file:
            texts[numbered_label(label, texts.keys() | {QUESTION})] = text
            _refuse_many(len(texts), option_text)
    return placed_passages({**texts, QUESTION: question})


def _refuse_many(count: int, option_text: str) -> None:
    """Raises AttnvizError if there are more than `MAX_PASSAGES`."""
    if count > MAX_PASSAGES:
        raise AttnvizError(f"{option_text} holds {count} passages; give at most {MAX_PASSAGES}")


def placed_passages(texts: Mapping[str, str]) -> tuple[str, tuple[Passage, ...]]:
    """Returns one text, the given texts joined by blank lines, and the place of each text in it."""
    passages, start = [], 0
    for label, text in texts.items():
        passages.append(Passage(label, start, start + len(text)))
        start += len(text) + len(SEPARATOR)
    return SEPARATOR.join(texts.values()), tuple(passages)


def passage_groups(tokens: Tokens, passages: Sequence[Passage], start: int = 0) -> Groups:
    """Returns the passages as groups of tokens.

    A token is in the passage of its first visible character; a blank token is in the passage of its first character.
    A token is in no passage if it has no characters, or if this character is outside of all passages.
    """
    starts = np.array([passage.start + start for passage in passages])
    stops = np.array([passage.stop + start for passage in passages])
    pieces = [tokens.text[piece_start:piece_stop] for piece_start, piece_stop in tokens.offsets.tolist()]
    blanks_before = [len(piece) - len(piece.lstrip()) if piece.strip() else 0 for piece in pieces]
    first_characters = tokens.offsets[:, 0] + np.array(blanks_before, dtype=np.int64)
    numbers = np.searchsorted(starts, first_characters, side="right") - 1
    in_passage = (numbers >= 0) & (first_characters < stops[numbers]) & (first_characters < tokens.offsets[:, 1])
    return Groups(np.where(in_passage, numbers, -1).astype(np.int64), tuple(passage.label for passage in passages))
