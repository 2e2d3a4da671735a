"""Has work on what strangers wrote done in a process of its own, which ends after so many seconds or bytes."""

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
MAX_MEMORY = 2**30  # bytes, beside what the process holds when it starts
MAX_RESULT_BYTES = 2**26
DONE, FAILED = b"+", b"-"  # what the result begins with


def bounded(work: Callable[[], str], what: str) -> str:
    """What ``work`` returns, worked out in a copy of this process; where a system cannot copy processes, in this one.

    Args:
        work: needs Python alone, since the threads of libraries are not copied.
        what: what it does, as a refusal says it.

    Raises:
        AttnvizError: if the work fails, or takes more time or memory than it may.
    """
    if not hasattr(os, "fork"):
        return _unbounded(work, what)
    source, target = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the copy does not need
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
        raise AttnvizError(f"{what} {result[1:].decode() or 'takes more memory or room than it may'}")
    return result[1:].decode(errors="surrogatepass")


def _unbounded(work: Callable[[], str], what: str) -> str:
    try:
        return work()
    except Exception as error:
        raise AttnvizError(f"{what} {_said(error)}") from error


def _work(work: Callable[[], str], target: int) -> NoReturn:
    """The copy's part: does the work, writes what came out, and ends without anything else being run."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _limit_memory()
        try:
            result = DONE + work().encode(errors="surrogatepass")
        except Exception as error:
            result = FAILED + _said(error).encode(errors="replace")
        with open(target, "wb") as file:
            file.write(result)
    finally:
        os._exit(0)


def _said(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "takes more memory than it may"
    return f"fails: {str(error) or type(error).__name__}"


def _limit_memory() -> None:
    import resource

    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = held + MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _read(source: int, deadline: float) -> bytes | None:
    """All that comes until the other end is closed, as much as may come; ``None`` where the time is over first."""
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
