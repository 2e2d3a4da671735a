"""Reads and writes the names that people give to heads: each line of a file holds a head and its name."""

import re
from collections.abc import Mapping
from pathlib import Path

from attnviz.base.errors import AttnvizError, option
from attnviz.base.files import output_file
from attnviz.base.printable import printable_line
from attnviz.base.reading import read_lines
from attnviz.text.head_name import parse_head_name

HeadNames = Mapping[str, str]  # by layer.head
MAX_NAMES_BYTES = 10**7
LINE = re.compile(r"(\S+)\s+(\S.*)")
EXAMPLE = "4.11 name mover"


def read_names(file: str | None) -> HeadNames:
    """Returns the name that a user gave to each head; {} without a file. Of several names the last counts.

    Raises:
        AttnvizError: if the file cannot be read, or a line is not a head and a name.
    """
    if file is None:
        return {}
    lines = read_lines(Path(file), MAX_NAMES_BYTES, "a file of names")
    names = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = LINE.fullmatch(line.strip())
        head = match and parse_head_name(match[1])
        if match is None or head is None:
            raise AttnvizError(f"{option('names')}: line {number} is not a head and a name; write it as {EXAMPLE!r}")
        names[str(head)] = printable_line(match[2])
    return names


def write_name(file: str, head: str, name: str) -> None:
    """Writes the name of a head into a file, which may not exist yet; a blank name removes the head's line.

    Raises:
        AttnvizError: if the file exists and cannot be read, or if it cannot be written.
    """
    names = dict(read_names(file)) if Path(file).exists() else {}
    printable_name = printable_line(name).strip()
    names.pop(head, None)
    if printable_name:
        names[head] = printable_name
    lines = (f"{head} {names[head]}\n" for head in sorted(names, key=lambda head: parse_head_name(head) or ()))
    with output_file(Path(file), force=True) as target:
        target.write("".join(lines).encode())
