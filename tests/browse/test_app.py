import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual import events
from textual.command import CommandList
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import KeyPanel

from attnviz.browse.actions.keys import KEYS
from attnviz.browse.app import Browser
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Theme
from attnviz.browse.view.parts import PAPERS
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.report.words.notes import read_names
from attnviz.text.tokens import Tokens
from tests.browse import player
from tests.browse.examples import wide_recording
from tests.browse.player import after_play, key_times, no_save, played, shown, strips, until
from tests.conftest import dense_maps, random_maps

pytestmark = pytest.mark.slow

SLOWEST = 0.5  # seconds of a busy processor to answer a key; python -m benchmarks browse has the limit of a free one


def prompted(browser: Browser) -> str:
    """What the open prompt asks for and its text; empty if none is open."""
    return f"{browser.asked}: {browser.prompt.value}" if browser.prompt.display else ""


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12), (30, 8), (1, 1)])
def test_every_line_is_as_wide_as_the_terminal(recording: Recording, size: tuple[int, int]) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        for keys in ([], ["enter"], ["plus", "plus"], ["escape", "o"]):
            await pilot.press(*keys)
            assert len(strips(browser)) == size[1]
            assert {strip.cell_length for strip in strips(browser)} == {size[0]}

    played(recording, play, size)


def test_q_closes_the_help_and_only_then_quits(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("question_mark", "q")
        assert browser.return_value is None
        await pilot.press("q")
        assert browser.return_value == 0

    played(recording, play)


def test_token_that_looks_like_markup_is_shown_as_it_is() -> None:
    labels = ("[bold]", "[/]", "</b>", "\x1b[2J", "🎉", "東京", "a\tb")
    tokens = Tokens(**(vars(Tokens.numbered(len(labels))) | {"labels": labels}))
    recording = wide_recording(1, 1, len(labels))
    maps = DenseMaps(**(vars(recording.maps[0]) | {"query_tokens": tokens, "key_tokens": tokens}))

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter")
        assert "[bold] [/] </b> \\x1b[2J 🎉 東京 a\\tb" in shown(browser)
        assert "\x1b" not in shown(browser)

    played(Recording(maps=(maps,), model="[red]model[/red]\x1b[5m"), play)


PROMPTS = (
    ("slash", "query: "),
    ("slash i n d escape", ""),
    ("enter slash", "query: "),
    ("a slash", "query: "),
    ("enter backslash k 2 q backspace", "key: k2"),  # keys that mean something else
    ("enter s x", "save: x"),  # the first character replaces the name that is offered
    ("enter s right x", "save: head-0.0.svgx"),
    ("enter s end backspace", "save: head-0.0.sv"),
    ("enter s home delete ctrl+e g", "save: ead-0.0.svgg"),
)


def test_prompt_is_a_text_field_whose_text_is_answered_by_enter(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        for keys, prompt in PROMPTS:
            await pilot.press(*keys.split())
            assert prompted(browser) == prompt, keys
            await pilot.press(*["escape"] * 4)
        await pilot.press("enter", "backslash", *"k2", "enter")
        assert browser.state.key == 2
        await pilot.press("q")

    assert played(recording, play).return_code == 0


@pytest.mark.parametrize("theme", PAPERS)
def test_prompt_and_list_of_keys_have_the_colours_of_the_theme(
    recording: Recording, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("slash", "escape", "question_mark")
        await pilot.pause()
        for widget in (browser.prompt, browser.query_one(KeyPanel), browser.footer):
            _, _, background, color = widget.colors
            assert (background.rgb, color.rgb) == (PAPERS[theme].paper, PAPERS[theme].ink)

    after_play(Browser(Session(recording, theme=theme), no_save), play, (80, 24))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_mouse_chooses_and_opens_what_it_is_on_and_is_told_what_that_is(
    recording: Recording, size: tuple[int, int]
) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        for is_open in (False, True):  # the second click opens the head that the first one chose
            await pilot.click(offset=(browser.size.width // 3 + 3, 5))
            assert (browser.state.head, browser.state.has_open_head) == (1, is_open)
        await pilot.pause()
        assert "head 0.1" in shown(browser)
        lines = shown(browser).split("\n")
        row = next(y for y, line in enumerate(lines) if re.search(r"(^|│) *q2[ ▸]", line))
        column = lines[row].index("q2") + 3 + 4 * 5
        await pilot.hover(offset=(column, row))
        await pilot.pause()
        assert f"q2 (2) → k5 (5) {dense_maps(0).weights[1, 2, 5]:.1%}" in shown(browser)
        await pilot.click(offset=(column, row))
        assert (browser.state.query, browser.state.key) == (2, 5)
        if size[0] == 120:  # which lists the heads beside the open one
            await pilot.click(offset=(3, lines.index(next(line for line in lines if line.startswith(" 0.2 ")))))
            await pilot.pause()
            assert (browser.state.has_open_head, browser.state.head) == (True, 2)
        await pilot.press("escape")
        for hint, is_open in (("open", True), ("in all heads", False)):  # the hints are buttons
            await pilot.pause()
            place = shown(browser).split("\n")[-1].index(hint), size[1] - 1
            await pilot.hover(offset=place)
            await pilot.pause()
            assert browser.footer.tooltip == next(
                key.tooltip for key in browser.footer.hints if key.description == hint
            )
            await pilot.click(offset=place)
            await pilot.pause()
            assert browser.state.has_open_head == is_open

    played(recording, play, size)


def test_a_head_is_named_by_e_and_its_name_is_kept_in_the_file(recording: Recording, tmp_path: Path) -> None:
    file = tmp_path / "heads.txt"
    session = Session(recording, names_file=str(file))

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("right", "e", *"mover", "enter")
        assert browser.state.message == f"saved the name in {file}"
        assert read_names(str(file)) == {"0.1": "mover"}
        assert session.ranking.description(1).startswith("“mover”")
        assert "“" not in session.ranking.description(0)
        await pilot.press("e", "ctrl+u", "enter")
        assert browser.state.message == f"removed the name from {file}"
        assert read_names(str(file)) == {}
        session.names_file = ""
        await pilot.press("e")
        assert "--names heads.txt" in browser.state.message
        assert not browser.asked

    after_play(Browser(session, no_save), play, (80, 24))


def test_refusal_to_save_is_said_and_the_inspector_goes_on(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("s", "enter")
        await browser.workers.wait_for_complete()
        await pilot.pause()
        assert "nothing is saved here" in shown(browser)
        await pilot.press("right")
        assert browser.state.head == 1

    played(recording, play)


def test_sorting_shows_the_measured_numbers(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("o")
        ranking = browser.session.ranking
        await until(pilot, lambda: "entropy" in ranking.measured_names and not browser.background.busy_kinds)
        await pilot.pause()
        assert "by entropy" in shown(browser)
        assert f"{ranking.frame.column('entropy').max():.2f}" in shown(browser).split("\n")[1]

    played(recording, play)


def test_only_lines_that_changed_are_drawn_again(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter")
        ranking = browser.session.ranking  # a head's pattern joins the title as soon as it is measured
        await until(pilot, lambda: ranking.next_unnamed_call(browser.state.view) is None)
        await until(pilot, lambda: not browser.background.busy_kinds)
        await pilot.pause()
        pane = browser.canvas
        before = pane.drawn.lines
        painted: list[Region] = []
        setattr(pane, "refresh", lambda *regions: painted.extend(regions))  # noqa: B010
        await pilot.press("down")
        changed = [y for y, line in enumerate(pane.drawn.lines) if line != before[y]]
        assert [region.y for region in painted] == changed
        assert 0 < len(changed) < len(before)

    played(recording, play)


def test_no_key_takes_long_at_12_by_12_heads_of_512_tokens() -> None:
    recording = wide_recording(12, 12, 512)
    first, second = (key_times(recording, player.KEYS, clock=time.thread_time) for _ in range(2))
    times = {key: min(first[key], second[key]) for key in first}  # a collection of garbage belongs to no key
    assert {key: seconds for key, seconds in times.items() if seconds > SLOWEST} == {}


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_a_row_that_is_no_number_is_shown_as_such(wrong: float) -> None:
    maps = random_maps(Tokens.numbered(4, "t"), heads=1)
    broken = replace(maps, scores=np.full_like(maps.scores, wrong), weights=np.full_like(maps.weights, np.nan))

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter")
        assert " NaN" in shown(browser)
        assert "only tokens have scores" not in shown(browser)
        await pilot.press("s")
        assert "score" in shown(browser)

    played(Recording(maps=(broken,), model="a test"), play)


def test_bar_of_a_key_stands_before_its_label_and_tells_little_from_nothing(recording: Recording) -> None:
    maps = dense_maps(0)
    weights = np.zeros_like(maps.weights)
    weights[:, :, 0], weights[:, :, 1] = 0.848, 0.152
    labels = ("👍🏽", *maps.key_tokens.labels[1:])
    peaked = replace(maps, weights=weights, key_tokens=replace(maps.key_tokens, labels=labels))

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter")
        assert " 84.8% █████▏ 👍🏽" in shown(browser)
        assert " 15.2% ▉      k1" in shown(browser)
        assert "  0.0%        k2" in shown(browser)

    played(Recording(maps=(peaked,), model="a test"), play)


def test_message_that_is_longer_than_the_line_takes_the_next_one(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("n")
        said = " ".join(line.strip() for line in shown(browser).split("\n")[-2:])
        assert said == browser.state.message

    played(recording, play, (40, 20))


def test_copied_text_is_given_to_the_terminal(recording: Recording) -> None:
    copied: list[str] = []

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        setattr(browser, "copy_to_clipboard", copied.append)  # noqa: B010
        await pilot.press("enter", "home", "down", "y", "p")
        assert "copied #head=0.0&query=q1&key=k0" in shown(browser)
        await pilot.press("y", "escape", "y", "l")
        assert "copied attnviz show" in shown(browser)

    played(recording, play)
    assert copied == ["#head=0.0&query=q1&key=k0", copied[1]]
    assert copied[1].endswith("--heads 0.0 --color-scale sqrt --limits 0:1 -o figure.svg")


def test_palette_lists_what_means_something_here(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        listed = [command.title for command in browser.get_system_commands(browser.screen)]
        assert "go to the next strongest key" not in listed
        await pilot.press("enter")
        in_head = [command.title for command in browser.get_system_commands(browser.screen)]
        assert set(in_head) - set(listed) == {"go to the next strongest key", "why this weight: q·k"}

    played(recording, play)


def test_palette_does_what_its_lines_say(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("colon")
        await pilot.pause()
        await pilot.press(*"tokeninall")
        found: Any = browser.screen.query_one(CommandList)
        await until(
            pilot,
            lambda: found.highlighted == 0 and found.get_option_at_index(0).hit.text == "the chosen token in all heads",
        )
        await pilot.press("enter")
        await until(pilot, lambda: browser.state.lens)

    played(recording, play)


@pytest.mark.parametrize("size", [(10, 4), (4, 1), (1, 1)])
def test_palette_outlives_any_size_of_the_terminal(recording: Recording, size: tuple[int, int]) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.resize_terminal(*size)
        await pilot.press("up", "x", "escape")
        await pilot.press("ctrl+p", "up")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: len(strips(browser)) == 24)

    played(recording, play)


def test_keys_from_before_the_first_screen_are_answered_in_their_order(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        browser.early_keys = []  # as before the first drawing
        for key in ("enter", "down", "down"):
            browser.post_message(events.Key(key, None))
        await pilot.pause()
        assert not browser.state.has_open_head
        await browser.show_at_new_size()
        assert (browser.state.has_open_head, browser.state.query) == (True, 2)

    played(recording, play)


def test_keys_that_are_typed_at_once_are_answered_in_their_order(recording: Recording) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        typed = [("slash", "/"), ("i", "i"), ("n", "n"), ("d", "d"), ("enter", None), ("enter", None), ("down", None)]
        for key, character in typed:
            browser.post_message(events.Key(key, character))  # none waits for the one before
        browser.post_message(events.Key("s", "s"))
        browser.post_message(events.Paste("a b\n"))
        await until(pilot, lambda: prompted(browser) == "save: a b")
        state = browser.state
        assert (state.view.order, state.has_open_head, state.query) == ("induction", True, 1)

    played(recording, play)


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 40), (200, 60)])
def test_list_of_keys_says_each_whole_and_scrolls(recording: Recording, size: tuple[int, int]) -> None:
    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        seen = set[str]()
        await pilot.press("question_mark")
        await pilot.pause()
        while panels := browser.query(KeyPanel):
            left = panels.first().region.x
            lines = ["".join(segment.text for segment in strip.crop(left)) for strip in strips(browser)]
            seen.update(" ".join(lines).split())
            await pilot.press("question_mark")
            await pilot.pause()
        assert {word for key in KEYS for word in key.sentence.split()} <= seen
        assert {strip.cell_length for strip in strips(browser)} == {size[0]}

    played(recording, play, size)
