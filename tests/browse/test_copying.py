import shlex
from functools import partial

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import first_state
from attnviz.browse.actions.finding import filter_heads
from attnviz.browse.actions.keys import press
from attnviz.browse.copying import clipboard_text, figure_command
from attnviz.browse.session.state import State
from attnviz.cli.commands import main
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from attnviz.text.tokens import tokenize
from tests.browse import examples
from tests.browse.examples import after, long_recording, previous_maps, wide_recording
from tests.conftest import dense_maps, random_maps

screen_of = partial(examples.screen_of, width=120, height=40)
file_screen = partial(screen_of, file="run.safetensors")


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.split("\n")]


def test_cell_and_row_have_weights_and_scores(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "enter", "home", "down", "right", "right")
    maps = dense_maps(0)
    assert rows(clipboard_text(screen, state, "cell")[0])[1] == [
        *("0.0", "1", "q1", "2", "k2"),
        *(f"{maps.weights[0, 1, 2]:.6g}", f"{maps.scores[0, 1, 2]:.6g}"),
    ]
    row = rows(clipboard_text(screen, state, "row")[0])
    assert len(row) == 1 + 7
    assert [float(line[5]) for line in row[1:]] == sorted((float(line[5]) for line in row[1:]), reverse=True)


def test_table_is_what_is_seen_queries_down(recording: Recording) -> None:
    screen = screen_of(recording)
    table = rows(clipboard_text(screen, after(screen, "enter"), "table")[0])
    assert table[0] == ["head 0.0", *(f"k{key}" for key in range(7))]
    assert table[4][0] == "q3"
    assert float(table[4][6]) == pytest.approx(dense_maps(0).weights[0, 3, 5], rel=1e-5)


def test_lens_is_copied_heads_down_and_masked_cells_are_empty(causal_recording: Recording) -> None:
    screen = screen_of(causal_recording)
    state = after(screen, "enter", "down", "a")
    while screen.session.token_rows.compute(list(range(6)), state.view, state.token, state.direction):
        pass  # slice by slice, however long each takes
    table = rows(clipboard_text(screen, state, "table")[0])
    assert table[0][0] == "q1"
    assert [line[0] for line in table[1:]] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert table[1][3:] == [""] * 5
    assert len(rows(clipboard_text(screen, state, "cell")[0])[1]) == 2


def test_numbers_of_heads_are_copied_from_all_heads(recording: Recording) -> None:
    screen = screen_of(recording)
    while (group := screen.session.ranking.next_unnamed_call()) is not None:
        screen.session.ranking.name_patterns(group)
    table = rows(clipboard_text(screen, State(), "table")[0])
    assert table[0][:3] == ["head", "pattern", "entropy"]
    assert len(table) == 7
    assert float(table[2][2]) == pytest.approx(screen.session.ranking.number(1, "entropy"), rel=1e-5)


def test_what_terminals_would_cut_is_refused_with_what_writes_it() -> None:
    screen = screen_of(long_recording(4000))
    with pytest.raises(AttnvizError, match=r"this row has \d+ kB, and terminals copy at most 74 kB; .* -o numbers.csv"):
        clipboard_text(screen, after(screen, "enter", *["pagedown"] * 60), "row")


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
    screen = file_screen(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"))
    line, lacks = figure_command(screen, after(screen, *keys))
    assert line == f"attnviz show run.safetensors {words} -o figure.svg"
    assert lacks == ""


def test_line_has_the_filter_and_the_part_that_is_seen() -> None:
    screen = file_screen(wide_recording(2, 2, 300))
    state = filter_heads(screen, State(), "layer:1  -head:0")
    assert "--filter 'layer:1 -head:0'" in figure_command(screen, state)[0]
    line, _ = figure_command(screen, after(screen, "enter", "home", "plus", "plus", "plus"))
    assert "--queries 0:" in line
    assert "--keys 0:" in line


def test_what_the_line_does_not_draw_is_told() -> None:
    screen = file_screen(Recording(maps=(previous_maps(0), previous_maps(1)), model="a test"))
    assert "difference" in figure_command(screen, after(screen, "space", "right", "space", "d"))[1]
    assert "s saves the scores" in figure_command(screen, after(screen, "enter", "v"))[1]
    assert "what attends to this one" in figure_command(screen, after(screen, "a", "r"))[1]


@pytest.mark.slow
def test_every_line_is_a_command_that_draws(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    recording = Recording(maps=(previous_maps(0), previous_maps(1)), model="a test")
    save(recording, tmp_path / "run.safetensors")
    monkeypatch.chdir(tmp_path)
    screen = file_screen(recording)
    for keys, _ in KEYS:
        line, _ = figure_command(screen, after(screen, *keys))
        assert main([*shlex.split(line)[1:], "--force"]) == 0
        assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_units_that_tokens_are_joined_to_are_those_of_the_line() -> None:
    maps = random_maps(tokenize("One two. Three four?"), heads=1)
    recording = Recording(maps=(maps,), model="a model")
    screen = file_screen(recording, unit_name="sentences", begins_joined=True)
    state = first_state(screen)
    assert [units.labels for units in screen.session.units(0, state.view)] == [("One two.", "Three four?")] * 2
    assert "--by sentences" in figure_command(screen, state)[0]
    assert "--by" not in figure_command(screen, press(screen, press(screen, state, "enter"), "w"))[0]
