"""Converts the plain values of options without typer's type adapters, and completes them for the shell.

Typer 0.29 converts every value, also an absent one or a default, by pydantic, whose import takes a third of the time in
which a command line is refused. Values of other types than texts, paths and numbers are left to typer.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import typer

from attnviz.base.errors import SETTINGS, AttnvizError, setting_name
from attnviz.base.options import Option

KINDS = {int: "whole number", float: "number"}  # as messages name them
ROUND_NUMBERS = (10, 200, 1)  # examples for options without a default, each for another range
NOT_PLAIN = object()
ASKED_BY_SHELL = "_ATTNVIZ_COMPLETE"  # which typer names after the program
# The characters of a completed name, besides letters and digits.
PLAIN_CHARACTERS = "/._-+,@" + ("\\:" if os.name == "nt" else "")
Completer = Callable[[typer.Context, str], list[str]]


class _NotANumber(typer.BadParameter):
    """The refusal of a word that is not the number which its option takes."""

    def format_message(self) -> str:
        """Returns the message without typer's preamble, since the message names the option."""
        return self.message


def convert_plain_values(parameters: Iterable[Any]) -> None:
    """Lets each parameter of a command convert its plain values itself; changes the parameters."""
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is not None and not hasattr(parameter.process_value, "converts_plain_values"):
            parameter.process_value = _PlainFirst(parameter, descriptor.annotation)


class _PlainFirst:
    """The conversion of a parameter's value: by this module if the value is plain, otherwise by typer."""

    converts_plain_values = True

    def __init__(self, parameter: Any, annotation: Any) -> None:
        self.parameter = parameter
        self.annotation = annotation
        self.convert_by_typer = parameter.process_value

    def __call__(self, context: Any, value: Any) -> Any:
        """Returns the converted value, or what the parameter's callback returns for it."""
        try:
            plain_value = NOT_PLAIN if self.parameter.required and value is None else self._plain_value(value)
        except ValueError:
            raise _NotANumber(self._not_a_number_line(value, context), context, self.parameter) from None
        if plain_value is NOT_PLAIN:
            return self.convert_by_typer(context, value)
        callback = self.parameter.callback
        return plain_value if callback is None else callback(context, self.parameter, plain_value)

    def _plain_value(self, value: Any) -> Any:
        """Returns the converted value, or `NOT_PLAIN`; an absent list is an empty tuple, as in typer."""
        is_list = self.parameter.multiple or self.parameter.nargs == -1
        if value is None:
            return () if is_list else None
        if not is_list:
            return _converted(value, self.annotation)
        [item_type] = get_args(self.annotation) or (None,)
        items = [_converted(item, item_type) for item in value]
        return NOT_PLAIN if NOT_PLAIN in items else items

    def _not_a_number_line(self, value: Any, context: Any) -> str:
        """Returns the refusal of a word, with an example: the default, or a number that the option accepts."""
        name, default = self.parameter.opts[0], self.parameter.default
        declaration = getattr(context.command.callback, "declared", {}).get(self.parameter.name)
        examples = (default,) if isinstance(default, int | float) else ROUND_NUMBERS
        for example in examples:
            try:
                if declaration is not None and declaration.option.check is not None:
                    declaration.option.check(self.parameter.name, example)
            except AttnvizError:
                continue
            break
        return f"{name} {value!r} is not a {KINDS[self.annotation]}; give one, such as {name} {example:g}"


def _converted(value: Any, annotation: Any) -> Any:
    """Returns the value if it has the annotated type, or the path or number that a word spells; else `NOT_PLAIN`."""
    if type(value) is annotation:
        return value
    if isinstance(value, str):
        if annotation is Path:
            return Path(value)
        if annotation in KINDS:
            # As in typer, 5.0 is a whole number, and digits of other alphabets are refused, by the encoding.
            return annotation(re.sub(rb"\.0+\s*$", b"", value.encode("ascii")))
    return NOT_PLAIN


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
    """Returns the heads of the command line's recording, as ``layer.head``, that begin with the typed text."""
    from attnviz.maps.heads import head_name
    from attnviz.maps.saved import load

    words = [*(context.params.get("text") or ()), *context.args]  # typer stops parsing an incomplete line
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


def _complete_samples(context: typer.Context, incomplete: str) -> list[str]:
    """Returns ``sample:NAME`` for the samples whose names begin with the typed text; the shell completes files."""
    from attnviz.text.samples import sample_pictures, samples

    names = (f"sample:{name}" for name in (*samples(), *sample_pictures()))
    return _names_starting_with(incomplete, names) if incomplete else []


COMPLETERS: dict[str, Completer] = {
    "text": _complete_samples,
    "assignments": _complete_settings,
    "output": complete_output,
    "heads": _complete_heads,
    "head": _complete_heads,
}
