"""Writes the pages of the reference: each command from its declaration, each public name from its docstring."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import typer

import attnviz
from attnviz.cli.commands import app

COMMANDS_INTRODUCTION = """# Command line

Every command, argument and option. `attnviz COMMAND -h` prints the most common ones, and `attnviz COMMAND --help` all
of them; `man attnviz` has the same text as this page.
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
    "attnviz.maps.dense.DenseMaps",
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
OPTION = re.compile(r"(?<![\w'-])--?[A-Za-z][\w-]*")


def write_reference(folder: Path) -> None:
    """Writes ``command-line.md`` and ``python.md``.

    Args:
        folder: where the pages are written; it is created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "command-line.md").write_text(command_line(), encoding="utf-8")
    (folder / "python.md").write_text(names(), encoding="utf-8")


class MarkdownFormatter:
    """A help formatter that writes Markdown."""

    def __init__(self) -> None:
        self.lines: list[str] = []

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
        """Adds the heading of a part."""
        self.lines += [f"### {plain(heading)}", ""]

    def write_dl(self, rows: list[tuple[str, str]], col_max: int = 0) -> None:
        """Adds terms with their meanings."""
        for term, meaning in rows:
            sentence = OPTION.sub(r"`\g<0>`", " ".join(plain(meaning).split()))
            self.lines += [f"`{plain(term)}`", f": {sentence or '-'}", ""]

    def write_paragraph(self) -> None:
        """Adds nothing: Markdown separates the parts itself."""

    indent = dedent = write_paragraph


def plain(text: str) -> str:
    """Returns the text without terminal styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip("\n")


def command_line() -> str:
    """Returns the page of the command line."""
    program: Any = typer.main.get_command(app)
    context = program.make_context("attnviz", [], resilient_parsing=True)
    page = MarkdownFormatter()
    for name, command in program.commands.items():
        page.lines += [f"## {name}", ""]
        command.format_help(command.make_context(name, [], parent=context, resilient_parsing=True), page)
    return "\n".join([COMMANDS_INTRODUCTION, *page.lines])


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
