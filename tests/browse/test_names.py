from pathlib import Path

import pytest

from attnviz.browse.app import Browser
from attnviz.browse.session.session import Session
from attnviz.maps.recording import Recording
from attnviz.report.words.notes import read_names
from tests.browse.player import after_play, no_save


def test_a_head_is_named_by_e_and_keeps_its_name_in_the_file(recording: Recording, tmp_path: Path) -> None:
    file = tmp_path / "heads.txt"

    async def play(pilot, browser) -> None:  # type: ignore[no-untyped-def]
        await pilot.press("right", "e", *"mover", "enter")
        assert browser.canvas.state.message == f"saved the name in {file}"

    browser = Browser(Session(recording, names_file=str(file)), no_save)
    after_play(browser, play, (80, 24))
    assert read_names(str(file)) == {"0.1": "mover"}
    again = Session(recording, given_names=read_names(str(file)))
    assert again.ranking.description(1).startswith("“mover”")
    assert "“" not in again.ranking.description(0)


def test_a_blank_name_is_removed_and_the_message_says_so(recording: Recording, tmp_path: Path) -> None:
    file = tmp_path / "heads.txt"
    file.write_text("0.0 mover\n", encoding="utf-8")

    async def play(pilot, browser) -> None:  # type: ignore[no-untyped-def]
        await pilot.press("e", "ctrl+u", "enter")
        assert browser.canvas.state.message == f"removed the name from {file}"

    session = Session(recording, given_names=read_names(str(file)), names_file=str(file))
    after_play(Browser(session, no_save), play, (80, 24))
    assert read_names(str(file)) == {}


@pytest.mark.parametrize("keys", [("e",)])
def test_without_a_file_e_says_how_to_keep_names(recording: Recording, keys: tuple[str, ...]) -> None:
    async def play(pilot, browser) -> None:  # type: ignore[no-untyped-def]
        await pilot.press(*keys)
        assert "--names heads.txt" in browser.canvas.state.message
        assert browser.canvas.state.prompt is None

    after_play(Browser(Session(recording), no_save), play, (80, 24))
