"""Discards what native code prints, which does not go through Python's streams."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def discard_output() -> Iterator[None]:
    """Discards all output of the block: native code may print parts of untrusted files, with terminal controls.

    Redirects the file descriptors, since native code does not write to Python's streams, and restores them after
    the block; a descriptor that is closed stays so.
    """
    copies = []
    with suppress(OSError):
        for descriptor in (1, 2):  # standard output and standard error
            copies.append((os.dup(descriptor), descriptor))
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        for _, descriptor in copies:
            os.dup2(null_device, descriptor)
        yield
    finally:
        for copy, descriptor in copies:
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(null_device)
