"""README is short, and a clean checkout is set up as it says; the rest is tested with the other documents."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
from pptx import Presentation

from attnviz.cli.commands import main
from attnviz.metrics import metrics
from tests.streams import Streams

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:console|sh)\n(.*?)```", README, re.DOTALL)
LINES = [line.removeprefix("$ ") for block in BLOCKS for line in block.splitlines()]
SETUP = [line for line in LINES if line.startswith("pip install")]


def test_two_commands_set_everything_up_and_the_clean_checkout_runs_them() -> None:
    assert len(SETUP) == 2
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("pip install -q", "pip install")
    assert [command for line in SETUP for command in line.split(" && ") if command not in script] == []


@pytest.mark.slow
def test_all_its_commands_run_in_their_order(in_folder: Path) -> None:
    commands = [line for line in LINES if line.startswith("attnviz ")]
    assert len(commands) >= 9
    for command in commands:
        assert main(shlex.split(command, comments=True)[1:]) == 0, command
    assert {path.suffix for path in in_folder.iterdir()} == {".safetensors", ".html", ".pdf", ".png"}


def test_it_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 150


def test_its_python_runs_as_typed_and_makes_slides(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(code, {})
    assert "Attention of head 1.1 in AcmeLM 3, 8 queries (rows) over 8 keys" in " ".join(
        capsys.readouterr().out.split()
    )
    names = [slide.shapes.title.text for slide in Presentation(str(in_folder / "talk.pptx")).slides]
    assert names[0] == "What AcmeLM looks at"
    assert [head in name for head, name in zip(("ead 0.0", "ead 0.1"), names[1:], strict=True)] == [True, True]


def test_contributing_names_files_that_are_here_and_a_metric_that_works(
    monkeypatch: pytest.MonkeyPatch, shell: Streams
) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(
        r"`((?:cli|models|report|render|attnviz|tests|docs|fuzzing|tools)/[\w./-]+\.(?:py|md|json))", text
    )
    paths += re.findall(r"pytest (tests/\S+?)[`\s]", text)
    assert [path for path in paths if not any((root / path).exists() for root in (ROOT, ROOT / "attnviz"))] == []
    assert len(paths) > 15
    [function, line] = textwrap.dedent(re.findall(r" ```python\n(.*?) ```", text, re.DOTALL)[0]).split("\n\n\n")
    names = dict(vars(metrics))
    exec(function, names)
    monkeypatch.setitem(metrics.METRICS, "second", eval(line, names))
    found = shell.json("heads", "the cat sat. the cat sat", "--model", "trained", "--sort", "second")
    first = found["heads"][0]
    assert (first["head"], round(first["values"]["second"], 2)) == ("1.0", 0.55)
