"""The process: runs the command line, and leaves at once when all of its output is out."""

import gc
import io
import os
import sys
import warnings
from contextlib import suppress
from types import TracebackType
from typing import NoReturn


def run() -> NoReturn:
    """Runs the command line and ends the process with its exit code.

    Importing torch makes a million objects that live as long as the process: collecting garbage meanwhile, and
    taking the interpreter down piece by piece at the end, is a third of the time of a short run.
    """
    gc.disable()
    code = 130
    with suppress(KeyboardInterrupt):  # while the command line itself is being imported, or output waits for its reader
        prepare_process()
        from attnviz.cli.commands import main
        from attnviz.cli.output import say_warning

        warnings.showwarning = say_warning
        code = main()
        finish_output()
    os._exit(code)


def prepare_process() -> None:
    """Makes up for what the process was started without, and leaves out what it was started with for other programs."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's tiles are small: its threads would wait on each other
    os.environ.pop("MPLBACKEND", None)  # of windows, which nothing here opens
    open_closed_streams()
    sys.excepthook = show_bug
    try:
        os.getcwd()
    except FileNotFoundError:
        print("attnviz: the working folder is gone; cd to one that is there", file=sys.stderr)
        os._exit(1)


def open_closed_streams() -> None:
    """Opens what is closed of standard input, output and error, so that no file gets the number of one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", "backslashreplace", line_buffering=True)


def show_bug(kind: type[BaseException], bug: BaseException, trace: TracebackType | None) -> None:
    """Prints the traceback of a bug, without what a terminal would obey: an error quotes what it was given."""
    import traceback

    from attnviz.base.printable import printable

    lines = "".join(traceback.format_exception(kind, bug, trace)).split("\n")
    print("\n".join(map(printable, lines)), end="", file=sys.stderr)


def finish_output() -> None:
    """Flushes what is still to be written, and removes the folders that libraries made for this process alone."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # what could not be written has been said, or its reader has gone
                stream.flush()
    if "matplotlib" in sys.modules:
        import atexit

        atexit._run_exitfuncs()


if __name__ == "__main__":
    run()
