"""Suggests what the user meant by a command line that does not parse."""

import re
import shlex
from ast import literal_eval
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from attnviz.base.errors import AttnvizError, choices, did_you_mean, or_list

EXTRA_WORDS = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""  # a word as repr writes it
NO_COMMAND = re.compile(rf"No such command ({QUOTED})(?:\. Did you mean .*)?", re.DOTALL)
NUMBERS = {"int_parsing": "whole number", "int_from_float": "whole number", "float_parsing": "number"}
LIST_OPTIONS = ("layers", "heads")  # options whose values can be joined to a list


def usage_line(error: typer.TyperException, program: Any) -> str:
    """Returns a line that says what is wrong with a command line, what was probably meant, and how to get help.

    Args:
        error: the parser's error.
        program: the program with all of its commands.
    """
    context = getattr(error, "ctx", None)
    path = "attnviz" if context is None else context.command_path
    return f"{_problem(error, context, path, program)} (see {path} --help)"


def _problem(error: typer.TyperException, context: Any, path: str, program: Any) -> str:
    message = error.format_message().rstrip(".")
    if context is None:
        return message
    if (command := NO_COMMAND.fullmatch(message)) is not None:
        return _unknown_command_line(literal_eval(command[1]), program)
    if (extra := EXTRA_WORDS.fullmatch(message)) is not None:
        return _extra_words_line(context, path, extra[1])
    if (number := _not_a_number_line(error)) is not None:
        return number
    unknown = getattr(error, "option_name", None)
    if unknown is not None and message.startswith("No such option"):
        return _unknown_option_line(context, path, unknown, program)
    return message


def _unknown_command_line(word: str, program: Any) -> str:
    """Returns the line for an unknown command: the one closest to it, or how to draw it if it is a text or a file."""
    suggestion = did_you_mean(word, (*program.commands, "help")).strip()
    return f"no command {word!r}; {suggestion or f'attnviz show {shlex.quote(word)} draws a text or a recording'}"


def _not_a_number_line(error: typer.TyperException) -> str | None:
    """Returns the line for a value that is not a number; ``None`` for any other error."""
    cause, parameter = error.__cause__, getattr(error, "param", None)
    details: Any = getattr(cause, "errors", lambda: [{}])()[0]
    kind = NUMBERS.get(details.get("type", ""))
    if kind is None or parameter is None:
        return None
    example = parameter.default if isinstance(parameter.default, int | float) else 10
    return f"{parameter.opts[0]} {details['input']!r} is not a {kind}; give one, as {parameter.opts[0]} {example:g}"


def refuse_repeated(command: Any, arguments: list[str]) -> None:
    """Raises AttnvizError if a command line gives an option twice, since the parser would use only the last value."""
    parameters = {name: each for each in command.params if not each.multiple for name in _names(each)}
    typed = [argument.partition("=")[0] for argument in arguments]
    indices = [index for index, name in enumerate(typed) if name in parameters]
    for index in indices:
        parameter = parameters[typed[index]]
        before = next((each for each in indices if each < index and parameters[typed[each]] is parameter), None)
        if before is None or parameter.is_flag:
            continue
        values = [_value(arguments, each) for each in (before, index)]
        remedy = ",".join(values) if parameter.name in LIST_OPTIONS else values[1]
        raise AttnvizError(f"{typed[index]} is given twice, {' and '.join(values)}; use {typed[index]} {remedy}")


def _value(arguments: list[str], index: int) -> str:
    """Returns the value of the option at ``index``, after an equals sign or a space."""
    _, sign, value = arguments[index].partition("=")
    return value if sign else "".join(arguments[index + 1 : index + 2])


def _extra_words_line(context: Any, path: str, extra: str) -> str:
    """Returns the line for superfluous words, most often those of a text without quotes."""
    from attnviz.cli.subject import is_file, is_saved

    texts = [str(context.params[name]) for name in ("text", "second") if context.params.get(name) is not None]
    name = path.removeprefix("attnviz ")
    if not texts:
        return f"{name} takes no {extra!r}; leave it out"
    if is_file(texts[0]) or any(map(is_saved, texts)):
        return f"{name} takes no {extra!r} beside {' and '.join(texts)}; leave it out"
    words = " ".join([*texts, extra])
    return f'{name} takes one text and was given several words; quote the text: {path} "{words}"'


def _unknown_option_line(context: Any, path: str, unknown: str, program: Any) -> str:
    """Returns the line for an unknown option: it names the commands that take it, or the option closest to it."""
    takers = [name for name, command in program.commands.items() if unknown in set(_options(command))]
    if takers:
        return f"{path.removeprefix('attnviz ')} takes no {unknown}; attnviz {or_list(takers)} does"
    bare, options = unknown.lstrip("-"), list(_options(context.command))
    alike = [name for name in options if did_you_mean(bare, [name.lstrip("-")]) or name.lstrip("-")[:1] == bare[:1]]
    suggestion = did_you_mean(unknown, alike).strip()
    return f"no option {unknown} in {path}{'; ' if suggestion else ''}{suggestion}"


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from _names(parameter)


def _names(parameter: Any) -> tuple[str, ...]:
    """Returns every spelling of an option; nothing for an argument."""
    return (*parameter.opts, *parameter.secondary_opts) if parameter.param_type_name == "option" else ()


def refuse_suffix(path: Path, suffixes: Sequence[str], writes: str) -> None:
    """Raises AttnvizError if a command does not write files with the suffix of a path.

    Args:
        path: the path after -o.
        suffixes: the suffixes that the command writes, with that of the terminal.
        writes: the name, without suffix, of the file that the message proposes, as ``picture``.
    """
    suffix = path.suffix.lower()
    if suffix in suffixes:
        return
    from attnviz.cli.subject import RECORDING
    from attnviz.render.formats import FILMS

    file_suffixes = [name for name in suffixes if name]
    choice = or_list(file_suffixes)
    example = next(name for name in suffixes if name != ".txt")
    if suffix in FILMS:
        raise AttnvizError(f"{suffix} is a film, which attnviz steps and attnviz film write; use {writes}{example}")
    if path.is_dir() or str(path).endswith(("/", "\\")):
        raise AttnvizError(f"{str(path)!r} is a folder; use -o {path / writes}{example}")
    if not suffix:
        name = path.with_name(path.name.strip(".") if path.suffix != path.name and path.name[:1] != "." else writes)
        raise AttnvizError(f"{str(path)!r} has no suffix, which picks the format; use -o {name}{example} ({choice})")
    if suffix == RECORDING and RECORDING not in suffixes:
        raise AttnvizError(f"attnviz record writes recordings; use attnviz record TEXT -o {path}")
    raise AttnvizError(f"unknown suffix {suffix!r}; {choices(suffix, file_suffixes)}")
