"""README is true: its commands and options exist, and a clean checkout is set up as it says; its output is tested with
that of the other documents."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from attnviz.cli.commands import app

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


def test_two_commands_set_everything_up_and_the_clean_checkout_runs_them() -> None:
    assert len(SETUP) == 2
    script = (
        (ROOT / ".ci" / "run")
        .read_text(encoding="utf-8")
        .replace("pip install -q", "pip install")
        .replace("pytest -q", "pytest")
    )
    assert all(line in script for line in SETUP)


def test_it_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 150


def test_pictures_named_are_there() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)
