"""Runs the command line as a process, and ends it as soon as all output is written."""

import gc
import io
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

INTERRUPTED = 130  # 128 + SIGINT, which shells report after Ctrl-C
SECONDS_AFTER_INTERRUPT = 0.8


def run() -> NoReturn:
    """Runs the command line and ends the process with its exit code, which is 130 after Ctrl-C.

    Garbage collection is off, and the interpreter is not shut down at the end: importing torch creates a million
    objects that live as long as the process, and collecting and freeing them takes a third of the time of a short run.
    """
    gc.disable()
    code = INTERRUPTED  # replaced if no Ctrl-C interrupts the block
    with suppress(KeyboardInterrupt):  # Ctrl-C while the command line is being imported, or while a pipe's reader waits
        _prepare_process()
        from attnviz.cli.commands import main
        from attnviz.cli.output import say_warning

        warnings.showwarning = say_warning
        code = main()
        _finish_output()
    os._exit(code)


def _prepare_process() -> None:
    """Sets and removes environment variables of libraries, opens closed streams, and installs `show_bug` as a hook.

    Ends the process with exit code 1 if the working folder no longer exists.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's arrays are small: more threads would slow it down
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")  # its log names packages that would be faster
    os.environ.pop("MPLBACKEND", None)  # names a backend for windows or notebooks, and nothing here opens one
    for name in ("COLUMNS", "LINES"):  # libraries read any digits there, however many
        if name in os.environ and not _is_small_number(os.environ[name]):
            del os.environ[name]
    if "_ATTNVIZ_COMPLETE" in os.environ:  # a shell asks for completion; bash tells in two variables what was typed
        os.environ.setdefault("COMP_WORDS", "attnviz")
        if not _is_small_number(os.environ.get("COMP_CWORD", "")):
            os.environ["COMP_CWORD"] = "1"
    _open_closed_streams()
    if os.name == "posix":
        _end_after_interrupt()
    sys.excepthook = show_bug
    try:
        os.getcwd()
    except FileNotFoundError:
        print("attnviz: the working folder no longer exists; cd to a folder that does", file=sys.stderr)
        os._exit(1)


def _is_small_number(text: str) -> bool:
    """True if a text is a number of up to four digits."""
    return text.isascii() and text.isdigit() and len(text) <= 4


def _end_after_interrupt() -> None:
    """Ends the process a second after Ctrl-C, even if native code is running, which lets Python notice nothing."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)  # gets the number of each signal as it arrives

    def wait() -> None:
        while os.read(read_end, 1) != bytes([signal.SIGINT]):
            pass
        time.sleep(SECONDS_AFTER_INTERRUPT)
        os._exit(INTERRUPTED)

    threading.Thread(target=wait, daemon=True).start()


def _open_closed_streams() -> None:
    """Opens closed standard streams on the null device, so that no file gets descriptor 0, 1 or 2.

    Also creates ``sys.stderr`` if Python found it closed at the start.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", "backslashreplace", line_buffering=True)


def show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints the traceback of an unexpected error; escapes control characters, since it may quote untrusted input."""
    import traceback

    from attnviz.base.printable import printable

    lines = "".join(traceback.format_exception(kind, error, trace)).split("\n")
    print("\n".join(map(printable, lines)), end="", file=sys.stderr)


def _finish_output() -> None:
    """Flushes the standard streams that are open.

    If matplotlib was imported, also runs all exit handlers, since one of them removes matplotlib's temporary folders.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # the failure has been reported already, or the pipe's reader is gone
                stream.flush()
    if "matplotlib" in sys.modules:
        import atexit

        atexit._run_exitfuncs()


if __name__ == "__main__":
    run()
