"""README is true: its commands and options exist, its output is real, and a clean checkout is set up as it says."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from attnviz.cli.commands import app, main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:console|sh)\n(.*?)```", README, re.DOTALL)
LINES = [line.removeprefix("$ ") for block in BLOCKS for line in block.splitlines()]
SETUP = [line for line in LINES if line.startswith("pip install")]


def commands(line: str) -> list[list[str]]:
    """The attnviz commands of a line of shell, each split into words."""
    words = shlex.split(line, comments=True)
    starts = [index for index, word in enumerate(words) if word == "attnviz"]
    return [words[start + 1 :] for start in starts]


@pytest.mark.parametrize("words", [words for line in LINES for words in commands(line)], ids=" ".join)
def test_every_command_and_option_named_exists(words: list[str]) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert words[0] in known or words[0].startswith("--")
    options = {
        name for option in known.get(words[0], known["show"]).params for name in (*option.opts, *option.secondary_opts)
    }
    used = {word for word in words[1:] if re.match(r"--?[a-z]", word)}
    assert used <= options


def test_first_output_is_the_real_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    command, output = re.search(r"\$ attnviz (.*?)\n(.*?)```", README, re.DOTALL).groups()  # type: ignore[union-attr]
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == output


def test_two_commands_set_everything_up_and_the_clean_checkout_runs_them() -> None:
    assert len(SETUP) == 2
    script = (
        (ROOT / ".ci" / "run")
        .read_text(encoding="utf-8")
        .replace("pip install -q", "pip install")
        .replace("pytest -q", "pytest")
    )
    assert all(line in script for line in SETUP)


def test_pictures_named_are_there() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)
