"""The questions that people have of attention, played with every key and click counted."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from attnviz.browse.actions.cursor import Screen
from attnviz.browse.app import Browser
from attnviz.browse.save import save_picture
from attnviz.browse.session.state import State
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from tests.browse.examples import previous_maps, wide_recording
from tests.browse.player import played, shown, until
from tests.conftest import LAYERS, dense_maps

pytestmark = pytest.mark.slow

DENSE = Recording(maps=tuple(dense_maps(layer) for layer in range(LAYERS)), model="a test")
NAMED = Recording(maps=(previous_maps(0), previous_maps(1)), model="a test")
LARGEST = [f"{dense_maps(layer).weights[head, 2].max():.1%}" for layer in range(2) for head in range(3)]
PAIR = [f"{dense_maps(layer).weights[head, 2, 1]:.1%} k1" for layer in range(2) for head in range(3)]
MEAN = dense_maps(1).weights[:, 3].mean(axis=0)
# The recording, the keys, what is then on the screen, and how many keys only led to the place of the question. A key is
# one action, and a line that is typed after a key and ended by Enter is one.
QUESTIONS: dict[str, tuple[Recording, list[str | tuple[str, str]], list[str], int]] = {
    "which head attends to the previous token": (NAMED, [("slash", "prev")], ["▸0.4 1.00", "previous token 1.00"], 0),
    "what a token attends to": (DENSE, [("slash", "q2")], ["what “q2” (2) attends to", *LARGEST], 0),
    "the exact weight of a pair in every head": (DENSE, [("slash", "q2>k1")], [*PAIR, "sorted by this"], 0),
    "what this token attends to in all heads": (DENSE, ["enter", ("slash", "q2"), "a"], LARGEST, 2),
    "two marked heads": (DENSE, ["space", "down", "equals_sign"], ["heads 0.0, 1.0"], 0),
    "two named heads": (DENSE, [("slash", "0.0,1.0")], ["heads 0.0, 1.0"], 0),
    "a token across layers": (DENSE, [("slash", "q3")], [f"{MEAN.max():.1%} k{int(np.argmax(MEAN))}"], 0),
    "the mean of a layer": (DENSE, [("f", "layer:1"), "m"], ["mean of heads 1.0, 1.1, 1.2", "weight "], 0),
    "the mean of named heads": (DENSE, [("slash", "1.0 1.1 1.2"), "m"], ["mean of heads 1.0, 1.1, 1.2"], 0),
    "a token among 512": (wide_recording(1, 1, 512), ["enter", ("slash", "t401")], ["query 401 t401"], 1),
    "a link or a command": (DENSE, ["enter", "y", "l"], ["copied attnviz show run.safetensors --heads 0.0"], 1),
    "why a weight is what it is": (DENSE, ["enter", "x"], ["why “q0” → "], 1),
    "some of the heads": (DENSE, [("f", "layer:1")], ["3 of 6 heads"], 0),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_question_is_answered_in_at_most_three_actions(question: str) -> None:
    recording, steps, answers, led_there = QUESTIONS[question]

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        for step in steps:
            await (pilot.press(step) if isinstance(step, str) else pilot.press(step[0], *step[1], "enter"))
        await until(pilot, lambda: all(answer in shown(browser) for answer in answers))

    played(recording, play, (120, 40))
    assert len(steps) - led_there <= 3


def test_exact_weight_and_score_of_a_cell_take_one_click(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter")
        row = next(line for line, text in enumerate(shown(browser).split("\n")) if " q3" in text)
        column = shown(browser).split("\n")[row].index("q3") + 3
        await pilot.click(offset=(column + 4 * 2 + 1, row))
        maps = dense_maps(0)
        assert f"weight {maps.weights[0, 3, 2]:.2%}" in shown(browser)
        assert f"score  {maps.scores[0, 3, 2]:.4f}" in shown(browser)

    played(recording, play)


@pytest.mark.parametrize(
    ("typed", "name", "millimetres"),
    [
        ("", "head-0.0.svg", None),
        ("column", "head-0.0.svg", 89),
        ("a b.svg page", "a b.svg", 178),
        ("slide", "head-0.0.svg", 339),
    ],
)
def test_figure_is_written_in_two_actions_at_the_width_that_is_typed(
    typed: str,
    name: str,
    millimetres: int | None,
    recording: Recording,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter", "s")
        assert "column (89 mm)" in shown(browser)
        await pilot.press(*typed, "enter")
        await browser.workers.wait_for_complete()

    def save(screen: Screen, state: State, path: Path, size: str | None) -> None:
        save_picture(screen, state, path, replace(Look(), size=size))

    played(recording, play, save=save)
    width = re.search(r'width="([0-9.]+)pt"', (tmp_path / name).read_text())
    assert width
    assert millimetres is None or round(float(width[1]) / 72 * 25.4) == millimetres
