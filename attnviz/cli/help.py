"""What attnviz adds to typer: the help, conversion of plain values, and completion for the shell.

``-h`` has the most used options on one screen, ``--help`` all of them; examples come first.

Typer 0.29 converts every value, also an absent one or a default, by pydantic, whose import takes a third of the time in
which a command line is refused. Values of other types than texts, paths and numbers are left to typer.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from attnviz.base.errors import SETTINGS, AttnvizError, flag, setting_name
from attnviz.base.options import DeclaredOption, Option

ARGUMENTS_TYPED = "attnviz arguments"  # in the context: the words after the command
HELP, SETTINGS_PANEL = "Help", "Settings for --set"
NAMES_WIDTH = 26  # of the first column of a table at most, in characters
LIST_OPTIONS = ("layers", "heads")  # options whose values can be joined to a list
GUIDE = """\
Run `attnviz COMMAND -h` for its options; also --version, --install-completion."""
PANELS = (
    "Input",
    "Model",
    "Select",
    "Sort",
    "Words",
    "Look",
    "Output",
    SETTINGS_PANEL,
    HELP,
)  # in the order in which they are used
TOPICS = ("samples", "devices", "config")  # of attnviz info
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "attnviz": (
        'attnviz show "the cat sat. the cat sat" --model trained',
        'attnviz show "Life is short" --model ./my-bert',
    ),
    "show": (
        'attnviz show "the cat sat. the cat sat" --model trained --heads 1.1',
        'attnviz show "Life is short" --model ./my-bert -o run.safetensors',
    ),
    "heads": (
        'attnviz heads "the cat sat. the cat sat" --model trained',
        'attnviz heads "Life is short" --model ./my-bert --sort previous -o atlas.html',
        "attnviz heads --types --model ./my-llama",
    ),
    "compare": (
        'attnviz compare "Life is short" --causal',
        "attnviz compare before.safetensors after.safetensors -o change.png",
    ),
    "explain": (
        'attnviz explain "Life is short" --step softmax',
        'attnviz explain "a cat. a cat" --model trained --head 1.1 -o notes.html',
    ),
    "survey": (
        "attnviz survey reviews.csv --model ./my-bert -o survey.safetensors",
        "attnviz survey corpus/ --model ./my-llama --tokens 10M -o survey.safetensors",
        "attnviz heads survey.safetensors --sort previous",
    ),
    "ablate": (
        "attnviz ablate --model trained --metric accuracy --pairs",
        'attnviz ablate "Life is short" --model ./my-bert -o effect.png',
    ),
    "why": (
        'attnviz why "the cat sat. the cat" --model trained',
        'attnviz why "Mary met John. John told" --model ./my-gemma --versus " John"',
        "attnviz why --batch prompts.csv --model ./my-gemma",
    ),
    "browse": (
        'attnviz browse "Life is short" --model ./my-bert',
        "attnviz browse run.safetensors",
    ),
}


def refuse_repeated(command: Any, arguments: list[str]) -> None:
    """Raises AttnvizError if a command line gives an option twice; the parser would use the last value.

    Flags, and options that may be repeated, are accepted.
    """
    names: dict[str, str] = {}  # of the options that take one value, by every spelling
    for parameter in command.params:
        is_flag = getattr(parameter, "is_flag", False)
        if not parameter.multiple and not is_flag:
            names |= dict.fromkeys(spellings_of(parameter), parameter.name)
    first_indices: dict[str, int] = {}  # by the name of the option
    end = arguments.index("--") if "--" in arguments else len(arguments)  # what follows is no option
    for index, argument in enumerate(arguments[:end]):
        spelling = argument.partition("=")[0]
        if spelling not in names:
            continue
        name = names[spelling]
        if name not in first_indices:
            first_indices[name] = index
            continue
        values = [value_after(arguments, first_indices[name]), value_after(arguments, index)]
        remedy = ",".join(dict.fromkeys(values)) if name in LIST_OPTIONS else values[1]
        raise AttnvizError(f"{spelling} is given twice, {' and '.join(values)}; use {spelling} {remedy}")


def value_after(arguments: list[str], index: int) -> str:
    """Returns the value of the option at ``index``, after an equals sign or in the next word; "" if there is none."""
    _, sign, value = arguments[index].partition("=")
    return value if sign else "".join(arguments[index + 1 : index + 2])


def spellings_of(parameter: Any) -> tuple[str, ...]:
    """Returns every spelling of an option, such as ``--layers``; ``()`` for a parameter that is not an option."""
    return (*parameter.opts, *parameter.secondary_opts) if parameter.param_type_name == "option" else ()


class Command(TyperCommand):
    """A command with the help of this module, which refuses an option that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments."""
        refuse_repeated(self, args)
        ctx.meta[ARGUMENTS_TYPED] = [*args]
        convert_plain_values(self.get_params(ctx))
        try:
            return super().parse_args(ctx, [*args])
        except typer.TyperException as error:
            error.arguments = args  # type: ignore[attr-defined]  # the refusal of an unknown option quotes its value
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; exits with 0 if the reader of standard output is gone, which typer reports as an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(0) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the whole help to the formatter: usage, examples, options by panel, and the names for options."""
        _write_usage(self, ctx, formatter)
        for title, entries in _panel_entries(self, ctx).items():
            _write_table(formatter, title, [(names, sentence) for names, sentence, _ in entries])
        for name, declaration in _declared_options_of(self).items():
            rows = [
                (known_name, meaning) for known_name, meaning in declaration.option.known_names().items() if meaning
            ]
            if rows:
                _write_table(formatter, f"Names for {flag(name)}", rows)


class Program(TyperGroup):
    """The program with all commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the words before the command; returns the others, the command first."""
        convert_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the usage, the examples, the list of commands and a hint at their help to the formatter."""
        _write_usage(self, ctx, formatter)
        # The limit is above the length of any help, so that none is cut short.
        commands = [(name, self.commands[name].get_short_help_str(limit=200)) for name in self.list_commands(ctx)]
        _write_table(formatter, "Commands", commands)
        formatter.write_paragraph()
        formatter.write(f"{GUIDE}\n")


def _show_short_help(context: typer.Context, is_requested: bool) -> None:
    """Prints usage, examples and the most used options, or else the whole help, and exits if ``-h`` was given."""
    if not is_requested:
        return
    formatter = context.make_formatter()
    entries = chain.from_iterable(_panel_entries(context.command, context).values())
    rows = [(names, brief) for names, _, brief in entries if brief]
    if rows:
        _write_usage(context.command, context, formatter)
        _write_table(formatter, "Most used", rows)
        formatter.write(f"\n{context.command_path} --help lists all options.\n")
    else:  # no option is marked as such
        context.command.format_help(context, formatter)
    typer.echo(formatter.getvalue().rstrip("\n"))
    raise typer.Exit


ShortHelp = Annotated[
    bool,
    typer.Option(
        "-h",
        help="Show the most used options.",
        callback=_show_short_help,
        is_eager=True,
        expose_value=False,
        show_default=False,
        rich_help_panel=HELP,
    ),
]


def _declared_options_of(command: Any) -> Mapping[str, DeclaredOption]:
    """Returns the declared options of a command by name; an empty mapping if it declares none."""
    return getattr(command.callback, "declared", {})


def _write_usage(command: Any, context: Any, formatter: Any) -> None:
    """Writes the usage line of a command, the sentence that describes it, and its examples if it has any."""
    command.format_usage(context, formatter)
    formatter.write_paragraph()
    formatter.write_text(command.help)
    lines = EXAMPLES.get(command.name or "attnviz")
    if lines:
        _write_heading(formatter, "Examples")
        formatter.write("".join(f"  {line}\n" for line in lines))


def _write_table(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    """Writes a heading and a table of two columns, such as the names of options and their sentences."""
    _write_heading(formatter, title)
    formatter.indent()
    formatter.write_dl(rows, col_max=NAMES_WIDTH)
    formatter.dedent()


def _write_heading(formatter: Any, title: str) -> None:
    """Writes a bold heading after an empty line."""
    formatter.write_paragraph()
    formatter.write_heading(typer.style(title, bold=True))


def _panel_entries(command: Any, context: Any) -> dict[str, list[tuple[str, str, str]]]:
    """Returns the rows of each panel that is not empty, by the panel's title, in the order of `PANELS`."""
    panels: dict[str, list[tuple[str, str, str]]] = {title: [] for title in PANELS}
    for parameter in command.get_params(context):
        panels[getattr(parameter, "rich_help_panel", None) or HELP].append(_entry(parameter, command))
    panels[SETTINGS_PANEL] += [
        (setting_name(name), _help_sentence(declaration), "")
        for name, declaration in _declared_options_of(command).items()
        if name in SETTINGS
    ]
    return {title: entries for title, entries in panels.items() if entries}


def _entry(parameter: Any, command: Any) -> tuple[str, str, str]:
    """Returns the names of an argument, in capitals, or an option, its sentence, and its sentence for ``-h`` or ""."""
    declaration = _declared_options_of(command).get(parameter.name)
    is_option = parameter.param_type_name == "option"
    names = parameter.name.upper()
    if is_option:
        long_names = [name for name in parameter.opts if name.startswith("--")]
        own_name = flag(parameter.name)
        main_names = [own_name] if own_name in long_names else long_names[:1]
        names = ", ".join([*(name for name in parameter.opts if name not in long_names), *main_names])
    if declaration is None:
        return names, parameter.help or "", ""
    if parameter.secondary_opts:
        names += "/" + parameter.secondary_opts[0]
    elif declaration.type is not bool and is_option:
        names += f" {value_name(parameter, command)}"
    return names, _help_sentence(declaration), declaration.option.brief


def value_name(parameter: Any, command: Any) -> str:
    """Returns what stands for an option's value in the help and in a refusal: ``FILE``, ``SORT``."""
    if parameter.name == "assignments":
        return "NAME=VALUE"
    declaration = _declared_options_of(command).get(parameter.name)
    is_path = declaration is not None and "Path" in str(declaration.type)
    return "FILE" if is_path else str(parameter.name).upper().replace("_", "-")


def _help_sentence(declaration: DeclaredOption) -> str:
    """Returns the sentence of an option in the help, followed by its default in brackets."""
    is_empty_default = declaration.default in (None, 0, inspect.Parameter.empty)
    shows_default = not (is_empty_default or isinstance(declaration.default, bool))
    return declaration.option.help + (f" [{declaration.default}]" if shows_default else "")


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
        if descriptor is not None and not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_process_value, parameter, descriptor.annotation, parameter.process_value)


def _process_value(
    parameter: Any, annotation: Any, convert_by_typer: Callable[..., Any], context: Any, value: Any
) -> Any:
    """Returns the value of a parameter, converted here if it is plain, otherwise by typer."""
    is_list = parameter.multiple or parameter.nargs == -1
    plain_value: Any = NOT_PLAIN
    try:
        if value is None and not parameter.required:
            plain_value = () if is_list else None  # an absent list is an empty tuple, as in typer
        elif is_list and value is not None:
            [item_type] = get_args(annotation) or (None,)
            items = [_converted(item, item_type) for item in value]
            plain_value = NOT_PLAIN if NOT_PLAIN in items else items
        else:
            plain_value = _converted(value, annotation)
    except ValueError:
        # With an example: the default, or a number that the option accepts.
        declaration = _declared_options_of(context.command).get(parameter.name)
        examples = (parameter.default,) if isinstance(parameter.default, int | float) else ROUND_NUMBERS
        for example in examples:
            try:
                if declaration is not None and declaration.option.check is not None:
                    declaration.option.check(parameter.name, example)
            except AttnvizError:
                continue
            break
        name, kind = parameter.opts[0], KINDS[annotation]
        line = f"{name} {value!r} is not a {kind}; give one, such as {name} {example:g}"
        raise _NotANumber(line, context, parameter) from None
    if plain_value is NOT_PLAIN:
        return convert_by_typer(context, value)
    return plain_value if parameter.callback is None else parameter.callback(context, parameter, plain_value)


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
    from attnviz.cli.subject import RECORDING
    from attnviz.media.timed_words import WORD_SUFFIXES
    from attnviz.render.formats import FILMS

    return (*WORD_SUFFIXES, *FILMS, RECORDING) if command == "show" else ()


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
    from attnviz.maps.recording import head_name
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
    declared = _declared_options_of(context.command)
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
