"""Runs command lines in this process and checks what must be true of every end, whatever the input."""

import io
import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

from attnviz.cli.commands import main

MAX_LINE = 1_200  # characters of a refusal
KEPT = "\n"  # the control characters that a result may hold
HIDDEN = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # characters that change the direction of writing


@dataclass(frozen=True)
class Ended:
    """The end of a command line.

    Attributes:
        code: its exit code.
        out: its standard output.
        err: its standard error.
    """

    code: int
    out: bytes
    err: str


def run(arguments: Sequence[str], piped: bytes | None = None) -> Ended:
    """Runs a command line; raises every error that escapes, since that is a bug."""
    with streams(piped) as (out, err):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        sys.stdout.flush()
        return Ended(code, out.getvalue(), err.getvalue())


@contextmanager
def streams(piped: bytes | None) -> Iterator[tuple[io.BytesIO, io.StringIO]]:
    """Captures the standard streams, 80 columns wide and without colours."""
    out, err = io.BytesIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(piped or b""))
    environment = {"COLUMNS": "80", "HF_HUB_OFFLINE": "1", "TERM": "dumb"}
    with (
        patch.dict("os.environ", environment),
        patch("sys.stdout", io.TextIOWrapper(out, "utf-8")),
        patch("sys.stderr", err),
        patch("sys.stdin", stdin),
        patch("typer.launch", lambda _: 0),
        patch("attnviz.cli.runs.is_piped", lambda: piped is not None),
    ):
        yield out, err


def attempt(arguments: Sequence[str], piped: bytes | None = None) -> Ended:
    """Runs a command line; raises AssertionError if it does not end as every command line must."""
    ended = run(arguments, piped)
    refuse_end(ended, piped_on=any(word.startswith("-.") for word in arguments))
    if ended.code == 0:
        for path in filter(Path.is_file, Path().iterdir()):
            refuse_file(path)
    return ended


def refuse_end(ended: Ended, piped_on: bool = False) -> None:
    """Raises AssertionError if the output holds terminal controls, or a refusal is not one line.

    Output that is ``piped_on`` to another program may be any bytes.
    """
    assert ended.code in (0, 1, 2), f"exit code {ended.code}"
    refuse_obeyed(ended.err, "standard error")
    lines = ended.err.splitlines()
    assert all(line.startswith("attnviz: ") for line in lines), ended.err
    assert all(len(line) <= MAX_LINE for line in lines), f"a line of {max(map(len, lines))} characters"
    refusals = [line for line in lines if "no text given: using sample" not in line]
    if ended.code:
        assert len(refusals) == 1, ended.err
        assert ended.out == b"", "it printed, and refused"
    if not piped_on:
        refuse_obeyed(ended.out.decode("utf-8", "surrogateescape"), "standard output")


def refuse_obeyed(text: str, where: str) -> None:
    """Raises AssertionError if the text holds characters that a terminal obeys instead of showing."""
    controls = {character for character in set(text) - set(KEPT) if unicodedata.category(character) == "Cc"}
    turning = set(HIDDEN.findall(text))
    assert not controls | turning, f"{where} holds {sorted(controls | turning)!r}"


def refuse_file(path: Path) -> None:
    """Raises AssertionError if a file is not of the kind of its suffix."""
    suffix = path.suffix.lower()
    if suffix == ".svg":
        ElementTree.parse(path)
    elif suffix == ".json":
        json.loads(path.read_bytes())
    elif suffix in (".html", ".csv", ".md"):
        path.read_bytes().decode()
