"""Runs a Python file that the user names on the command line as ``mine.py:NAME``, and takes a function from it.

Such a file runs with the user's rights, so nothing but the words of a command line may name one.
"""

import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from attnviz.base.errors import AttnvizError, choices, option
from attnviz.base.reading import open_file

ADDRESS = re.compile(r"(?P<file>.+?\.py)(:(?P<name>.*))?", re.DOTALL)
LIBRARIES = ("attnviz", "torch")  # whose lines say nothing about an error of the user's file
_modules: dict[str, ModuleType] = {}  # by path; each file runs once


def is_own_file(value: str) -> bool:
    """True if the value of an option has the form of a function of a Python file, such as ``mine.py:build``."""
    return ADDRESS.fullmatch(value) is not None


def own_function(option_name: str, address: str) -> Callable[..., Any]:
    """Returns the function of a Python file that an option's value ``mine.py:NAME`` names; the file runs once.

    What the file prints goes to standard error. An error of the file is raised unchanged; see `own_traceback`.
    """
    match = ADDRESS.fullmatch(address)
    if match is None or not (match["name"] or "").isidentifier():
        file = "mine.py" if match is None else match["file"]
        form = option(option_name, f"{file}:FUNCTION")
        raise AttnvizError(f"{option(option_name, address)} names no function of a Python file; write {form}")
    module = _run(Path(match["file"]).expanduser())
    if match["name"] not in vars(module):
        own_names = [
            name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        ]
        advice = choices(match["name"], own_names) if own_names else "define it there"
        raise AttnvizError(f"{match['file']!r} has no function {match['name']!r}; {advice}")
    function: Any = vars(module)[match["name"]]
    if not callable(function):
        raise AttnvizError(
            f"{match['name']!r} of {match['file']!r} is of type {type(function).__name__}; give a function"
        )
    return function  # type: ignore[no-any-return]


def call_own(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of the user's file; what it prints goes to standard error, since a result may be piped."""
    with redirect_stdout(sys.stderr):
        return function(*arguments)


def own_traceback(error: BaseException) -> str | None:
    """Returns the traceback of an error from the first line of a user's file on; ``None`` if no such line raised it.

    Lines of attnviz and torch are left out.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in _modules:
        trace = trace.tb_next
    if trace is None and not (isinstance(error, SyntaxError) and error.filename in _modules):
        return None
    shown = traceback.TracebackException(type(error), error, trace)
    libraries = tuple(f"{sys.modules[name].__path__[0]}{os.sep}" for name in LIBRARIES if name in sys.modules)
    own_frames = [frame for frame in shown.stack if not frame.filename.startswith(libraries)]
    shown.stack = traceback.StackSummary.from_list(own_frames)
    return "".join(shown.format())


def _run(path: Path) -> ModuleType:
    """Runs a file once, with its folder first on the path of modules, as Python runs a script; last afterwards."""
    with open_file(path, "a Python file") as file:
        source = file.read()
    name = str(path.resolve())
    if name not in _modules:
        _modules[name] = module = ModuleType(f"attnviz_file_{path.stem}")
        module.__file__ = name
        sys.modules[module.__name__] = module  # where dataclasses look for the types of their fields
        folder = str(path.resolve().parent)
        sys.path.insert(0, folder)
        try:
            call_own(exec, compile(source, name, "exec"), vars(module))
        finally:  # a file named like a library that is imported later must not take its place
            sys.path.remove(folder)
            sys.path.append(folder)
    return _modules[name]
