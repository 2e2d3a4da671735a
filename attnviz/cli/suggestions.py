"""Suggests what the user meant by a command line that does not parse."""

import re
import shlex
from ast import literal_eval
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import typer

from attnviz.base.errors import PLACED, SETTINGS, VALUES_OF, choices, did_you_mean, flag, or_list, setting_name
from attnviz.cli.defaults import value_types
from attnviz.cli.help import TOPICS, spellings_of, value_after, value_name

EXTRA_WORDS = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""  # a word as repr writes it
NO_COMMAND = re.compile(rf"No such command ({QUOTED})(?:\. Did you mean .*)?", re.DOTALL)
NO_VALUE = re.compile(r"Option '(-{1,2}[a-z-]+)' requires (?:an argument|(\d+) arguments)")


def usage_line(error: typer.TyperException, app: typer.Typer, words: Sequence[str]) -> str:
    """Returns a line on what is wrong with a command line, what was probably meant, and how to get help."""
    context = getattr(error, "ctx", None)
    path = f"attnviz {words[0]}" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    without_value = NO_VALUE.fullmatch(message)
    if without_value is not None:
        name, count = without_value.groups()
        command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
        parameter = next(parameter for parameter in command.params if name in spellings_of(parameter))
        places = " ".join([value_name(parameter, command)] * int(count or 1))
        message = f"{name} needs {f'{count} values' if count else 'a value'}; write {name} {places}"
    elif context is not None:
        message = _problem(message, error, context, path, app, words)
    return f"{message} (see {path} --help)"


def _problem(
    message: str, error: typer.TyperException, context: Any, path: str, app: typer.Typer, words: Sequence[str]
) -> str:
    """Returns a line on what is wrong with the words of a command and, if it can be guessed, what was meant."""
    unknown_command = NO_COMMAND.fullmatch(message)
    if unknown_command is not None:
        return _unknown_command_line(literal_eval(unknown_command[1]), context.command, asks_for_help="--help" in words)
    extra_words = EXTRA_WORDS.fullmatch(message)
    if extra_words is not None:
        return f"{path.removeprefix('attnviz ')} takes no {extra_words[1]!r}; leave it out"
    option_name = getattr(error, "option_name", None)
    if option_name is not None and message.startswith("No such option"):
        arguments = getattr(error, "arguments", [])
        typed_value = next(
            (
                value_after(arguments, place)
                for place, word in enumerate(arguments)
                if word.partition("=")[0] == option_name
            ),
            "",
        )
        written = _other_spelling(option_name, typed_value or "VALUE", context.command)
        if written is not None:
            return f"no option {option_name}; write {written} instead"
        return _unknown_option_line(context, path, option_name, typer.main.get_command(app))
    return message


def _unknown_command_line(word: str, program: Any, asks_for_help: bool) -> str:
    """Returns the line for an unknown command: the topic or command that was meant, or how to draw it as a text."""
    if word in TOPICS:
        return f"no command {word!r}; write attnviz info {word} instead"
    if asks_for_help:
        return f"no command {word!r}; {choices(word, program.commands)}"
    suggestion = did_you_mean(word, (*program.commands, "help")).strip()
    return f"no command {word!r}; {suggestion or f'attnviz show {shlex.quote(word)} draws a text or a recording'}"


def extra_words_line(path: str, words: Sequence[str], extra_words: Sequence[str], arguments: Sequence[str]) -> str:
    """Returns the line for superfluous words, with a proposal to quote the text or to leave the words out."""
    from attnviz.cli.subject import is_file, is_saved

    if "--" in arguments[:-1]:
        name = arguments[arguments.index("--") + 1]
        return f"-- ends the options, so {name!r} is read as a text; write --{name}, without the space"
    for word, next_word in pairwise(arguments):
        if next_word in extra_words and (word.endswith(",") or next_word.startswith(",")):
            return f"a list has no spaces; write {word}{next_word}"
    texts = words[: -len(extra_words)]
    if texts and (is_file(texts[0]) or any(map(is_saved, texts))):
        extra, command_name = " ".join(extra_words), path.removeprefix("attnviz ")
        return f"{command_name} takes no {extra!r} beside {' and '.join(texts)}; leave it out"
    command_name = path.removeprefix("attnviz ")
    return f'{command_name} takes one text and was given several words; quote the text: {path} "{" ".join(words)}"'


def _other_spelling(option_name: str, value: str, command: Any) -> str | None:
    """Returns how a command takes what looks like an option: a setting, a value of an option, or a word of TEXT."""
    declared = getattr(command.callback, "declared", {})
    name = option_name.lstrip("-").replace("-", "_")
    host = VALUES_OF[name].host if name in VALUES_OF else "text" if name in PLACED else None
    if host in declared:
        return flag(name, shlex.quote(value))
    setting = name.removeprefix("no_")
    if setting not in SETTINGS or setting not in declared:
        return None
    is_switch = bool in value_types(declared[setting])
    return flag(setting, name == setting if is_switch else shlex.quote(value))


def _unknown_option_line(context: Any, path: str, unknown_name: str, program: Any) -> str:
    """Returns the line for an unknown option, with the commands that take it, or else any close option."""
    takers = [name for name, command in program.commands.items() if unknown_name in set(_command_spellings(command))]
    if takers:
        return f"{path.removeprefix('attnviz ')} takes no {unknown_name}; attnviz {or_list(takers)} does"
    word = unknown_name.lstrip("-")  # the hyphens would make all options alike
    settings = [setting_name(name) for name in getattr(context.command.callback, "declared", {}) if name in SETTINGS]
    option_words = [name.lstrip("-") for name in _command_spellings(context.command)]
    question = did_you_mean(word, [*option_words, *settings])
    near_setting = next((name for name in settings if question == f"did you mean {name}? "), None)
    if near_setting is not None:
        return f"no option {unknown_name} in {path}; did you mean --set {near_setting}=VALUE?"
    candidates = []  # options near to the unknown one, or with its first letter
    for name in _command_spellings(context.command):
        option_word = name.lstrip("-")
        if did_you_mean(word, [option_word]) or option_word[:1] == word[:1]:
            candidates.append(name)
    suggestion = did_you_mean(unknown_name, candidates).strip()
    return f"no option {unknown_name} in {path}{'; ' if suggestion else ''}{suggestion}"


def _command_spellings(command: Any) -> Iterator[str]:
    """Yields every spelling of every option of a command."""
    for parameter in command.params:
        yield from spellings_of(parameter)
