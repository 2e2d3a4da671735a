"""Reads and writes what people say of a picture: notes pinned to places, and names of heads, a line each."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from attnviz.base.errors import AttnvizError, option
from attnviz.base.files import output_file
from attnviz.base.printable import printable, printable_line
from attnviz.base.reading import read_text
from attnviz.report.picture.look import Look
from attnviz.text.head_name import parse_head_name

MAX_NOTES, MAX_NOTES_BYTES = 1_000, 10**7
NOTE_LINE = re.compile(r"(#\S*)\s+(\S.*)")
NOTE_EXAMPLE = "#head=3.4 Looks at the previous word."
HeadNames = Mapping[str, str]  # by layer.head
MAX_NAMES_BYTES = 10**7
NAME_LINE = re.compile(r"(\S+)\s+(\S.*)")
NAME_EXAMPLE = "4.11 name mover"


def with_files_read(look: Look) -> Look:
    """Returns a look that holds its names and notes, since a pipe can be read only once."""
    return replace(
        look,
        head_names=None if look.names is None else names_of(look),
        pinned_notes=None if look.notes is None else notes_of(look),
    )


def names_of(look: Look) -> HeadNames:
    """Returns the name that a user gave to each head; {} if the look names no file."""
    return read_names(look.names) if look.head_names is None else look.head_names


def notes_of(look: Look) -> Sequence[dict[str, str]]:
    """Returns the notes of a look in their order; none if it names no file."""
    return read_notes(look.notes) if look.pinned_notes is None else look.pinned_notes


def read_notes(file: str | None) -> list[dict[str, str]]:
    """Returns the notes of a file in their order, without empty lines; an empty list if ``file`` is ``None``."""
    notes = []
    for number, line in _lines(file, MAX_NOTES_BYTES):
        match = NOTE_LINE.fullmatch(line)
        if match is None:
            raise AttnvizError(
                f"{option('notes')}: line {number} is not a note; write a place and a text, such as {NOTE_EXAMPLE!r}"
            )
        notes.append({"place": match[1], "text": printable(match[2])})
    if len(notes) > MAX_NOTES:
        raise AttnvizError(f"{option('notes', file)} holds {len(notes)} notes; give at most {MAX_NOTES}")
    return notes


def read_names(file: str | None) -> HeadNames:
    """Returns the name that a user gave to each head; {} without a file. Of several names the last counts."""
    names = {}
    for number, line in _lines(file, MAX_NAMES_BYTES):
        match = NAME_LINE.fullmatch(line)
        head = match and parse_head_name(match[1])
        if match is None or head is None:
            raise AttnvizError(
                f"{option('names')}: line {number} is not a head and a name; write it as {NAME_EXAMPLE!r}"
            )
        names[str(head)] = printable_line(match[2])
    return names


def _lines(file: str | None, max_bytes: int) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file that are not blank, each with its number; none without a file."""
    lines = [] if file is None else read_text(Path(file), max_bytes).splitlines()
    yield from ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def write_name(file: str, head: str, name: str) -> None:
    """Writes the name of a head into a file, which may not exist yet; a blank name removes the head's line."""
    names = dict(read_names(file)) if Path(file).exists() else {}
    printable_name = printable_line(name).strip()
    names.pop(head, None)
    if printable_name:
        names[head] = printable_name
    lines = (f"{head} {names[head]}\n" for head in sorted(names, key=lambda head: parse_head_name(head) or ()))
    with output_file(Path(file), force=True) as target:
        target.write("".join(lines).encode())
