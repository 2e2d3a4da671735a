"""Prints remarks to standard error, apart from the result."""

import sys
from contextlib import suppress


def remark(line: str) -> None:
    """Prints a line to standard error after ``attnviz:``; does nothing if standard error cannot be written."""
    from attnviz.base.printable import message_line

    with suppress(OSError):
        print(f"attnviz: {message_line(line)}", file=sys.stderr)
