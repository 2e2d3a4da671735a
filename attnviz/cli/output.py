"""Where a command line's result goes: refused before the work where it cannot be written, delivered after it."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from attnviz.base.errors import AttnvizError
from attnviz.cli.options import Output

if TYPE_CHECKING:
    from attnviz.report.report import Report


def refuse_output(output: Output) -> None:
    """Raises AttnvizError where the output cannot be written, before any work is done."""
    from attnviz.base.files import refuse_closed, refuse_target

    medium(output)
    if output.output is None:
        refuse_closed()
    else:
        refuse_target(output.output, output.force)


def medium(output: Output) -> str:
    """The suffix of what is written: that of the file, or of what goes to standard output."""
    from attnviz.render.formats import JSON, TERMINAL, suffix_of

    if output.output is None:
        return JSON if output.json else TERMINAL
    if output.json:
        raise AttnvizError(f"--json prints and -o {str(output.output)!r} writes a file; one of them works")
    return suffix_of(output.output)


def explained_suffix(output: Output) -> str:
    """The suffix of the file that an explanation is written to, or that of the terminal; refuses what cannot be."""
    from attnviz.base.files import refuse_closed, refuse_target
    from attnviz.explain.formats import suffix_of
    from attnviz.render.formats import TERMINAL

    if output.json:
        raise AttnvizError("explain prints no JSON; attnviz show --json prints the scores and weights")
    if output.output is None:
        refuse_closed()
        return TERMINAL
    refuse_target(output.output, output.force)
    return suffix_of(output.output)


def recording_path(output: Output) -> Path:
    """Where a recording is to be written.

    Raises:
        AttnvizError: if no file of that kind is named, or it cannot be written.
    """
    from attnviz.base.files import refuse_target
    from attnviz.maps.saved import SUFFIX

    if output.output is None or output.output.suffix.lower() != SUFFIX or output.json:
        raise AttnvizError(f"a recording is written to a file; -o run{SUFFIX} works")
    refuse_target(output.output, output.force)
    return output.output


def deliver(report: "Report", output: Output) -> None:
    """Writes the report to its file and the path to standard output, or the picture to standard output."""
    from attnviz.render.formats import write as write_report

    deliver_file(output, partial(write_report, report, medium(output)))


def deliver_file(output: Output, write_to: Callable[[IO[bytes]], None]) -> None:
    """Has the file written and prints its path, or has standard output written."""
    from attnviz.base.files import output_file

    with output_file(output.output, output.force) as file:
        write_to(file)
    if output.output is not None:
        print_path(output.output)


def print_path(path: Path) -> None:
    """Says on standard output where the result is; nothing where that is closed, since who closed it named the file."""
    if sys.stdout is not None:
        write(os.fsencode(path) + b"\n")


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
