"""Texts that regular expressions like least are read in a time that grows with their length alone."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import process_time

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.media.timed_words import read_words
from attnviz.metrics.measure import parse_filter
from attnviz.text.conversation import Conversation
from attnviz.text.groups import unit_starts
from attnviz.text.named_groups import labelled_matches
from attnviz.text.places import find_place
from attnviz.text.selection import Selection
from attnviz.text.server_answer import read_answer
from attnviz.text.tokens import Tokens

LENGTH = 100_000
SECONDS = 5  # each takes far less, and a time that is quadratic in the length is far above


def _written(text: str, folder: Path, name: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


READERS: dict[str, tuple[Callable[[str, Path], object], list[str]]] = {
    "a range": (lambda text, _: Selection.parse(queries=text), [" \n", "1 ", ": "]),
    "layers and heads": (lambda text, _: Selection.parse(layers=text, heads=text), [" ", "a", "a.", "0-", "text "]),
    "a filter": (lambda text, _: parse_filter(text, ["sink"]), [" ", "\r\n", "sink ", ": ", "= "]),
    "a place": (lambda text, _: find_place(Tokens.numbered(3), text), [" ", "@1,"]),
    "thoughts": (
        lambda text, _: Conversation(({"role": "assistant", "content": text},)).turns(),
        ["<think>", "</think>", "<", "<think></think"],
    ),
    "cues": (lambda text, folder: read_words(_written(text, folder, "words.vtt")), ["0:00.0 --> 0:01.0\n", " \n", "1"]),
    "an answer": (lambda text, folder: read_answer(_written(text, folder, "a.json")), ['{"a": ', "data: ", "\n"]),
    **{
        name: (lambda text, _, name=name: unit_starts(text, name), [". ", ".", " \n", "\r\n", '."', "。", "a"])  # type: ignore[misc]
        for name in ("words", "sentences", "lines", "paragraphs")
    },
    **{
        f"marks by {name}": (lambda text, _, name=name: list(labelled_matches(text, name, "mark")), ["\n", ".", "# "])  # type: ignore[misc]
        for name in ("sentences", "paragraphs")
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "piece"), [(name, piece) for name, (_, pieces) in READERS.items() for piece in pieces]
)
def test_the_worst_texts_take_a_time_by_their_length(reader: str, piece: str, tmp_path: Path) -> None:
    read, _ = READERS[reader]
    text = piece * (LENGTH // len(piece)) + "x"
    start = process_time()
    with suppress(AttnvizError):
        read(text, tmp_path)
    assert process_time() - start < SECONDS
