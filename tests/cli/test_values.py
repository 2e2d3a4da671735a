"""Values of options: plain ones are the same as typer's, without its type adapters; and shells complete them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer.main

from attnviz.cli.commands import app as program
from attnviz.cli.commands import main
from attnviz.cli.help import complete_output, convert_plain_values
from attnviz.metrics.metrics import METRICS
from attnviz.text.samples import sample_pictures, samples

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


def test_a_refusal_imports_no_type_adapters() -> None:
    lines = (
        "show Life --set seed=x",
        "show Life --set embed-dim=30 --set num-heads=4",
        "show --file missing.txt",
        "nothing",
    )
    code = (
        f"import sys; from attnviz.cli.commands import main; [main(line.split()) for line in {lines}];"
        "sys.exit('pydantic' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()


SHELL = {"_ATTNVIZ_COMPLETE": "complete_bash"}


def completed(*words: str) -> list[str]:
    """What a shell offers in the place of the last of the words."""
    code = "from attnviz.cli.commands import main; main()"
    environment = os.environ | SHELL | {"COMP_WORDS": "\n".join(("attnviz", *words)), "COMP_CWORD": str(len(words))}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return run.stdout.split()


def test_options_and_the_names_they_take_are_completed(in_folder: Path) -> None:
    assert completed("show", "--cau") == ["--causal"]
    assert completed("show", "sam") == [f"sample:{name}" for name in (*samples(), *sample_pictures())]
    assert completed("show", "--set", "num-h") == ["num-heads="]
    assert completed("show", "--set", "pool=") == ["pool=mean", "pool=max"]
    assert completed("show", "--style", "p") == ["pairs", "points:…"]
    assert completed("show", "--theme", "d") == ["dark"]
    assert completed("explain", "--step", "so") == ["softmax"]
    assert completed("info", "d") == ["devices"]


def test_every_metric_is_completed(in_folder: Path) -> None:
    assert {*METRICS} <= {*completed("heads", "--sort", "")}


def test_suffixes_and_folders_are_completed(in_folder: Path) -> None:
    (in_folder / "figures").mkdir()
    offered = completed("show", "-o", "fig")
    assert "figures/" in offered
    assert {"fig.png", "fig.svg", "fig.html"} <= {*offered}
    assert completed("show", "-o", "fig.sv") == ["fig.svg"]
    assert {"fig.png", "fig.svg"} <= {*completed("show", "-o", "fig.")}
    (in_folder / "figures" / "x\x1b[31m").mkdir()
    (in_folder / "figures" / "new").mkdir()
    assert completed("show", "-o", f"{in_folder}/fig")[0] == f"{in_folder}/figures/"
    assert [name for name in completed("show", "-o", "figures/") if name.endswith("/")] == ["figures/new/"]
    assert completed("show", "-o", "none/of/it/")


def test_heads_of_a_recording_are_completed(in_folder: Path) -> None:
    assert main(("show", "a b", "--set", "num-heads=2", "-o", "run.safetensors")) == 0
    assert completed("show", "run.safetensors", "--heads", "") == ["0.0", "0.1"]
    assert completed("show", "run.safetensors", "--heads", "0.0,") == ["0.0,0.0", "0.0,0.1"]
    Path("broken.safetensors").write_bytes(b"no recording")
    assert completed("show", "broken.safetensors", "--heads", "") == []


@pytest.mark.parametrize(
    "name", [r"ob\$(touch PWNED)", 'ob"', r"ob\"", "ob;touch PWN;", "ob`x`", "ob x", "ob\x1b[31m", "ob'", "ob*", "ob~"]
)
def test_a_folder_whose_name_a_shell_would_obey_is_not_completed(in_folder: Path, name: str) -> None:
    for folder in (name, "obä-1.2_+,@"):
        (in_folder / folder / "inside").mkdir(parents=True)
    context = typer.Context(typer.main.get_command(program))
    assert [each for each in complete_output(context, "ob") if each.endswith("/")] == ["obä-1.2_+,@/"]
    assert complete_output(context, f"{name}/in") == []
    assert "~/fig.png" in complete_output(context, "~/fig")


def test_a_command_completes_the_suffixes_of_all_that_it_writes(in_folder: Path) -> None:
    commands: Any = typer.main.get_command(program)
    completed = {
        name: {Path(path).suffix for path in complete_output(typer.Context(commands.commands[name]), "run.")}
        for name in ("show", "heads")
    }
    assert {".png", ".safetensors", ".gif", ".vtt"} <= completed["show"]
    assert completed["heads"] & {".safetensors", ".gif", ".vtt"} == set()
