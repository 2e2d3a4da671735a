import shlex

import pytest

from attnviz.browse.command import figure_command
from attnviz.browse.moves.cursor import Screen, first_state
from attnviz.browse.moves.finding import filter_heads
from attnviz.browse.moves.keys import press
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.cli.commands import main
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from attnviz.text.tokens import tokenize
from tests.browse.examples import previous_maps, wide_recording
from tests.conftest import random_maps


def screen_of(recording: Recording, width: int = 120) -> Screen:
    return Screen(Session(recording, file="run.safetensors"), Size(width, 40), 2**24)


def after(screen: Screen, *keys: str) -> State:
    state = State()
    for key in keys:
        state = press(screen, state, key)
    return state


KEYS = [
    (["enter"], "--heads 0.4 --color-scale sqrt --limits 0:1"),
    (["enter", "l"], "--heads 0.4 --color-scale linear --limits 0:1"),
    (["enter", "c"], "--heads 0.4 --color-scale sqrt --limits head"),
    (["space", "right", "space", "equals_sign"], "--heads 0.4,0.7 --color-scale sqrt --limits 0:1"),
    (["space", "right", "space", "m"], "--heads 0.4,0.7 --reduce mean --color-scale sqrt --limits 0:1"),
    (["R"], "--heads 0.4,0.7,1.4,1.7 --reduce rollout --color-scale sqrt --limits 0:1"),
    (["enter", "down", "down", "a"], "--all --query @2 --color-scale sqrt --limits 0:1"),
    ([], "--all --color-scale sqrt --limits 0:1"),
    (["o"], "--sort entropy --all --color-scale sqrt --limits 0:1"),
]


@pytest.mark.parametrize(("keys", "words"), KEYS)
def test_line_says_what_the_screen_shows(keys: list[str], words: str) -> None:
    screen = screen_of(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"))
    line, lacks = figure_command(screen, after(screen, *keys))
    assert line == f"attnviz show run.safetensors {words} -o figure.svg"
    assert lacks == ""


def test_line_has_the_filter_and_the_part_that_is_seen() -> None:
    screen = screen_of(wide_recording(2, 2, 300))
    state = filter_heads(screen, State(), "layer:1  -head:0")
    assert "--filter 'layer:1 -head:0'" in figure_command(screen, state)[0]
    line, _ = figure_command(screen, after(screen, "enter", "plus", "plus", "plus"))
    assert "--queries 0:" in line
    assert "--keys 0:" in line


def test_what_the_line_does_not_draw_is_told() -> None:
    screen = screen_of(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"))
    assert "difference" in figure_command(screen, after(screen, "space", "right", "space", "d"))[1]
    assert "s saves the scores" in figure_command(screen, after(screen, "enter", "v"))[1]
    assert "what attends to this one" in figure_command(screen, after(screen, "a", "r"))[1]


@pytest.mark.slow
def test_every_line_is_a_command_that_draws(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    recording = Recording(maps=(previous_maps(0), previous_maps(1)), model="a test")
    save(recording, tmp_path / "run.safetensors")
    monkeypatch.chdir(tmp_path)
    screen = screen_of(recording)
    for keys, _ in KEYS:
        line, _ = figure_command(screen, after(screen, *keys))
        assert main([*shlex.split(line)[1:], "--force"]) == 0
        assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_units_that_tokens_are_joined_to_are_those_of_the_line() -> None:
    maps = random_maps(tokenize("One two. Three four?"), heads=1)
    recording = Recording(maps=(maps,), model="a model")
    session = Session(recording, file="run.safetensors", unit_name="sentences", begins_joined=True)
    screen = Screen(session, Size(120, 40), 2**24)
    state = first_state(screen)
    assert [units.labels for units in session.units(0, state.view)] == [("One two.", "Three four?")] * 2
    assert "--by sentences" in figure_command(screen, state)[0]
    assert "--by" not in figure_command(screen, press(screen, press(screen, state, "enter"), "w"))[0]
