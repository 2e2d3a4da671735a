"""Reads a user's defaults from ATTNVIZ_ variables, attnviz.toml, pyproject.toml and the user's configuration folder."""

import os
import stat
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, cast, get_args

import typer

from attnviz.base.errors import AttnvizError, did_you_mean, flag, or_list
from attnviz.base.options import DeclaredOption, declared_options
from attnviz.base.printable import printable
from attnviz.base.reading import read_toml
from attnviz.cli.remarks import remark
from attnviz.models.reading.settings import ModelSettings
from attnviz.report.picture.look import Look
from attnviz.text.selection import Grouping

FILE, PROJECT, PREFIX = "attnviz.toml", "pyproject.toml", "ATTNVIZ_"
OF_ONE_TEXT = ("title", "query", "context", "pair", "generate", "notes", "effects")  # which would be wrong for the next
PATHS = ("model", "tokenizer")  # in a file, relative to its folder
PLACES = """\
Set them as lines such as theme = "dark" in attnviz.toml here or in a folder above, in [tool.attnviz] of
pyproject.toml, in {}, or as ATTNVIZ_THEME=dark."""
OTHERS = "set an option of a model or of the look, such as theme"
WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Default(NamedTuple):
    """A default that a user set: its value, and the file or variable that sets it."""

    value: str | float | bool
    source: str


def user_file() -> Path:
    """Returns the path of the file of defaults in the user's configuration folder."""
    return Path(typer.get_app_dir("attnviz")) / FILE


def read_defaults() -> dict[str, Default]:
    """Returns every default that is set, by the name of its option.

    A variable overrides the nearest file of the working folder and those above, which overrides the user's file.

    Raises:
        AttnvizError: if a file cannot be read, or a name or value is not valid.
    """
    return {**_of_file(user_file()), **_of_folders(), **_of_environment(os.environ)}


def used_defaults(context: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a command's options without the user's defaults that the chosen model does not use.

    Args:
        context: the parsed command, which knows where each value comes from.
        values: of all options of the command, by name.
    """
    ours = [name for name in values if (source := context.get_parameter_source(name)) and source.name == "DEFAULT_MAP"]
    if not ours:
        return values
    from attnviz.models.sources import used_settings

    settings, used = declared_options(ModelSettings), used_settings(values["model"])
    return values | {name: settings[name].default for name in ours if name in settings and name not in used}


def refuse_to_fetch(context: typer.Context, model: str) -> None:
    """Raises AttnvizError where a file in a folder, which a stranger may have written, has a model fetched.

    Says which file chooses the model, where it is in a folder above.
    """
    source = context.get_parameter_source("model")
    if source is None or source.name != "DEFAULT_MAP":
        return
    origin = read_defaults()["model"].source
    if origin.startswith(PREFIX) or origin == str(user_file()):
        return
    if Path(origin).parent not in list(_folders())[:1]:
        remark(f"{flag('model', model)} is set in {origin}")
    from attnviz.models.sources import BUILT_IN

    if model in (row.name for row in BUILT_IN):
        return
    from attnviz.models.huggingface.folder import needs_download

    if needs_download(model):
        raise AttnvizError(
            f"{origin!r} names the model {model!r}, which is not here; use --model {model} to fetch it once"
        )


def can_be_set() -> dict[str, DeclaredOption]:
    """Returns the options that users can set defaults for: of the model, of joined tokens, and of the look."""
    groups = (ModelSettings, Grouping, Look)
    declared = {name: each for group in groups for name, each in declared_options(group).items()}
    return {name: each for name, each in declared.items() if name not in OF_ONE_TEXT}


def with_origin(line: str, typed: Iterable[str]) -> str:
    """Returns a message, followed by the source of each option that it names: ``(--size is set in attnviz.toml)``.

    Args:
        line: the message.
        typed: the words of the command line; options among them are not followed up.
    """
    options = {word.partition("=")[0] for word in typed}
    origins: list[str] = []
    with suppress(AttnvizError):  # the message is about the defaults already
        origins = [
            f"{flag(name)} is set in {each.source}"
            for name, each in read_defaults().items()
            if flag(name) in line and flag(name) not in options
        ]
    return f"{line} ({', '.join(origins)})" if origins else line


def describe() -> str:
    """Returns the text of ``attnviz config``: a line for each default, and the options that can have one."""
    from textwrap import fill

    rows = [
        (_written(name), printable(str(value)), printable(source)) for name, (value, source) in read_defaults().items()
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    lines = [f"{name:{widths[0]}}  {value:{widths[1]}}  {source}" for name, value, source in rows]
    options = fill(f"Options that you can set: {or_list(map(_written, can_be_set()))}.", 80, break_on_hyphens=False)
    places = PLACES.format(printable(str(user_file())))
    return "\n".join([*lines, *([""] if rows else ["No defaults are set."]), places, options, ""])


def _written(name: str) -> str:
    """Returns the name of an option as a file spells it."""
    return name.replace("_", "-")


def _of_folders() -> dict[str, Default]:
    """Returns the defaults of the nearest folder that has any, from the working folder upwards."""
    for folder in _folders():
        files = [(folder / PROJECT, ("tool", "attnviz")), (folder / FILE, ())]
        found = [_of_file(path, tables) for path, tables in files if _is_ours(path)]
        if any(found):
            return dict(ChainMap(*reversed(found)))
    return {}


def _is_ours(path: Path) -> bool:
    """True if the user, or who runs the machine, wrote the file: anybody may put one in a folder such as /tmp.

    Who runs the machine trusts the owner of a folder that nobody else can write to.
    """
    try:
        found, folder, user = path.stat(), path.parent.stat(), os.geteuid()
    except (OSError, AttributeError):  # not there, or a system without such users
        return not hasattr(os, "geteuid")
    return found.st_uid in (user, 0) or (user == 0 and not folder.st_mode & stat.S_IWOTH)


def _folders() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # the working folder was deleted
        return
    yield from (here, *here.parents)


def _of_file(path: Path, tables: tuple[str, ...] = ()) -> dict[str, Default]:
    table: Any = read_toml(path, b"attnviz" if path.name == PROJECT else b"")
    for name in tables:
        table = table.get(name, {}) if isinstance(table, dict) else table
    if not isinstance(table, dict):
        raise AttnvizError(
            f"{str(path)!r}: {'.'.join(tables)} is not a table; write lines such as theme = 'dark' below it"
        )
    return {(name := key.replace("-", "_")): _checked(name, value, path) for key, value in table.items()}


def _checked(name: str, value: Any, path: Path) -> Default:
    """Returns the default; raises AttnvizError if there is no such option or it refuses the value."""
    options = can_be_set()
    if name not in options:
        near = did_you_mean(_written(name), map(_written, options)).strip()
        raise AttnvizError(f"{str(path)!r} sets {name!r}, which has no default; {near or OTHERS}")
    try:
        return Default(_converted(name, _relative(name, value, path.parent), options[name]), str(path))
    except AttnvizError as error:
        raise AttnvizError(f"{str(path)!r}: {error.worded(flag)}") from error


def _relative(name: str, value: Any, folder: Path) -> Any:
    """Returns the value; a path that exists in the folder of the file is joined to that folder."""
    inside = folder / str(value)
    return str(inside) if name in PATHS and inside.exists() else value


def _of_environment(environment: Mapping[str, str]) -> dict[str, Default]:
    defaults = {}
    for name, declared in can_be_set().items():
        if text := environment.get(variable := PREFIX + name.upper()):
            try:
                defaults[name] = Default(_converted(name, _as_value(text, declared), declared), variable)
            except AttnvizError as error:
                raise AttnvizError(f"{variable}: {error.worded(flag)}") from error
    return defaults


def _as_value(text: str, declared: DeclaredOption) -> str | float | bool:
    """Returns the text of a variable as a value of the option's type."""
    kinds = _kinds(declared)
    if bool in kinds:
        return WORDS.get(text.lower(), text)
    with suppress(ValueError):
        if int in kinds:
            return int(text)
        if float in kinds:
            return float(text)
    return text


def _converted(name: str, value: Any, declared: DeclaredOption) -> str | float | bool:
    kinds = _kinds(declared)
    if type(value) is int and float in kinds:
        value = float(value)
    if type(value) in (int, float) and str in kinds:
        value = str(value)
    if type(value) not in kinds:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kinds[0], "a text in quotes")
        raise AttnvizError(f"{_written(name)} is {value!r}; give {expected}")
    if declared.option.check is not None:
        declared.option.check(name, value)
    return cast("str | float | bool", value)


def _kinds(declared: DeclaredOption) -> tuple[type, ...]:
    return tuple(kind for kind in get_args(declared.type) or (declared.type,) if kind is not NoneType)
