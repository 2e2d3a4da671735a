"""Runs work on untrusted input in a separate process with limits of time and memory."""

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
    """Returns the result of ``work``, run in a fork of this process, or in this process if the system cannot fork.

    Args:
        work: a function of pure Python, since a fork does not copy the threads of libraries.
        what: the subject of the refusal, as ``looking for years``.

    Raises:
        AttnvizError: if the work fails, or exceeds its time or memory.
    """
    if not hasattr(os, "fork"):
        return _unbounded(work, what)
    source, target = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads; the fork uses none
        child = os.fork()
    if not child:
        os.close(source)
        _work(work, target)
    os.close(target)
    try:
        result = _read(source, time.monotonic() + MAX_SECONDS)
    finally:
        os.close(source)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if result is None:
        raise AttnvizError(f"{what} does not end in {MAX_SECONDS:g} seconds")
    if not result.startswith(DONE):
        raise AttnvizError(
            f"{what} {result[1:].decode() or 'takes more memory, or gives a longer result, than is allowed'}"
        )
    return result[1:].decode(errors="surrogatepass")


def _unbounded(work: Callable[[], str], what: str) -> str:
    try:
        return work()
    except Exception as error:
        raise AttnvizError(f"{what} {_failure(error)}") from error


def _work(work: Callable[[], str], target: int) -> NoReturn:
    """Does the work in the fork, writes the result, and ends the process without any clean-up of the parent's."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _limit_memory()
        try:
            result = DONE + work().encode(errors="surrogatepass")
        except Exception as error:
            result = FAILED + _failure(error).encode(errors="replace")
        with open(target, "wb") as file:
            file.write(result)
    finally:
        os._exit(0)


def _failure(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "takes more memory than is allowed"
    return f"fails: {str(error) or type(error).__name__}"


def _limit_memory() -> None:
    import resource

    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = used + MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _read(source: int, deadline: float) -> bytes | None:
    """Returns all bytes until the other end closes; b"" if they are too many, ``None`` if the time is over first."""
    content = bytearray()
    while len(content) <= MAX_RESULT_BYTES:
        ready = select.select([source], [], [], max(0, deadline - time.monotonic()))[0]
        if not ready:
            return None
        part = os.read(source, 2**20)
        if not part:
            return bytes(content)
        content += part
    return b""
