"""Makes a man page from the help of the commands; ``hatch_build.py`` packs it, ``python -m tools.manual`` prints it."""

import re
from typing import Any

import typer

from attnviz.cli.commands import app
from attnviz.cli.defaults import FILE, PLACES_TEXT
from attnviz.version import __version__

EXIT_CODES = (
    ("0", "done"),
    ("1", "refused: one line says why"),
    ("2", "no such option or command"),
    ("130", "interrupted"),
)


class ManualFormatter:
    """A help formatter that writes the text of a man page (roff)."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_usage(self, program: str, arguments: str = "") -> None:
        """Adds the usage line."""
        self.lines += [f"\\fB{escape(program)}\\fR {escape(arguments)}", ".PP"]

    def write_text(self, text: str) -> None:
        """Adds a paragraph."""
        self.lines += [escape(text), ".PP"]

    def write(self, text: str) -> None:
        """Adds lines that are not filled."""
        self.lines += [".PP", ".nf", *(escape(line) for line in text.splitlines()), ".fi"]

    def write_heading(self, heading: str) -> None:
        """Adds the heading of a part."""
        self.lines.append(f".SS {escape(heading)}")

    def write_dl(self, rows: list[tuple[str, str]], col_max: int = 0) -> None:
        """Adds terms with their meanings."""
        for term, meaning in rows:
            self.lines += [".TP", f"\\fB{escape(term)}\\fR", escape(meaning)]

    def write_paragraph(self) -> None:
        """Adds nothing: roff separates the parts itself."""

    indent = dedent = write_paragraph


def escape(text: str) -> str:
    """Returns the text without terminal styles, with the characters that roff interprets escaped."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).strip("\n")
    return re.sub(r"^([.'])", r"\\&\1", plain.replace("\\", "\\e").replace("-", "\\-"))


def manual() -> str:
    """Returns the man page: the program, every command with all options, files and exit codes."""
    program: Any = typer.main.get_command(app)
    context = program.make_context("attnviz", [], resilient_parsing=True)
    page = ManualFormatter()
    page.lines += [f'.TH ATTNVIZ 1 "" "attnviz {__version__}"', ".SH NAME", f"attnviz \\- {escape(program.help)}"]
    page.lines.append(".SH SYNOPSIS")
    program.format_help(context, page)
    for name, command in program.commands.items():
        page.lines.append(f".SH {name.upper()}")
        command.format_help(command.make_context(name, [], parent=context, resilient_parsing=True), page)
    page.lines.append(".SH FILES")
    page.write_text(PLACES_TEXT.format(f"~/.config/attnviz/{FILE}").replace("\n", " "))
    page.lines.append(".SH EXIT STATUS")
    page.write_dl([*EXIT_CODES])
    return "\n".join(page.lines) + "\n"


if __name__ == "__main__":
    print(manual(), end="")
