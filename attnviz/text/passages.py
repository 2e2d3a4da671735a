"""Reads passages, texts of files that are set before a question, and finds the tokens of each."""

from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.printable import printable_line
from attnviz.base.reading import read_text
from attnviz.text.groups import Groups
from attnviz.text.named_groups import QUESTION
from attnviz.text.tokens import Tokens

SEPARATOR = "\n\n"
MAX_PASSAGES = 1_000


class Passage(NamedTuple):
    """A passage, or the question, as a part of the whole text.

    Attributes:
        label: the name of the file, or ``question``.
        start: the index of its first character in the whole text.
        stop: the index of the character after its last one.
    """

    label: str
    start: int
    stop: int


def read_passages(pattern: str, question: str) -> tuple[str, tuple[Passage, ...]]:
    """Returns the texts of files and the question as one text, with the place of each part in it.

    Files are ordered by their paths; a file whose name another has too is labelled by its path.

    Args:
        pattern: a glob pattern of the files, such as ``docs/*.txt``.
        question: the text after the passages.

    Raises:
        AttnvizError: if no file matches, more than ``MAX_PASSAGES`` match, or one is empty or not a text.
    """
    option_text = option("passages", pattern)
    files = sorted(Path(name) for name in glob(pattern, recursive=True) if Path(name).is_file())
    if not 0 < len(files) <= MAX_PASSAGES:
        raise AttnvizError(
            f"{option_text} matches {len(files) or 'no'} files; give 1 to {MAX_PASSAGES}, as 'docs/*.txt'"
        )
    texts = [read_text(file).strip() for file in files]
    empty_file = next((file for file, text in zip(files, texts, strict=True) if not text), None)
    if empty_file is not None:
        raise AttnvizError(f"{str(empty_file)!r} of {option_text} is empty; give files with a text")
    names = [file.name for file in files]
    labels = [file.name if names.count(file.name) == 1 else str(file) for file in files]
    parts, passages, start = [*texts, question], [], 0
    for label, text in zip([*map(printable_line, labels), QUESTION], parts, strict=True):
        passages.append(Passage(label, start, start + len(text)))
        start += len(text) + len(SEPARATOR)
    return SEPARATOR.join(parts), tuple(passages)


def passage_groups(tokens: Tokens, passages: Sequence[Passage], start: int = 0) -> Groups:
    """Returns the passages as groups of tokens.

    A token is in the passage of its first character that is not a space; without such a character it is in none.

    Args:
        tokens: the tokens of the text with the passages.
        passages: the passages, with their places in the text that they form.
        start: the index, in the text of the tokens, of the first character of the passages' text.
    """
    starts = np.array([passage.start + start for passage in passages])
    stops = np.array([passage.stop + start for passage in passages])
    pieces = [tokens.text[first:last] for first, last in tokens.offsets.tolist()]
    blanks_before = [len(piece) - len(piece.lstrip()) if piece.strip() else 0 for piece in pieces]
    first_characters = tokens.offsets[:, 0] + np.array(blanks_before, dtype=np.int64)
    numbers = np.searchsorted(starts, first_characters, side="right") - 1
    in_passage = (numbers >= 0) & (first_characters < stops[numbers]) & (first_characters < tokens.offsets[:, 1])
    return Groups(np.where(in_passage, numbers, -1).astype(np.int64), tuple(passage.label for passage in passages))
