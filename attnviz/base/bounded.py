"""Runs work on untrusted input in a separate process that has limits of time and memory."""

import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from attnviz.base.errors import AttnvizError

MAX_SECONDS = 10.0
MAX_MEMORY = 2**30  # bytes, in addition to the memory of the process when it starts
MAX_RESULT_BYTES = 2**26
DONE, FAILED = b"+", b"-"  # the first byte of the result


def run_bounded(work: Callable[[], str], what: str) -> str:
    """Runs ``work`` in a fork of this process and returns its result; runs it here if the system cannot fork."""
    if not hasattr(os, "fork"):
        try:
            return work()
        except Exception as error:
            raise AttnvizError(f"{what} {_failure_reason(error)}") from error
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads; the fork uses none
        child_pid = os.fork()
    if not child_pid:  # 0 in the fork, which ends in this branch
        os.close(read_end)
        _run_in_fork(work, write_end)
    os.close(write_end)
    try:
        result = _read_result(read_end, time.monotonic() + MAX_SECONDS)
    finally:
        os.close(read_end)
        with suppress(ProcessLookupError):
            os.kill(child_pid, signal.SIGKILL)
        os.waitpid(child_pid, 0)
    if result is None:
        raise AttnvizError(f"{what} does not end in {MAX_SECONDS:g} seconds; simplify it")
    if not result.startswith(DONE):
        # A fork that its memory limit ended has written nothing.
        reason = result[1:].decode() or "takes more memory, or gives a longer result, than is allowed; simplify it"
        raise AttnvizError(f"{what} {reason}")
    return result[1:].decode(errors="surrogatepass")


def _run_in_fork(work: Callable[[], str], write_end: int) -> NoReturn:
    """Runs ``work`` in the fork, writes its result to the pipe ``write_end``, and ends the fork."""
    try:
        import resource

        # the parent's handlers would clean up the parent's files
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        with suppress(OSError, ValueError):
            with open("/proc/self/statm", encoding="ascii") as status_file:
                used_bytes = int(status_file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
            limit = used_bytes + MAX_MEMORY
            soft_limit = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
            resource.setrlimit(resource.RLIMIT_AS, (soft_limit, hard_limit))
        try:
            result = DONE + work().encode(errors="surrogatepass")
        except Exception as error:
            result = FAILED + _failure_reason(error).encode(errors="replace")
        with open(write_end, "wb") as file:
            file.write(result)
    finally:
        os._exit(0)


def _failure_reason(error: Exception) -> str:
    """Returns ``takes more memory than is allowed`` for a MemoryError, else ``fails:`` and the message or type."""
    if isinstance(error, MemoryError):
        return "takes more memory than is allowed; simplify it"
    return f"fails: {str(error) or type(error).__name__}"


def _read_result(read_end: int, deadline: float) -> bytes | None:
    """Returns all bytes of a pipe; b"" if they exceed `MAX_RESULT_BYTES`, ``None`` if the deadline passes first."""
    content = bytearray()
    while len(content) <= MAX_RESULT_BYTES:
        ready = select.select([read_end], [], [], max(0, deadline - time.monotonic()))[0]
        if not ready:
            return None
        chunk = os.read(read_end, 2**20)  # at most one MiB
        if not chunk:
            return bytes(content)
        content += chunk
    return b""
