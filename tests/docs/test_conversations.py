"""The tutorial on conversations is true: it says what its outputs show, which test_documents compares with today's."""

import re
from pathlib import Path
from typing import Any

import pytest

import attnviz
from attnviz.cli.commands import main
from tools.docs.commands import BLOCK

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "conversations.md").read_text(encoding="utf-8")
TEXT = "the king lives in a castle. my bike has two wheels and a red bell. snow falls in winter. "
SHOWN = {  # by command and, if there is one, -o or steps
    " ".join([block["typed"].split()[1], *re.findall("-o|steps", block["typed"])]): block["output"].splitlines()
    for block in reversed([*BLOCK.finditer(PAGE)])  # of two of a kind, the first
}


def numbers(lines: list[str], start: str) -> list[float]:
    """The numbers of the last line that begins so."""
    line = next(line for line in reversed(lines) if line.startswith(start))
    return [float(number) for number in re.findall(r"[+-]?\d+(?:\.\d+)?", line.removeprefix(start))]


def test_the_last_sentence_puts_94_percent_on_the_second_by_the_heads_that_retrieve() -> None:
    assert numbers(SHOWN["show"], "my bike")[-3] == 94
    heads = [line.split()[0] for line in SHOWN["heads"] if re.match(r"\d\.\d ", line)]
    assert heads == ["1.1", "1.0", "0.1", "0.0"]


def test_without_a_sentence_the_answer_is_impossible_and_without_another_it_hardly_changes() -> None:
    lost = numbers(SHOWN["why"], "4 my bike")  # of the last row of both maps, the second
    assert lost[-2] == pytest.approx(130, abs=1)
    assert lost[-1] == pytest.approx(0, abs=0.1)


def test_the_first_step_looks_at_snow_and_the_step_of_two_at_two() -> None:
    steps = {line.split()[1]: line for line in SHOWN["show steps"] if re.match(r" +\d ", line)}
    assert "snow 89%" in steps["my"]
    assert re.search(r"my bike has two.*100%  two 100%", steps["two"])


@pytest.mark.slow
def test_the_python_of_the_tutorial_gives_the_numbers_of_the_commands(in_folder: Path) -> None:
    for last in ("my bike has two wheels and a red bell", "snow falls in winter"):
        name = f"{last.split()[0]}.safetensors"
        assert main(["show", TEXT + last, "--model", "trained", "-o", name]) == 0
    recording = attnviz.load("my.safetensors")
    assert attnviz.steps(recording, heads="1.1", queries="22:31").shares.shape[:2] == (1, 9)
    sentences = recording.by("sentences").maps[1]
    assert sentences.key_tokens.labels[2].startswith("my bike")
    control: Any = attnviz.load("snow.safetensors").by("sentences").maps[1]  # the third sentence is said again
    assert control.weights[1, -1, 3] > 0.7 > 0.2 > control.weights[1, -1, 2]
