"""The tutorial on conversations is true: its commands run, and what it says of them is what they print."""

import re
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.cli.commands import main

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "conversations.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.slow


@pytest.fixture
def printed(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[str]]:
    """The lines that each kind of command on the page prints, in one folder."""
    import shlex

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^```\{run\} attnviz (.*)$", PAGE, re.MULTILINE):
        capsys.readouterr()
        words = shlex.split(line)
        assert main(words) == 0, line
        name = f"{words[0]} --check" if "--check" in words else words[0]
        found.setdefault(name, capsys.readouterr().out.splitlines())
    return found


def test_what_the_tutorial_says_is_what_its_commands_print(printed: dict[str, list[str]]) -> None:
    assert next(line for line in reversed(printed["show"]) if line.startswith("my bike")).split()[-3] == "94"
    heads = [line.split()[0] for line in printed["heads"] if re.match(r"\d\.\d ", line)]
    assert heads[:2] == ["1.1", "1.0"]
    checked = [line for line in printed["show --check"] if re.search(r" [+-]\d+\.\d\d", line)][:3]
    assert [line.split()[0] for line in checked] == ["my", "the", "snow"]
    assert "+1" in checked[0]
    assert "-" in checked[2].split()[-1]
    steps = [line for line in printed["steps"] if re.match(r" +\d ", line)]
    two = next(line for line in steps if line.split()[1] == "two")
    assert re.search(r"my bike has two.*100%  two 100%", two)
    kept = next(line for line in printed["kept"] if line.startswith("top:2"))
    assert "100%" in kept


def test_the_python_of_the_tutorial_gives_the_numbers_of_the_commands(printed: dict[str, list[str]]) -> None:
    recording = attnviz.load("run.safetensors")
    steps = attnviz.steps(recording, heads="1.1", queries="22:31")
    assert steps.shares.shape[:2] == (1, 9)
    kept = attnviz.kept(recording, ["h2o:10", "top:2"], queries="22:")
    assert kept.kept.shape == (2, 4, 10)
    shown = next(line for line in printed["kept"] if line.startswith("h2o:10")).split()[1]
    assert f"{kept.kept[0].mean():.1%}" == shown
    assert np.all(kept.kept[1, 2:].mean(axis=1) > 0.9)  # two keys are enough in heads 1.0 and 1.1
    assert recording.by("sentences").maps[1].key_tokens.labels[2].startswith("my bike")
