"""Completes words for the shell: values of options, suffixes of files, and the heads of a recording."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from attnviz.base.errors import AttnvizError
from attnviz.base.options import Option

ASKED_BY_SHELL = "_ATTNVIZ_COMPLETE"  # which typer names after the program
PLAIN = "/._-+,@" + ("\\:" if os.name == "nt" else "")  # what a name that is completed has beside letters and digits
Completer = Callable[[typer.Context, str], list[str]]


def completer(name: str, option: Option) -> Completer | None:
    """Returns the function that completes an option's value; ``None`` leaves it to the shell, which completes files.

    Typer inspects every completer when it builds a command, so there are completers only when a shell asks for them.
    """
    if ASKED_BY_SHELL not in os.environ:
        return None
    if name in SPECIAL:
        return SPECIAL[name]
    if not option.takes_names:
        return None

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return starting(incomplete, option.known_names())

    return complete


def complete_output(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the folders that begin with the typed path, and the typed name with each suffix that can be written."""
    from attnviz.render.formats import FORMATS, TERMINAL

    stem = incomplete.removesuffix(Path(incomplete).suffix)
    files = (stem + suffix for suffix in FORMATS if stem and suffix != TERMINAL)
    return list(filter(_is_plain, (*_folders(incomplete), *starting(incomplete, files))))


def _is_plain(name: str) -> bool:
    """True if no shell makes anything of the name: zsh evaluates what typer hands it, bash inserts it unquoted."""
    return all(character.isalnum() or character in PLAIN for character in name.removeprefix("~/"))


def _folders(incomplete: str) -> list[str]:
    """Returns the folders whose path begins so."""
    before, name = os.path.split(incomplete)
    try:
        found = [each.name for each in os.scandir(before or ".") if each.name.startswith(name) and each.is_dir()]
    except OSError:
        return []
    return [os.path.join(before, each, "") for each in sorted(found)] if incomplete else []


def complete_heads(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the heads of the recording on the command line, as layer.head; after a comma, the next one."""
    from attnviz.maps.saved import load

    words = [context.params.get("text") or "", *context.args]  # typer stops parsing an incomplete line
    path = next((word for word in words if word.endswith(".safetensors")), None)
    if path is None:
        return []
    try:
        recording = load(Path(path))
    except AttnvizError:
        return []
    before = incomplete[: incomplete.rfind(",") + 1]
    return starting(incomplete, (f"{before}{maps.layer}.{head}" for maps in recording.maps for head in maps.heads))


def starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """Returns the names that begin with the typed text."""
    return [name for name in names if name.startswith(incomplete)]


SPECIAL: dict[str, Completer] = {
    "output": complete_output,
    "heads": complete_heads,
    "head": complete_heads,
}
