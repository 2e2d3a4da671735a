import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from attnviz.cli.commands import app
from tools.manual import escape, manual

ROOT = Path(__file__).parents[2]


def test_the_man_page_has_every_option_of_every_command() -> None:
    program: Any = typer.main.get_command(app)
    _, *parts = manual().split("\n.SH ")
    by_title = {part.partition("\n")[0]: part for part in parts}
    assert {"NAME", "SYNOPSIS", "FILES", "EXIT STATUS"} <= set(by_title)
    for name, command in program.commands.items():
        options = [each.opts for each in command.params if each.opts[0].startswith("-") and not each.hidden]
        assert options, name
        page = by_title[name.upper()]
        assert [names for names in options if not any(escape(one) in page for one in names)] == [], name


def test_the_man_page_is_made_with_the_tested_versions() -> None:
    tested = (ROOT / "constraints.txt").read_text().splitlines()
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {one for one in required if "==" in one} <= set(tested)


def test_what_roff_would_obey_is_taken_literally() -> None:
    assert escape(".TH") == "\\&.TH"
    assert escape("a\\fB --x") == "a\\efB \\-\\-x"


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_the_man_page_is_set_without_a_warning() -> None:
    run = subprocess.run(
        ["groff", "-K", "utf8", "-man", "-Tutf8", "-ww"],
        input=manual(),
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    assert run.stderr == ""
    assert "--sort" in run.stdout
