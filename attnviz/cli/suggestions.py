"""Suggests what the user meant by a command line that does not parse."""

import re
import shlex
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import typer

from attnviz.base.errors import SETTINGS, choices, did_you_mean, or_list, setting_name
from attnviz.cli.help import spellings_of, value_after

EXTRA_WORDS = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""  # a word as repr writes it
NO_COMMAND = re.compile(rf"No such command ({QUOTED})(?:\. Did you mean .*)?", re.DOTALL)
NO_VALUE = re.compile(r"Option '(-{1,2}[a-z-]+)' requires (?:an argument|(\d+) arguments)")
# Options of earlier versions, each with what to write instead; VALUE stands for the value that was typed.
OLD_OPTIONS = {
    "--annotate": "--set annotate",
    "--axes": "--style points:VALUE",
    "--bare": "--set bare",
    "--bias": "--set bias",
    "--no-bias": "--set bias=false",
    "--check": "attnviz why TEXT --by sentences",
    "--dense": "--set dense",
    "--device-map": "--set device-map=VALUE",
    "--dpi": "--set dpi=VALUE",
    "--dropout": "--set dropout=VALUE",
    "--embed-dim": "--set embed-dim=VALUE",
    "--factored": "--set dense=false",
    "--font-size": "--set font-size=VALUE",
    "--format": "-o -.VALUE",
    "--image": "VALUE",
    "--half": "--set half",
    "--init": "--set init=VALUE",
    "--logits": "attnviz why TEXT --token VALUE",
    "--mark": "--set mark=VALUE",
    "--max-size": "--set max-size=VALUE",
    "--num-heads": "--set num-heads=VALUE",
    "--num-layers": "--set num-layers=VALUE",
    "--per-slide": "--set per-slide=VALUE",
    "--pool": "--set pool=VALUE",
    "--qk-dim": "--set qk-dim=VALUE",
    "--renormalize": "--set renormalize",
    "--residual": "--reduce rollout:VALUE",
    "--sample": "sample:VALUE",
    "--scale": "--set scale=VALUE",
    "--seed": "--set seed=VALUE",
    "--sound": "VALUE",
    "--table": "--style VALUE",
    "--temperature": "--set temperature=VALUE",
    "--tokenizer": "--set tokenizer=VALUE",
    "--tokens": "--set labels=VALUE",
    "--transparent": "--set transparent",
    "--truncate": "--set truncate",
    "--value-dim": "--set value-dim=VALUE",
    "--words": "--by words",
}
OLD_COMMANDS: Mapping[str, str | None] = {  # what is typed instead; None: nothing is
    "battery": "attnviz heads --types",
    "config": "attnviz info config",
    "devices": "attnviz info devices",
    "film": "attnviz show a.safetensors b.safetensors -o film.gif",
    "kept": None,
    "record": "attnviz show … -o run.safetensors",
    "samples": "attnviz info samples",
    "steps": "attnviz show … --style steps",
}


def usage_line(error: typer.TyperException, app: typer.Typer, words: Sequence[str]) -> str:
    """Returns a line on what is wrong with a command line, what was probably meant, and how to get help."""
    context = getattr(error, "ctx", None)
    path = f"attnviz {words[0]}" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    without_value = NO_VALUE.fullmatch(message)
    if without_value is not None:
        name, count = without_value.groups()
        parameters = typer.main.get_command(app).commands[words[0]].params  # type: ignore[attr-defined]
        place = next(parameter.name for parameter in parameters if name in spellings_of(parameter)).upper()
        places = " ".join([place] * int(count or 1))
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
        if option_name in OLD_OPTIONS:
            # What to write instead, with the value that was typed.
            arguments = getattr(error, "arguments", [])
            index = next(index for index, word in enumerate(arguments) if word.partition("=")[0] == option_name)
            value = value_after(arguments, index) or "VALUE"
            new_words = OLD_OPTIONS[option_name].replace("VALUE", shlex.quote(value))
            return f"no option {option_name}; write {new_words} instead"
        return _unknown_option_line(context, path, option_name, typer.main.get_command(app))
    return message


def _unknown_command_line(word: str, program: Any, asks_for_help: bool) -> str:
    """Returns the line for an unknown command: what it is today, the closest command, or how to draw it as a text."""
    if word in OLD_COMMANDS:
        new_line = OLD_COMMANDS[word]
        return f"{word} is gone" if new_line is None else f"no command {word}; write {new_line} instead"
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
