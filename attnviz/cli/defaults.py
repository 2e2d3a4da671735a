"""Reads a user's defaults from ATTNVIZ_ variables, attnviz.toml, pyproject.toml and the user's configuration folder."""

import os
import re
import stat
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, cast, get_args

import typer

from attnviz.base.errors import AttnvizError, did_you_mean, flag, or_list, setting_name
from attnviz.base.options import DeclaredOption, declared_options
from attnviz.base.own_file import is_own_file
from attnviz.base.printable import printable, remark
from attnviz.base.reading import read_toml
from attnviz.models.reading.settings import ModelSettings
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping

FILE, PROJECT, PREFIX = "attnviz.toml", "pyproject.toml", "ATTNVIZ_"
# Options of one text, which would be wrong for the next.
ONE_TEXT_OPTIONS = ("title", "query", "context", "pair", "generate", "notes", "effects")
PATHS = ("model", "tokenizer")  # in a file, relative to its folder
TEXT_WIDTH = 80  # of the list of options, in characters
PLACES_TEXT = """\
Set them as lines such as theme = "dark" in attnviz.toml here or in a folder above, in [tool.attnviz] of
pyproject.toml, in {}, or as ATTNVIZ_THEME=dark."""
SETTABLE_TEXT = "set an option of a model or of the look, such as theme"
BOOLEAN_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


class _Default(NamedTuple):
    """A default that a user set: its value, and the file or variable that sets it."""

    value: str | float | bool
    source: str


def _user_file() -> Path:
    """Returns the path of the file of defaults in the user's configuration folder."""
    return Path(typer.get_app_dir("attnviz")) / FILE


def read_defaults() -> dict[str, _Default]:
    """Returns every default that is set, by the name of its option.

    Environment variables have precedence over the files of a project, and these over the user's file.
    """

    defaults = {}
    for name, declaration in settable_options().items():
        variable = PREFIX + name.upper()
        text = os.environ.get(variable)
        if not text:
            continue
        try:
            value = converted_word(name, text, declaration)
        except AttnvizError as error:
            raise AttnvizError(f"{variable}: {error.message_with(flag)}") from error
        defaults[name] = _Default(value, variable)
    folder_defaults: Mapping[str, _Default] = {}
    for folder in _folders():  # the nearest that has any counts
        files = [(folder / PROJECT, ("tool", "attnviz")), (folder / FILE, ())]
        defaults_by_file = [_file_defaults(path, tables) for path, tables in files if _is_trusted(path)]
        if any(defaults_by_file):
            folder_defaults = ChainMap(*reversed(defaults_by_file))  # the last file counts first
            break
    return {**_file_defaults(_user_file()), **folder_defaults, **defaults}


def parse_settings(words: Iterable[str], settings: Mapping[str, DeclaredOption]) -> dict[str, Any]:
    """Returns the values of ``--set NAME=VALUE`` by the names of their options; NAME alone turns a switch on."""
    values: dict[str, Any] = {}
    for word in words:
        typed_name, sign, text = word.partition("=")
        name = typed_name.replace("-", "_")
        if name not in settings:
            question = did_you_mean(typed_name, map(setting_name, settings))
            raise AttnvizError(f"this command has no setting {typed_name!r}; {question}--help lists the settings")
        if name in values:
            raise AttnvizError(f"--set {typed_name} is given twice; use {flag(name, text)}")
        is_switch = bool in value_types(settings[name])
        if not text and not (is_switch and not sign):
            raise AttnvizError(f"--set {word} has no value; write --set {typed_name}=VALUE")
        values[name] = converted_word(name, text or "true", settings[name])
    return values


def used_defaults(values: dict[str, Any], default_names: Iterable[str]) -> dict[str, Any]:
    """Returns the values of a command's options, without the user's defaults for options that the model ignores.

    These options get their built-in defaults.
    """
    if not default_names or "model" not in values:
        return values
    from attnviz.models.sources import used_settings

    settings, used_names = declared_options(ModelSettings), used_settings(values["model"])
    return values | {
        name: settings[name].default for name in default_names if name in settings and name not in used_names
    }


def names_from_source(context: typer.Context, names: Iterable[str], source_name: str) -> list[str]:
    """Returns the names of the options whose values come from a source; empty if none does."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return [name for name, source in sources.items() if source is not None and source.name == source_name]


def refuse_to_fetch(context: typer.Context, model: str) -> None:
    """Raises AttnvizError if a model that defaults name must be downloaded or runs a Python file.

    A project's file may be a stranger's.

    Prints a remark if a project's file outside the working folder names the model.
    """
    source = context.get_parameter_source("model")
    if source is None or source.name != "DEFAULT_MAP":
        return
    origin = read_defaults()["model"].source
    if is_own_file(model):
        raise AttnvizError(
            f"{origin!r} names a function of a Python file, {model!r}, and only a command line may name what runs; use "
            f"--model {model} there"
        )
    if origin.startswith(PREFIX) or origin == str(_user_file()):
        return
    if Path(origin).parent not in list(_folders())[:1]:
        remark(f"{flag('model', model)} is set in {origin}")
    from attnviz.models.sources import BUILT_IN

    if model in (row.name for row in BUILT_IN):
        return
    from attnviz.models.huggingface.folder import needs_download

    if needs_download(model):
        raise AttnvizError(
            f"{origin!r} names the model {model!r}, which is not on this machine; use --model {model} to fetch it once"
        )


def settable_options() -> dict[str, DeclaredOption]:
    """Returns the options of the model, of units and of the look that can have defaults."""
    groups = (ModelSettings, Grouping, Look)
    declarations = {name: option for group in groups for name, option in declared_options(group).items()}
    return {name: option for name, option in declarations.items() if name not in ONE_TEXT_OPTIONS}


def with_origin(error: AttnvizError, words: Iterable[str]) -> str:
    """Returns a refusal, followed by the source of each option that it names: ``(--size is set in attnviz.toml)``.

    Options that the user typed, or that have no default of the user, get no source.
    """
    line = error.message_with(flag)
    typed_options = {word.removeprefix("--set=").partition("=")[0] for word in words}
    origins: list[str] = []
    with suppress(AttnvizError):  # the message is about the defaults already
        origins = [
            f"{flag(name)} is set in {default.source}"
            for name, default in read_defaults().items()
            if re.search(rf"(?<![\w-]){flag(name)}(?![\w-])", line) and flag(name) not in typed_options
        ]
    return f"{line} ({', '.join(origins)})" if origins else line


def describe_defaults() -> str:
    """Returns what ``attnviz info config`` prints: the defaults that are set, places to set one, and the options."""
    from textwrap import fill

    rows = [
        (setting_name(name), printable(str(value)), printable(source))
        for name, (value, source) in read_defaults().items()
    ]
    name_width = max((len(name) for name, _, _ in rows), default=0)
    value_width = max((len(value) for _, value, _ in rows), default=0)
    lines = [f"{name:{name_width}}  {value:{value_width}}  {source}" for name, value, source in rows]
    option_names = or_list(map(setting_name, settable_options()))
    options = fill(f"Options that you can set: {option_names}.", TEXT_WIDTH, break_on_hyphens=False)
    places = PLACES_TEXT.format(printable(str(_user_file())))
    separator = "" if rows else "No defaults are set."
    return "\n".join([*lines, separator, places, options, ""])


def _is_trusted(path: Path) -> bool:
    """True if the user or root owns the file, since anybody may put a file into a folder such as /tmp."""
    root = 0
    try:
        file, folder, user = path.stat(), path.parent.stat(), os.geteuid()
    except (OSError, AttributeError):  # no such file, or a system without user ids
        return not hasattr(os, "geteuid")
    is_protected = not folder.st_mode & stat.S_IWOTH
    return file.st_uid in (user, root) or (user == root and is_protected)


def _folders() -> Iterator[Path]:
    """Yields the working folder and those above it; nothing if the working folder was deleted."""
    try:
        here = Path.cwd()
    except OSError:  # the working folder was deleted
        return
    yield from (here, *here.parents)


def _file_defaults(path: Path, tables: tuple[str, ...] = ()) -> dict[str, _Default]:
    """Returns the defaults of a file by the names of their options; empty if there is no such file or table."""
    table: Any = read_toml(path, b"attnviz" if path.name == PROJECT else b"")
    for name in tables:
        table = table.get(name, {}) if isinstance(table, dict) else table
    if not isinstance(table, dict):
        raise AttnvizError(
            f"{str(path)!r}: {'.'.join(tables)} is not a table; make it one, with lines such as theme = 'dark'"
        )
    options, defaults = settable_options(), {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in options:
            advice = did_you_mean(setting_name(name), map(setting_name, options)).strip() or SETTABLE_TEXT
            raise AttnvizError(f"{str(path)!r} sets {name!r}, which cannot have a default; {advice}")
        path_in_folder = path.parent / str(value)
        is_path = name in PATHS and path_in_folder.exists()
        try:
            checked_value = _converted_value(name, str(path_in_folder) if is_path else value, options[name])
        except AttnvizError as error:
            raise AttnvizError(f"{str(path)!r}: {error.message_with(flag)}") from error
        defaults[name] = _Default(checked_value, str(path))
    return defaults


def converted_word(name: str, text: str, declaration: DeclaredOption) -> Any:
    """Returns the text of a variable or setting as a value of its option: a boolean, number or path if it takes one."""
    types = value_types(declaration)
    if Path in types:
        return Path(text)
    value: str | float | bool = text
    if bool in types:
        value = BOOLEAN_WORDS.get(text.lower(), text)
    with suppress(ValueError):
        if int in types:
            value = int(text)
        if float in types:
            value = float(text)
    return _converted_value(name, value, declaration)


def _converted_value(name: str, value: Any, declaration: DeclaredOption) -> str | float | bool:
    """Returns a value as the type of its option: an integer as a float, or a number as a string, if needed."""
    types = value_types(declaration)
    plain_value = value
    if type(value) is int and float in types:
        plain_value = float(value)
    if type(plain_value) in (int, float) and str in types:
        plain_value = str(plain_value)
    if type(plain_value) not in types:
        expected_type = {bool: "true or false", int: "a whole number", float: "a number"}.get(
            types[0], "a text in quotes"
        )
        raise AttnvizError(f"{setting_name(name)} is {value!r}; give {expected_type}")
    if declaration.option.check is not None:
        declaration.option.check(name, plain_value)
    return cast("str | float | bool", plain_value)


def value_types(declaration: DeclaredOption) -> tuple[type, ...]:
    """Returns the types that an option's value may have, except the type of ``None``."""
    return tuple(
        value_type for value_type in get_args(declaration.type) or (declaration.type,) if value_type is not NoneType
    )
