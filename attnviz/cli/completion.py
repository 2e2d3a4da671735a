"""Completes words for the shell: values of options, suffixes of files, and the heads of a recording."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from attnviz.base.errors import SETTINGS, AttnvizError, setting_name
from attnviz.base.options import Option

ASKED_BY_SHELL = "_ATTNVIZ_COMPLETE"  # which typer names after the program
# The characters of a completed name, besides letters and digits.
PLAIN_CHARACTERS = "/._-+,@" + ("\\:" if os.name == "nt" else "")
Completer = Callable[[typer.Context, str], list[str]]


def completer(name: str, option: Option) -> Completer | None:
    """Returns the function that completes an option's value; ``None`` for an option without completion.

    Returns ``None`` too if no shell asks for completion, since typer inspects every completer when it builds a command.
    """
    if ASKED_BY_SHELL not in os.environ:
        return None
    if name in COMPLETERS:
        return COMPLETERS[name]
    if not option.takes_names:
        return None

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        """Returns the names that the option takes and that begin with the typed text."""
        return _names_starting_with(incomplete, option.known_names())

    return complete


def complete_output(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the folders and files to which a typed path can be completed; the files have the suffixes of formats.

    Names that are not safe in a shell are left out.
    """
    from attnviz.render.formats import FORMATS, TERMINAL

    stem, _ = os.path.splitext(incomplete)
    suffixes = (*FORMATS, *other_suffixes(context.command.name))
    files = (stem + suffix for suffix in suffixes if stem and suffix != TERMINAL)
    return list(filter(_is_plain, (*_folders(incomplete), *_names_starting_with(incomplete, files))))


def other_suffixes(command: str | None) -> tuple[str, ...]:
    """Returns the suffixes of what a command writes beside reports: films, words with their seconds, a recording."""
    from attnviz.maps.saved import SUFFIX as RECORDING
    from attnviz.media.timed_words import WORD_SUFFIXES
    from attnviz.render.formats import FILMS

    return {"show": (*WORD_SUFFIXES, *FILMS, RECORDING), "steps": FILMS}.get(command or "", ())


def _is_plain(name: str) -> bool:
    """True if the name is safe in a shell: zsh evaluates what typer passes it, and bash inserts it unquoted."""
    return all(character.isalnum() or character in PLAIN_CHARACTERS for character in name.removeprefix("~/"))


def _folders(incomplete: str) -> list[str]:
    """Returns the folders whose path begins with the typed one; empty if it is empty or its folder cannot be read."""
    parent, name = os.path.split(incomplete)
    try:
        names = [entry.name for entry in os.scandir(parent or ".") if entry.name.startswith(name) and entry.is_dir()]
    except OSError:
        return []
    return [os.path.join(parent, folder, "") for folder in sorted(names)] if incomplete else []


def _complete_heads(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the heads of the command line's recording, as ``layer.head``, that begin with the typed text.

    After a comma, only the text behind it is completed. Returns no heads if the command line names no readable
    recording.
    """
    from attnviz.maps.heads import head_name
    from attnviz.maps.saved import load

    words = [context.params.get("text") or "", *context.args]  # typer stops parsing an incomplete line
    path = next((word for word in words if word.endswith(".safetensors")), None)
    if path is None:
        return []
    try:
        recording = load(Path(path))
    except AttnvizError:
        return []
    earlier_heads = incomplete[: incomplete.rfind(",") + 1]
    heads = [f"{earlier_heads}{head_name(maps, head)}" for maps in recording.maps for head in maps.heads]
    return _names_starting_with(incomplete, heads)


def _names_starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    """Returns the names that begin with the typed text; empty if none does."""
    return [name for name in names if name.startswith(incomplete)]


def _complete_settings(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the settings of the command as ``NAME=``, or the values of the one that is typed already."""
    typed_name, sign, _ = incomplete.partition("=")
    declared = getattr(context.command.callback, "declared", {})
    if not sign:
        return _names_starting_with(incomplete, (f"{setting_name(name)}=" for name in declared if name in SETTINGS))
    name = typed_name.replace("-", "_")
    values = declared[name].option.known_names() if name in declared else ()
    return _names_starting_with(incomplete, (f"{typed_name}={value}" for value in values))


COMPLETERS: dict[str, Completer] = {
    "assignments": _complete_settings,
    "output": complete_output,
    "heads": _complete_heads,
    "head": _complete_heads,
}
