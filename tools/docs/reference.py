"""Writes the pages of the reference: each command from its declaration, each public name from its docstring."""

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import typer

import attnviz
from attnviz.cli.commands import app

COMMANDS_INTRODUCTION = """# Command line

Every command, argument and option. A command lists what it has alone; what several have in common is said
[once, below](#what-commands-share). `attnviz COMMAND -h` prints the most common options,
`attnviz COMMAND --help` all of them, and `man attnviz` every command with all of its options.
"""
NAMES_INTRODUCTION = """# Python

Every public name of `import attnviz`. Shapes, units and errors stand with each; the examples are run by a test. The
values that functions return, and options that several share, follow [below](#values-and-options).
"""
VALUES_INTRODUCTION = """## Values and options

You need not import these: functions return or take them.
"""
VALUES = (
    "attnviz.text.tokens.Tokens",
    "attnviz.maps.layer_maps.LayerMaps",
    "attnviz.maps.cell_maps.DenseMaps",
    "attnviz.maps.layer_maps.CellMaps.window",
    "attnviz.maps.layer_maps.Window",
    "attnviz.effects.effect_table.Effects",
    "attnviz.effects.effect_table.Effect",
    "attnviz.effects.logit_parts.LogitParts",
    "attnviz.effects.logit_parts.LogitPart",
    "attnviz.metrics.steps.DecodingSteps",
    "attnviz.effects.unit_effects.UnitEffects",
    "attnviz.effects.why.Why",
    "attnviz.corpus.survey.Survey",
    "attnviz.attention.modules.AttentionOutput",
    "attnviz.attention.modules.AttentionOptions",
)
OPTION, CODE = re.compile(r"(?<![\w'-])--?[A-Za-z][\w-]*"), r"`\g<0>`"


def write_reference(folder: Path) -> None:
    """Writes ``command-line.md`` and ``python.md``.

    Args:
        folder: where the pages are written; it is created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "command-line.md").write_text(command_line(), encoding="utf-8")
    (folder / "python.md").write_text(names(), encoding="utf-8")


class MarkdownFormatter:
    """A help formatter that writes Markdown and stores tables, which several commands have in common."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.heading = ""
        self.tables: dict[str, list[tuple[str, str]]] = {}  # by heading

    def write_usage(self, program: str, arguments: str = "") -> None:
        """Adds the usage line."""
        self.lines += ["```text", f"{program} {arguments}", "```", ""]

    def write_text(self, text: str) -> None:
        """Adds a paragraph."""
        self.lines += [plain(text), ""]

    def write(self, text: str) -> None:
        """Adds the lines of examples, which are commands."""
        self.lines += ["```sh", dedent(plain(text)), "```", ""]

    def write_heading(self, heading: str) -> None:
        """Names the table that follows."""
        self.heading = plain(heading)

    def write_dl(self, rows: list[tuple[str, str]], col_max: int = 0) -> None:
        """Stores terms with their meanings."""
        self.tables[self.heading] = [(plain(term), " ".join(plain(meaning).split())) for term, meaning in rows]

    def write_paragraph(self) -> None:
        """Adds nothing: Markdown separates the parts itself."""

    indent = dedent = write_paragraph


def plain(text: str) -> str:
    """Returns the text without terminal styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip("\n")


def command_line() -> str:
    """Returns the page of the command line: what each command has alone, then what several have in common."""
    program: Any = typer.main.get_command(app)
    context = program.make_context("attnviz", [], resilient_parsing=True)
    helps = {name: MarkdownFormatter() for name in program.commands}
    for name, page in helps.items():
        command = program.commands[name]
        command.format_help(command.make_context(name, [], parent=context, resilient_parsing=True), page)

    uses = Counter((title, row) for page in helps.values() for title, rows in page.tables.items() for row in rows)
    lines = [COMMANDS_INTRODUCTION]
    for name, page in helps.items():
        lines += [f"## {name}", "", *page.lines]
        links = []
        for title, rows in page.tables.items():
            common = [row for row in rows if uses[title, row] > 1]
            own = [row for row in rows if row not in common]
            are_names = title.startswith("Names for ")  # that an option takes
            if own and are_names:
                lines += [f"{OPTION.sub(CODE, title)}:", ""]
            lines += definitions(own)
            if common:
                anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                terms = ", ".join(f"`{term}`" for term, _ in common)
                links.append(f"- [{title}](#{anchor})" + (f": {terms}" if not are_names else ""))
        lines += [*links, ""]

    lines += ["## What commands share", ""]
    shared: dict[str, list[tuple[str, str]]] = {}
    for (title, row), count in uses.items():
        if count > 1:
            shared.setdefault(title, []).append(row)
    for title, rows in shared.items():
        lines += [f"### {title}", "", *definitions(rows)]
    return "\n".join(lines)


def definitions(rows: list[tuple[str, str]]) -> list[str]:
    """Returns the lines of a list of terms with their meanings, in which options are code."""
    return [line for term, meaning in rows for line in (f"`{term}`", f": {OPTION.sub(CODE, meaning) or '-'}", "")]


def names() -> str:
    """Returns the page of the public names and of the values that they return, which Sphinx fills from docstrings."""
    parts = [NAMES_INTRODUCTION, *(_public_name(name) for name in sorted(attnviz.EXPORTS, key=str.lower))]
    return "\n".join([*parts, VALUES_INTRODUCTION, *map(_value, VALUES)])


def _public_name(name: str) -> str:
    """Returns the section of a public name; a class is listed with its methods, an exception without them."""
    value = getattr(attnviz, name)
    has_methods = isinstance(value, type) and not issubclass(value, Exception)
    options = "   :members:\n   :inherited-members: Module\n" if has_methods else ""
    directive = "autoclass" if isinstance(value, type) else "autofunction"
    return f"## {name}\n\n```{{eval-rst}}\n.. {directive}:: attnviz.{name}\n{options}```\n"


def _value(path: str) -> str:
    """Returns the section of a value that is imported from ``path``, a class or a method."""
    name = path.removeprefix("attnviz.").partition(".")[2]
    title = name[re.search("[A-Z]", name).start() :]  # type: ignore[union-attr]
    directive = "automethod" if "." in title else "autoclass"
    return f"### {title}\n\n```{{eval-rst}}\n.. {directive}:: {path}\n```\n"
