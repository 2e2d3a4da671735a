"""Plain values of options: the same as typer's, without the import of its type adapters."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from attnviz.cli.values import convert_plain_values

app = typer.Typer()


@app.command()
def sample(
    word: str,
    count: Annotated[int, typer.Option()] = 3,
    share: Annotated[float, typer.Option()] = 0.5,
    file: Annotated[Path | None, typer.Option()] = None,
    files: Annotated[list[Path] | None, typer.Option()] = None,
    pair: Annotated[tuple[int, int] | None, typer.Option()] = None,
    verbose: Annotated[bool, typer.Option()] = False,
) -> None:
    """A command with one parameter of each type."""


LINES: tuple[list[str], ...] = (
    ["a"],
    ["a", "--count", "12", "--share", "0.25", "--file", "x/y.png", "--verbose"],
    ["a", "--count", "-7", "--share", "-3", "--no-verbose"],
    ["a", "--count", "007", "--share", "1e-3"],
    ["a", "--files", "one", "--files", "two/three"],
    ["a", "--pair", "1", "2"],
    ["a", "--count", "12345678901234567890", "--share", "nan"],
    ["a", "--count", "5.00", "--share", "+5."],
    ["a", "--count", " 1_000\n", "--share", "1_0.0"],
    [],
)


def parsed(words: list[str], is_plain: bool) -> Any:
    """Returns the values of a command line with their types, or the parser's message."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command)
    if is_plain:
        convert_plain_values(command.get_params(context))
    try:
        command.parse_args(context, list(words))
    except typer.TyperException as error:
        return error.format_message()
    return {name: (type(value), str(value)) for name, value in context.params.items()}


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_plain_values_are_those_of_typer(words: list[str]) -> None:
    assert parsed(words, is_plain=True) == parsed(words, is_plain=False)


@pytest.mark.parametrize(
    "words",
    [["--count", "x"], ["--count", "1.5"], ["--count", "5."], ["--count", ""], ["--count", "٣"], ["--share", "1,5"]],
    ids="=".join,
)
def test_refuses_the_words_that_typer_refuses_as_numbers(words: list[str]) -> None:
    kind, example = ("whole number", 3) if words[0] == "--count" else ("number", 0.5)
    assert "Input should be a valid" in parsed(["a", *words], is_plain=False)
    refusal = f"{words[0]} {words[1]!r} is not a {kind}; give one, such as {words[0]} {example}"
    assert parsed(["a", *words], is_plain=True) == refusal


@pytest.mark.parametrize(
    "line",
    ["show Life --set seed=x", "show Life --set embed-dim=30 --set num-heads=4", "show --file missing.txt", "nothing"],
)
def test_a_refusal_imports_no_type_adapters(line: str) -> None:
    code = "import sys; from attnviz.cli.commands import main; main(sys.argv[1:]); sys.exit('pydantic' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code, *line.split()], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
