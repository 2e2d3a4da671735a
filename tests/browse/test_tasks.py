"""The questions that people have of attention, played with every key and click counted."""

from collections.abc import Callable

import numpy as np
import pytest
from textual.pilot import Pilot

from attnviz.browse.app import Browser
from attnviz.browse.save import save_picture
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from tests.browse.examples import previous_maps, wide_recording
from tests.browse.player import played, until
from tests.conftest import dense_maps

pytestmark = pytest.mark.slow

Asked = Callable[[Browser], bool]


def shown(browser: Browser) -> str:
    return "\n".join("".join(segment.text for segment in strip) for strip in browser.canvas.strips)


def actions(recording: Recording, steps: list[str | tuple[str, str]], answered: Asked) -> int:
    """How many actions it took: a key is one, and a line that is typed after a key and ended by Enter is one."""

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        for step in steps:
            if isinstance(step, tuple):
                await pilot.press(step[0], *step[1], "enter")
            else:
                await pilot.press(step)
        await until(pilot, lambda: answered(browser))

    played(recording, play, (120, 40))
    return len(steps)


def named_heads() -> Recording:
    return Recording(maps=(previous_maps(0), previous_maps(1)), model="a test")


def test_head_that_attends_to_the_previous_token_takes_one_action() -> None:
    def answered(browser: Browser) -> bool:
        return "▸0.4 1.00" in shown(browser) and "previous token 1.00" in shown(browser)

    assert actions(named_heads(), [("slash", "prev")], answered) == 1


def test_what_a_token_attends_to_in_all_heads_takes_one_action_after_it_is_found(recording: Recording) -> None:
    def answered(browser: Browser) -> bool:
        weights = [f"{dense_maps(layer).weights[head, 2].max():.1%}" for layer in range(2) for head in range(3)]
        return "what “q2” (2) attends to" in shown(browser) and all(weight in shown(browser) for weight in weights)

    assert actions(recording, [("slash", "q2")], answered) == 1  # from all heads finding shows it
    assert actions(recording, ["enter", ("slash", "q2"), "a"], answered) - 2 == 1  # from an open head


def test_two_heads_are_compared_in_three_actions(recording: Recording) -> None:
    def answered(browser: Browser) -> bool:
        return "heads 0.0, 1.0" in shown(browser)

    assert actions(recording, ["space", "down", "equals_sign"], answered) == 3
    assert actions(recording, [("slash", "0.0,1.0"), "equals_sign"], answered) == 2


def test_token_is_followed_across_layers_by_the_means_of_the_lens(recording: Recording) -> None:
    mean = dense_maps(1).weights[:, 3].mean(axis=0)

    def answered(browser: Browser) -> bool:
        return f"{mean.max():.1%} k{int(np.argmax(mean))}" in shown(browser).split("layer 1, mean")[-1]

    assert actions(recording, [("slash", "q3")], answered) == 1


def test_chosen_heads_are_averaged_in_two_actions(recording: Recording) -> None:
    maps = dense_maps(1).weights.mean(axis=0)

    def answered(browser: Browser) -> bool:
        return "mean of heads 1.0, 1.1, 1.2" in shown(browser) and f"weight {maps[0, 0]:.2%}" in shown(browser)

    assert actions(recording, [("f", "layer:1"), "m"], answered) == 2
    assert actions(recording, [("slash", "1.0 1.1 1.2"), "m"], answered) == 2


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


def test_token_among_512_is_found_in_one_action() -> None:
    def answered(browser: Browser) -> bool:
        return browser.canvas.state.query == 401 and "query 401 t401" in shown(browser)

    assert actions(wide_recording(1, 1, 512), ["enter", ("slash", "t401")], answered) - 1 == 1


def test_figure_is_written_in_one_action(recording: Recording, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter", "s", "enter")
        await browser.workers.wait_for_complete()
        assert (tmp_path / "head-0.0.svg").stat().st_size > 1000

    played(recording, play, save=lambda screen, state, path: save_picture(screen, state, path, Look()))


def test_link_and_command_take_two_actions(recording: Recording) -> None:
    def answered(browser: Browser) -> bool:
        return "copied attnviz show run.safetensors --heads 0.0" in shown(browser)

    assert actions(recording, ["enter", "y", "l"], answered) - 1 == 2


def test_why_a_weight_is_what_it_is_takes_one_action(recording: Recording) -> None:
    def answered(browser: Browser) -> bool:
        return "why “q0” → “k0”" in shown(browser)

    assert actions(recording, ["enter", "x"], answered) - 1 == 1


def test_heads_are_filtered_in_one_action(recording: Recording) -> None:
    def answered(browser: Browser) -> bool:
        return "3 of 6 heads" in shown(browser)

    assert actions(recording, [("f", "layer:1")], answered) == 1
