import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual.pilot import Pilot

from attnviz.base.errors import AttnvizError
from attnviz.browse import start as browse
from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.keys import press
from attnviz.browse.actions.visited import start_state
from attnviz.browse.app import Browser
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size
from attnviz.browse.view.screen import draw
from attnviz.cli.commands import main
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.report.picture.look import Look
from attnviz.text.groups import Groups
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import Tokens
from tests.browse.examples import after, shown_text
from tests.browse.player import after_play, no_save, until
from tests.conftest import dense_maps
from tests.metrics.examples import maps_of
from tests.streams import Streams
from tests.text.examples import labelled_tokens


def test_without_a_terminal_it_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["browse", "Life is short"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "needs a terminal; use attnviz show" in said


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "find_spec", lambda name: None)
    with pytest.raises(AttnvizError, match=r"run pip install -c constraints.txt '\.\[browse\]'"):
        browse.refuse_browse()


def test_saved_recording_is_browsed_without_torch(recording: Recording, tmp_path: Path) -> None:
    save(recording, tmp_path / "run.safetensors")
    code = (
        "import sys; from attnviz.browse import start as browse; from attnviz.cli import commands as cli; "
        "browse.refuse_browse = lambda: None;"
        "browse.browse = lambda *rest: __import__('attnviz.browse.app') and 0;"
        "cli.main(['browse', sys.argv[1]]);"
        "print([name for name in ('torch', 'transformers', 'matplotlib') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run.safetensors")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_options_that_browse_would_ignore_are_refused(monkeypatch: pytest.MonkeyPatch, shell: Streams) -> None:
    monkeypatch.setattr(browse, "refuse_browse", lambda: None)
    assert "--query has no effect in browse" in shell.refused("browse", "Life is short", "--query", "is")


def test_survey_that_cannot_be_read_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "heads.safetensors"
    path.write_bytes(b"\x40\0\0\0\0\0\0\0" + rb'{"__metadata__":{"attnviz":"{\"survey\":1}"}}'.ljust(64))
    monkeypatch.setattr(browse, "refuse_browse", lambda: None)
    assert main(["browse", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "heads.safetensors' is not" in said


def test_contributions_are_looked_through_in_the_place_of_weights(
    monkeypatch: pytest.MonkeyPatch, recording: Recording, tmp_path: Path
) -> None:
    moved = np.arange(1, 22, dtype=np.float32).reshape(3, 7)
    kept = replace(recording, maps=tuple(replace(maps, value_norms=moved) for maps in recording.maps))
    save(kept, tmp_path / "run.safetensors")
    shown: list[Recording] = []
    monkeypatch.setattr(browse, "refuse_browse", lambda: None)
    monkeypatch.setattr(browse, "browse", lambda recording, *rest: len(shown.__iadd__([recording])) - 1)
    assert main(["browse", str(tmp_path / "run.safetensors"), "--of", "contributions"]) == 0
    screen = Screen(Session(shown[0]), Size(80, 24), 2**24)
    text = shown_text(screen, after(screen, "enter", "home", "right"))
    assert f"contribution {dense_maps(0).weights[0, 0, 1] * 2:.4f}" in text
    assert "contributions" in text.split("\n")[0]


PICTURE = Image(np.zeros((16, 16, 3), dtype=np.uint8), 16, 16)
OVER_TURNS = ("1 user", "2 tool result", "3 answer")


@pytest.mark.parametrize(
    ("count", "given", "begins", "units"),
    [
        (3, {}, "turns", "turns"),
        (256, {}, "turns", "turns"),
        (257, {}, "tokens", "words"),
        (1, {}, "tokens", "words"),
        (0, {}, "tokens", "words"),
        (3, {"grouping": Grouping(by="words")}, "words", "words"),
        (3, {"selection": Selection(queries=(1, 2))}, "tokens", "turns"),
        (3, {"address": "head=0.0&query=t2"}, "tokens", "turns"),
        (3, {"quantity": "contribution"}, "tokens", "turns"),
        (3, {"media": (Text(), PICTURE)}, "tokens", "turns"),
    ],
)
def test_chat_opens_by_its_turns_unless_something_else_is_asked(
    monkeypatch: pytest.MonkeyPatch, count: int, given: dict[str, Any], begins: str, units: str
) -> None:
    sessions = list[Session]()

    def stop(session: Session, uses_ascii: bool) -> None:
        sessions.append(session)
        raise AttnvizError("the session is known")

    monkeypatch.setattr("attnviz.browse.first_screen.early_screen", stop)
    monkeypatch.setattr(browse, "_take_keys_from_terminal", lambda: None)
    turns = Groups(np.arange(300) % count, tuple(f"{turn} user" for turn in range(count))) if count else None
    tokens = replace(Tokens.numbered(300, "t"), groups={} if turns is None else {"turns": turns})
    if "media" in given:
        tokens = replace(tokens, media=given.pop("media"), places=np.zeros((300, 4), dtype=np.int64))
    maps = replace(maps_of(np.eye(300)[None], tokens), quantity=given.pop("quantity", "weight"))
    with pytest.raises(AttnvizError, match="the session is known"):
        browse.browse(Recording(maps=(maps,), model="m"), None, given.pop("selection", Selection()), Look(), **given)
    session = sessions[0]
    view = start_state(Screen(session, Size(80, 24), 0)).view
    assert (session.unit_name if view.words else "tokens", session.unit_name) == (begins, units)


def test_title_of_an_open_head_names_the_turns_and_their_key() -> None:
    tokens = replace(Tokens.numbered(6, "t"), groups={"turns": Groups(np.arange(6) // 2, OVER_TURNS)})
    recording = Recording(maps=(maps_of(np.eye(6)[None], tokens),), model="m")
    screen = Screen(Session(recording, unit_name="turns", begins_joined=True), Size(80, 24), 0)
    state = press(screen, start_state(screen), "enter")
    assert "weights · turns (w)" in shown_text(screen, state).split("\n")[0]
    assert screen.session.units(0, state.view)[0].labels == OVER_TURNS
    by_tokens = press(screen, state, "w")
    assert "turns" not in shown_text(screen, by_tokens).split("\n")[0]
    assert press(screen, by_tokens, "w").view == state.view


@pytest.fixture
def chat() -> Recording:
    """Three turns after a sign of the template, at which the last one looks most."""
    weights = np.tri(6) / 6
    weights[4:] = [[0.5, 0.1, 0.05, 0.05, 0.3, 0], [0.5, 0.1, 0.05, 0.05, 0.2, 0.1]]  # most on the sign at 0
    turns = Groups(np.array([-1, 0, 0, 1, 2, 2]), ("1 user", "2 model", "3 user"))
    words = labelled_tokens(["<s>", "t1", "t2", "t3", "t4", "t5"], "------")
    tokens = replace(words, groups={"turns": turns}, special=np.arange(6) == 0)
    return Recording(maps=(maps_of(weights[None], tokens, np.tri(6, dtype=bool)),), model="m")


def test_sentence_of_a_chat_is_of_its_turns_and_leads_to_them(chat: Recording) -> None:
    async def play(pilot: Pilot[int], browser: Browser) -> None:
        await until(pilot, lambda: bool(browser.state.message))
        assert browser.state.message == (
            "“3 user” looks 30% at itself, 15% at “1 user”, 5% at “2 model” on average; head 0.0 looks 15% at “1 user”."
        )
        browser.go_to(next(phrase.address for phrase in browser.session.phrases if phrase.text.startswith("0.0")))
        rows, keys = (units.labels for units in browser.session.units(0, browser.state.view))
        assert (rows[browser.state.query], keys[browser.state.key]) == ("3 user", "1 user")

    after_play(Browser(Session(chat, unit_name="turns", begins_joined=True), no_save), play, (120, 24))


def test_chat_opens_at_its_last_turn_and_no_sign_of_the_template_is_an_answer(chat: Recording) -> None:
    screen = Screen(Session(chat, unit_name="turns", begins_joined=True), Size(90, 40, text_lines=5), 0)
    state = start_state(screen)
    shown = shown_text(screen, state)
    assert "shades: what 3 user looks at in head 0.0, 0% to 100%: 3 user 30.0%, 1 user 15.0%" in shown
    turns = [
        line.split() for line in shown.split("\n") if line.startswith((" 1 user", " 2 model", " 3 user", " marks"))
    ]
    said = [["1", "user", "t1t2"], ["2", "model", "t3"], ["3", "user", "t4t5"], ["marks", "<s>"]]
    assert turns == said, "the text of each turn, and what is no turn last"
    opened = press(screen, state, "enter")
    rows, keys = (units.labels for units in screen.session.units(0, state.view))
    assert (rows[opened.query], keys[opened.key]) == ("3 user", "3 user")
    side = draw(screen, opened).side
    assert side is not None
    assert [line[-1].text.strip() for line in side.keys.lines] == ["3 user", "1 user", "2 model", "marks"]


def test_place_that_is_none_is_refused_before_the_terminal_is_taken(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="is not a place"):
        browse.browse(recording, None, Selection(), Look(), None, "nonsense")
