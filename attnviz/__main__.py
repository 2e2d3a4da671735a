"""The process: runs the command line, and leaves at once when all of its output is out."""

import gc
import os
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Runs the command line and ends the process with its exit code.

    Importing torch makes a million objects that live as long as the process: collecting garbage meanwhile, and
    taking the interpreter down piece by piece at the end, is a third of the time of a short run.
    """
    gc.disable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's tiles are small: its threads would wait on each other
    try:
        from attnviz.cli.commands import main

        code = main()
    except KeyboardInterrupt:  # while the command line itself is being imported
        os._exit(130)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass  # what could not be written has been said, or its reader has gone
    os._exit(code)


if __name__ == "__main__":
    run()
