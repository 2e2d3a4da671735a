import pytest

from attnviz.base.errors import AttnvizError
from attnviz.browse.copying import clipboard_text
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.keys import press
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.maps.recording import Recording
from tests.browse.examples import long_recording
from tests.conftest import dense_maps


def screen_of(recording: Recording) -> Screen:
    return Screen(Session(recording), Size(120, 40), 2**24)


def after(screen: Screen, *keys: str) -> State:
    state = State()
    for key in keys:
        state = press(screen, state, key)
    return state


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.split("\n")]


def test_cell_and_row_have_weights_and_scores(recording: Recording) -> None:
    screen = screen_of(recording)
    state = after(screen, "enter", "down", "right", "right")
    maps = dense_maps(0)
    assert rows(clipboard_text(screen, state, "c")[0])[1] == [
        *("0.0", "1", "q1", "2", "k2"),
        *(f"{maps.weights[0, 1, 2]:.6g}", f"{maps.scores[0, 1, 2]:.6g}"),
    ]
    row = rows(clipboard_text(screen, state, "r")[0])
    assert len(row) == 1 + 7
    assert [float(line[5]) for line in row[1:]] == sorted((float(line[5]) for line in row[1:]), reverse=True)


def test_table_is_what_is_seen_queries_down(recording: Recording) -> None:
    screen = screen_of(recording)
    table = rows(clipboard_text(screen, after(screen, "enter"), "t")[0])
    assert table[0] == ["head 0.0", *(f"k{key}" for key in range(7))]
    assert table[4][0] == "q3"
    assert float(table[4][6]) == pytest.approx(dense_maps(0).weights[0, 3, 5], rel=1e-5)


def test_lens_is_copied_heads_down_and_masked_cells_are_empty(causal_recording: Recording) -> None:
    screen = screen_of(causal_recording)
    state = after(screen, "enter", "down", "a")
    while screen.session.token_rows.compute(list(range(6)), state.view, state.token, state.direction):
        pass  # slice by slice, however long each takes
    table = rows(clipboard_text(screen, state, "t")[0])
    assert table[0][0] == "q1"
    assert [line[0] for line in table[1:]] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert table[1][3:] == [""] * 5
    assert len(rows(clipboard_text(screen, state, "c")[0])[1]) == 2


def test_numbers_of_heads_are_copied_from_all_heads(recording: Recording) -> None:
    screen = screen_of(recording)
    while (group := screen.session.ranking.next_unnamed_call()) is not None:
        screen.session.ranking.name_patterns(group)
    table = rows(clipboard_text(screen, State(), "t")[0])
    assert table[0][:3] == ["head", "pattern", "entropy"]
    assert len(table) == 7
    assert float(table[2][2]) == pytest.approx(screen.session.ranking.number(1, "entropy"), rel=1e-5)


def test_what_terminals_would_cut_is_refused_with_what_writes_it() -> None:
    screen = screen_of(long_recording(4000))
    with pytest.raises(AttnvizError, match=r"this row has \d+ kB, and terminals copy at most 74 kB; .* -o numbers.csv"):
        clipboard_text(screen, after(screen, "enter", *["pagedown"] * 60), "r")


def test_other_keys_copy_nothing(recording: Recording) -> None:
    assert clipboard_text(screen_of(recording), State(), "z")[0] == ""
