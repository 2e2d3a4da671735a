"""Where a command line's result goes: refused before the work where it cannot be written, delivered after it."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError, flag
from attnviz.base.printable import printable
from attnviz.cli.options import STANDARD_OUTPUT, Output

if TYPE_CHECKING:
    from attnviz.report.picture.report import Report

BINARY = (".png", ".pdf", ".pptx", ".npz")  # which a terminal cannot show


def refuse_output(output: Output, writes: str = "picture") -> None:
    """Raises AttnvizError where the output cannot be written, before any work is done.

    Args:
        output: where it is to go.
        writes: what it is, a ``picture``, or an ``atlas`` of heads.
    """
    from attnviz.render.formats import FORMATS

    suffixes = [suffix for suffix, row in FORMATS.items() if row.has_atlas or writes != "atlas"]
    if output.file is not None and output.format is None:
        from attnviz.cli.meant import refuse_suffix

        refuse_suffix(output.file, suffixes, writes)
    medium(output)
    _refuse_place(output)


def medium(output: Output) -> str:
    """The suffix of what is written: that of the file, or of what goes to standard output."""
    from attnviz.render.formats import TERMINAL, format_of

    return format_of(_suffix(output) or TERMINAL).suffix


def reads_all(output: Output) -> bool:
    """Whether what is written is numbers, every one of what was chosen."""
    from attnviz.render.formats import FORMATS

    return FORMATS[medium(output)].kind == "data"


def explained_suffix(output: Output) -> str:
    """The suffix of the file that an explanation is written to, or that of the terminal; refuses what cannot be."""
    from attnviz.explain.formats import FORMATS, format_of
    from attnviz.render.formats import TERMINAL

    if output.json:
        raise AttnvizError("explain prints no JSON; attnviz show --json prints the scores and weights")
    if output.file is not None and output.format is None:
        from attnviz.cli.meant import refuse_suffix

        refuse_suffix(output.file, list(FORMATS), "notes")
    suffix = format_of(_suffix(output) or TERMINAL).suffix
    _refuse_place(output)
    return suffix


def recording_path(output: Output) -> Path:
    """Where a recording is to be written.

    Raises:
        AttnvizError: if no file of that kind is named, or it cannot be written.
    """
    from attnviz.maps.saved import SUFFIX

    if output.file is None or _suffix(output) != SUFFIX:
        raise AttnvizError(f"a recording is written to a file; use -o run{SUFFIX}")
    _refuse_place(output)
    return output.file


def _suffix(output: Output) -> str | None:
    """The suffix that the options name; ``None`` leaves it to standard output.

    Raises:
        AttnvizError: if they name two, or none for bytes that standard output is to take.
    """
    if output.json and output.output is not None:
        raise AttnvizError(f"--json prints and -o {str(output.output)!r} writes a file; use one of them")
    if output.json and output.format is not None:
        raise AttnvizError(f"--json and --format {output.format} both name a format; use one of them")
    if output.output == STANDARD_OUTPUT and output.format is None:
        raise AttnvizError("-o - writes to standard output and names no format; add --format svg")
    return output.suffix


def _refuse_place(output: Output) -> None:
    """Raises AttnvizError where the file cannot be written, or standard output is closed or shows no such bytes."""
    from attnviz.base.files import refuse_closed, refuse_target

    if output.file is not None:
        refuse_target(output.file, output.force)
        return
    refuse_closed()
    if output.open:
        raise AttnvizError("--open opens the file that -o writes; add -o page.html")
    if output.suffix in BINARY and sys.stdout.isatty():
        raise AttnvizError(f"a terminal cannot show {output.suffix}; use -o picture{output.suffix}, or redirect with >")


def deliver(report: "Report", output: Output) -> None:
    """Writes the report to its file and the path to standard output, or the picture to standard output."""
    from attnviz.render.formats import FORMATS
    from attnviz.render.formats import write as write_report

    suffix = medium(output)
    deliver_file(output, partial(write_report, report, suffix))
    if FORMATS[suffix].kind == "terminal":
        _say_unseen(report)


def _say_unseen(report: "Report") -> None:
    """Says which options of colours were typed for a picture without colours."""
    from attnviz.cli.options import TYPED
    from attnviz.render.terminal.draw import unseen_options

    if unseen := [flag(name) for name in unseen_options(report) if name in TYPED.get()]:
        remark(f"{unseen[0]} changes colours, and there are none here; use -o picture.png")


def deliver_file(output: Output, write_to: Callable[[IO[bytes]], None]) -> None:
    """Has the file written and prints its path, or has standard output written."""
    from attnviz.base.files import output_file

    with output_file(output.file, output.force) as file:
        write_to(file)
    if output.file is not None:
        print_path(output.file)
    if output.file is not None and output.open:
        _open(output.file)


def _open(path: Path) -> None:
    """Opens the file with what the system opens such files with, or says that it cannot."""
    import typer

    if typer.launch(str(path.absolute())) != 0:
        remark(f"no program here opens {str(path)!r}; the file is written")


def print_path(path: Path) -> None:
    """Says on standard output where the result is, byte for byte to a program and readably to a terminal.

    Nothing is said where standard output is closed, since who closed it named the file.
    """
    if sys.stdout is not None:
        write((printable(str(path)).encode() if sys.stdout.isatty() else os.fsencode(path)) + b"\n")


def write(content: bytes) -> None:
    """Writes to standard output."""
    from attnviz.base.files import standard_output

    with standard_output() as file:
        file.write(content)


def remark(line: str) -> None:
    """Says a line on standard error, where somebody can read it."""
    from attnviz.base.printable import message_line

    with suppress(OSError):
        print(f"attnviz: {message_line(line)}", file=sys.stderr)


def say_next(line: str) -> None:
    """Says to somebody at a terminal, under an answer, what could be typed next."""
    if sys.stderr is not None and sys.stderr.isatty():
        remark(line)


def say_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Says what a library warns of as a remark: its words may quote what a terminal would obey."""
    remark(str(message))
