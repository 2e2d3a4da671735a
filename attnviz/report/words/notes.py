"""Reads the notes of a page from a file: each line holds an address and the text that is shown there."""

import re
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError, option
from attnviz.base.printable import printable
from attnviz.base.reading import read_lines

MAX_NOTES, MAX_NOTES_BYTES = 1_000, 10**7
LINE = re.compile(r"(#\S*)\s+(\S.*)")
EXAMPLE = "#head=3.4 Looks at the previous word."


def read_notes(file: str | None) -> list[dict[str, Any]]:
    """Returns the notes of a file in their order, without empty lines; an empty list if ``file`` is ``None``.

    Raises:
        AttnvizError: if the file cannot be read, a line is not a note, or there are too many.
    """
    if file is None:
        return []
    lines = read_lines(Path(file), MAX_NOTES_BYTES, "a file of notes")
    notes = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise AttnvizError(
                f"{option('notes')}: line {number} is not a note; write a place and a text, such as {EXAMPLE!r}"
            )
        notes.append({"place": match[1], "text": printable(match[2])})
    if len(notes) > MAX_NOTES:
        raise AttnvizError(f"{option('notes', file)} holds {len(notes)} notes; give at most {MAX_NOTES}")
    return notes
