"""Sets texts before a question, and finds the tokens of each: passages that an answer may look at."""

from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.printable import printable_line
from attnviz.base.reading import read_text
from attnviz.text.groups import Groups
from attnviz.text.tokens import Tokens

SEPARATOR = "\n\n"
QUESTION = "question"
MAX_PASSAGES = 1_000


class Passage(NamedTuple):
    """A part of a text.

    Attributes:
        label: the name of its file, or ``question``.
        start: its first character in the text.
        stop: the character after its last.
    """

    label: str
    start: int
    stop: int


def read_passages(pattern: str, question: str) -> tuple[str, tuple[Passage, ...]]:
    """Returns the texts of files in the order of their names, then the question, and where each stands.

    Args:
        pattern: the files, as ``docs/*.txt``.
        question: the text after them.

    Raises:
        AttnvizError: if no file matches, too many do, or one is empty or not a text.
    """
    given = option("passages", pattern)
    files = sorted(Path(name) for name in glob(pattern, recursive=True) if Path(name).is_file())
    if not 0 < len(files) <= MAX_PASSAGES:
        raise AttnvizError(f"{given} matches {len(files) or 'no'} files; give 1 to {MAX_PASSAGES}, as 'docs/*.txt'")
    texts = [read_text(file).strip() for file in files]
    empty = next((file for file, text in zip(files, texts, strict=True) if not text), None)
    if empty is not None:
        raise AttnvizError(f"{str(empty)!r} of {given} is empty; give files with a text")
    names = [file.name for file in files]
    labels = [file.name if names.count(file.name) == 1 else str(file) for file in files]
    parts, passages, start = [*texts, question], [], 0
    for label, text in zip([*map(printable_line, labels), QUESTION], parts, strict=True):
        passages.append(Passage(label, start, start + len(text)))
        start += len(text) + len(SEPARATOR)
    return SEPARATOR.join(parts), tuple(passages)


def passage_groups(tokens: Tokens, passages: Sequence[Passage], start: int = 0) -> Groups:
    """Returns the passage of each token: that of its first character, but for white space before a word; -1 for none.

    Args:
        tokens: the tokens of the text with the passages.
        passages: where each passage stands.
        start: the character at which their text begins in the text of the tokens.
    """
    starts = np.array([passage.start + start for passage in passages])
    stops = np.array([passage.stop + start for passage in passages])
    pieces = [tokens.text[first:last] for first, last in tokens.offsets.tolist()]
    leading = [len(piece) - len(piece.lstrip()) if piece.strip() else 0 for piece in pieces]
    places = tokens.offsets[:, 0] + np.array(leading, dtype=np.int64)
    numbers = np.searchsorted(starts, places, side="right") - 1
    inside = (numbers >= 0) & (places < stops[numbers]) & (places < tokens.offsets[:, 1])
    return Groups(np.where(inside, numbers, -1).astype(np.int64), tuple(passage.label for passage in passages))
