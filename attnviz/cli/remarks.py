"""Says a line on standard error, beside the result."""

import sys
from contextlib import suppress


def remark(line: str) -> None:
    """Says a line on standard error, where somebody can read it."""
    from attnviz.base.printable import message_line

    with suppress(OSError):
        print(f"attnviz: {message_line(line)}", file=sys.stderr)
