"""Discards what native code prints, which does not go through Python's streams."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def discard_output() -> Iterator[None]:
    """Discards all output of the block: native code may print parts of untrusted files, with terminal controls.

    Redirects the file descriptors, since native code does not write to Python's streams; those that are closed stay so.
    """
    copies = []
    with suppress(OSError):
        for number in (1, 2):
            copies.append((os.dup(number), number))
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for _, number in copies:
            os.dup2(null, number)
        yield
    finally:
        for copy, number in copies:
            os.dup2(copy, number)
            os.close(copy)
        os.close(null)
