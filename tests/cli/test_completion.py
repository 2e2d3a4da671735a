import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from attnviz.cli.commands import app, main
from attnviz.cli.completion import complete_output
from attnviz.metrics.metrics import METRICS
from attnviz.text.samples import samples

SHELL = {"_ATTNVIZ_COMPLETE": "complete_bash"}


def completed(*words: str) -> list[str]:
    """What a shell offers in the place of the last of the words."""
    code = "from attnviz.cli.commands import main; main()"
    environment = os.environ | SHELL | {"COMP_WORDS": "\n".join(("attnviz", *words)), "COMP_CWORD": str(len(words))}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return run.stdout.split()


def test_options_and_the_names_they_take_are_completed(in_folder: Path) -> None:
    assert completed("show", "--sam") == ["--sample"]
    assert completed("show", "--sample", "") == list(samples())
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


def test_heads_of_a_recording_are_completed(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    context = typer.Context(typer.main.get_command(app))
    assert [each for each in complete_output(context, "ob") if each.endswith("/")] == ["obä-1.2_+,@/"]
    assert complete_output(context, f"{name}/in") == []
    assert "~/fig.png" in complete_output(context, "~/fig")


def test_a_command_completes_the_suffixes_of_all_that_it_writes(in_folder: Path) -> None:
    program: Any = typer.main.get_command(app)
    completed = {
        name: {Path(path).suffix for path in complete_output(typer.Context(program.commands[name]), "run.")}
        for name in ("show", "steps", "heads")
    }
    assert {".png", ".safetensors", ".gif", ".vtt"} <= completed["show"]
    assert completed["steps"] - completed["heads"] == {".gif", ".apng"}
