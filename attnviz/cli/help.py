"""Writes the help: ``-h`` has the most used options on one screen, ``--help`` all of them; examples come first."""

import inspect
import os
from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from attnviz.base.errors import SETTINGS, flag, setting_name
from attnviz.base.options import DeclaredOption
from attnviz.cli.values import convert_plain_values

ARGUMENTS_TYPED = "attnviz arguments"  # in the context: the words after the command
HELP, SETTINGS_PANEL = "Help", "Settings for --set"
NAMES_WIDTH = 26  # of the first column of a table at most, in characters
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
    "steps": (
        "attnviz steps chat.json --model ./my-llama --generate 40",
        'attnviz steps "the cat sat. the cat sat" --model trained --heads 1.1',
    ),
    "browse": (
        'attnviz browse "Life is short" --model ./my-bert',
        "attnviz browse run.safetensors",
    ),
}


class Command(TyperCommand):
    """A command with the help of this module, which refuses an option that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments."""
        from attnviz.cli.suggestions import refuse_repeated

        refuse_repeated(self, args)
        ctx.meta[ARGUMENTS_TYPED] = [*args]
        convert_plain_values(self.get_params(ctx))
        try:
            return super().parse_args(ctx, [*args])
        except typer.TyperException as error:
            error.arguments = args  # type: ignore[attr-defined]  # the refusal of an old option quotes its value
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
            _write_table(formatter, title, [(entry.names, entry.help) for entry in entries])
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


class _HelpEntry(NamedTuple):
    """A row of the help: the names of an option or argument, its sentence, and its short sentence for ``-h`` or ""."""

    names: str
    help: str
    brief: str = ""


def _show_short_help(context: typer.Context, is_requested: bool) -> None:
    """Prints usage, examples and the most used options, or else the whole help, and exits if ``-h`` was given."""
    if not is_requested:
        return
    formatter = context.make_formatter()
    entries = chain.from_iterable(_panel_entries(context.command, context).values())
    rows = [(entry.names, entry.brief) for entry in entries if entry.brief]
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


def _panel_entries(command: Any, context: Any) -> dict[str, list[_HelpEntry]]:
    """Returns the rows of each panel that is not empty, by the panel's title, in the order of `PANELS`."""
    panels: dict[str, list[_HelpEntry]] = {title: [] for title in PANELS}
    for parameter in command.get_params(context):
        panels[getattr(parameter, "rich_help_panel", None) or HELP].append(_entry(parameter, command))
    panels[SETTINGS_PANEL] += [
        _HelpEntry(setting_name(name), _help_sentence(declaration))
        for name, declaration in _declared_options_of(command).items()
        if name in SETTINGS
    ]
    return {title: entries for title, entries in panels.items() if entries}


def _entry(parameter: Any, command: Any) -> _HelpEntry:
    """Returns the row of an argument, in capitals, or an option: its letters, its main name, a place for its value."""
    declaration = _declared_options_of(command).get(parameter.name)
    is_option = parameter.param_type_name == "option"
    names = parameter.name.upper()
    if is_option:
        long_names = [name for name in parameter.opts if name.startswith("--")]
        own_name = flag(parameter.name)
        main_names = [own_name] if own_name in long_names else long_names[:1]
        names = ", ".join([*(name for name in parameter.opts if name not in long_names), *main_names])
    if declaration is None:
        return _HelpEntry(names, parameter.help or "")
    if parameter.secondary_opts:
        names += "/" + parameter.secondary_opts[0]
    elif declaration.type is not bool and is_option:
        if parameter.name == "assignments":
            names += " NAME=VALUE"
        elif "Path" in str(declaration.type):
            names += " FILE"
        else:
            names += " " + parameter.name.upper().replace("_", "-")
    return _HelpEntry(names, _help_sentence(declaration), declaration.option.brief)


def _help_sentence(declaration: DeclaredOption) -> str:
    """Returns the sentence of an option in the help, followed by its default in brackets."""
    is_empty_default = declaration.default in (None, 0, inspect.Parameter.empty)
    shows_default = not (is_empty_default or isinstance(declaration.default, bool))
    return declaration.option.help + (f" [{declaration.default}]" if shows_default else "")
